// SPDX-License-Identifier: Apache-2.0
// Programs that do what a library must expect of them: fork, other locales, callbacks that come in again or throw,
// structs of any size, handles that go while they are used.
#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <langinfo.h>
#include <stdexcept>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training.hpp"

using namespace mp_test;

namespace {

// What a child of this process ends with when it runs the body: its exit code, or minus the signal.
template <typename Body> int end_of_child(const Body& body) {
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(60);
        _exit(body() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool multiply(mp_context* context) {
    const Tensor a = make_tensor(context, MP_DTYPE_FP32, {96, 64}, numbers(96 * 64, 1));
    const Tensor w = make_tensor(context, MP_DTYPE_FP32, {80, 64}, numbers(80 * 64, 2));
    const Tensor y = make_tensor(context, MP_DTYPE_FP32, {96, 80});
    const Recipe recipe = make_recipe(context, "bf16_mixed");
    mp_linear_desc desc = MP_LINEAR_DESC_INIT;
    desc.in_features = 64;
    desc.out_features = 80;
    mp_linear* raw = nullptr;
    if (mp_linear_create(context, recipe, &desc, w, nullptr, &raw) != MP_STATUS_OK) {
        return false;
    }
    const Linear layer(raw);
    return mp_linear_forward(layer, nullptr, a, y) == MP_STATUS_OK;
}

} // namespace

// The parent's threads do not exist in a child: it has its own, and does not wait for those.
TEST(HostilePrograms, AChildOfForkComputes) {
    const Context context = make_context(2);
    ASSERT_TRUE(multiply(context));
    EXPECT_EQ(end_of_child([&] { return multiply(context); }), 0);
    EXPECT_EQ(end_of_child([] { return multiply(make_context(2)); }), 0);
    EXPECT_TRUE(multiply(context));
}

// A size that cannot be is refused before anything behind the first fields is looked at.
TEST(HostilePrograms, StructsOfImpossibleSizesAreNotRead) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto* const memory = static_cast<unsigned char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory, MAP_FAILED);
    ASSERT_EQ(mprotect(memory + page, page, PROT_NONE), 0);
    auto* const desc = reinterpret_cast<mp_context_desc*>(memory + page - sizeof(mp_context_desc));
    for (const uint32_t size : {4097U, 1U << 20, UINT32_MAX}) {
        desc->struct_size = size;
        mp_context* context = nullptr;
        MP_FAILS(mp_context_create(desc, &context), MP_STATUS_INVALID_ARGUMENT,
                 std::to_string(size), "4096");
    }
    munmap(memory, 2 * page);
}

// Numbers in messages and descriptions have a point. Where this machine has no locale with a comma one is made.
TEST(HostilePrograms, ADecimalCommaStaysOutside) {
    const Folder folder("locale");
    fs::create_directory(folder.path);
    const std::string made = folder.path / "de_DE.UTF-8";
    const int failed =
        std::system(("localedef -i de_DE -f UTF-8 '" + made + "' > /dev/null 2>&1").c_str());
    setenv("LOCPATH", folder.c_str(), 1);
    const char* set = failed == 0 ? std::setlocale(LC_ALL, "de_DE.UTF-8") : nullptr;
    unsetenv("LOCPATH");
    if (set == nullptr) {
        GTEST_SKIP() << "skipped: no locale with a decimal comma can be made (Debian: locales)";
    }
    ASSERT_STREQ(nl_langinfo(RADIXCHAR), ",");
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp16_mixed");
    EXPECT_TRUE(fails(mp_recipe_set_float(recipe, "scaler.growth_factor", 0.5),
                      MP_STATUS_INVALID_ARGUMENT, {"0.5"}));
    EXPECT_TRUE(succeeded(mp_recipe_set_float(recipe, "scaler.backoff_factor", 0.25)));
    std::string json(8192, ' ');
    EXPECT_TRUE(succeeded(mp_recipe_to_json(recipe, json.data(), json.size(), nullptr)));
    EXPECT_NE(json.find("0.25"), std::string::npos);
    mp_recipe* again = nullptr;
    EXPECT_TRUE(succeeded(mp_recipe_create_from_json(context, json.c_str(), SIZE_MAX, &again)));
    mp_recipe_destroy(again);
    std::setlocale(LC_ALL, "C");
}

