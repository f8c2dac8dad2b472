// SPDX-License-Identifier: Apache-2.0
// State that a program sets is the state it gets back: every setter with every other, saved, loaded in either order of calls,
// resharded by ranks and by `mixedprec reshard`, and compared to the bit with the run that did not stop.
#include "kept_state.hpp"
#include "by_tool.hpp"
#include "optimizers.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

using namespace mp_test;

namespace {

// By each rank of a few: loads, and saves again.
void by_ranks(const Choice& choice, const std::string& from, const std::string& to) {
    constexpr int32_t kRanks = 2;
    mp_comm* comms[kRanks] = {};
    ASSERT_TRUE(succeeded(mp_comm_create_threads(nullptr, kRanks, comms)));
    std::vector<std::thread> threads;
    for (mp_comm* comm : comms) {
        threads.emplace_back([&, own = Comm(comm)] {
            Kept rank(choice, false, own);
            EXPECT_TRUE(succeeded(rank.load(from)));
            EXPECT_TRUE(succeeded(rank.save(to)));
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

// The path of what the run is loaded from.
std::string on_its_way(const Choice& choice, const std::string& saved) {
    const std::string again = saved + ".again";
    switch (choice[kWay]) {
    case 1:
        by_ranks(choice, saved, again);
        return again;
    case 2: {
        Choice other = choice;
        other[kGuard] = 0;
        Kept between(other, false);
        EXPECT_TRUE(succeeded(between.load(saved)));
        EXPECT_TRUE(succeeded(between.save(again)));
        return again;
    }
    case 3:
        return by_tool("reshard " + saved + " " + again + " --ranks 1") ? again : saved;
    case 4:
        return by_tool("reshard " + saved + " " + again + " --ranks 3") ? again : saved;
    default:
        return saved;
    }
}

} // namespace

TEST(KeptState, IsThatOfTheRunThatDidNotStop) {
    const std::vector<Choice> all = pairwise();
    for (const Choice& choice : all) {
        SCOPED_TRACE(text_of(choice));
        const Folder folder("kept");
        Kept whole(choice, true);
        for (int number = 1; number <= kBefore; ++number) {
            whole.step(number);
        }
        ASSERT_TRUE(succeeded(whole.save(folder.c_str())));
        Kept resumed(choice, false);
        ASSERT_TRUE(succeeded(resumed.load(on_its_way(choice, folder.c_str()))));
        if (choice[kWhen] == 1) {
            resumed.set_all();
        }
        EXPECT_EQ(resumed.kept(), whole.kept());
        for (int number = kBefore + 1; number <= kBefore + kAfter; ++number) {
            whole.step(number);
            resumed.step(number);
            ASSERT_EQ(resumed.found(), whole.found()) << "step " << number;
            ASSERT_EQ(resumed.kept(), whole.kept()) << "step " << number;
        }
        std::error_code ignored;
        fs::remove_all(std::string(folder.c_str()) + ".again", ignored);
    }
    std::printf("%zu cases\n", all.size());
}

namespace {

// A group of each name's own letter, in this order: "a2" and "a5" share one.
struct Grouped {
    Context context = make_context(1);
    Recipe recipe = make_recipe(context, "fp32");
    Optimizer optimizer;
    std::vector<Tensor> params;
    Checkpoint checkpoint;

    // `groups`: letters, each with its learning rate; '-' has no parameters.
    explicit Grouped(const std::string& groups, const std::string& members = "abc",
                     mp_comm* comm = nullptr) {
        optimizer = make_optimizer(context, recipe);
        for (const char letter : groups) {
            mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
            desc.lr = static_cast<double>(letter);
            EXPECT_TRUE(succeeded(mp_optimizer_add_group(optimizer, &desc, nullptr)));
        }
        const char* const names[] = {"wte", "norm", "bias"};
        for (std::size_t i = 0; i < 3; ++i) {
            params.push_back(make_tensor(context, MP_DTYPE_FP32, {8}, numbers(8, i + 1)));
            mp_param_desc desc = MP_PARAM_DESC_INIT;
            desc.name = names[i];
            desc.param = params.back();
            const auto group = static_cast<int32_t>(groups.find(members[i]));
            EXPECT_TRUE(succeeded(mp_optimizer_add_param(optimizer, group, &desc, nullptr)));
        }
        checkpoint = checkpoint_of(context, optimizer, comm);
    }
    [[nodiscard]] double lr_of(int32_t parameter) const {
        int32_t group = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_param_group(optimizer, parameter, &group)));
        return lr(group);
    }
    [[nodiscard]] double lr(int32_t group) const {
        mp_param_group_desc desc = MP_PARAM_GROUP_DESC_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group(optimizer, group, &desc)));
        return desc.lr;
    }
};

} // namespace

