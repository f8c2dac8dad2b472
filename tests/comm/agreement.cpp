// SPDX-License-Identifier: Apache-2.0
// The agreement: every rank reads the same answer, disagreement is named, and one rank's trouble stops all.
#include "comm/agreement.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "core/core_context.hpp"
#include "numerics/bits.hpp"
#include "ranks.hpp"

namespace mp::test {
namespace {

TEST(Agreement, TakesMaximaAndKeepsWhatIsNotFinite) {
    run_ranks(4, [](Communicator& comm) {
        comm::Agreement agreement;
        agreement.must_equal("step", 17);
        agreement.must_equal("plan", 0xfedcba9876543210U);
        const uint32_t flag = comm.rank() == 2 ? 1 : 0;
        const float amax = comm.rank() == 1   ? numerics::float_from_bits(numerics::kFloatQuietNan)
                           : comm.rank() == 3 ? numerics::float_from_bits(numerics::kFloatInfinity)
                                              : 3.5F;
        const std::array words = {flag, numerics::bits_from_float(amax)};
        const std::size_t place = agreement.add_maxima(words);
        ASSERT_TRUE(agreement.reach(comm).ok());
        EXPECT_EQ(agreement.maximum(place), 1U);
        EXPECT_EQ(agreement.maximum(place + 1), numerics::kFloatQuietNan);
    });
}

TEST(Agreement, NamesWhatDiffersAndWhere) {
    // Each single bit, so that no pair of words hides a difference.
    for (int32_t bit = 0; bit < 64; bit += 9) {
        run_ranks(4, [bit](Communicator& comm) {
            comm::Agreement agreement;
            agreement.must_equal("world", 4);
            agreement.must_equal("the loss scale", comm.rank() == 2 ? uint64_t{1} << bit : 0);
            const Status status = agreement.reach(comm);
            EXPECT_EQ(status.code(), Code::rank_mismatch);
            const std::string text = status.text();
            EXPECT_NE(text.find("the loss scale: rank(s) 0, 1, 3 "), std::string::npos) << text;
            EXPECT_NE(text.find("rank(s) 2 do not"), std::string::npos) << text;
            EXPECT_TRUE(comm.run(comm::Barrier{}).ok())
                << "a disagreement must leave the ranks together";
        });
    }
}

TEST(Agreement, OneRanksTroubleStopsAll) {
    run_ranks(3, [](Communicator& comm) {
        comm::Agreement agreement;
        agreement.must_equal("step", 1);
        if (comm.rank() != 0) {
            agreement.decline(Status::error(Code::out_of_memory, "no memory here"));
            agreement.decline(Status::error(Code::internal, "the first reason counts"));
        }
        const Status status = agreement.reach(comm);
        if (comm.rank() != 0) {
            EXPECT_EQ(status.code(), Code::out_of_memory);
        } else {
            EXPECT_EQ(status.code(), Code::peer_error);
            EXPECT_NE(std::string(status.text()).find("rank 1 "), std::string::npos)
                << status.text();
        }
    });
}

TEST(Agreement, AloneItIsTheOwnAnswer) {
    run_ranks(1, [](Communicator& comm) {
        comm::Agreement agreement;
        const std::size_t place = agreement.add_maxima(std::array{5U});
        EXPECT_TRUE(agreement.reach(comm).ok());
        EXPECT_EQ(agreement.maximum(place), 5U);
    });
}

// Memory of a device that does not order messages goes by way of the host.
TEST(Agreement, TakesValuesOfTheDevice) {
    for (const bool differs : {false, true}) {
        run_ranks(3, [differs](Communicator& comm) {
            const auto context = make_context();
            const auto mine = static_cast<uint32_t>(comm.rank());
            std::array<uint32_t, 2> hidden = {mine, 7};
            std::array<uint32_t, 2> asked = {5 - mine, mine};
            const uint64_t value = differs && mine == 1 ? 4 : 3;
            comm::Agreement agreement(context->stream());
            (void)agreement.add_maxima_of_device(hidden.data(), 2);
            const std::size_t place = agreement.add_maxima_of_device(asked.data(), 2, true);
            agreement.must_equal_on_device("nothing", nullptr, 4);
            agreement.must_equal_on_device("the weights", &value, sizeof value);
            const Status status = agreement.reach(comm);
            EXPECT_EQ(status.code(), differs ? Code::rank_mismatch : Code::ok);
            if (differs) {
                EXPECT_NE(std::string(status.text()).find("the weights: rank(s) 0, 2 have 3, "),
                          std::string::npos)
                    << status.text();
                return;
            }
            EXPECT_EQ(hidden, (std::array<uint32_t, 2>{2, 7}));
            EXPECT_EQ(asked, (std::array<uint32_t, 2>{5, 2}));
            EXPECT_EQ(agreement.maximum(place), 5U);
            EXPECT_EQ(agreement.maximum(place + 1), 2U);
        });
    }
}

} // namespace
} // namespace mp::test
