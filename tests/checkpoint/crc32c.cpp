// SPDX-License-Identifier: Apache-2.0
// CRC-32C against the vectors of RFC 3720 B.4, and the instruction against the table.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "system/crc32c.hpp"

using namespace mp::system;

namespace {
void expect_both(uint32_t wanted, const std::string& text) {
    EXPECT_EQ(crc32c(0, text.data(), text.size()), wanted);
    EXPECT_EQ(crc32c_by_table(0, text.data(), text.size()), wanted);
}
} // namespace

TEST(Crc32c, KnownVectors) {
    expect_both(0x00000000, "");
    expect_both(0xE3069283, "123456789"); // the check value of the polynomial's catalogue entry
    expect_both(0x8A9136AA, std::string(32, '\0'));
    expect_both(0x62A8AB43, std::string(32, '\xFF'));
    std::string rising(32, '\0');
    std::iota(rising.begin(), rising.end(), '\0');
    expect_both(0x46DD794E, rising);
    std::string falling(rising.rbegin(), rising.rend());
    expect_both(0x113FDB5C, falling);
}

TEST(Crc32c, InstructionEqualsTableInPiecesOfAnyLength) {
    std::mt19937_64 random(1);
    std::vector<unsigned char> bytes(4099);
    for (unsigned char& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    for (std::size_t begin = 0; begin < 9; ++begin) {
        for (std::size_t end = begin; end <= bytes.size(); end += 1 + random() % 61) {
            const uint32_t whole = crc32c_by_table(0, bytes.data() + begin, end - begin);
            EXPECT_EQ(crc32c(0, bytes.data() + begin, end - begin), whole);
            const std::size_t middle = begin + (end - begin) / 3;
            const uint32_t first = crc32c(0, bytes.data() + begin, middle - begin);
            EXPECT_EQ(crc32c(first, bytes.data() + middle, end - middle), whole);
        }
    }
}

// Long ones are summed in three runs at once.
TEST(Crc32c, LongRunsEqualTheTable) {
    std::mt19937_64 random(2);
    std::vector<unsigned char> bytes(150000);
    for (unsigned char& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    for (const std::size_t size : {24575, 24576, 24577, 24583, 49151, 49152, 73729, 149999}) {
        for (const std::size_t begin : {0, 1}) {
            const uint32_t first = crc32c_by_table(0, bytes.data(), begin);
            EXPECT_EQ(crc32c(first, bytes.data() + begin, size),
                      crc32c_by_table(first, bytes.data() + begin, size))
                << size;
        }
    }
}
