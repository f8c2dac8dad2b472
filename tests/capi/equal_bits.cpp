// SPDX-License-Identifier: Apache-2.0
// The matrix of equal bits: trainings in configurations that meet every two values of two options at least once, each
// against the plain one that the documents promise its bits of (docs/sharding.md, docs/layers.md, docs/checkpoints.md).
// Not one bit may differ: of weights, states, scales, the loss scale, the last step's norm, the loss of any micro-batch.
//
// What is promised of what:
//   without ranks       whatever is said of places, inputs and micro-batches in flight: one set of bits
//   order tree, exact   those of one rank that has all micro-batches, for any ranks, groups, stage, plan and buckets
//   order rank          those of the same ranks and groups; of one rank those without ranks
// Not promised, and so in families of their own: stage 0 against the others where weight.gather.dtype is narrower than the
// weights; tree against exact; one wire type against another; numbers of micro-batches; numbers of threads, on which matrix
// products may depend.
#include <bitset>
#include <cstdio>
#include <set>

#include "bits_training.hpp"

using namespace mp_test;
using namespace mp_test::bits;

namespace {

// What an option says in vain becomes plain, and what does not go together does.
Configuration made_valid(Configuration c) {
    if (c[kTransport] != kNone && c[kStage] == 0 && c[kOffload] == kGradientsToo) {
        c[kOffload] = kStatesOffloaded;
    }
    if (c[kTransport] == kNone) {
        const int32_t ready = c[kOffload] == kGradientsToo ? c[kReady] : 0;
        for (const Option option : {kRanks, kOrder, kWire, kGather, kGroups, kStage, kPlan,
                                    kBuckets, kReady, kProgress, kHash, kSavedStage}) {
            c[option] = 0;
        }
        c[kReady] = ready;
        c[kSavedOn] = std::min(c[kSavedOn], 1);
    }
    if (c[kTransport] == kSelf) {
        c[kRanks] = 0;
    }
    const bool shares_scales = is_scaled(c) && c[kWire] == 0; // of its gradients on the wire
    if (c[kGroups] == kNodes && (c[kOrder] != MP_COMM_ORDER_RANK || shares_scales)) {
        c[kGroups] = kOneCopy;
    }
    if (group_ranks(c) == 0 || (c[kGroups] == kNodes && group_ranks(c) == 1)) {
        c[kGroups] = kOneCopy;
    }
    if (c[kOrder] == MP_COMM_ORDER_RANK && c[kSavedOn] != 0) {
        c[kSavedOn] = ranks_of(c);
    }
    if (is_scaled(c) && c[kStage] > 0) {
        c[kPlan] = MP_SHARD_GREEDY;
    }
    if (rounds_gathered(c)) {
        c[kSavedStage] = c[kStage] == 0 ? 0 : std::max(c[kSavedStage], 1);
    }
    if (std::string(value_of(c, kRecipe)) != "fp8_gather" || c[kStage] == 0) {
        c[kGather] = 0;
    }
    if (c[kGather] != 0) { // the checkpoint has another recipe without it
        c[kSavedStage] = std::max(c[kSavedStage], 1);
    }
    if (c[kSavedOn] == 0) {
        c[kSavedStage] = c[kSaving] = 0;
    }
    if (c[kInputs] == kInTheLayer) {
        c[kInFlight] = 0;
    }
    if (is_scaled(c)) { // gradients have scales, too
        c[kArrays] = 0;
    }
    if (rounds_operands(c) && c[kTransport] != kNone) {
        c[kOrder] = MP_COMM_ORDER_RANK; // micro-batches are not dealt to ranks in turn
        c[kSavedOn] = c[kSavedOn] == 0 ? 0 : ranks_of(c);
        c[kLayers] = 1;
    }
    return c;
}

Configuration plain_of(const Configuration& c) {
    Configuration plain{};
    plain[kRecipe] = c[kRecipe];
    plain[kThreads] = c[kThreads];
    plain[kSlotCount] = c[kSlotCount];
    plain[kFrozen] = c[kFrozen];
    plain[kRules] = c[kRules];
    plain[kUnused] = c[kUnused];
    plain[kLayers] = rounds_operands(c) ? c[kLayers] : 0;
    const bool rounds = rounds_gathered(c) && c[kStage] > 0;
    if (c[kTransport] == kNone ||
        (c[kOrder] == MP_COMM_ORDER_RANK && ranks_of(c) == 1 && c[kWire] == 0 && !rounds)) {
        return plain;
    }
    plain[kOrder] = c[kOrder];
    plain[kWire] = c[kWire];
    plain[kStage] = rounds ? 1 : 0;
    plain[kTransport] = kSelf;
    if (c[kOrder] == MP_COMM_ORDER_RANK && ranks_of(c) > 1) {
        plain[kTransport] = kThreadRanks;
        plain[kRanks] = c[kRanks];
        plain[kGroups] = c[kGroups];
    }
    return plain;
}

// Recipe and what is not the first value; an asterisk where the plain configuration has another.
std::string text_of(const Configuration& c) {
    const Configuration plain = plain_of(c);
    std::string text = value_of(c, kRecipe);
    for (std::size_t i = kRecipe + 1; i < kOptionCount; ++i) {
        if (c[i] != 0 || plain[i] != 0) {
            text += std::string(", ") + options()[i].name + ": " +
                    value_of(c, static_cast<Option>(i)) + (c[i] != plain[i] ? "*" : "");
        }
    }
    return text;
}

// What differs; empty where nothing does.
std::string difference(const Outcome& a, const Outcome& b) {
    std::string text;
    for (const std::string& error : b.errors) {
        text += error + "; ";
    }
    if (!text.empty()) {
        return text;
    }
    std::set<std::string> names;
    for (const Outcome* outcome : {&a, &b}) {
        for (const auto& [name, bytes] : outcome->values) {
            names.insert(name);
        }
    }
    std::size_t count = 0;
    for (const std::string& name : names) {
        const auto left = a.values.find(name), right = b.values.find(name);
        const bool is_in_both = left != a.values.end() && right != b.values.end();
        if ((!is_in_both || left->second != right->second) && ++count <= 8) {
            text += name + (is_in_both ? "; " : " is in one of them; ");
        }
    }
    if (count > 8) {
        text += "and " + std::to_string(count - 8) + " more";
    }
    return text;
}

class Matrix {
  public:
    // Empty where the bits are equal.
    std::string compare(const Configuration& c) {
        return difference(outcome_of(plain_of(c)), run(c));
    }
    // The plain one under the default floating-point environment, the other one under the caller's.
    std::string compare_under(const Floats& floats, bool is_late, const Configuration& c) {
        const Outcome& plain = outcome_of(plain_of(c));
        callers_floats = &floats;
        are_floats_late = is_late;
        const Outcome other = run(c);
        callers_floats = nullptr;
        are_floats_late = false;
        return difference(plain, other);
    }
    // The same configuration with as many options plain as still leave a difference.
    Configuration smallest(Configuration c) {
        for (std::size_t i = kOptionCount; i-- > 0;) {
            Configuration simpler = c;
            simpler[i] = plain_of(c)[i];
            simpler = made_valid(simpler);
            if (simpler != c && simpler[kRecipe] == c[kRecipe] && !compare(simpler).empty()) {
                c = simpler;
            }
        }
        return c;
    }

