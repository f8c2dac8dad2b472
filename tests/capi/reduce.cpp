// SPDX-License-Identifier: Apache-2.0
// Reductions through the C interface: sums over thread ranks in every order, requests, and each way to call wrongly.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ranks.hpp"
#include "support.hpp"

namespace mp_test {
namespace {

// Every rank has a context of its own.
void run_ranks(int32_t count, const std::function<void(mp_comm*, mp_context*, int32_t)>& body) {
    mp_test::run_ranks(count, [&](mp_comm* comm, int32_t rank) {
        const Context context = make_context(1);
        body(comm, context, rank);
    });
}

struct Array {
    Array(mp_context* context, int64_t count, float first, float step = 0.0F)
        : values(static_cast<std::size_t>(count)) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = first + step * static_cast<float>(i);
        }
        tensor = wrap_tensor(context, MP_DTYPE_FP32, {count}, values.data());
    }
    std::vector<float> values; // outlives the tensor
    Tensor tensor;
};

TEST(Reduce, AddsOverRanksInEveryOrder) {
    for (const int32_t order :
         {MP_COMM_ORDER_RANK, MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT, MP_COMM_ORDER_FAST}) {
        run_ranks(3, [order](mp_comm* comm, mp_context* context, int32_t rank) {
            Array source(context, 300, static_cast<float>(rank), 1.0F);
            Array sum(context, 300, -1.0F);
            mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
            desc.order = order;
            const mp_tensor* sources[] = {source.tensor};
            MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, sum.tensor, nullptr));
            for (std::size_t i = 0; i < 300; ++i) {
                EXPECT_EQ(sum.values[i], 3.0F + 3.0F * static_cast<float>(i));
            }
        });
    }
}

TEST(Reduce, ScattersUnevenSharesOfBf16AndGathersThem) {
    run_ranks(3, [](mp_comm* comm, mp_context* context, int32_t rank) {
        const int64_t counts[] = {100, 0, 28};
        Array source(context, 128, 1.0F, 1.0F);
        Array shard(context, counts[rank], -1.0F);
        Array all(context, 128, -1.0F);
        mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
        desc.wire_dtype = MP_DTYPE_BF16;
        desc.site = "bucket 3";
        const mp_tensor* sources[] = {source.tensor};
        MP_OK(mp_comm_reduce_scatter(comm, nullptr, &desc, sources, 1, counts, shard.tensor,
                                     nullptr));
        mp_comm_traffic traffic{};
        traffic.struct_size = sizeof traffic;
        MP_OK(mp_comm_get_traffic(comm, &traffic));
        EXPECT_EQ(traffic.all_to_all_bytes, 2 * (128 - counts[rank]));
        desc.wire_dtype = MP_DTYPE_NONE;
        MP_OK(mp_comm_all_gather_values(comm, nullptr, &desc, shard.tensor, counts, all.tensor,
                                        nullptr));
        for (std::size_t i = 0; i < 128; ++i) {
            EXPECT_EQ(all.values[i], 3.0F * static_cast<float>(i + 1));
        }
    });
}

// What sums exchange in several messages is waited for, or tested, in another order on each rank.
TEST(Reduce, RequestsEndInAnyOrder) {
    for (const int32_t order :
         {MP_COMM_ORDER_RANK, MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT, MP_COMM_ORDER_FAST}) {
        for (const bool tests : {false, true}) {
            run_ranks(3, [order, tests](mp_comm* comm, mp_context* context, int32_t rank) {
                std::vector<std::unique_ptr<Array>> sources;
                std::vector<std::unique_ptr<Array>> sums;
                std::vector<mp_comm_request*> open;
                for (int i = 0; i < 3; ++i) {
                    sources.push_back(
                        std::make_unique<Array>(context, 300, static_cast<float>(rank + i), 1.0F));
                    sums.push_back(std::make_unique<Array>(context, 300, -1.0F));
                    mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
                    desc.order = order;
                    desc.deadline_ms = 10000;
                    const mp_tensor* source[] = {sources.back()->tensor};
                    open.push_back(nullptr);
                    MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, source, 1, sums.back()->tensor,
                                             &open.back()));
                }
                std::rotate(open.begin(), open.begin() + rank, open.end());
                while (!open.empty()) {
                    mp_comm_request* const request = open.front();
                    open.erase(open.begin());
                    const mp_status status =
                        tests ? mp_comm_request_test(request) : mp_comm_request_wait(request);
                    if (status == MP_STATUS_NOT_READY) {
                        open.push_back(request);
                        continue;
                    }
                    EXPECT_TRUE(succeeded(status));
                    mp_comm_request_destroy(request);
                }
                for (std::size_t i = 0; i < sums.size(); ++i) {
                    EXPECT_EQ(sums[i]->values[7], 3.0F * static_cast<float>(1 + i + 7));
                }
            });
        }
    }
}

