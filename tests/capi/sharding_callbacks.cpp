// SPDX-License-Identifier: Apache-2.0
// A sharded optimizer over a table of callbacks (which hand everything on to ranks that are threads): with
// MP_COMM_TAKES_ANY_THREAD a thread of the optimizer's calls poll and release, never beside another call of the table;
// without it every call comes from the caller's own thread.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "support.hpp"

using namespace mp_test;

namespace {

using Comm = Handle<mp_comm, mp_comm_destroy>;

// One rank's communicator behind a table, and who called it.
struct Forward {
    Comm comm;
    uint32_t flags = 0;
    std::atomic<int> inside{0}; // calls at the same time
    std::mutex mutex;
    std::set<std::thread::id> pollers, others;
    std::unique_ptr<Forward> part; // the group that split() made

    static Forward& of(void* payload) { return *static_cast<Forward*>(payload); }
    mp_comm_callbacks table();
};

// A call of the table, alone in it.
class Call {
  public:
    Call(Forward& forward, std::set<std::thread::id> Forward::*callers) : forward_(forward) {
        EXPECT_EQ(forward_.inside.fetch_add(1), 0) << "two calls of one table at the same time";
        const std::lock_guard lock(forward.mutex);
        (forward.*callers).insert(std::this_thread::get_id());
    }
    ~Call() { forward_.inside.fetch_sub(1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

  private:
    Forward& forward_;
};

mp_status begin(const mp_comm_operation* operation, void** request, void* payload) {
    Forward& forward = Forward::of(payload);
    const Call call(forward, &Forward::others);
    auto** out = reinterpret_cast<mp_comm_request**>(request);
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
    exchange.send = operation->send;
    exchange.send_bytes = operation->send_bytes;
    exchange.send_offsets = operation->send_offsets;
    exchange.receive = operation->receive;
    exchange.receive_bytes = operation->receive_bytes;
    exchange.receive_offsets = operation->receive_offsets;
    switch (operation->kind) {
    case MP_COMM_ALL_TO_ALL:
        return mp_comm_all_to_all(forward.comm, nullptr, &exchange, out);
    case MP_COMM_ALL_GATHER:
        return mp_comm_all_gather(forward.comm, nullptr, &exchange, out);
    case MP_COMM_BROADCAST:
        return mp_comm_broadcast(forward.comm, nullptr, operation->receive,
                                 operation->receive_bytes[0], operation->root, out);
    case MP_COMM_MAX_U32:
        return mp_comm_max_u32(forward.comm, static_cast<uint32_t*>(operation->receive),
                               operation->count, out);
    default:
        return mp_comm_barrier(forward.comm, out);
    }
}

mp_status poll(void* request, int32_t* done, void* payload) {
    const Call call(Forward::of(payload), &Forward::pollers);
    const mp_status status = mp_comm_request_test(static_cast<mp_comm_request*>(request));
    *done = status == MP_STATUS_OK ? 1 : 0;
    return status == MP_STATUS_NOT_READY ? MP_STATUS_OK : status;
}

void release(void* request, void* payload) {
    const Call call(Forward::of(payload), &Forward::pollers);
    mp_comm_request_destroy(static_cast<mp_comm_request*>(request));
}

mp_status split(const mp_comm_group* group, mp_comm_callbacks* out, void* payload) {
    Forward& forward = Forward::of(payload);
    mp_comm* part = nullptr;
    const mp_status status = mp_comm_split(forward.comm, group->color, group->key, &part);
    forward.part = std::make_unique<Forward>();
    forward.part->comm = Comm(part);
    forward.part->flags = forward.flags;
    *out = forward.part->table();
    return status;
}

mp_comm_callbacks Forward::table() {
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
    table.flags = flags;
    EXPECT_TRUE(succeeded(mp_comm_get_rank(comm, &table.rank)));
    EXPECT_TRUE(succeeded(mp_comm_get_size(comm, &table.size)));
    table.begin = begin;
    table.poll = poll;
    table.release = release;
    table.split = split;
    table.payload = this;
    return table;
}

mp_sharding_progress progress_of(const mp_optimizer* optimizer) {
    mp_sharding_progress progress{};
    progress.struct_size = sizeof progress;
    EXPECT_TRUE(succeeded(mp_optimizer_get_progress(optimizer, &progress)));
    return progress;
}

// One step in which the gradients leave before it.
void train(mp_comm* comm, bool has_thread) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_optimizer* raw = nullptr;
    MP_OK(mp_optimizer_create_sharded(context, recipe, nullptr, comm, nullptr, &raw));
    const Optimizer optimizer(raw);
    int32_t group = -1;
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, &group));
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {40000}, numbers(40000, 1));
    mp_param_desc param = MP_PARAM_DESC_INIT;
    param.name = "weight";
    param.param = weight;
    MP_OK(mp_optimizer_add_param(optimizer, group, &param, nullptr));
    MP_OK(mp_optimizer_shard(optimizer, nullptr));
    EXPECT_EQ(progress_of(optimizer).has_thread, has_thread ? 1 : 0);
    EXPECT_EQ(std::string(progress_of(optimizer).reason).find("ANY_THREAD") != std::string::npos,
              !has_thread);
    MP_OK(mp_optimizer_grad_ready(optimizer, nullptr, 0));
    for (int ms = 0;
         has_thread && ms < 20000 && progress_of(optimizer).finished < progress_of(optimizer).begun;
         ++ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    MP_OK(mp_optimizer_step(optimizer, nullptr, nullptr));
    EXPECT_EQ(progress_of(optimizer).finished_by_thread > 0, has_thread);
}

class ShardingCallbacks : public testing::TestWithParam<uint32_t> {};

} // namespace

TEST_P(ShardingCallbacks, CallTheTableFromWhereItSays) {
    constexpr int32_t kRanks = 2;
    const bool has_thread = GetParam() != 0;
    mp_comm* raw[kRanks] = {};
    MP_OK(mp_comm_create_threads(nullptr, kRanks, raw));
    const auto rank = [&](int32_t r) {
        Forward forward;
        forward.comm = Comm(raw[r]);
        forward.flags = GetParam();
        const mp_comm_callbacks table = forward.table();
        mp_comm* made = nullptr;
        MP_OK(mp_comm_create_callbacks(nullptr, &table, &made));
        const Comm comm(made);
        train(comm, has_thread);
        ASSERT_NE(forward.part, nullptr);
        const std::set<std::thread::id> own = {std::this_thread::get_id()};
        EXPECT_EQ(forward.part->others, own) << "begun by the caller alone";
        EXPECT_EQ(forward.part->pollers.size(), has_thread ? 2U : 1U);
        EXPECT_EQ(forward.part->pollers.count(*own.begin()), 1U);
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
}

INSTANTIATE_TEST_SUITE_P(Flags, ShardingCallbacks,
                         testing::Values(0U, uint32_t{MP_COMM_TAKES_ANY_THREAD}));
