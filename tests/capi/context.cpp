// SPDX-License-Identifier: Apache-2.0
// Context, queue, library: opening, describing, hooks, log, devices that are not there.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "memory.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

namespace {

std::string describe(mp_context* context) {
    return written_by([&](char* to, size_t capacity, size_t* needed) {
        return mp_context_describe(context, to, capacity, needed);
    });
}

// A cast and a maximum, large enough to be shared.
std::vector<float> computed_in(mp_context* context) {
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {400, 500}, numbers(200000, 3));
    const Tensor low = make_tensor(context, MP_DTYPE_BF16, {400, 500});
    const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
    EXPECT_TRUE(succeeded(mp_tensor_cast(source, nullptr, low, nullptr)));
    EXPECT_TRUE(succeeded(mp_tensor_amax(low, nullptr, amax)));
    std::vector<float> all = values_of(context, low);
    all.push_back(values_of(context, amax)[0]);
    return all;
}

enum class Loop { on_threads, one_after_another, backwards, without_tasks };

struct Lent {
    Loop kind;
    std::atomic<int> loops{0};
    std::atomic<int> most{0};
};

void lent_loop(int32_t count, void (*task)(void* data, int32_t index), void* data, void* payload) {
    auto* lent = static_cast<Lent*>(payload);
    ++lent->loops;
    lent->most = std::max(lent->most.load(), static_cast<int>(count));
    if (lent->kind == Loop::on_threads) {
        std::vector<std::thread> threads;
        for (int32_t i = 0; i < count; ++i) {
            threads.emplace_back(task, data, i);
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    } else if (lent->kind != Loop::without_tasks) {
        for (int32_t i = 0; i < count; ++i) {
            task(data, lent->kind == Loop::backwards ? count - 1 - i : i);
        }
    }
}

} // namespace

TEST(Context, SaysWhatItIs) {
    const Context context = make_context(1);
    int32_t threads = 0;
    MP_OK(mp_context_get_num_threads(context, &threads));
    EXPECT_EQ(threads, 1);
    const std::string text = describe(context);
    for (const char* word : {"host", "candidates", "optimizer_update", "gemm", "threads"}) {
        EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
    }
}

TEST(Context, DescribeCutsToTheBufferAndTerminates) {
    const Context context = make_context(1);
    char buffer[8] = "zzzzzzz";
    size_t needed = 0;
    MP_OK(mp_context_describe(context, buffer, sizeof buffer, &needed));
    EXPECT_EQ(std::strlen(buffer), sizeof buffer - 1);
    EXPECT_GT(needed, sizeof buffer);
}

TEST(Context, ReferenceBackendCanBeAskedFor) {
    const Context context = make_context(1, "reference");
    EXPECT_NE(describe(context).find("reference"), std::string::npos);
}

TEST(Context, EveryBackendOnTheHostCanBeAskedFor) {
    const Context host = make_context(2);
    for (const char* backend : kHostBackends) {
        const Context context = make_context(0, backend);
        EXPECT_EQ(computed_in(context), computed_in(host)) << backend;
    }
}

TEST(Context, UnknownBackendNamesTheOnesThereAre) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.backend = "abacus";
    mp_context* context = nullptr;
    MP_FAILS(mp_context_create(&desc, &context), MP_STATUS_UNKNOWN_NAME, "abacus", "host",
             "reference");
    EXPECT_EQ(context, nullptr);
}

TEST(Context, BadDescriptorsAreRefused) {
    using Desc = mp_context_desc;
    const auto create = [](auto field, auto value) {
        const Desc desc = with(Desc MP_CONTEXT_DESC_INIT, field, value);
        mp_context* context = nullptr;
        return mp_context_create(&desc, &context);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"device kind 99", create(&Desc::device_kind, 99), {"device_kind", "99"}},
        {"-3 threads", create(&Desc::num_threads, -3), {"num_threads"}},
        {"unknown flags", create(&Desc::flags, 1u << 30), {"flags"}},
        {"no release", create(&Desc::allocate, Counter::allocate), {"release"}},
        {"log level 9", create(&Desc::log_level, 9), {"log_level"}},
    });
    MP_FAILS(create(&Desc::device_index, 5), MP_STATUS_DEVICE_UNAVAILABLE, "device_index", "5");
    MP_FAILS(create(&Desc::api_version, MP_VERSION + 1), MP_STATUS_VERSION_MISMATCH, "newer");
    MP_FAILS(mp_context_create(nullptr, nullptr), MP_STATUS_NULL_ARGUMENT, "out");
}

