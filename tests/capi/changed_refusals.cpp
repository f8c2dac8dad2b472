// SPDX-License-Identifier: Apache-2.0
// Changes of parameters that are refused or fail: on every rank, in words, and with nothing changed. That those that succeed have
// the right bits: changed_parameters.cpp.
#include <algorithm>
#include <functional>

#include "changed_model.hpp"
#include "memory.hpp"

using namespace mp_test;

namespace {

using Bytes = std::vector<unsigned char>;

// All that a rank has, without a word to others.
std::vector<Bytes> held_by(const ChangedModel& model) {
    std::vector<Bytes> all;
    for (int32_t i = 0; i < model.count(); ++i) {
        all.push_back({static_cast<unsigned char>(model.is_frozen(i) ? 1 : 0)});
        for (const char* state : {"param", "exp_avg", "exp_avg_sq", "compensation"}) {
            mp_tensor* raw = nullptr;
            if (mp_optimizer_get_state(model.optimizer, i, state, &raw) != MP_STATUS_OK) {
                all.emplace_back();
                continue;
            }
            const Tensor tensor(raw);
            void* data = nullptr;
            const bool has_memory = mp_tensor_get_data(tensor, &data) == MP_STATUS_OK;
            all.push_back(has_memory ? bytes_of(tensor) : Bytes());
        }
    }
    const mp_memory_report memory = model.memory();
    const auto* raw = reinterpret_cast<const unsigned char*>(&memory);
    all.emplace_back(raw, raw + sizeof memory);
    all.push_back({static_cast<unsigned char>(model.t(0)), static_cast<unsigned char>(model.t(1))});
    int32_t count = 0;
    EXPECT_TRUE(succeeded(mp_optimizer_get_param_count(model.optimizer, &count)));
    all.push_back({static_cast<unsigned char>(count)});
    return all;
}

// A call that must not succeed, with words in its message.
void expect_refused(ChangedModel& model, mp_status expected, const char* words,
                    const std::function<void()>& call) {
    const std::vector<Bytes> before = held_by(model);
    ASSERT_EQ(model.status, MP_STATUS_OK) << model.said;
    call();
    EXPECT_EQ(model.status, expected) << model.said;
    EXPECT_NE(model.said.find(words), std::string::npos) << model.said;
    model.status = MP_STATUS_OK;
    EXPECT_TRUE(held_by(model) == before);
}

// What is changed: everything at once would hide one failure behind another.
enum class Change { freeze, train, add };
constexpr Change kChanges[] = {Change::freeze, Change::train, Change::add};

void change(ChangedModel& model, Change what, ChangedModel::Prepared& late) {
    switch (what) {
    case Change::freeze:
        model.set_frozen({0, 1}, 1);
        break;
    case Change::train:
        model.set_frozen({2, 5}, 0);
        break;
    case Change::add:
        model.add(late, 1);
        break;
    }
}

} // namespace

// At every allocation of a rank there is: all ranks fail, and have what they had. Where the ranks are still there the call is
// repeated, and the training goes on with the bits of one that nothing happened to.
TEST(ChangedRefusals, FailureOfMemoryOnOneRankChangesNothingOnAny) {
    constexpr int32_t kRanks = 3;
    for (const int32_t stage : {0, 1, 2, 3}) {
        const ChangedKind kind = {"bf16_pure_kahan", stage, MP_SHARD_FLAT, 0, 30000};
        for (const Change what : kChanges) {
            std::vector<std::vector<Bytes>> expected(kRanks);
            int32_t failures = 0, repeated = 0;
            for (int64_t left = -1; left < 1000; ++left) { // -1: nothing fails
                std::vector<mp_status> statuses(kRanks);
                run_sharded(kRanks, [&](mp_comm* comm, int32_t rank) {
                    SCOPED_TRACE("stage " + std::to_string(stage) + " change " +
                                 std::to_string(static_cast<int>(what)) + " allocation " +
                                 std::to_string(left) + " rank " + std::to_string(rank));
                    const auto r = static_cast<std::size_t>(rank);
                    Counter counter;
                    {
                        ChangedModel model(comm, kind, make_counted_context(&counter));
                        model.steps(1, 3);
                        ChangedModel::Prepared late = model.prepare(late_params());
                        const std::vector<Bytes> before = held_by(model);
                        counter.left = rank == 1 && left >= 0 ? left : INT64_MAX;
                        change(model, what, late);
                        counter.left = INT64_MAX;
                        statuses[r] = model.status;
                        if (model.status != MP_STATUS_OK) {
                            EXPECT_EQ(rank == 1, model.status == MP_STATUS_OUT_OF_MEMORY)
                                << model.status << model.said;
                            EXPECT_TRUE(held_by(model) == before);
                            if (mp_comm_get_status(comm) == MP_STATUS_OK) {
                                model.status = MP_STATUS_OK;
                                change(model, what, late);
                            }
                        }
                        if (model.status == MP_STATUS_OK) {
                            if (what == Change::add) {
                                model.init_deferred(8);
                            }
                            model.step(3);
                            if (left < 0) {
                                expected[r] = held_by(model);
                            }
                            EXPECT_TRUE(held_by(model) == expected[r]);
                        }
                        repeated += rank == 0 && statuses[r] != model.status ? 1 : 0;
                    }
                    EXPECT_EQ(counter.live, 0);
                });
                EXPECT_TRUE(std::count(statuses.begin(), statuses.end(), MP_STATUS_OK) % kRanks ==
                            0);
                if (left >= 0 && statuses[0] == MP_STATUS_OK) {
                    break;
                }
                failures += left >= 0 ? 1 : 0;
            }
            EXPECT_GT(failures, 0);
            EXPECT_GT(repeated, 0);
        }
    }
}

