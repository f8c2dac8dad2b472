// SPDX-License-Identifier: Apache-2.0
// The transport of one rank gives back what it gets.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "collectives.hpp"
#include "comm/self/self.hpp"

namespace mp::test {
namespace {

TEST(SelfTransport, DoesWhatEveryTransportDoes) {
    Communicator comm(comm::make_self_transport());
    EXPECT_EQ(comm.rank(), 0);
    EXPECT_EQ(comm.size(), 1);
    EXPECT_EQ(check_basics(comm), "");
    EXPECT_EQ(check_split(comm), "");
    EXPECT_EQ(comm.traffic().total_bytes(), 0);
}

TEST(SelfTransport, RefusesWhatDoesNotFit) {
    Communicator comm(comm::make_self_transport());
    std::array<unsigned char, 8> data{};
    const int64_t three = 3;
    const int64_t four = 4;
    const int64_t start = 0;
    EXPECT_EQ(
        comm.run(comm::AllToAll{data.data(), &three, &start, data.data(), &four, &start}).code(),
        Code::invalid_argument);
    EXPECT_EQ(comm.run(comm::AllGather{data.data(), three, data.data(), &four, &start}).code(),
              Code::invalid_argument);
    EXPECT_EQ(comm.run(comm::Broadcast{data.data(), three, 1}).code(), Code::invalid_argument);
    EXPECT_TRUE(comm.run(comm::Broadcast{data.data(), three, 0}).ok()) << "a mistake is no failure";
}

} // namespace
} // namespace mp::test