TEST(Context, StructsOfOtherSizes) {
    // An older caller: only the first fields. A newer one: a longer struct, whose tail must be zero.
    mp_context_desc small = MP_CONTEXT_DESC_INIT;
    small.struct_size = 8;
    small.num_threads = -7; // beyond the 8 bytes: not read
    mp_context* context = nullptr;
    MP_OK(mp_context_create(&small, &context));
    mp_context_destroy(context);

    struct Newer {
        mp_context_desc known;
        uint64_t future;
    } newer = {MP_CONTEXT_DESC_INIT, 0};
    newer.known.struct_size = sizeof newer;
    MP_OK(mp_context_create(&newer.known, &context));
    mp_context_destroy(context);
    newer.future = 1;
    MP_FAILS(mp_context_create(&newer.known, &context), MP_STATUS_STRUCT_TOO_NEW, "newer library");

    mp_context_desc none = MP_CONTEXT_DESC_INIT;
    none.struct_size = 0;
    MP_FAILS(mp_context_create(&none, &context), MP_STATUS_INVALID_ARGUMENT, "struct_size");
}

TEST(Context, EnvironmentSetsThreadsWhereTheDescriptorDoesNot) {
    setenv("MIXEDPREC_NUM_THREADS", "1", 1);
    Context context = make_context(0);
    int32_t threads = 0;
    MP_OK(mp_context_get_num_threads(context, &threads));
    EXPECT_EQ(threads, 1);
    context = make_context(2);
    MP_OK(mp_context_get_num_threads(context, &threads));
    EXPECT_EQ(threads, 2);
    setenv("MIXEDPREC_NUM_THREADS", "many", 1);
    mp_context* refused = nullptr;
    MP_FAILS(mp_context_create(nullptr, &refused), MP_STATUS_INVALID_ARGUMENT,
             "MIXEDPREC_NUM_THREADS");
    unsetenv("MIXEDPREC_NUM_THREADS");
}

TEST(Context, AllMemoryComesFromTheHooksAndGoesBack) {
    Counter counter;
    {
        const Context context = make_counted_context(&counter);
        const int64_t before = counter.live;
        const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {1000, 1000});
        EXPECT_GE(counter.live - before, 4000000);

        counter.refuse = true;
        const mp_tensor_desc wanted = tensor_desc(MP_DTYPE_FP32, {1000});
        mp_tensor* refused = nullptr;
        MP_FAILS(mp_tensor_create(context, &wanted, &refused), MP_STATUS_OUT_OF_MEMORY, "4000");
        EXPECT_EQ(refused, nullptr);
        counter.refuse = false;
    }
    EXPECT_GT(counter.calls, 0);
    EXPECT_EQ(counter.live, 0);
}

TEST(Context, ChildrenOutliveTheHandleTheyWereMadeFrom) {
    Context context = make_context(1);
    Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {4});
    mp_context_destroy(context.owned.release());
    const float value[4] = {1, 2, 3, 4};
    MP_OK(mp_tensor_write(tensor, nullptr, value, sizeof value));
    float back[4] = {};
    MP_OK(mp_tensor_read(tensor, nullptr, back, sizeof back));
    EXPECT_EQ(back[3], 4.0F);
}

// ---- the caller's parallel loop -----------------------------------------------------------------

TEST(ParallelLoop, OfTheCallersDoesTheWork) {
    const Context own = make_context(3);
    const std::vector<float> expected = computed_in(own);
    for (const Loop kind :
         {Loop::on_threads, Loop::one_after_another, Loop::backwards, Loop::without_tasks}) {
        Lent lent{kind};
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = 3;
        desc.parallel = lent_loop;
        desc.parallel_payload = &lent;
        mp_context* made = nullptr;
        MP_OK(mp_context_create(&desc, &made));
        const Context context(made);
        EXPECT_EQ(computed_in(context), expected);
        EXPECT_GE(lent.loops.load(), 2);
        EXPECT_EQ(lent.most.load(), 3);
    }
}