// One rank alone: with states or on the host.
TEST(ChangedRefusals, FailureOfMemoryAloneChangesNothing) {
    for (const uint32_t flags : {0U, MP_OPTIMIZER_OFFLOAD}) {
        for (const Change what : kChanges) {
            for (int64_t left = 0; left < 1000; ++left) {
                SCOPED_TRACE(std::to_string(left));
                Counter counter;
                ChangedModel model(nullptr, {"bf16_pure_kahan", 0, 0, flags},
                                   make_counted_context(&counter));
                model.steps(1, 3);
                ChangedModel::Prepared late = model.prepare(late_params());
                const std::vector<Bytes> before = held_by(model);
                counter.left = left;
                change(model, what, late);
                counter.left = INT64_MAX;
                if (model.status == MP_STATUS_OK) {
                    EXPECT_TRUE(left > 5 || what == Change::freeze);
                    break;
                }
                EXPECT_EQ(model.status, MP_STATUS_OUT_OF_MEMORY);
                EXPECT_TRUE(held_by(model) == before);
            }
        }
    }
}

TEST(ChangedRefusals, RanksThatDifferAreNamed) {
    for (const int32_t stage : {1, 3}) {
        run_sharded(3, [&](mp_comm* comm, int32_t rank) {
            ChangedModel model(comm, {"fp32", stage});
            model.step(1);
            const auto differ = [&](const char* words, const std::function<void()>& call) {
                expect_refused(model, MP_STATUS_RANK_MISMATCH, words, call);
                EXPECT_NE(model.said.find("rank(s) 1"), std::string::npos) << model.said;
            };
            differ("the first 'a'", [&] { model.set_frozen({rank == 1 ? 4 : 0}, 1); });
            differ("parameters are trained again",
                   [&] { model.set_frozen({0}, rank == 1 ? 0 : 1); });
            differ("parameters are added", [&] {
                if (rank == 1) {
                    model.add({{"x", {9}}}, 0);
                } else {
                    model.set_frozen({0}, 1);
                }
            });
            differ("the number of parameters", [&] {
                model.add(rank == 1 ? std::vector<ChangedParam>{{"x", {9}}, {"y", {9}}}
                                    : std::vector<ChangedParam>{{"x", {9}}},
                          0);
            });
            differ("parameter 6's name, shape", [&] {
                model.add({{"x", {rank + 9 - rank % 2}}}, rank % 2);
            });
            differ("the initial weights", [&] {
                model.skip_values(rank == 1 ? 1 : 0);
                model.add({{"x", {9}}}, 0);
            });
            // One that cannot go on stops the others.
            const mp_status peers = rank == 1 ? MP_STATUS_INVALID_ARGUMENT : MP_STATUS_PEER_ERROR;
            expect_refused(model, peers, rank == 1 ? "parameter 77" : "rank 1",
                           [&] { model.set_frozen({rank == 1 ? 77 : 0}, 1); });
            expect_refused(
                model, rank == 1 ? MP_STATUS_NULL_ARGUMENT : MP_STATUS_PEER_ERROR,
                rank == 1 ? "descs" : "rank 1", [&] {
                    if (rank == 1) {
                        model.ok(mp_optimizer_add_params(model.optimizer, 0, nullptr, 1, nullptr));
                    } else {
                        model.add({{"x", {9}}}, 0);
                    }
                });
            model.set_frozen({0}, 1); // and then they go on
            model.step(2);
            EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
        });
    }
}

