// SPDX-License-Identifier: Apache-2.0
// The transport of one rank gives back what it gets.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "comm/self/self.hpp"

namespace mp::test {
namespace {

TEST(SelfTransport, IsTheOnlyRank) {
    const auto transport = comm::make_self_transport();
    EXPECT_EQ(transport->rank(), 0);
    EXPECT_EQ(transport->size(), 1);
    EXPECT_TRUE(transport->barrier().ok());
}

TEST(SelfTransport, MovesBytesToTheirPlaces) {
    const auto transport = comm::make_self_transport();
    const std::array<unsigned char, 8> send = {1, 2, 3, 4, 5, 6, 7, 8};
    std::array<unsigned char, 8> receive{};
    const int64_t bytes = 3;
    const int64_t from = 2;
    const int64_t to = 4;
    ASSERT_TRUE(
        transport->all_to_all(send.data(), &bytes, &from, receive.data(), &bytes, &to).ok());
    EXPECT_EQ(receive, (std::array<unsigned char, 8>{0, 0, 0, 0, 3, 4, 5, 0}));
    ASSERT_TRUE(transport->all_gather(send.data(), bytes, receive.data(), &bytes, &to).ok());
    EXPECT_EQ(receive, (std::array<unsigned char, 8>{0, 0, 0, 0, 1, 2, 3, 0}));
    const int64_t none = 0;
    EXPECT_TRUE(transport->all_gather(nullptr, none, receive.data(), &none, &to).ok());
}

TEST(SelfTransport, RefusesWhatDoesNotFit) {
    const auto transport = comm::make_self_transport();
    std::array<unsigned char, 8> data{};
    const int64_t three = 3;
    const int64_t four = 4;
    const int64_t start = 0;
    EXPECT_EQ(transport->all_to_all(data.data(), &three, &start, data.data(), &four, &start).code(),
              Code::invalid_argument);
    EXPECT_EQ(transport->all_gather(data.data(), three, data.data(), &four, &start).code(),
              Code::invalid_argument);
    EXPECT_TRUE(transport->broadcast(data.data(), three, 0).ok());
    EXPECT_EQ(transport->broadcast(data.data(), three, 1).code(), Code::invalid_argument);
}

TEST(SelfTransport, LeavesMaximaAlone) {
    const auto transport = comm::make_self_transport();
    std::array<uint32_t, 3> values = {0, 7, UINT32_MAX};
    ASSERT_TRUE(transport->max_u32(values.data(), 3).ok());
    EXPECT_EQ(values, (std::array<uint32_t, 3>{0, 7, UINT32_MAX}));
}

} // namespace
} // namespace mp::test
