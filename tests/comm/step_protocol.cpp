// SPDX-License-Identifier: Apache-2.0
// The protocol of a step on ranks (core/optim/step.cpp), searched through: every order in which three ranks can
// move through four steps, any of them with a gradient that is not finite, one of them lost at any point; and four ranks in
// two groups with a copy each, whose sums meet between the groups, in two steps. Twins in which each rank, or each group,
// decides for itself show that the search sees violations.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <unordered_set>
#include <vector>

#include "hash.hpp"

namespace {

constexpr int kMostRanks = 4;

enum class Agreements { of_all, of_group, of_nobody };

struct Layout {
    int ranks;
    int group_ranks; // consecutive ones; replicas have the same place in their groups
    int steps;
    Agreements agreements = Agreements::of_all;
};

enum Phase : uint8_t {
    kBackward,   // makes gradients, finite or not
    kReducing,   // its gradients are sent, to its group
    kAdding,     // and its group's sums to its replicas, where there are any
    kReduced,    // has the sums
    kAgreeing,   // its agreement is sent
    kDecided,    // knows all agreements
    kPublishing, // has applied or skipped; its weights are sent, to its group
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
using World = std::array<Rank, kMostRanks>; // those that do not exist stay as they are

struct Hash {
    std::size_t operator()(const World& world) const {
        mp::test::Fnv1a hash;
        for (const Rank& r : world) {
            for (const uint8_t byte : {r.phase, r.step, r.fate, r.raised, r.applied, r.skipped}) {
                hash.add(byte);
            }
        }
        return hash.value();
    }
};

class Search {
  public:
    explicit Search(const Layout& layout) : layout_(layout) {}

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
        for (std::size_t i = 0; i < ranks(); ++i) {
            if (world[i].fate != kAlive || world[i].step == layout_.steps) {
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
        case kAdding:
        case kAgreeing:
            collective(world, i, static_cast<Phase>(rank.phase));
            break;
        case kReduced:
            rank.phase = kAgreeing;
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

    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(layout_.ranks); }
    [[nodiscard]] bool has_groups() const { return layout_.group_ranks < layout_.ranks; }
    [[nodiscard]] std::size_t group_of(std::size_t i) const {
        return i / static_cast<std::size_t>(layout_.group_ranks);
    }
    // Whether rank i waits for what rank j sends in a phase.
    [[nodiscard]] bool needs(std::size_t i, std::size_t j, Phase phase) const {
        switch (phase) {
        case kAdding:
            return i % static_cast<std::size_t>(layout_.group_ranks) ==
                   j % static_cast<std::size_t>(layout_.group_ranks);
        case kAgreeing:
            return layout_.agreements != Agreements::of_group || group_of(i) == group_of(j);
        default:
            return group_of(i) == group_of(j);
        }
    }

    // Ends when every rank that takes part has sent; fails when one is lost that has not.
    void collective(const World& world, std::size_t i, Phase phase) {
        World next = world;
        Rank& rank = next[i];
        bool all = true;
        bool one_is_lost = false;
        for (std::size_t j = 0; j < ranks(); ++j) {
            if (!needs(i, j, phase)) {
                continue;
            }
            const Rank& other = world[j];
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
        } else if (phase == kReducing && !has_groups()) {
            rank.phase = kReduced;
        } else {
            rank.phase = static_cast<uint8_t>(phase + 1);
        }
        add(next);
    }

    [[nodiscard]] bool decides_to_skip(const World& world, std::size_t i) const {
        uint8_t raised = world[i].raised;
        for (std::size_t j = 0; j < ranks() && layout_.agreements != Agreements::of_nobody; ++j) {
            raised |= needs(i, j, kAgreeing) ? world[j].raised : uint8_t{0};
        }
        return (raised >> world[i].step & 1U) != 0;
    }

    // Ranks agree on what they have committed; nobody applied what anybody raised; nobody is more than a step ahead; a rank
    // that was lost before its agreement left no trace.
    [[nodiscard]] bool holds(const World& world) const {
        const std::span<const Rank> live(world.data(), ranks());
        for (const Rank& a : live) {
            if (a.committed() != a.step + (a.phase == kPublishing ? 1 : 0) ||
                (a.applied & a.skipped) != 0) {
                return false;
            }
            for (const Rank& b : live) {
                const auto common =
                    static_cast<uint8_t>((a.applied | a.skipped) & (b.applied | b.skipped));
                const bool agrees = (a.applied & common) == (b.applied & common);
                const bool is_near = a.committed() - b.committed() <= 1;
                const bool is_clean = (a.applied & b.raised) == 0;
                const bool left_no_trace =
                    b.fate != kLost || b.has_reached(b.step, kAgreeing) || a.committed() <= b.step;
                if (!agrees || !is_near || !is_clean || !left_no_trace) {
                    return false;
                }
            }
        }
        return true;
    }

    Layout layout_;
    std::unordered_set<World, Hash> seen_;
    std::vector<World> open_;
    int64_t violations_ = 0;
};

Search searched(const Layout& layout) {
    Search search(layout);
    search.run();
    std::printf("%zu states, %lld violations\n", search.states(),
                static_cast<long long>(search.violations()));
    return search;
}

TEST(StepProtocol, HoldsInEveryState) {
    const Search search = searched({3, 3, 4});
    EXPECT_EQ(search.violations(), 0);
    EXPECT_GT(search.states(), 10000U);
}

TEST(StepProtocol, RanksThatDecideAloneBreakIt) {
    EXPECT_GT(searched({3, 3, 4, Agreements::of_nobody}).violations(), 1000);
}

TEST(StepProtocol, HoldsInEveryStateOfTwoGroups) {
    const Search search = searched({4, 2, 2});
    EXPECT_EQ(search.violations(), 0);
    EXPECT_GT(search.states(), 10000U);
}

TEST(StepProtocol, GroupsThatDecideAloneBreakIt) {
    EXPECT_GT(searched({4, 2, 2, Agreements::of_group}).violations(), 1000);
}

} // namespace