// Nobody asks twice: while something is under way the call says what to do.
TEST(ChangedRefusals, WhileSomethingIsUnderWay) {
    for (const int32_t stage : {0, 1, 2, 3}) {
        run_sharded(2, [&](mp_comm* comm, int32_t /*rank*/) {
            ChangedModel model(comm, {"fp32", stage});
            model.step(1);
            ChangedModel::Prepared late = model.prepare(late_params());
            const int32_t b = 1;
            const auto refuse = [&](const char* words) {
                for (const Change what : kChanges) {
                    expect_refused(model, MP_STATUS_BAD_STATE, words,
                                   [&] { change(model, what, late); });
                }
            };
            const int32_t counts[] = {1};
            MP_OK(mp_optimizer_set_layer_params(model.optimizer, 1, counts, &b, 0));
            MP_OK(mp_optimizer_layer_begin(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
            refuse("layer 0 has begun");
            MP_OK(mp_optimizer_layer_end(model.optimizer, nullptr, 0, MP_PASS_FORWARD));
            if (stage == 3) {
                MP_OK(mp_optimizer_gather_begin(model.optimizer, nullptr, &b, 1));
                MP_OK(mp_optimizer_gather_wait(model.optimizer, nullptr, &b, 1));
                refuse("mp_optimizer_gather_free");
                MP_OK(mp_optimizer_gather_free(model.optimizer, nullptr, &b, 1));
            }
            if (stage >= 2) {
                MP_OK(mp_optimizer_acquire_grad(model.optimizer, nullptr, b));
                refuse("after mp_optimizer_step");
            }
            MP_OK(mp_optimizer_grad_ready(model.optimizer, nullptr, b));
            refuse("after mp_optimizer_step");
            model.ok(mp_optimizer_step(model.optimizer, nullptr, nullptr));
            model.set_frozen({b}, 1);
            model.step(2);
            EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
        });
    }
    ChangedModel alone(nullptr, {"fp32", 0, 0, MP_OPTIMIZER_GRADS_GIVEN});
    ChangedModel::Prepared late = alone.prepare(late_params());
    MP_OK(mp_optimizer_step_begin(alone.optimizer, nullptr, nullptr));
    for (const Change what : kChanges) {
        expect_refused(alone, MP_STATUS_BAD_STATE, "mp_optimizer_step_end",
                       [&] { change(alone, what, late); });
    }
}

TEST(ChangedRefusals, WhatCannotBe) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "bf16_pure");
    const Tensor other = make_tensor(context, MP_DTYPE_FP16, {4}, numbers(4, 1));
    const Optimizer optimizer = make_optimizer(context, recipe);
    add_group(optimizer);
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = "w";
    desc.param = other;
    desc.flags = MP_PARAM_FROZEN;
    MP_OK(mp_optimizer_add_param(optimizer, 0, &desc, nullptr));
    const int32_t index = 0;
    MP_FAILS(mp_optimizer_set_frozen(optimizer, nullptr, &index, 1, 0), MP_STATUS_INVALID_DTYPE,
             "'w' is fp16", "bf16");
    MP_FAILS(mp_optimizer_set_frozen(optimizer, nullptr, &index, -1, 0), MP_STATUS_INVALID_ARGUMENT,
             "count");
    MP_FAILS(mp_optimizer_set_frozen(optimizer, nullptr, nullptr, 1, 0), MP_STATUS_NULL_ARGUMENT,
             "indices");
    MP_OK(mp_optimizer_set_frozen(optimizer, nullptr, nullptr, 0, 0));
    MP_OK(mp_optimizer_set_frozen(optimizer, nullptr, &index, 1, 1)); // it is so already
    const int32_t twice[] = {0, 0};
    MP_OK(mp_optimizer_set_frozen(optimizer, nullptr, twice, 2, 1));
    run_sharded(2, [&](mp_comm* comm, int32_t /*rank*/) {
        ChangedModel model(comm, {"fp32", 3}, make_context(1), false);
        model.add(first_params(), 0);
        expect_refused(model, MP_STATUS_BAD_STATE, "mp_optimizer_shard",
                       [&] { model.set_frozen({0}, 1); });
        MP_OK(mp_optimizer_shard(model.optimizer, nullptr));
        const Tensor viewed = make_tensor(model.context, MP_DTYPE_FP32, {9}, numbers(9, 1));
        const Tensor view = view_of(viewed, 3, {2});
        expect_refused(model, MP_STATUS_BAD_STATE, "a view",
                       [&] { model.ok(add_param(model.optimizer, 0, "x", viewed)); });
        model.set_frozen({0}, 1);
        model.step(1);
        EXPECT_EQ(model.status, MP_STATUS_OK) << model.said;
    });
}
