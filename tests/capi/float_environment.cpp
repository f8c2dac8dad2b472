// SPDX-License-Identifier: Apache-2.0
// The caller's floating-point environment: given back by every call, what the caller's functions run under, and no trap for
// ordinary work. That all bits stay the same is in equal_bits.cpp.
#include <map>
#include <mutex>
#include <thread>

#include "../../capi/src/dlpack_layout.hpp"
#include "every_preset.hpp"
#include "floats.hpp"
#include "forwarded_comm.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

// The functions that were called, and those which saw another environment than the caller's.
class Sightings {
  public:
    void expect(const FloatWords& words) { expected_ = words; }
    void note(const std::string& function) {
        const FloatWords now = FloatWords::read();
        const std::lock_guard lock(mutex_);
        const bool is_same = now.control == expected_.control && now.other == expected_.other;
        ++(is_same ? right_ : wrong_)[function];
    }
    std::string names() {
        const std::lock_guard lock(mutex_);
        std::string text;
        for (const auto& [name, count] : right_) {
            text += (text.empty() ? "" : ", ") + name;
        }
        for (const auto& [name, count] : wrong_) {
            text += "; another environment in " + name;
        }
        return text;
    }

  private:
    std::mutex mutex_;
    FloatWords expected_;
    std::map<std::string, int> right_, wrong_;
};
Sightings* sightings = nullptr;

void* allocate(size_t size, size_t alignment, void* /*payload*/) {
    sightings->note("allocate");
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void release(void* pointer, size_t /*size*/, size_t /*alignment*/, void* /*payload*/) {
    sightings->note("release");
    std::free(pointer);
}

// On two threads, of which one has the default environment; both have theirs again after a task.
void loop(int32_t count, void (*task)(void*, int32_t), void* data, void* /*payload*/) {
    sightings->note("parallel");
    const auto run = [&](int32_t first) {
        for (int32_t i = first; i < count; i += 2) {
            const FloatWords before = FloatWords::read();
            task(data, i);
            EXPECT_EQ(FloatWords::read(), before) << "after a task";
        }
    };
    std::thread other([&] {
        (void)std::fesetenv(FE_DFL_ENV);
        run(1);
    });
    run(0);
    other.join();
}

Context context_with_functions() {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    desc.allocate = allocate;
    desc.release = release;
    desc.parallel = loop;
    desc.log = [](int32_t, const char*, void*) { sightings->note("log"); };
    desc.log_level = MP_LOG_DEBUG;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

void wrap_and_release(mp_context* context) {
    alignas(64) float memory[64] = {};
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {4});
    mp_tensor* tensor = nullptr;
    const auto deleter = [](void* /*payload*/) { sightings->note("deleter"); };
    MP_OK(mp_tensor_wrap(context, &desc, memory, deleter, nullptr, &tensor));
    mp_tensor_destroy(tensor);
    desc.dtype = MP_DTYPE_FP8_E4M3;
    const auto quantized = [](void* /*payload*/) { sightings->note("quantized deleter"); };
    MP_OK(mp_tensor_wrap_quantized(context, &desc, nullptr, memory, memory + 16, nullptr, quantized,
                                   nullptr, &tensor));
    mp_tensor_destroy(tensor);
    mp::capi::dlpack::ManagedTensorVersioned managed{};
    managed.version = {1, 0};
    managed.deleter = [](mp::capi::dlpack::ManagedTensorVersioned*) { sightings->note("DLPack"); };
    int64_t size = 4;
    managed.tensor = {memory, {1, 0}, 1, {2, 32, 1}, &size, nullptr, 0};
    auto* foreign = reinterpret_cast<DLManagedTensorVersioned*>(&managed);
    MP_OK(mp_dlpack_import(context, foreign, &tensor));
    mp_tensor_destroy(tensor);
}

// Each function of a table, by the calls of a communicator.
void exchange() {
    mp_comm* raw = nullptr;
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    MP_OK(mp_comm_create_self(&desc, &raw));
    Forward forward;
    forward.comm = Comm(raw);
    mp_comm_callbacks table = forward.table();
    table.begin = [](const mp_comm_operation* operation, void** request, void* payload) {
        sightings->note("begin");
        return forward_begin(operation, request, payload);
    };
    table.poll = [](void* request, int32_t* done, void* payload) {
        sightings->note("poll");
        static thread_local int late = 0;
        if (++late % 3 != 0) { // so that somebody waits
            *done = 0;
            return MP_STATUS_OK;
        }
        return forward_poll(request, done, payload);
    };
    table.release = [](void* request, void* payload) {
        sightings->note("release of a request");
        forward_release(request, payload);
    };
    table.split = [](const mp_comm_group* group, mp_comm_callbacks* out, void* payload) {
        sightings->note("split");
        return forward_split(group, out, payload);
    };
    table.abort = [](mp_status, const char*, void*) { sightings->note("abort"); };
    table.pause = [](int64_t, void*) { sightings->note("pause"); };
    table.destroy = [](void*) { sightings->note("destroy"); };
    MP_OK(mp_comm_create_callbacks(&desc, &table, &raw));
    const Comm comm(raw);
    mp_comm* part = nullptr;
    MP_OK(mp_comm_split(comm, 0, 0, &part));
    const Comm group(part);
    MP_OK(mp_comm_barrier(comm, nullptr));
    MP_OK(mp_comm_abort(comm, "enough"));
}

void train_and_save() {
    const Folder folder("floats");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.progress = [](int64_t, int64_t, void*) { sightings->note("progress"); };
    Training training(context_with_functions(), "bf16_mixed", 3, nullptr, &desc);
    const auto told = [](void*, const char*, const mp_linear_stats*, const char*) {
        sightings->note("monitor");
    };
    MP_OK(mp_linear_set_monitor(training.linear, "layer", 1, told, nullptr));
    for (int32_t i = 0; i < 4; ++i) {
        training.step();
    }
    const Tensor a = make_tensor(training.context, MP_DTYPE_FP32, {1 << 16});
    const Tensor b = make_tensor(training.context, MP_DTYPE_BF16, {1 << 16});
    MP_OK(mp_tensor_cast(a, nullptr, b, nullptr)); // large enough for the loop
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, MP_SAVE_BACKGROUND));
    MP_OK(mp_checkpoint_wait(training.checkpoint));
    MP_OK(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr));
    wrap_and_release(training.context);
}

} // namespace

