// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp with exceptions: ranks as threads, reductions, and a transport of one's own.
#include "cpp.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

namespace {

/* Ranks of one process over queues of bytes: what a transport of one's own must do, at its smallest. */
struct Wire {
    std::mutex mutex;
    std::map<std::tuple<std::uint64_t, int, int>, std::vector<char>> parts; // sequence, from, to
    std::map<std::pair<int, int>, std::shared_ptr<Wire>> groups;            // context, color
};

struct Threads final : mp::Transport {
    Threads(std::shared_ptr<Wire> shared, int own, int ranks)
        : wire(std::move(shared)), rank(own), size(ranks) {}
    mp_status begin(const mp_comm_operation& operation, void** request) override {
        if (fail)
            throw std::runtime_error("the cable is cut");
        const std::lock_guard lock(wire->mutex);
        const auto put = [&](int to, const void* data, std::int64_t bytes) {
            const char* from = static_cast<const char*>(data);
            wire->parts[{operation.sequence, rank, to}].assign(from, from + bytes);
        };
        for (int to = 0; to < size; ++to) {
            if (operation.kind == MP_COMM_ALL_TO_ALL) {
                put(to, static_cast<const char*>(operation.send) + operation.send_offsets[to],
                    operation.send_bytes[to]);
            } else if (operation.kind == MP_COMM_ALL_GATHER) {
                put(to, operation.send, operation.send_bytes[0]);
            } else if (operation.kind == MP_COMM_MAX_U32) {
                put(to, operation.receive, operation.count * 4);
            } else if (operation.kind == MP_COMM_BARRIER) {
                put(to, "", 0);
            } else if (rank == operation.root) {
                put(to, operation.receive, operation.receive_bytes[0]);
            }
        }
        *request = new mp_comm_operation(operation);
        return MP_STATUS_OK;
    }
    mp_status poll(void* request, bool& done) override {
        const auto& operation = *static_cast<mp_comm_operation*>(request);
        const std::lock_guard lock(wire->mutex);
        const bool broadcast = operation.kind == MP_COMM_BROADCAST;
        for (int from = 0; from < size; ++from) {
            if ((!broadcast || from == operation.root) &&
                !wire->parts.count({operation.sequence, from, rank}))
                return MP_STATUS_OK;
        }
        for (int from = 0; from < size; ++from) {
            if (broadcast && from != operation.root)
                continue;
            const auto& part = wire->parts[{operation.sequence, from, rank}];
            char* into = static_cast<char*>(operation.receive);
            if (operation.kind == MP_COMM_MAX_U32) {
                for (std::int64_t i = 0; i < operation.count; ++i) {
                    std::uint32_t mine = 0, theirs = 0;
                    std::memcpy(&mine, into + i * 4, 4),
                        std::memcpy(&theirs, part.data() + i * 4, 4);
                    mine = std::max(mine, theirs);
                    std::memcpy(into + i * 4, &mine, 4);
                }
            } else if (!part.empty()) {
                std::memcpy(broadcast ? into : into + operation.receive_offsets[from], part.data(),
                            part.size());
            }
        }
        done = true;
        return MP_STATUS_OK;
    }
    void release(void* request) override { delete static_cast<mp_comm_operation*>(request); }
    std::shared_ptr<Transport> split(const mp_comm_group& group) override {
        const std::lock_guard lock(wire->mutex);
        auto& part = wire->groups[{group.context, group.color}];
        if (!part)
            part = std::make_shared<Wire>();
        return std::make_shared<Threads>(part, group.rank, group.count);
    }
    std::shared_ptr<Wire> wire;
    int rank, size;
    bool fail = false;
};

std::vector<float> train_on_ranks(std::vector<mp::Comm> comms, int stage) {
    std::vector<std::vector<float>> weights(comms.size());
    on_ranks(static_cast<int>(comms.size()), [&](int own) {
        const auto rank = static_cast<std::size_t>(own);
        const auto context = mp::Context::create();
        auto recipe = mp::Recipe::create(context, "bf16_mixed");
        mp::ShardingOptions sharding;
        sharding.stage = stage;
        auto optimizer = mp::Optimizer::create_sharded(context, recipe, comms[rank], sharding);
        optimizer.add_group();
        auto w = recipe.weight(context, {200, 200}, ramp(40000));
        const int index = optimizer.add_param("w", w);
        optimizer.shard();
        for (int step = 0; step < 5; ++step) {
            auto gradient = ramp(40000);
            for (float& g : gradient)
                g *= static_cast<float>(own + step);
            optimizer.acquire_grad(index);
            optimizer.grad(index).write(gradient);
            optimizer.grad_ready(index);
            optimizer.step();
        }
        comms[rank].barrier();
        weights[rank] = w.to_vector<float>();
    });
    for (const auto& one : weights)
        EXPECT_EQ(one, weights[0]);
    return weights[0];
}

// The same weight, and another one, whose memory comes and goes with layers. Their gradients are made in two micro-batches.
std::vector<float> train_by_layers(int stage) {
    auto comms = mp::Comm::threads(2);
    std::vector<std::vector<float>> weights(2);
    on_ranks(2, [&](int own) {
        const auto rank = static_cast<std::size_t>(own);
        const auto context = mp::Context::create();
        auto recipe = mp::Recipe::create(context, "bf16_mixed");
        mp::ShardingOptions sharding;
        sharding.stage = stage;
        auto optimizer = mp::Optimizer::create_sharded(context, recipe, comms[rank], sharding);
        optimizer.add_group();
        const auto w = recipe.weight(context, {200, 200}, ramp(40000));
        const auto v = recipe.weight(context, {200, 200}, ramp(40000));
        const int indices[] = {optimizer.add_param("w", w), optimizer.add_param("v", v)};
        optimizer.set_layer_params({{indices[0]}, {indices[1]}});
        optimizer.shard();
        for (int step = 0; step < 5; ++step) {
            auto gradient = ramp(40000);
            for (float& g : gradient)
                g *= static_cast<float>(own + step);
            for (const int layer : {0, 1}) {
                optimizer.layer_begin(layer, MP_PASS_FORWARD);
                EXPECT_EQ((layer == 0 ? w : v).to_vector<float>().size(), 40000u);
                optimizer.layer_end(layer, MP_PASS_FORWARD);
            }
            for (const int pass : {MP_PASS_ACCUMULATE, MP_PASS_BACKWARD}) {
                for (const int layer : {1, 0}) {
                    optimizer.layer_begin(layer, pass);
                    auto grad = optimizer.grad(indices[layer]);
                    if (pass == MP_PASS_ACCUMULATE)
                        grad.write(gradient);
                    else
                        EXPECT_EQ(grad.to_vector<float>(), gradient) << "it must not have left";
                    optimizer.layer_end(layer, pass);
                }
            }
            optimizer.step();
        }
        optimizer.layer_begin(0, MP_PASS_FORWARD);
        weights[rank] = w.to_vector<float>();
        optimizer.layer_end(0, MP_PASS_FORWARD);
        comms[rank].barrier();
    });
    EXPECT_EQ(weights[0], weights[1]);
    return weights[0];
}

} // namespace

