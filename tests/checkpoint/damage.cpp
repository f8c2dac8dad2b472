// SPDX-License-Identifier: Apache-2.0
// Damage of a committed checkpoint: every single bit of a small one, a cut at every byte, files exchanged.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "checkpoint/example_state.hpp"
#include "checkpoint/simulated_files.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr int64_t kCount = 300;

// More of them by MP_DAMAGE_ELEMENTS, for every bit of a larger checkpoint.
int64_t element_count() {
    const char* asked = std::getenv("MP_DAMAGE_ELEMENTS");
    return asked == nullptr ? kCount : std::strtoll(asked, nullptr, 10) / 4 * 4;
}

std::string save(SimulatedFiles& files, int32_t size, uint32_t version, int64_t count = kCount) {
    std::string path;
    run_ranks(size, [&](Ranks& ranks) {
        ExampleState state(ranks.rank(), size, count, version);
        const std::string made =
            save_checkpoint(ranks, files, state.catalog(), save_options("/c", version, 512));
        if (ranks.rank() == 0) {
            path = made;
        }
    });
    return path;
}

// True where the load failed with a status and words, and left the state as it was.
bool is_refused(SimulatedFiles& files, const std::string& path, int64_t count = kCount) {
    Meeting meeting(1);
    ThreadRanks ranks(meeting, 0);
    ExampleState state(0, 1, count, 0);
    LoadOptions options = load_options(path);
    options.verify_all = true;
    try {
        const Loaded loaded = load_checkpoint(ranks, files, state.catalog(), options);
        loaded.commit(state.catalog());
    } catch (const Error& error) {
        return error.status().text()[0] != '\0' && state.is(0) && files.open_handles() == 0;
    }
    return false;
}

std::vector<std::string> file_names(SimulatedFiles& files, const std::string& path) {
    std::vector<std::string> names;
    check(files.list(path.c_str(), &names));
    for (std::string& name : names) {
        name = path + "/" + name;
    }
    return names;
}

} // namespace

TEST(Damage, EveryBit) {
    SimulatedFiles files;
    const int64_t count = element_count();
    const std::string path = save(files, 2, 1, count);
    int64_t flips = 0;
    for (const std::string& name : file_names(files, path)) {
        std::string& content = *files.content(name);
        for (std::size_t bit = 0; bit < content.size() * 8; ++bit, ++flips) {
            const auto flip = static_cast<char>(1 << (bit % 8));
            content[bit / 8] = static_cast<char>(content[bit / 8] ^ flip);
            ASSERT_TRUE(is_refused(files, path, count)) << name << " bit " << bit;
            content[bit / 8] = static_cast<char>(content[bit / 8] ^ flip);
        }
    }
    EXPECT_FALSE(is_refused(files, path, count));
    std::printf("%lld single bits flipped, all found\n", static_cast<long long>(flips));
}

TEST(Damage, CutOrGrownAtEveryByte) {
    SimulatedFiles files;
    const std::string path = save(files, 2, 1);
    int64_t cuts = 0;
    for (const std::string& name : file_names(files, path)) {
        const std::string whole = *files.content(name);
        for (std::size_t length = 0; length < whole.size(); ++length, ++cuts) {
            *files.content(name) = whole.substr(0, length);
            ASSERT_TRUE(is_refused(files, path)) << name << " cut at " << length;
        }
        for (const char* more : {"\0", " ", "}"}) {
            *files.content(name) = whole + *more;
            ASSERT_TRUE(is_refused(files, path)) << name << " grown";
        }
        *files.content(name) = whole;
    }
    EXPECT_FALSE(is_refused(files, path));
    std::printf("%lld cuts, all found\n", static_cast<long long>(cuts));
}

TEST(Damage, FilesOfAnotherCheckpointOrRank) {
    SimulatedFiles files;
    const std::string one = save(files, 2, 1);
    const std::string other = save(files, 2, 1); // the same contents under another id
    const std::string shard = "/shard-0-of-2.safetensors";
    std::swap(*files.content(one + shard), *files.content(other + shard));
    EXPECT_TRUE(is_refused(files, one));
    std::swap(*files.content(one + shard), *files.content(other + shard));
    EXPECT_FALSE(is_refused(files, one));
    std::swap(*files.content(one + shard), *files.content(one + "/shard-1-of-2.safetensors"));
    EXPECT_TRUE(is_refused(files, one));
}

TEST(Damage, ADamagedNewestManifestIsPassedOverWithWords) {
    SimulatedFiles files;
    (void)save(files, 1, 1);
    const std::string newest = save(files, 1, 2);
    (*files.content(newest + "/manifest.json"))[40] ^= 1;
    Meeting meeting(1);
    ThreadRanks ranks(meeting, 0);
    ExampleState state(0, 1, kCount, 0);
    const Loaded loaded = load_checkpoint(ranks, files, state.catalog(), load_options("/c"));
    loaded.commit(state.catalog());
    EXPECT_TRUE(state.is(1));
    EXPECT_NE(loaded.skipped().find("its checksum does not fit"), std::string::npos);
}

// A scale that no quantizer makes of numbers is not saved, and not loaded, though all checksums are right.
TEST(Damage, ScalesThatCannotBe) {
    const uint32_t power_bad[] = {0x7FC00000, 0x7F800000, 0,          0x80000000,
                                  0xBF800000, 1,          0x00400000, 0x3FC00000};
    const uint32_t scale_bad[] = {0x7FC00000, 0x7F800000, 0xFF800000, 0xBF800000};
    const auto try_scale = [](std::size_t entry, uint32_t bits) {
        SimulatedFiles files;
        Meeting meeting(1);
        ThreadRanks ranks(meeting, 0);
        ExampleState state(0, 1, kCount, 1);
        Entry& scale = state.catalog().entries[entry];
        std::memcpy(scale.slices[0].data, &bits, sizeof bits);
        bool is_saved = true;
        try {
            (void)save_checkpoint(ranks, files, state.catalog(), save_options("/c", 1));
        } catch (const Error& error) {
            is_saved = false;
            EXPECT_EQ(error.status().code(), Code::bad_state);
            scale.rule = ValueRule::any; // as somebody else may write it
            (void)save_checkpoint(ranks, files, state.catalog(), save_options("/c", 1));
        }
        EXPECT_NE(is_refused(files, "/c"), is_saved);
        return !is_saved;
    };
    for (const uint32_t bits : power_bad) {
        EXPECT_TRUE(try_scale(5, bits)) << std::hex << bits;
    }
    for (const uint32_t bits : scale_bad) {
        EXPECT_TRUE(try_scale(3, bits)) << std::hex << bits;
    }
    EXPECT_FALSE(try_scale(5, 0x3F800000));
    EXPECT_FALSE(try_scale(3, 0));
}