// The same bits whatever the number of ranks, with the slots' arrays shared out.
TEST(Reduce, GivesTheSameBitsForEveryNumberOfRanks) {
    for (const int32_t order : {MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT}) {
        std::vector<float> first;
        for (const int32_t ranks : {1, 2, 3, 5}) {
            std::vector<float> result;
            run_ranks(ranks, [&](mp_comm* comm, mp_context* context, int32_t rank) {
                std::vector<std::unique_ptr<Array>> slots;
                std::vector<const mp_tensor*> sources;
                for (int32_t s = rank * 5 / ranks; s < (rank + 1) * 5 / ranks; ++s) {
                    slots.push_back(std::make_unique<Array>(context, 256,
                                                            std::sin(static_cast<float>(s)),
                                                            0.01F / static_cast<float>(s + 1)));
                    sources.push_back(slots.back()->tensor);
                }
                Array sum(context, 256, -1.0F);
                mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
                desc.order = order;
                desc.slots = 5;
                desc.wire_dtype = MP_DTYPE_FP8_E4M3;
                MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources.data(),
                                         static_cast<int32_t>(sources.size()), sum.tensor,
                                         nullptr));
                if (rank == 0) {
                    result = sum.values;
                }
            });
            first = first.empty() ? result : first;
            EXPECT_EQ(result, first) << ranks;
        }
    }
}

TEST(Reduce, TakesRequests) {
    run_ranks(2, [](mp_comm* comm, mp_context* context, int32_t rank) {
        for (const int32_t order : {MP_COMM_ORDER_RANK, MP_COMM_ORDER_EXACT}) {
            Array source(context, 64, static_cast<float>(rank + 1));
            Array one(context, 64, -1.0F);
            Array two(context, 64, -1.0F);
            mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
            const std::string site = "gradients";
            desc.site = site.c_str();
            desc.order = order;
            const mp_tensor* sources[] = {source.tensor};
            mp_comm_request* raw = nullptr;
            MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, one.tensor, &raw));
            const Request first(raw);
            while (mp_comm_request_test(first) == MP_STATUS_NOT_READY) {
                std::this_thread::yield();
            }
            MP_OK(mp_comm_request_wait(first));
            EXPECT_EQ(one.values[63], 3.0F);
            MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, two.tensor, &raw));
            const Request second(raw);
            MP_OK(mp_comm_request_wait(second));
            MP_OK(mp_comm_request_test(second));
            EXPECT_EQ(two.values[0], 3.0F);
            mp_queue* queue = nullptr;
            MP_OK(mp_queue_create(context, &queue));
            MP_OK(mp_comm_all_reduce(comm, queue, &desc, sources, 1, one.tensor, &raw));
            mp_queue_destroy(queue); // the request keeps it
            const Request third(raw);
            MP_OK(mp_comm_request_wait(third));
        }
    });
}

TEST(Reduce, ShowsWhatOneRankHas) {
    run_ranks(2, [](mp_comm* comm, mp_context* context, int32_t rank) {
        Array source(context, 4, rank == 0 ? -3.0F : 2.0F);
        if (rank == 1) {
            source.values[1] = std::nanf("");
            source.values[2] = -INFINITY;
        }
        Array largest(context, 4, -1.0F);
        mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
        desc.op = MP_COMM_OP_MAX_ABS_BITS;
        const mp_tensor* sources[] = {source.tensor};
        MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, largest.tensor, nullptr));
        EXPECT_EQ(largest.values[0], 3.0F);
        EXPECT_TRUE(std::isnan(largest.values[1]));
        EXPECT_EQ(largest.values[2], INFINITY);
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.wire_dtype = MP_DTYPE_FP8_E4M3;
        desc.wire_scale = MP_COMM_SCALE_MX;
        MP_OK(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, largest.tensor, nullptr));
        EXPECT_FALSE(std::isfinite(largest.values[1]));
    });
}

TEST(Reduce, CountsTheBytesOfTheWire) {
    int64_t bytes = 0;
    MP_OK(mp_comm_get_wire_bytes(1000, MP_DTYPE_BF16, 0, &bytes));
    EXPECT_EQ(bytes, 2000);
    MP_OK(mp_comm_get_wire_bytes(1000, MP_DTYPE_FP8_E4M3, 0, &bytes));
    EXPECT_EQ(bytes, 1000 + 4 * 8);
    MP_OK(mp_comm_get_wire_bytes(1000, MP_DTYPE_FP8_E5M2, MP_COMM_SCALE_MX, &bytes));
    EXPECT_EQ(bytes, 1000 + 32);
    MP_FAILS(mp_comm_get_wire_bytes(1, MP_DTYPE_BF16, MP_COMM_SCALE_BLOCK, &bytes),
             MP_STATUS_INVALID_ARGUMENT, "bf16", "no scale");
    MP_FAILS(mp_comm_get_wire_bytes(1, MP_DTYPE_INT8, 0, &bytes), MP_STATUS_INVALID_DTYPE, "int8");
    MP_FAILS(mp_comm_get_wire_bytes(-1, MP_DTYPE_BF16, 0, &bytes), MP_STATUS_INVALID_ARGUMENT,
             "-1");
    MP_FAILS(mp_comm_get_wire_bytes(1, MP_DTYPE_BF16, 9, &bytes), MP_STATUS_INVALID_ARGUMENT, "9");
    MP_FAILS(mp_comm_get_wire_bytes(1, MP_DTYPE_BF16, 0, nullptr), MP_STATUS_NULL_ARGUMENT,
             "bytes");
}

