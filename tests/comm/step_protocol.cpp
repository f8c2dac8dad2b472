// SPDX-License-Identifier: Apache-2.0
// The protocol of a step on ranks (core/optim/optimizer_ranks.cpp), searched through: every order in which three ranks can
// move through four steps, any of them with a gradient that is not finite, one of them lost at any point. A twin
// in which each rank decides for itself shows that the search sees violations.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <unordered_set>
#include <vector>

namespace {

constexpr int kRanks = 3;
constexpr int kSteps = 4;

enum Phase : uint8_t {
    kBackward,   // makes gradients, finite or not
    kReducing,   // its gradients are sent
    kReduced,    // has the sums
    kVoting,     // its vote is sent
    kDecided,    // knows all votes
    kPublishing, // has applied or skipped; its weights are sent
};
enum Fate : uint8_t { kAlive, kLost, kToldOfLoss };

struct Rank {
    uint8_t phase = kBackward;
    uint8_t step = 0; // being done
    uint8_t fate = kAlive;
    uint8_t raised = 0;  // bit k: its gradients of step k were not finite
    uint8_t applied = 0; // bit k: it applied step k
    uint8_t skipped = 0;
    bool operator==(const Rank&) const = default;

    [[nodiscard]] int committed() const {
        return std::popcount(static_cast<unsigned>(applied)) +
               std::popcount(static_cast<unsigned>(skipped));
    }
    // Whether it has come to a phase of a step.
    [[nodiscard]] bool has_reached(int of_step, Phase of_phase) const {
        return step > of_step || (step == of_step && phase >= of_phase);
    }
};
using World = std::array<Rank, kRanks>;

struct Hash {
    std::size_t operator()(const World& world) const {
        uint64_t hash = 0xcbf29ce484222325U;
        for (const Rank& r : world) {
            for (const uint8_t byte : {r.phase, r.step, r.fate, r.raised, r.applied, r.skipped}) {
                hash = (hash ^ byte) * 0x100000001b3U;
            }
        }
        return hash;
    }
};

class Search {
  public:
    explicit Search(bool each_decides_alone) : each_decides_alone_(each_decides_alone) {}

    void run() {
        add(World{});
        while (!open_.empty()) {
            const World world = open_.back();
            open_.pop_back();
            expand(world);
        }
    }
    [[nodiscard]] std::size_t states() const { return seen_.size(); }
    [[nodiscard]] int64_t violations() const { return violations_; }

  private:
    void add(const World& world) {
        if (seen_.insert(world).second) {
            violations_ += holds(world) ? 0 : 1;
            open_.push_back(world);
        }
    }

    void expand(const World& world) {
        bool has_lost = false;
        for (const Rank& rank : world) {
            has_lost = has_lost || rank.fate == kLost;
        }
        for (std::size_t i = 0; i < world.size(); ++i) {
            if (world[i].fate != kAlive || world[i].step == kSteps) {
                continue;
            }
            if (!has_lost) {
                World next = world;
                next[i].fate = kLost;
                add(next);
            }
            move(world, i);
        }
    }

    void move(const World& world, std::size_t i) {
        World next = world;
        Rank& rank = next[i];
        const auto bit = static_cast<uint8_t>(1U << rank.step);
        switch (rank.phase) {
        case kBackward:
            rank.phase = kReducing;
            add(next);
            rank.raised |= bit;
            add(next);
            break;
        case kReducing:
        case kVoting:
            collective(world, i, static_cast<Phase>(rank.phase));
            break;
        case kReduced:
            rank.phase = kVoting;
            add(next);
            break;
        case kDecided:
            rank.phase = kPublishing;
            (decides_to_skip(world, i) ? rank.skipped : rank.applied) |= bit;
            add(next);
            break;
        default:
            collective(world, i, kPublishing);
        }
    }

    // Ends when every rank has sent its part; fails when one is lost that has not.
    void collective(const World& world, std::size_t i, Phase phase) {
        World next = world;
        Rank& rank = next[i];
        bool all = true;
        bool one_is_lost = false;
        for (const Rank& other : world) {
            const bool has_sent = other.has_reached(rank.step, phase);
            all = all && has_sent;
            one_is_lost = one_is_lost || (!has_sent && other.fate != kAlive);
        }
        if (one_is_lost) {
            rank.fate = kToldOfLoss;
        } else if (!all) {
            return;
        } else if (phase == kPublishing) {
            rank.phase = kBackward;
            ++rank.step;
        } else {
            rank.phase = static_cast<uint8_t>(phase + 1);
        }
        add(next);
    }

    [[nodiscard]] bool decides_to_skip(const World& world, std::size_t i) const {
        uint8_t raised = world[i].raised;
        for (const Rank& other : world) {
            raised |= each_decides_alone_ ? uint8_t{0} : other.raised;
        }
        return (raised >> world[i].step & 1U) != 0;
    }

    // Ranks agree on what they have committed; nobody applied what anybody raised; nobody is more than a step ahead; a rank
    // that was lost before its vote left no trace.
    static bool holds(const World& world) {
        for (const Rank& a : world) {
            if (a.committed() != a.step + (a.phase == kPublishing ? 1 : 0) ||
                (a.applied & a.skipped) != 0) {
                return false;
            }
            for (const Rank& b : world) {
                const auto common =
                    static_cast<uint8_t>((a.applied | a.skipped) & (b.applied | b.skipped));
                const bool agrees = (a.applied & common) == (b.applied & common);
                const bool is_near = a.committed() - b.committed() <= 1;
                const bool is_clean = (a.applied & b.raised) == 0;
                const bool left_no_trace =
                    b.fate != kLost || b.has_reached(b.step, kVoting) || a.committed() <= b.step;
                if (!agrees || !is_near || !is_clean || !left_no_trace) {
                    return false;
                }
            }
        }
        return true;
    }

    bool each_decides_alone_;
    std::unordered_set<World, Hash> seen_;
    std::vector<World> open_;
    int64_t violations_ = 0;
};

TEST(StepProtocol, HoldsInEveryState) {
    Search search(false);
    search.run();
    RecordProperty("states", static_cast<int>(search.states()));
    std::printf("%zu states, %lld violations\n", search.states(),
                static_cast<long long>(search.violations()));
    EXPECT_EQ(search.violations(), 0);
    EXPECT_GT(search.states(), 10000U);
}

TEST(StepProtocol, RanksThatDecideAloneBreakIt) {
    Search search(true);
    search.run();
    std::printf("%zu states, %lld violations\n", search.states(),
                static_cast<long long>(search.violations()));
    EXPECT_GT(search.violations(), 1000);
}

} // namespace
