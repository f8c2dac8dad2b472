// SPDX-License-Identifier: Apache-2.0
// Saved on N ranks, loaded on M: the next five steps have the bits of a run that did not stop, in every family of recipes
// and every stage. Among the tests a few pairs a family; MP_RESHARD_FULL=1: all pairs of 1 to 8 ranks, with a count.
#include "checkpoint/reshard.hpp"

#include <cstdio>
#include <cstdlib>

namespace mp::test {
namespace {

constexpr int32_t kMostRanks = 8;

bool is_full() {
    const char* asked = std::getenv("MP_RESHARD_FULL");
    return asked != nullptr && asked[0] == '1';
}

// Which ranks load what `ranks` have saved in this stage. Not full: of every family and stage one pair, so that all families
// together have every number on either side.
std::vector<int32_t> loaders(std::size_t family, int32_t stage, int32_t ranks) {
    std::vector<int32_t> chosen;
    const auto turn = static_cast<int32_t>(family) * 4 + stage;
    for (int32_t m = 1; m <= kMostRanks; ++m) {
        if (is_full() || (ranks == turn % kMostRanks + 1 && m == turn * 3 % kMostRanks + 1)) {
            chosen.push_back(m);
        }
    }
    return chosen;
}

// With the tree's order a family has one series of bits, whatever the ranks and stages.
TEST(Reshard, SavedOnSomeRanksGoesOnOnOthers) {
    int64_t pairs = 0;
    const std::vector<Family> all = families();
    for (std::size_t f = 0; f < all.size(); ++f) {
        Training run = all[f].run;
        run.sharding.stage = 1;
        const std::vector<Outcome> expected = straight(1, run);
        for (int32_t stage = all[f].first_stage; stage <= 3; ++stage) {
            for (int32_t n = 1; n <= kMostRanks; ++n) {
                const std::vector<int32_t> loading = loaders(f, stage, n);
                if (loading.empty()) {
                    continue;
                }
                SimulatedFiles files;
                run.sharding.stage = stage;
                save_on(n, run, files);
                for (const int32_t m : loading) {
                    SCOPED_TRACE(std::string(all[f].name) + ", stage " + std::to_string(stage) +
                                 ", " + std::to_string(n) + " to " + std::to_string(m) + " ranks");
                    run.sharding.stage = (n + m) % 2 == 0 ? stage : stage % 3 + 1;
                    expect_goes_on(m, run, files, expected);
                    ++pairs;
                }
            }
        }
        if (is_full()) {
            std::printf("%s: %lld pairs so far\n", all[f].name, static_cast<long long>(pairs));
            std::fflush(stdout);
        }
    }
    std::printf("%zu families, %lld pairs of ranks\n", all.size(), static_cast<long long>(pairs));
}

// In the order of ranks the bits belong to a number of ranks, and stay when that is kept.
TEST(Reshard, InTheOrderOfRanksTheSameNumberGoesOn) {
    int64_t runs = 0;
    const std::vector<Family> all = families();
    for (std::size_t f = 0; f < all.size(); ++f) {
        for (int32_t n = 1; n <= kMostRanks; ++n) {
            if (!is_full() && n != static_cast<int32_t>(f) % kMostRanks + 1) {
                continue;
            }
            SCOPED_TRACE(std::string(all[f].name) + ", " + std::to_string(n) + " ranks");
            Training run = all[f].run;
            run.sharding.order = comm::SumOrder::rank;
            run.slots = run.sharding.slots = 0;
            for (int32_t stage = all[f].first_stage; stage <= (is_full() ? 3 : 1);
                 ++stage, ++runs) {
                run.sharding.stage = stage;
                SimulatedFiles files;
                save_on(n, run, files);
                expect_goes_on(n, run, files, straight(n, run));
            }
        }
    }
    std::printf("%lld runs\n", static_cast<long long>(runs));
}

} // namespace
} // namespace mp::test
