// SPDX-License-Identifier: Apache-2.0
// Philox known answers, and the stream of rounding bits: against a plain Python implementation
// (fixture) and independent of how the elements are grouped.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "fixture.hpp"
#include "numerics/philox.hpp"

namespace mp::test {
namespace {

using namespace mp::numerics;

void expect_philox(const Philox4x32& ctr, const PhiloxKey& key, const Philox4x32& answer) {
    const Philox4x32 got = philox4x32_10(ctr, key);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(got.v[i], answer.v[i]) << i;
    }
}

// Published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
    expect_philox({{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
    const uint32_t ones = 0xffffffff;
    expect_philox({{ones, ones, ones, ones}}, {{ones, ones}},
                  {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
    expect_philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}},
                  {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(Philox, RunsAtCompileTime) {
    static_assert(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}).v[3] == 0x9b00dbd8);
    static_assert(sr_bits16_at(make_sr_key(0, 0, 0), Purpose::param, 0) < 65536);
}

// First outputs of the generator started at 0 and at 1234567 (Vigna's splitmix64.c).
TEST(SplitMix, KnownAnswers) {
    EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
    EXPECT_EQ(splitmix64(1234567), 6457827717110365317u);
    EXPECT_EQ(hash32(0), 0xe220a839u);
}

TEST(SrStream, EqualsThePythonImplementation) {
    std::ifstream file(fixture_path("sr_stream.txt"));
    ASSERT_TRUE(file) << fixture_path("sr_stream.txt");
    std::string line;
    int lines = 0;
    while (std::getline(file, line)) {
        if (line.empty() || line[0] == '#') {
            continue;
        }
        std::istringstream in(line);
        uint64_t seed = 0, uid = 0, step = 0, element = 0;
        uint32_t purpose = 0, bits16 = 0, bits32 = 0;
        ASSERT_TRUE(in >> seed >> uid >> step >> purpose >> element >> bits16 >> bits32) << line;
        const SrKey key = make_sr_key(seed, uid, step);
        EXPECT_EQ(sr_bits16_at(key, static_cast<Purpose>(purpose), element), bits16) << line;
        EXPECT_EQ(sr_bits32_at(key, static_cast<Purpose>(purpose), element), bits32) << line;
        ++lines;
    }
    EXPECT_EQ(lines, 192);
}

// What a worker does that owns elements [first, last): whole blocks, of which it uses its part.
std::vector<uint32_t> worker_bits(const SrKey& key, uint64_t first, uint64_t last) {
    std::vector<uint32_t> bits;
    for (uint64_t block = first / 8; block * 8 < last; ++block) {
        const Philox4x32 high = sr_block(key, Purpose::state1, block);
        const Philox4x32 low = sr_block_low(key, Purpose::state1, block);
        for (uint32_t lane = 0; lane < 8; ++lane) {
            const uint64_t element = block * 8 + lane;
            if (element >= first && element < last) {
                bits.push_back(sr_bits32(high, low, lane));
            }
        }
    }
    return bits;
}

TEST(SrStream, DoesNotDependOnGrouping) {
    const SrKey key = make_sr_key(42, 7, 1000);
    const uint64_t count = 1003;
    // Also around element 2^35, where the block number leaves 32 bits.
    for (const uint64_t base : {uint64_t{0}, (uint64_t{1} << 35) - 500}) {
        const std::vector<uint32_t> whole = worker_bits(key, base, base + count);
        for (const uint64_t workers : {2u, 3u, 7u, 8u, 64u}) {
            std::vector<uint32_t> joined;
            for (uint64_t w = 0; w < workers; ++w) {
                const std::vector<uint32_t> part =
                    worker_bits(key, base + count * w / workers, base + count * (w + 1) / workers);
                joined.insert(joined.end(), part.begin(), part.end());
            }
            EXPECT_EQ(joined, whole) << workers << " workers";
        }
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t element = base + i * 577 % count; // any order
            const uint32_t bits = whole[element - base];
            ASSERT_EQ(sr_bits32_at(key, Purpose::state1, element), bits);
            ASSERT_EQ(sr_bits16_at(key, Purpose::state1, element), bits >> 16);
        }
    }
}

TEST(SrStream, EveryPartOfTheAddressMatters) {
    std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> blocks;
    int asked = 0;
    const auto add = [&](uint64_t seed, uint64_t uid, uint64_t step, Purpose p, uint64_t block) {
        for (const Philox4x32& b : {sr_block(make_sr_key(seed, uid, step), p, block),
                                    sr_block_low(make_sr_key(seed, uid, step), p, block)}) {
            blocks.insert({b.v[0], b.v[1], b.v[2], b.v[3]});
            ++asked;
        }
    };
    add(0, 0, 0, Purpose::param, 0);
    for (int bit = 0; bit < 64; ++bit) {
        const uint64_t one = uint64_t{1} << bit;
        add(one, 0, 0, Purpose::param, 0);
        add(0, one, 0, Purpose::param, 0);
        add(0, 0, one, Purpose::param, 0);
        if (bit < 56) {
            add(0, 0, 0, Purpose::param, one);
        }
    }
    for (uint32_t purpose = 1; purpose <= 9; ++purpose) {
        add(0, 0, 0, static_cast<Purpose>(purpose), 0);
    }
    EXPECT_EQ(static_cast<int>(blocks.size()), asked);
}

TEST(SrStream, PurposeNumbersAreFrozen) {
    EXPECT_EQ(static_cast<uint32_t>(Purpose::param), 0u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::state0), 1u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::state1), 2u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::compensation), 3u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::comm), 4u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::init), 5u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::cast), 6u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::state2), 7u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::state3), 8u);
    EXPECT_EQ(static_cast<uint32_t>(Purpose::dropout), 9u);
}

} // namespace
} // namespace mp::test