TEST(ParallelLoop, IsNotAskedByOneThread) {
    Lent lent{Loop::on_threads};
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 1;
    desc.parallel = lent_loop;
    desc.parallel_payload = &lent;
    mp_context* made = nullptr;
    MP_OK(mp_context_create(&desc, &made));
    const Context context(made);
    (void)computed_in(context);
    EXPECT_EQ(lent.loops.load(), 0);
}

TEST(ParallelLoop, HasNoThreadsOfOursToBind) {
    Lent lent{Loop::on_threads};
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.flags = MP_CONTEXT_BIND_THREADS;
    desc.parallel = lent_loop;
    desc.parallel_payload = &lent;
    mp_context* none = nullptr;
    MP_FAILS(mp_context_create(&desc, &none), MP_STATUS_INVALID_ARGUMENT, "BIND_THREADS");
    EXPECT_EQ(none, nullptr);
}

TEST(Device, AMissingAcceleratorSaysWhichAndWhat) {
    for (const int32_t kind : {MP_DEVICE_CUDA, MP_DEVICE_HIP}) {
        const mp_status status = mp_device_available(kind, 0);
        if (status == MP_STATUS_OK) {
            continue; // it is there
        }
        EXPECT_TRUE(status == MP_STATUS_MODULE_NOT_FOUND || status == MP_STATUS_DEVICE_UNAVAILABLE)
            << mp_status_string(status);
        const std::string message = mp_last_error_message();
        EXPECT_NE(message.find(kind == MP_DEVICE_CUDA ? "cuda" : "hip"), std::string::npos)
            << message;
        EXPECT_NE(message.find(" or "), std::string::npos) << "what to do: " << message;
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.device_kind = kind;
        mp_context* context = nullptr;
        EXPECT_EQ(mp_context_create(&desc, &context), status);
        EXPECT_EQ(context, nullptr);
    }
}

TEST(Device, AnUnknownKindNamesThoseThereAre) {
    MP_FAILS(mp_device_available(4, 0), MP_STATUS_INVALID_ARGUMENT,
             "device_kind is 4; it must be one of MP_DEVICE_HOST (1), MP_DEVICE_CUDA (2), "
             "MP_DEVICE_HIP (3)");
    MP_FAILS(mp_device_available(MP_DEVICE_DEFAULT, 0), MP_STATUS_INVALID_ARGUMENT, "MP_DEVICE_");
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = -1;
    mp_context* context = nullptr;
    MP_FAILS(mp_context_create(&desc, &context), MP_STATUS_INVALID_ARGUMENT, "device_kind is -1");
}

TEST(Device, HostIsAlwaysThere) {
    MP_OK(mp_device_available(MP_DEVICE_HOST, 0));
    MP_FAILS(mp_device_available(MP_DEVICE_HOST, 1), MP_STATUS_DEVICE_UNAVAILABLE, "1");
    MP_FAILS(mp_device_available(7, 0), MP_STATUS_INVALID_ARGUMENT, "7");
    int32_t count = -1;
    MP_OK(mp_device_get_count(MP_DEVICE_HOST, &count));
    EXPECT_EQ(count, 1);
    char name[64] = "";
    MP_OK(mp_device_get_name(MP_DEVICE_HOST, 0, name, sizeof name, nullptr));
    EXPECT_STREQ(name, "host");
    int64_t bytes = 0;
    MP_OK(mp_device_get_memory(MP_DEVICE_HOST, 0, &bytes));
    EXPECT_GT(bytes, int64_t{1} << 28);
    MP_FAILS(mp_device_get_name(MP_DEVICE_HOST, 1, name, sizeof name, nullptr),
             MP_STATUS_DEVICE_UNAVAILABLE, "1");
    MP_FAILS(mp_device_get_memory(MP_DEVICE_HOST, -1, &bytes), MP_STATUS_DEVICE_UNAVAILABLE, "-1");
    MP_FAILS(mp_device_get_count(7, &count), MP_STATUS_INVALID_ARGUMENT, "7");
    EXPECT_EQ(count, 0);
    MP_FAILS(mp_device_get_count(MP_DEVICE_HOST, nullptr), MP_STATUS_NULL_ARGUMENT, "count");
    MP_FAILS(mp_device_get_memory(MP_DEVICE_HOST, 0, nullptr), MP_STATUS_NULL_ARGUMENT, "bytes");
}