// What is reduced, wrongly, on one of two ranks; and that nothing was sent.
struct Refused {
    mp_comm* comm;
    Array source, shard, sum;
    const mp_tensor* sources[1] = {source.tensor};
    int64_t counts[2] = {32, 32};

    Refused(mp_comm* of, mp_context* context)
        : comm(of), source(context, 64, 1.0F), shard(context, 32, 0.0F), sum(context, 64, 0.0F) {}
    void expect_silence() const {
        mp_comm_traffic traffic = MP_COMM_TRAFFIC_INIT;
        MP_OK(mp_comm_get_traffic(comm, &traffic));
        EXPECT_EQ(traffic.calls, 0);
    }
};

TEST(Reduce, RefusesWithTheReasonAndSendsNothing) {
    run_ranks(2, [](mp_comm* comm, mp_context* context, int32_t /*rank*/) {
        const Refused what(comm, context);
        mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
        const auto reduce = [&] {
            return mp_comm_reduce_scatter(comm, nullptr, &desc, what.sources, 1, what.counts,
                                          what.shard.tensor, nullptr);
        };
        desc.flags = 2;
        MP_FAILS(reduce(), MP_STATUS_INVALID_ARGUMENT, "desc.flags");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.order = 7;
        MP_FAILS(reduce(), MP_STATUS_INVALID_ARGUMENT, "desc.order");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.order = MP_COMM_ORDER_FAST;
        desc.wire_dtype = MP_DTYPE_FP8_E4M3;
        MP_FAILS(reduce(), MP_STATUS_UNSUPPORTED, "every hop");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.op = MP_COMM_OP_MAX_ABS_BITS;
        MP_FAILS(reduce(), MP_STATUS_UNSUPPORTED, "sums only");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.accumulate = MP_COMM_ACCUMULATE_FIXED;
        MP_FAILS(reduce(), MP_STATUS_UNSUPPORTED, "fp32 or fp64");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.wire_dtype = 99;
        MP_FAILS(reduce(), MP_STATUS_INVALID_DTYPE, "desc.wire_dtype");
        desc = MP_COMM_REDUCE_DESC_INIT;
        desc.struct_size = 4;
        MP_FAILS(reduce(), MP_STATUS_INVALID_ARGUMENT, "struct_size");
        what.expect_silence();
    });
}

TEST(Reduce, RefusesWrongArraysAndSendsNothing) {
    run_ranks(2, [](mp_comm* comm, mp_context* context, int32_t /*rank*/) {
        const Refused what(comm, context);
        const auto& [own, source, shard, sum, sources, counts] = what;
        mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
        MP_FAILS(mp_comm_reduce_scatter(nullptr, nullptr, &desc, sources, 1, counts, shard.tensor,
                                        nullptr),
                 MP_STATUS_NULL_ARGUMENT, "comm");
        MP_FAILS(
            mp_comm_reduce_scatter(comm, nullptr, &desc, nullptr, 1, counts, shard.tensor, nullptr),
            MP_STATUS_NULL_ARGUMENT, "sources");
        MP_FAILS(
            mp_comm_reduce_scatter(comm, nullptr, &desc, sources, 1, counts, sum.tensor, nullptr),
            MP_STATUS_INVALID_SHAPE, "64");
        desc.wire_dtype = MP_DTYPE_BF16;
        MP_FAILS(
            mp_comm_reduce_scatter(comm, nullptr, &desc, sources, 0, counts, shard.tensor, nullptr),
            MP_STATUS_INVALID_ARGUMENT, "0 arrays");
        desc.wire_dtype = MP_DTYPE_NONE;
        MP_FAILS(mp_comm_all_reduce(comm, nullptr, &desc, nullptr, 0, sum.tensor, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "desc.wire_dtype");
        MP_FAILS(mp_comm_all_reduce(comm, nullptr, &desc, sources, 1, source.tensor, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "overlap");
        MP_FAILS(mp_comm_all_reduce(comm, nullptr, &desc, sources, -1, sum.tensor, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "source_count");
        MP_FAILS(
            mp_comm_all_gather_values(comm, nullptr, &desc, nullptr, counts, sum.tensor, nullptr),
            MP_STATUS_NULL_ARGUMENT, "sources[i]");
        desc.flags = MP_REDUCE_STOCHASTIC;
        desc.first_element = -300;
        MP_FAILS(mp_comm_all_gather_values(comm, nullptr, &desc, shard.tensor, counts, sum.tensor,
                                           nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "first_element");
        MP_FAILS(
            mp_comm_reduce_scatter(comm, nullptr, &desc, sources, 1, counts, shard.tensor, nullptr),
            MP_STATUS_INVALID_ARGUMENT, "first_element");
        what.expect_silence();
    });
}

} // namespace
} // namespace mp_test