TEST(Cpp, RanksAsThreadsAndOverAnOwnTransport) {
    const auto expected = train_on_ranks(mp::Comm::threads(2), 1);
    EXPECT_NE(expected, ramp(40000));
    EXPECT_EQ(train_on_ranks(mp::Comm::threads(2), 2), expected);
    auto wire = std::make_shared<Wire>();
    const std::weak_ptr<Wire> watched = wire;
    std::vector<mp::Comm> own;
    for (int rank = 0; rank < 2; ++rank)
        own.push_back(mp::Comm::over(std::make_shared<Threads>(wire, rank, 2), rank, 2));
    wire.reset();
    EXPECT_EQ(train_on_ranks(std::move(own), 1), expected);
    EXPECT_TRUE(watched.expired()) << "the transport must end with its last user";
}

TEST(Cpp, LayersGiveTheSameBitsInEveryStage) {
    const auto expected = train_on_ranks(mp::Comm::threads(2), 1);
    for (const int stage : {1, 2, 3})
        EXPECT_EQ(train_by_layers(stage), expected) << "stage " << stage;
}

TEST(Cpp, LayersAreCheckedAlsoWithoutRanks) {
    const auto context = mp::Context::create();
    auto optimizer = optimizer_of(context, mp::Recipe::create(context, "fp32"));
    const auto w = zeros(context, {4});
    optimizer.add_param("w", w);
    const auto begin = [&](int layer, int pass) {
        return status_of([&] { optimizer.layer_begin(layer, pass); });
    };
    const auto end = [&](int layer, int pass) {
        return status_of([&] { optimizer.layer_end(layer, pass); });
    };
    EXPECT_EQ(begin(0, MP_PASS_FORWARD), MP_STATUS_INVALID_ARGUMENT);
    optimizer.set_layer_params({{0}, {}}, 0);
    EXPECT_EQ(end(0, MP_PASS_FORWARD), MP_STATUS_BAD_STATE);
    EXPECT_EQ(begin(0, MP_PASS_BACKWARD), MP_STATUS_OK);
    EXPECT_EQ(begin(0, MP_PASS_BACKWARD), MP_STATUS_BAD_STATE);
    EXPECT_EQ(end(0, MP_PASS_FORWARD), MP_STATUS_BAD_STATE);
    EXPECT_EQ(status_of([&] { optimizer.set_layer_params({}); }), MP_STATUS_BAD_STATE);
    EXPECT_EQ(end(0, MP_PASS_BACKWARD), MP_STATUS_OK);
    for (const int layer : {-1, 2})
        EXPECT_EQ(begin(layer, MP_PASS_FORWARD), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(begin(1, MP_PASS_ACCUMULATE + 1), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { optimizer.set_layer_params({{0, 1}}); }), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { optimizer.set_layer_params({{0}}, 65); }),
              MP_STATUS_INVALID_ARGUMENT);
    optimizer.set_layer_params({});
    EXPECT_EQ(begin(0, MP_PASS_FORWARD), MP_STATUS_INVALID_ARGUMENT);
}