  private:
    const Outcome& outcome_of(const Configuration& plain) {
        const auto [at, is_new] = plain_.try_emplace(plain);
        if (is_new) {
            at->second = run(plain);
            for (const std::string& error : at->second.errors) {
                ADD_FAILURE() << text_of(plain) << ": " << error;
            }
        }
        return at->second;
    }
    std::map<Configuration, Outcome> plain_;
};

// ---- a covering set ------------------------------------------------------------------------------

constexpr std::size_t kAllPairs = 400;
constexpr std::size_t kMostValues = 17;
constexpr std::size_t kOneOption = kOptionCount * kMostValues;
using Meetings = std::bitset<kOneOption * kOneOption>; // of two values of two options

std::vector<std::size_t> meetings_of(const Configuration& c) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < kOptionCount; ++i) {
        for (std::size_t j = i + 1; j < kOptionCount; ++j) {
            all.push_back((i * kMostValues + static_cast<std::size_t>(c[i])) * kOneOption +
                          j * kMostValues + static_cast<std::size_t>(c[j]));
        }
    }
    return all;
}

class Chooser {
  public:
    Configuration any(int32_t recipe) {
        for (;;) {
            Configuration c{};
            for (std::size_t i = 0; i < kOptionCount; ++i) {
                c[i] = static_cast<int32_t>(next() % options()[i].values.size());
            }
            c[kTransport] = std::max(0, c[kTransport] - (next() % 4 == 0 ? 1 : 0));
            c[kRecipe] = recipe;
            c = made_valid(c);
            if (c != plain_of(c)) {
                return c;
            }
        }
    }
    // The one of some that has most meetings that were not yet.
    Configuration best(int32_t recipe) {
        Configuration chosen{};
        std::size_t most = 0;
        for (int i = 0; i < 60; ++i) {
            const Configuration c = any(recipe);
            std::size_t fresh = 0;
            for (const std::size_t meeting : meetings_of(c)) {
                fresh += met_->test(meeting) ? 0 : 1;
            }
            if (i == 0 || fresh > most) {
                chosen = c;
                most = fresh;
            }
        }
        for (const std::size_t meeting : meetings_of(chosen)) {
            met_->set(meeting);
        }
        return chosen;
    }
    [[nodiscard]] const Meetings& met() const { return *met_; }