TEST(HostilePrograms, AnAllocatorMayCallIn) {
    struct Hooks {
        std::atomic<mp_context*> context{nullptr};
        std::atomic<int> calls{0};
    } hooks;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    desc.allocator_payload = &hooks;
    desc.allocate = [](size_t size, size_t alignment, void* payload) -> void* {
        auto& own = *static_cast<Hooks*>(payload);
        if (mp_context* context = own.context; context != nullptr) {
            char text[16];
            size_t needed = 0;
            int32_t threads = 0;
            EXPECT_TRUE(succeeded(mp_context_describe(context, text, sizeof text, &needed)));
            EXPECT_TRUE(succeeded(mp_context_get_num_threads(context, &threads)));
            EXPECT_TRUE(succeeded(mp_recipe_get_preset_info(0, nullptr, nullptr)) || true);
            ++own.calls;
        }
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    };
    desc.release = [](void* pointer, size_t, size_t, void*) { std::free(pointer); };
    mp_context* raw = nullptr;
    MP_OK(mp_context_create(&desc, &raw));
    const Context context(raw);
    hooks.context = raw;
    EXPECT_TRUE(multiply(context));
    hooks.context = nullptr;
    EXPECT_GT(hooks.calls, 3);
}

// A mistake, and not one that hangs: the program ends there, or the call says so.
TEST(HostilePrograms, ACallbackThatThrowsDoesNotHang) {
    const auto run = [](const char* which) {
        return end_of_child([which] {
            (void)freopen("/dev/null", "w", stderr); // std::terminate speaks
            static std::string where;
            static std::atomic<bool> armed{false};
            where = which;
            armed = false;
            const auto may_throw = [](const char* here) {
                if (armed && where == here) {
                    throw std::runtime_error("out of a callback");
                }
            };
            static const auto guard = may_throw;
            mp_context_desc desc = MP_CONTEXT_DESC_INIT;
            desc.num_threads = 1;
            desc.log_level = MP_LOG_DEBUG;
            desc.log = [](int32_t, const char*, void*) { guard("log"); };
            desc.allocate = [](size_t size, size_t alignment, void*) -> void* {
                guard("allocate");
                return std::aligned_alloc(alignment,
                                          (size + alignment - 1) / alignment * alignment);
            };
            desc.release = [](void* pointer, size_t, size_t, void*) { std::free(pointer); };
            mp_context* raw = nullptr;
            if (mp_context_create(&desc, &raw) != MP_STATUS_OK) {
                return false;
            }
            armed = true;
            (void)multiply(raw);
            armed = false;
            return multiply(raw); // and nothing is left locked
        });
    };
    for (const char* which : {"log", "allocate"}) {
        const int end = run(which);
        EXPECT_TRUE(end == 0 || end == -SIGABRT) << which << ": " << end;
    }
}

// Class A: another thread's destroy ends the handle, not the call that uses what it named.
TEST(HostilePrograms, AHandleMayGoWhileItIsUsed) {
    const Context context = make_context(1);
    const Tensor to = make_tensor(context, MP_DTYPE_BF16, {100000});
    for (int round = 0; round < 50; ++round) {
        mp_tensor* from = make_tensor(context, MP_DTYPE_FP32, {100000}).owned.release();
        std::atomic<bool> runs{false};
        std::thread user([&] {
            for (int i = 0; i < 50; ++i) {
                runs = true;
                const mp_status status = mp_tensor_cast(from, nullptr, to, nullptr);
                ASSERT_TRUE(status == MP_STATUS_OK || status == MP_STATUS_INVALID_HANDLE) << status;
            }
        });
        while (!runs) {
        }
        mp_tensor_destroy(from);
        user.join();
    }
}