TEST(Queue, OwnQueueWorksAndNativeOnesAreRefusedOnTheHost) {
    const Context context = make_context(1);
    mp_queue* raw = nullptr;
    MP_OK(mp_queue_create(context, &raw));
    const Queue queue(raw);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {3});
    MP_OK(mp_tensor_zero(tensor, queue));
    MP_OK(mp_queue_sync(queue));
    MP_OK(mp_context_sync(context));
    void* stream = &raw;
    mp_queue* native = nullptr;
    MP_FAILS(mp_queue_wrap_native(context, &stream, &native), MP_STATUS_UNSUPPORTED, "native");
    EXPECT_EQ(native, nullptr);
    MP_FAILS(mp_queue_get_native(queue, &stream, sizeof stream), MP_STATUS_UNSUPPORTED, "native");
    EXPECT_EQ(stream, &raw);
}

TEST(Queue, OfAnotherContextIsRefused) {
    const Context one = make_context(1);
    const Context two = make_context(1);
    const Queue queue = make_queue(one);
    const Tensor tensor = make_tensor(two, MP_DTYPE_FP32, {3});
    MP_FAILS(mp_tensor_zero(tensor, queue), MP_STATUS_INVALID_ARGUMENT, "queue");
}

TEST(Library, VersionAndNames) {
    EXPECT_EQ(mp_library_version(), static_cast<uint32_t>(MP_VERSION));
    EXPECT_NE(std::string(mp_library_build_info()).find("libmixedprec"), std::string::npos);
    EXPECT_STREQ(mp_dtype_name(MP_DTYPE_BF16), "bf16");
    EXPECT_STREQ(mp_dtype_name(12345), "unknown");
    EXPECT_EQ(mp_dtype_size(MP_DTYPE_FP8_E4M3), 1U);
    EXPECT_EQ(mp_dtype_size(0), 0U);
    EXPECT_EQ(mp_dtype_bytes(MP_DTYPE_BF16, 5), 10U);
    EXPECT_EQ(mp_dtype_bytes(MP_DTYPE_FP4_E2M1, 5), 3U);
    EXPECT_EQ(mp_dtype_bytes(MP_DTYPE_FP32, -1), 0U);
    EXPECT_EQ(mp_dtype_bytes(MP_DTYPE_FP32, INT64_MAX), 0U);
    EXPECT_EQ(mp_dtype_bytes(0, 5), 0U);
    EXPECT_STREQ(mp_dtype_name(MP_DTYPE_FP4_E2M1), "fp4_e2m1");
    EXPECT_EQ(mp_dtype_size(MP_DTYPE_FP4_E2M1), 0U); // less than a byte
    EXPECT_STREQ(mp_status_string(MP_STATUS_INVALID_SHAPE), "MP_STATUS_INVALID_SHAPE");
    EXPECT_STREQ(mp_status_string(-9999), "MP_STATUS_UNKNOWN");
}

TEST(Library, MessageBelongsToTheLastCall) {
    mp_context* context = nullptr;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = 99;
    EXPECT_EQ(mp_context_create(&desc, &context), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_STRNE(mp_last_error_message(), "");
    char copy[16] = {};
    size_t needed = 0;
    MP_OK(mp_last_error_copy(copy, sizeof copy, &needed));
    EXPECT_GT(needed, sizeof copy);
    EXPECT_EQ(std::strlen(copy), sizeof copy - 1);
    MP_OK(mp_device_available(MP_DEVICE_HOST, 0));
    EXPECT_STREQ(mp_last_error_message(), "");
}