// Every order of groups, with and without one that has no parameters: what a group says goes to its own parameters.
TEST(KeptGroups, AreKnownByTheirParameters) {
    int cases = 0;
    for (const char* all : {"abc", "-abc", "a-bc"}) {
        const Folder folder("groups");
        const Grouped saved(all);
        MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
        std::string order = all;
        std::sort(order.begin(), order.end());
        do {
            SCOPED_TRACE(std::string(all) + " as " + order);
            const Grouped loaded(order);
            MP_OK(mp_optimizer_set_lr(loaded.optimizer, -1, 1.0)); // comes with the checkpoint
            MP_OK(mp_checkpoint_load(loaded.checkpoint, folder.c_str(), 0, nullptr));
            for (int32_t i = 0; i < 3; ++i) {
                EXPECT_EQ(loaded.lr_of(i), static_cast<double>("abc"[i]));
            }
            const auto empty = order.find('-');
            if (empty != std::string::npos) {
                EXPECT_EQ(loaded.lr(static_cast<int32_t>(empty)), static_cast<double>('-'));
            }
            ++cases;
        } while (std::next_permutation(order.begin(), order.end()));
    }
    std::printf("%d orders\n", cases);
}

TEST(KeptGroups, OfOtherParametersAreRefusedByName) {
    const Folder folder("other_groups");
    const Grouped saved("abc", "aab"); // "c" is empty
    MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
    const struct {
        const char* groups;
        const char* members;
        std::vector<std::string> words;
    } wrong[] = {
        {"abc", "abb", {"'wte' and 'norm'", "saved in one group, 0", "groups 0 and 1"}},
        {"abc", "abc", {"'wte' and 'norm'", "saved in one group"}},
        {"abc", "aaa", {"'wte' and 'bias'", "groups 0 and 1", "one group, 0"}},
        {"abcd", "aab", {"3 group(s) were saved", "there are 4", "group 3 here"}},
        {"ab", "aab", {"there are 2", "group 2 of the checkpoint"}},
    };
    for (const auto& c : wrong) {
        const Grouped here(c.groups, c.members);
        MP_OK(mp_optimizer_set_lr(here.optimizer, -1, 1.0));
        const std::vector<unsigned char> before = bytes_of(here.params[0]);
        EXPECT_TRUE(fails(mp_checkpoint_load(here.checkpoint, folder.c_str(), 0, nullptr),
                          MP_STATUS_BAD_STATE, c.words))
            << c.groups << " " << c.members;
        EXPECT_EQ(bytes_of(here.params[0]), before);
        EXPECT_EQ(here.lr_of(0), 1.0);
    }
}

// Of ranks that each have all of an optimizer, no two may have a parameter in different groups.
TEST(KeptGroups, OfRanksThatDifferAreNamed) {
    const Folder folder("rank_groups");
    mp_comm* comms[2] = {};
    MP_OK(mp_comm_create_threads(nullptr, 2, comms));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank, own = Comm(comms[rank])] {
            const Grouped here("ab", rank == 0 ? "aaa" : "aba", own);
            MP_FAILS(mp_checkpoint_save(here.checkpoint, folder.c_str(), 1, 0),
                     MP_STATUS_RANK_MISMATCH, "rank 1 and rank 0", "groups of parameters",
                     "'optimizer.norm.group'");
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

// Through a recipe that keeps everything exactly and back: what belongs to groups, parameters and the guard comes along.
TEST(KeptState, ComesThroughAnotherRecipe) {
    int cases = 0;
    for (int way = 0; way < 2; ++way) {
        for (int late = 0; late < 4; ++late) {
            for (int order = 0; order < 3; ++order, ++cases) {
                Choice choice{};
                choice[kRecipe] = 1; // bf16_mixed: all of it is fp32 in the recipe "fp32"
                choice[kGuard] = 3;
                choice[kLate] = late;
                choice[kOrder] = order;
                choice[kSecond] = (late + order) % 2; // AdamW, Lion
                choice[kSwitch] = (late + order) % 3;
                SCOPED_TRACE(text_of(choice));
                const Folder folder("converted");
                const std::string saved = folder.c_str();
                const std::string exact = saved + "/exact";
                Kept whole(choice, true);
                for (int number = 1; number <= kBefore; ++number) {
                    whole.step(number);
                }
                ASSERT_TRUE(succeeded(whole.save(saved)));
                Choice other = choice;
                other[kRecipe] = 0;
                if (way == 0 || !by_tool("convert " + saved + " " + exact + " --recipe fp32")) {
                    Kept between(other, false);
                    ASSERT_TRUE(succeeded(between.load(saved, MP_LOAD_CONVERT)));
                    ASSERT_TRUE(succeeded(between.save(exact)));
                }
                Kept resumed(choice, false);
                ASSERT_TRUE(succeeded(resumed.load(exact, MP_LOAD_CONVERT)));
                for (int number = kBefore + 1; number <= kBefore + kAfter; ++number) {
                    whole.step(number);
                    resumed.step(number);
                    ASSERT_EQ(resumed.found(), whole.found()) << "step " << number;
                    ASSERT_EQ(resumed.kept(), whole.kept()) << "step " << number;
                }
            }
        }
    }
    std::printf("%d cases\n", cases);
}