  private:
    uint64_t next() { // splitmix64
        uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }
    uint64_t state_ = 17;
    std::unique_ptr<Meetings> met_ = std::make_unique<Meetings>();
};

// So many, as many of each recipe; where they are kAllPairs or more, further ones until every two values that can meet do.
std::vector<Configuration> covering_set(std::size_t at_least) {
    const auto recipes = static_cast<int32_t>(options()[kRecipe].values.size());
    Chooser sample;
    const auto possible = std::make_unique<Meetings>();
    for (int32_t i = 0; i < 20000; ++i) {
        for (const std::size_t meeting : meetings_of(sample.any(i % recipes))) {
            possible->set(meeting);
        }
    }
    Chooser chooser;
    std::vector<Configuration> chosen;
    while (chosen.size() < at_least ||
           (at_least >= kAllPairs && (*possible & ~chooser.met()).any())) {
        chosen.push_back(chooser.best(static_cast<int32_t>(chosen.size()) % recipes));
    }
    std::printf("%zu pairs of trainings, in which %zu pairs of options' values meet\n",
                chosen.size(), chooser.met().count());
    return chosen;
}

Configuration of_recipe(const char* name) {
    Configuration c{};
    const std::vector<const char*>& names = options()[kRecipe].values;
    while (std::string(value_of(c, kRecipe)) != name) {
        if (static_cast<std::size_t>(++c[kRecipe]) == names.size()) {
            throw std::runtime_error(name);
        }
    }
    return c;
}

} // namespace

// What is compared below has been trained, and would show it: two families of one recipe that add in other orders or
// round in other places do differ, everywhere.
TEST(EqualBits, FamiliesDiffer) {
    const auto sharded = [](const char* recipe, int32_t order, int32_t wire, int32_t stage) {
        Configuration c = of_recipe(recipe);
        c[kTransport] = kSelf;
        c[kOrder] = order;
        c[kWire] = wire;
        c[kStage] = stage;
        return run(c);
    };
    const Outcome rank = sharded("fp32", MP_COMM_ORDER_RANK, 0, 0);
    const Outcome others[] = {
        sharded("fp32", MP_COMM_ORDER_TREE, 0, 0), sharded("fp32", MP_COMM_ORDER_EXACT, 0, 0),
        sharded("fp32", MP_COMM_ORDER_RANK, 1, 0), sharded("fp32", MP_COMM_ORDER_RANK, 2, 0)};
    for (const Outcome& other : others) {
        for (const auto& [name, bytes] : rank.values) { // the loss after the first real step, too
            EXPECT_EQ(bytes == other.values.at(name), name.rfind("scales of", 0) == 0 ||
                                                          name.rfind("loss 0", 0) == 0 ||
                                                          name == "loss scale")
                << name;
        }
    }
    EXPECT_NE(others[0], others[1]);
    EXPECT_NE(sharded("bf16_mixed", MP_COMM_ORDER_TREE, 0, 0),
              sharded("bf16_mixed", MP_COMM_ORDER_TREE, 0, 1));
}

