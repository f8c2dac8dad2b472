// SPDX-License-Identifier: Apache-2.0
// The library on a CUDA device through its C ABI: streams, steps on pointers, tensors. Run on the simulated one too, whose
// memory the host cannot touch.
#include "library.hpp"

using namespace mp_test;

namespace {

// ---- streams -----------------------------------------------------------------------------------

// Two queues, of which the second reads what the first writes: right only where it waits.
TEST_F(OnCuda, AQueueWaitsForAnotherByAnEvent) {
    const Context context = open_context(MP_DEVICE_CUDA);
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context, &raw));
    const Queue first(raw);
    MP_OK(mp_queue_create(context, &raw));
    const Queue second(raw);
    mp_event* made = nullptr;
    MP_OK(mp_event_create(context, &made));
    const Event event(made);
    MP_OK(mp_event_test(event)); // never recorded
    const std::vector<float> values(4096, 2.5F);
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {4096}, values);
    const Tensor middle = make_tensor(context, MP_DTYPE_BF16, {4096});
    const Tensor result = make_tensor(context, MP_DTYPE_FP32, {4096});
    MP_OK(mp_context_sync(context));
    MP_OK(mp_tensor_cast(source, first, middle, nullptr));
    MP_OK(mp_event_record(event, first));
    MP_OK(mp_queue_wait_event(second, event));
    MP_OK(mp_tensor_cast(middle, second, result, nullptr));
    MP_OK(mp_queue_sync(second)); // and by that the first
    EXPECT_EQ(values_of(context, result), values);
    MP_OK(mp_event_sync(event));
    MP_OK(mp_event_test(event));
    MP_OK(mp_queue_sync(first));
}

TEST_F(OnCuda, NativeStreamsAreGivenAndTakenByAddress) {
    const Context context = open_context(MP_DEVICE_CUDA);
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context, &raw));
    const Queue own(raw);
    void* stream = nullptr;
    MP_OK(mp_queue_get_native(own, &stream, sizeof stream));
    ASSERT_NE(stream, nullptr);
    MP_FAILS(mp_queue_get_native(own, &stream, 4), MP_STATUS_INVALID_ARGUMENT, "size is 4");
    MP_FAILS(mp_queue_get_native(own, nullptr, sizeof stream), MP_STATUS_NULL_ARGUMENT, "native");
    MP_OK(mp_queue_wrap_native(context, &stream, &raw));
    const Queue wrapped(raw);
    void* same = nullptr;
    MP_OK(mp_queue_get_native(wrapped, &same, sizeof same));
    EXPECT_EQ(same, stream);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {3}, {1, 2, 3});
    MP_OK(mp_tensor_zero(tensor, wrapped));
    MP_OK(mp_queue_sync(own)); // one stream
    const void* const none = nullptr;
    MP_FAILS(mp_queue_wrap_native(context, &none, &raw), MP_STATUS_INVALID_ARGUMENT,
             "default stream");
    const void* const per_thread = reinterpret_cast<void*>(2); // cudaStreamPerThread
    MP_FAILS(mp_queue_wrap_native(context, &per_thread, &raw), MP_STATUS_INVALID_ARGUMENT,
             "cudaStreamPerThread is another stream in each thread");
    MP_FAILS(mp_queue_wrap_native(context, nullptr, &raw), MP_STATUS_NULL_ARGUMENT, "native");
    EXPECT_EQ(raw, nullptr);
}

// ---- a step on pointers ------------------------------------------------------------------------

// With its numbers in device memory.
TEST_F(OnCuda, APreparedStepHasTheHostsBits) {
    constexpr std::size_t kCount = 5000;
    std::vector<std::vector<unsigned char>> results;
    for (const int32_t kind : {MP_DEVICE_HOST, MP_DEVICE_CUDA}) {
        const Context context = open_context(kind);
        const auto device = [&](uint64_t seed) {
            return make_tensor(context, MP_DTYPE_FP32, {static_cast<int64_t>(kCount)},
                               seed == 0 ? std::vector<float>(kCount) : numbers(kCount, seed));
        };
        const auto address = [](mp_tensor* tensor) {
            void* data = nullptr;
            EXPECT_TRUE(succeeded(mp_tensor_get_data(tensor, &data)));
            return data;
        };
        const Tensor p = device(1), g = device(2), m = device(0), v = device(0);
        const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
        // Five doubles and a count, in words that a tensor has.
        const Tensor words = make_tensor(context, MP_DTYPE_FP32, {12});
        struct {
            double hyper[5] = {3e-3, 0.8, 0.99, 1e-7, 0.25};
            int64_t taken = 0;
        } values;
        static_assert(sizeof values == 12 * sizeof(float));
        MP_OK(mp_tensor_write(words, nullptr, &values, sizeof values));
        mp_step_slot slot = MP_STEP_SLOT_INIT;
        slot.count = static_cast<int64_t>(kCount);
        slot.param.data = address(p);
        slot.grad.data = address(g);
        slot.states[0].data = address(m);
        slot.states[1].data = address(v);
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
            MP_DTYPE_FP32;
        slot.param.amax = static_cast<float*>(address(amax));
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.hyper_pointer = static_cast<const double*>(address(words));
        args.step_pointer = static_cast<int64_t*>(address(words)) + 5;
        mp_step_plan* made = nullptr;
        MP_OK(mp_step_plan_create(context, &args, &slot, 1, &made));
        const StepPlan plan(made);
        for (int i = 0; i < 3; ++i) {
            MP_OK(mp_step_plan_run(plan, nullptr, nullptr));
        }
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        MP_OK(mp_step_plan_get_stats(plan, nullptr, &stats));
        EXPECT_EQ(stats.step, 3);
        for (const Tensor* tensor : {&p, &m, &v, &amax, &words}) {
            results.push_back(bytes_of(*tensor));
        }
    }
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(results[i], results[i + 5]) << i;
    }
}

// ---- tensors -----------------------------------------------------------------------------------

TEST_F(OnCuda, TensorsTravel) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    const std::vector<float> values = numbers(100000, 5);
    const Tensor there = make_tensor(cuda, MP_DTYPE_FP32, {100000}, values);
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {100000});
    desc.device_kind = MP_DEVICE_HOST;
    mp_tensor* raw = nullptr;
    MP_OK(mp_tensor_create(cuda, &desc, &raw));
    const Tensor here(raw);
    MP_OK(mp_tensor_copy(there, nullptr, here));
    MP_OK(mp_context_sync(cuda));
    EXPECT_EQ(values_of(cuda, here), values);
}

TEST_F(OnCuda, TheContextSaysWhatItFound) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    std::vector<char> text(65536);
    MP_OK(mp_context_describe(cuda, text.data(), text.size(), nullptr));
    const std::string description = text.data();
    for (const char* part : {"\"accelerator\"", "\"instruction_set\"", "\"cublaslt\""}) {
        EXPECT_NE(description.find(part), std::string::npos) << part << " in " << description;
    }
}

} // namespace
