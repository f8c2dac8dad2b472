// SPDX-License-Identifier: Apache-2.0
// content_hash on every backend: the sum that its words define, however the bytes lie and are cut.
#include <algorithm>

#include "harness.hpp"

namespace mp::test {
namespace {

// Written a second time: splitmix64's output function on words put together from bytes.
uint64_t expected_hash(const std::vector<unsigned char>& bytes, uint64_t first_word) {
    uint64_t sum = 0;
    for (std::size_t begin = 0; begin < bytes.size(); begin += 8) {
        uint64_t z = 0;
        for (std::size_t k = std::min(begin + 8, bytes.size()); k > begin; --k) {
            z = z << 8 | bytes[k - 1];
        }
        z += (first_word + begin / 8 + 1) * 0x9E3779B97F4A7C15ULL;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
        sum += z ^ z >> 31;
    }
    return sum;
}

std::vector<unsigned char> bytes_of_length(std::size_t count) {
    std::vector<unsigned char> bytes(count);
    uint32_t state = 7;
    for (unsigned char& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<unsigned char>(state >> 24);
    }
    return bytes;
}

class ContentHash : public BackendTest {
  protected:
    // Behind so many other bytes.
    uint64_t hash(const Candidate& candidate, const std::vector<unsigned char>& bytes,
                  std::size_t behind, uint64_t first_word, uint64_t before) {
        const DeviceBytes there(device(), bytes.data(), bytes.size(), behind);
        DeviceValue<uint64_t> result(device(), before);
        ContentHashDesc op{};
        op.kind = OpKind::content_hash;
        op.data = there.data();
        op.bytes = static_cast<int64_t>(bytes.size());
        op.first_word = first_word;
        op.result = result.data();
        EXPECT_TRUE(supports(device(), candidate, op));
        run(device(), candidate, op);
        return result.download();
    }
};

TEST_P(ContentHash, IsTheSumOfItsMixedWords) {
    // The generator's first numbers from a state of 0 (its published test vector), which are those of words of zeros.
    EXPECT_EQ(expected_hash(std::vector<unsigned char>(8), 0), 0xE220A8397B1DCDAFULL);
    EXPECT_EQ(expected_hash(std::vector<unsigned char>(8), 1), 0x6E789E6AA1B965F4ULL);
    for_each_candidate(device(), OpKind::content_hash, [&](const Candidate& candidate) {
        for (const std::size_t count :
             {0, 1, 7, 8, 9, 63, 64, 511, 512, 513, 65536, 65543, 300001}) {
            const std::vector<unsigned char> bytes = bytes_of_length(count);
            for (const std::size_t behind : {0, 1, 2, 4, 8}) {
                EXPECT_EQ(hash(candidate, bytes, behind, 0, 0), expected_hash(bytes, 0))
                    << count << " bytes behind " << behind;
            }
            EXPECT_EQ(hash(candidate, bytes, 0, 12345, 99), expected_hash(bytes, 12345) + 99);
        }
        return true;
    });
}

// Any bit changes it, and so does another order of equal words.
TEST_P(ContentHash, ChangesWithEveryBitAndPlace) {
    for_each_candidate(device(), OpKind::content_hash, [&](const Candidate& candidate) {
        std::vector<unsigned char> bytes = bytes_of_length(77);
        const uint64_t before = hash(candidate, bytes, 0, 0, 0);
        for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
            bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
            EXPECT_NE(hash(candidate, bytes, 0, 0, 0), before) << bit;
            bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
        }
        std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 8);
        EXPECT_NE(hash(candidate, bytes, 0, 0, 0), before);
        return true;
    });
}

MP_ALL_BACKENDS(ContentHash);

} // namespace
} // namespace mp::test