// The second step is skipped, the loss scale has gone down and up again, and delayed scales have moved.
TEST(EqualBits, EveryRecipeTrains) {
    for (std::size_t i = 0; i < options()[kRecipe].values.size(); ++i) {
        Configuration c{};
        c[kRecipe] = static_cast<int32_t>(i);
        SCOPED_TRACE(text_of(c));
        const Outcome outcome = run(c);
        EXPECT_TRUE(outcome.errors.empty());
        const auto read = [&](const std::string& name, auto& value) {
            const Bytes& bytes = outcome.values.at(name);
            ASSERT_EQ(bytes.size(), sizeof value);
            std::memcpy(&value, bytes.data(), sizeof value);
        };
        mp_optimizer_stats stats{};
        read("last step", stats);
        EXPECT_EQ(stats.step, kSteps - 1);
        EXPECT_EQ(stats.skipped_steps, 1);
        EXPECT_GT(stats.grad_norm, 1.0) << "nothing is clipped";
        mp_scaler_state scaler{};
        read("loss scale", scaler);
        EXPECT_EQ(scaler.overflow_steps, scaler.scale == 1.0 ? 0 : 1);
        double first = 0.0;
        double last = 0.0;
        for (int32_t slot = 0; slot < slots_of(c); ++slot) {
            double loss = 0.0;
            read("loss 0." + std::to_string(slot), loss);
            first += loss;
            read("loss " + std::to_string(kSteps - 1) + "." + std::to_string(slot), loss);
            last += loss;
        }
        EXPECT_LT(last, first);
    }
}

TEST(EqualBits, EveryConfigurationHasThoseOfThePlainOne) {
    const char* const full = std::getenv("MP_BITS_PAIRS");
    const std::vector<Configuration> pairs =
        covering_set(full != nullptr ? std::strtoul(full, nullptr, 10) : kAllPairs);
    ASSERT_TRUE(full != nullptr || pairs.size() >= kAllPairs);
    Matrix matrix;
    int failures = 0;
    for (const Configuration& c : pairs) {
        const std::string what = matrix.compare(c);
        if (what.empty()) {
            continue;
        }
        ADD_FAILURE() << text_of(c) << "\n  differs in " << what;
        if (what.find("MP_STATUS") == std::string::npos) { // bits alone, so nobody waits for ranks
            const Configuration smallest = matrix.smallest(c);
            ADD_FAILURE() << "at least: " << text_of(smallest) << "\n  differs in "
                          << matrix.compare(smallest);
        }
        if (++failures == 3) {
            FAIL() << "and perhaps more";
        }
    }
}

// The environments of kFloats, each from before and from after the library's threads have begun, in configurations that have
// such threads; after each call the calling thread's is as it was.
TEST(EqualBits, UnderAnyFloatingPointEnvironment) {
    const char* const wanted = std::getenv("MP_BITS_FLOATS");
    const std::size_t count = wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 32;
    const std::size_t recipes = options()[kRecipe].values.size();
    Chooser chooser;
    Matrix matrix;
    for (std::size_t i = 0; i < count && !HasFailure(); ++i) {
        Configuration c = chooser.best(static_cast<int32_t>(i % recipes));
        c[kThreads] = 1;
        const Floats& floats = kFloats[(i + i / recipes) % std::size(kFloats)];
        const bool is_late = i / std::size(kFloats) % 2 == 1;
        const std::string what = matrix.compare_under(floats, is_late, c);
        EXPECT_TRUE(what.empty()) << floats.name << (is_late ? ", late: " : ": ") << text_of(c)
                                  << "\n  differs in " << what;
    }
}
