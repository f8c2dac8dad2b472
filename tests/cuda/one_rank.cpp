// SPDX-License-Identifier: Apache-2.0
// What a communicator of one rank does, over NCCL on a GPU, where there are both, and as itself on the host: the same body.
#include "rank_training.hpp"

using namespace mp_test;

namespace {

class OneRank : public ::testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        const bool is_nccl = std::string(GetParam()) == "nccl";
        mp_comm* comm = nullptr;
        if (!is_nccl) {
            context_ = make_context();
            MP_OK(mp_comm_create_self(nullptr, &comm));
            comm_ = Comm(comm);
            return;
        }
        if (mp_device_available(MP_DEVICE_CUDA, 0) == MP_STATUS_DEVICE_UNAVAILABLE) {
            GTEST_SKIP() << "skipped: no CUDA device (" << mp_last_error_message() << ")";
        }
        char id[MP_COMM_UNIQUE_ID_BYTES];
        const mp_status status = mp_comm_get_nccl_unique_id(id, sizeof id);
        if (status == MP_STATUS_UNSUPPORTED) {
            GTEST_SKIP() << "skipped: no NCCL (" << mp_last_error_message() << ")";
        }
        MP_OK(status);
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.device_kind = MP_DEVICE_CUDA;
        mp_context* context = nullptr;
        MP_OK(mp_context_create(&desc, &context));
        context_ = Context(context);
        mp_comm_desc options = MP_COMM_DESC_INIT;
        options.deadline_ms = 10000;
        MP_OK(mp_comm_create_nccl(context_, &options, id, 0, 1, &comm));
        comm_ = Comm(comm);
    }
    // Enqueued on it is what comes before an exchange of device memory.
    [[nodiscard]] Queue make_queue() const {
        mp_queue* queue = nullptr;
        EXPECT_TRUE(succeeded(mp_queue_create(context_, &queue)));
        return Queue(queue);
    }
    static void* memory(const Tensor& tensor) {
        void* data = nullptr;
        EXPECT_TRUE(succeeded(mp_tensor_get_data(tensor, &data)));
        return data;
    }

    Context context_;
    Comm comm_;
};

TEST_P(OneRank, SendsToItself) {
    const Queue queue = make_queue();
    const Tensor source = make_tensor(context_, MP_DTYPE_FP32, {kCount}, some_values());
    MP_OK(mp_context_sync(context_));
    const int64_t bytes = kCount * 4;
    const int64_t zero = 0;
    for (const bool gathers : {false, true}) {
        const Tensor result = make_tensor(context_, MP_DTYPE_FP32, {kCount});
        mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
        exchange.send = memory(source);
        exchange.receive = memory(result);
        exchange.send_bytes = exchange.receive_bytes = &bytes;
        exchange.send_offsets = exchange.receive_offsets = &zero;
        mp_comm_request* request = nullptr;
        MP_OK(
            (gathers ? mp_comm_all_gather : mp_comm_all_to_all)(comm_, queue, &exchange, &request));
        MP_OK(mp_comm_request_wait(request));
        mp_comm_request_destroy(request);
        EXPECT_EQ(bytes_of(result), bytes_of(source));
        MP_OK(mp_comm_broadcast(comm_, queue, memory(result), bytes, 0, nullptr));
        EXPECT_EQ(bytes_of(result), bytes_of(source));
    }
    uint32_t values[] = {7, 0, 0xffffffffU};
    MP_OK(mp_comm_max_u32(comm_, values, 3, nullptr));
    EXPECT_EQ(values[0], 7U);
    EXPECT_EQ(values[2], 0xffffffffU);
    MP_OK(mp_comm_barrier(comm_, nullptr));
}

TEST_P(OneRank, IsItsOwnSum) {
    const Tensor source = make_tensor(context_, MP_DTYPE_FP32, {kCount}, some_values());
    const mp_tensor* sources[] = {source};
    for (const int32_t wire : {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3}) {
        for (const int32_t order :
             {MP_COMM_ORDER_RANK, MP_COMM_ORDER_TREE, MP_COMM_ORDER_EXACT, MP_COMM_ORDER_FAST}) {
            if (order == MP_COMM_ORDER_FAST && wire != MP_DTYPE_FP32) {
                continue; // native sums are fp32
            }
            SCOPED_TRACE(std::to_string(wire) + ", order " + std::to_string(order));
            const Tensor result = make_tensor(context_, MP_DTYPE_FP32, {kCount});
            mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
            desc.wire_dtype = wire;
            desc.order = order;
            MP_OK(mp_comm_all_reduce(comm_, nullptr, &desc, sources, 1, result, nullptr));
            if (wire != MP_DTYPE_FP8_E4M3) { // whose block scales round
                EXPECT_EQ(bytes_of(result), bytes_of(source));
            }
        }
    }
}

TEST_P(OneRank, TrainsAsIfItSharedWithNobody) {
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_pure_sr"}) {
        const std::vector<unsigned char> alone = train(context_, nullptr, recipe, 0);
        for (const int32_t stage : {0, 1, 2}) {
            SCOPED_TRACE(std::string(recipe) + ", stage " + std::to_string(stage));
            EXPECT_EQ(train(context_, comm_, recipe, stage), alone);
        }
    }
}

TEST_P(OneRank, SplitsAndEnds) {
    mp_comm* raw = nullptr;
    MP_OK(mp_comm_split(comm_, 3, 0, &raw));
    {
        const Comm part(raw);
        int32_t size = 0;
        MP_OK(mp_comm_get_size(part, &size));
        EXPECT_EQ(size, 1);
        MP_OK(mp_comm_barrier(part, nullptr));
        MP_OK(mp_comm_abort(part, "a test"));
        MP_FAILS(mp_comm_barrier(part, nullptr), MP_STATUS_ABORTED, "a test");
    }
    MP_OK(mp_comm_barrier(comm_, nullptr)); // lives on
}

INSTANTIATE_TEST_SUITE_P(Transports, OneRank, ::testing::Values("self", "nccl"),
                         [](const auto& i) { return std::string(i.param); });

} // namespace