TEST(FloatEnvironment, TheCallersFunctionsRunUnderIt) {
    for (const Floats& floats : kFloats) {
        SCOPED_TRACE(floats.name);
        Sightings seen;
        sightings = &seen;
        floats.set();
        const FloatWords before = FloatWords::read();
        seen.expect(before);
        train_and_save();
        exchange();
        const FloatWords after = FloatWords::read();
        (void)std::fesetenv(FE_DFL_ENV);
        EXPECT_EQ(after.control, before.control);
        EXPECT_EQ(seen.names(), "DLPack, abort, allocate, begin, deleter, destroy, log, monitor, "
                                "parallel, pause, poll, progress, quantized deleter, release, "
                                "release of a request, split");
    }
}

// What a function of the caller's does to its thread's environment it does for the caller.
TEST(FloatEnvironment, TheCallersFunctionsMayChangeIt) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 1;
    desc.log_level = MP_LOG_DEBUG;
    desc.log = [](int32_t, const char*, void*) {
        (void)std::fesetround(FE_DOWNWARD);
        (void)std::feraiseexcept(FE_DIVBYZERO);
    };
    mp_context* context = nullptr;
    const mp_status status = mp_context_create(&desc, &context);
    const int rounding = std::fegetround();
    const int flags = std::fetestexcept(FE_ALL_EXCEPT);
    (void)std::fesetenv(FE_DFL_ENV);
    MP_OK(status);
    const Context owned(context);
    EXPECT_EQ(rounding, FE_DOWNWARD);
    EXPECT_EQ(flags, FE_DIVBYZERO);
}

// Calls that fail, too; and flags that the caller has left behind, also where its x87 unit waits to trap.
TEST(FloatEnvironment, EveryCallGivesItBack) {
    const Context context = make_context(2);
    const std::vector<float> values = numbers(1 << 16, 4);
    const Tensor a = make_tensor(context, MP_DTYPE_FP32, {1 << 16}, values);
    const Tensor b = make_tensor(context, MP_DTYPE_FP8_E5M2, {1 << 16});
    for (const Floats& floats : kFloats) {
        for (const int flag : {0, FE_INEXACT, FE_INVALID, FE_OVERFLOW, FE_DIVBYZERO}) {
            floats.set();
            (void)fedisableexcept(FE_ALL_EXCEPT);
            (void)std::feraiseexcept(flag);
            const int traps = floats.traps ? FE_ALL_EXCEPT & ~flag & ~FE_UNDERFLOW : 0;
            (void)feenableexcept(traps);
            const FloatWords before = FloatWords::read();
            const mp_status cast = mp_tensor_cast(a, nullptr, b, nullptr);
            const FloatWords after_cast = FloatWords::read();
            const mp_status failed = mp_tensor_cast(a, nullptr, nullptr, nullptr);
            const FloatWords after_failure = FloatWords::read();
            mp_tensor_destroy(nullptr);
            const FloatWords after_nothing = FloatWords::read();
            (void)std::fesetenv(FE_DFL_ENV);
            SCOPED_TRACE(std::string(floats.name) + ", flag " + std::to_string(flag));
            EXPECT_EQ(cast, MP_STATUS_OK);
            EXPECT_EQ(failed, MP_STATUS_NULL_ARGUMENT);
            EXPECT_EQ(after_cast, before);
            EXPECT_EQ(after_failure, before);
            EXPECT_EQ(after_nothing, before);
        }
    }
}

TEST(FloatEnvironment, NoPresetTraps) {
    const Context context = make_context(3);
    (void)feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    for (int32_t i = 0; i < mp_recipe_preset_count(); ++i) {
        const char* name = nullptr;
        const char* text = nullptr;
        ASSERT_EQ(mp_recipe_get_preset_info(i, &name, &text), MP_STATUS_OK);
        SCOPED_TRACE(name);
        run_layer(context, name);
        run_steps(context, name);
    }
    const int left = std::fetestexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
    (void)std::fesetenv(FE_DFL_ENV);
    EXPECT_EQ(left, 0);
}