TEST(Cpp, ASaveInTheBackgroundWantsRanksThatAnotherThreadMayUse) {
    for (const bool any_thread : {false, true}) {
        const Folder folder;
        auto wire = std::make_shared<Wire>();
        on_ranks(2, [&](int rank) {
            const auto context = mp::Context::create();
            const auto comm = mp::Comm::over(std::make_shared<Threads>(wire, rank, 2), rank, 2, {},
                                             any_thread ? MP_COMM_TAKES_ANY_THREAD : 0u);
            auto checkpoint = mp::Checkpoint::create(context, comm);
            std::int64_t data = 7;
            checkpoint.add_data("data", data);
            EXPECT_EQ(
                status_of([&] { checkpoint.save(folder.path.string(), 1, MP_SAVE_BACKGROUND); }),
                any_thread ? MP_STATUS_OK : MP_STATUS_UNSUPPORTED);
            checkpoint.wait();
        });
        EXPECT_EQ(std::filesystem::exists(folder.path), any_thread);
    }
}

TEST(Cpp, AnExceptionInATransportIsAStatus) {
    auto transport = std::make_shared<Threads>(std::make_shared<Wire>(), 0, 1);
    auto comm = mp::Comm::over(transport, 0, 1);
    transport->fail = true;
    EXPECT_LT(status_of([&] { comm.barrier(); }), 0);
    EXPECT_LT(status_of([&] { comm.status(); }), 0);
}

TEST(Cpp, RanksReduce) {
    auto comms = mp::Comm::threads(2);
    on_ranks(2, [&](int rank) {
        const auto context = mp::Context::create();
        mp::Comm& comm = comms[static_cast<std::size_t>(rank)];
        EXPECT_EQ(comm.rank(), rank);
        auto mine = mp::Tensor::from(
            context, std::vector<float>{1.0f, 2.0f + static_cast<float>(rank)}, {2});
        auto sum = zeros(context, {2});
        comm.all_reduce({&mine}, sum);
        EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{2.0f, 5.0f}));
        auto part = zeros(context, {1});
        comm.reduce_scatter({&mine}, std::vector<std::int64_t>{1, 1}, part);
        EXPECT_EQ(part.to_vector<float>()[0], rank == 0 ? 2.0f : 5.0f);
        EXPECT_EQ(
            status_of([&] { comm.reduce_scatter({&mine}, std::vector<std::int64_t>{2}, part); }),
            MP_STATUS_INVALID_SHAPE);
        auto all = zeros(context, {2});
        comm.all_gather(part, std::vector<std::int64_t>{1, 1}, all);
        EXPECT_EQ(all.to_vector<float>(), sum.to_vector<float>());
        std::array<std::uint32_t, 1> largest{static_cast<std::uint32_t>(rank)};
        comm.max(largest);
        EXPECT_EQ(largest[0], 1u);
        std::array<double, 1> word{rank == 1 ? 0.5 : 0.0};
        comm.broadcast(word, 1);
        EXPECT_EQ(word[0], 0.5);
        auto barrier = comm.begin_barrier();
        barrier.wait();
        EXPECT_TRUE(barrier.finished());
        EXPECT_EQ(comm.split(0, -rank).rank(), 1 - rank);
        EXPECT_GT(comm.traffic().total_bytes, 0);
    });
    EXPECT_GT(mp::Comm::wire_bytes(128, MP_DTYPE_FP8_E4M3), 128);
}
