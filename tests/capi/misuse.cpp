// SPDX-License-Identifier: Apache-2.0
// Every public function with NULL, with destroyed handles, with handles of another kind: a status and words,
// never a crash. Runs under the address sanitizer too.
#include <iterator>
#include <map>

#include "support.hpp"

using namespace mp_test;

namespace {

// Every function with pointers, as the headers declare it (every_call.py), with one handle and nothing else.
template <typename T> T** place() {
    static T* made = nullptr;
    return &made;
}
struct Call {
    const char* name;
    const char* handle; // the kind of the first argument; "" where it is no handle
    bool is_void;
    mp_status (*run)(void* handle);
};
constexpr Call kCalls[] = {
#include <every_call.inc>
};

// With a handle that is none of its kind a call says so, or that another argument is missing, which it may see first.
void expect_refused(const Call& call, void* handle) {
    const mp_status status = call.run(handle);
    if (!call.is_void) {
        EXPECT_TRUE(status == MP_STATUS_INVALID_HANDLE || status == MP_STATUS_NULL_ARGUMENT)
            << call.name << ": " << mp_status_string(status) << ", " << mp_last_error_message();
        EXPECT_STRNE(mp_last_error_message(), "") << call.name;
    }
}

} // namespace

TEST(Misuse, EveryCallWithNothing) {
    const std::map<std::string, mp_status> others = {
        {"mp_device_get_name", MP_STATUS_INVALID_ARGUMENT}, // its kind, 0, is seen first
        {"mp_device_get_memory", MP_STATUS_INVALID_ARGUMENT},
        {"mp_linear_end_step", MP_STATUS_OK}, // of no layers
        {"mp_last_error_copy", MP_STATUS_OK},
    };
    for (const Call& call : kCalls) {
        const mp_status status = call.run(nullptr);
        const auto other = others.find(call.name);
        if (!call.is_void) {
            EXPECT_EQ(status, other == others.end() ? MP_STATUS_NULL_ARGUMENT : other->second)
                << call.name;
            EXPECT_TRUE(status == MP_STATUS_OK || mp_last_error_message()[0] != '\0') << call.name;
        }
    }
    EXPECT_GT(std::size(kCalls), 200U);
}

TEST(Misuse, EveryCallWithAHandleOfAnotherKindOrADestroyedOne) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    mp_context* other = context;
    mp_recipe* gone = make_recipe(context, "fp32").owned.release();
    mp_recipe_destroy(gone);
    mp_recipe* live = recipe;
    for (const Call& call : kCalls) {
        if (call.handle[0] != '\0') {
            expect_refused(call, gone);
            expect_refused(call, std::strcmp(call.handle, "mp_context") == 0
                                     ? static_cast<void*>(live)
                                     : static_cast<void*>(other));
        }
    }
    EXPECT_EQ(mp_recipe_validate(recipe), MP_STATUS_OK); // both are as they were
    EXPECT_EQ(mp_context_sync(context), MP_STATUS_OK);
}

TEST(Misuse, DestroyedHandlesAreRecognized) {
    const Context context = make_context(1);
    mp_tensor* tensor = make_tensor(context, MP_DTYPE_FP32, {4}).owned.release();
    mp_tensor_destroy(tensor);
    mp_tensor_destroy(tensor); // twice is nothing
    MP_FAILS(mp_tensor_zero(tensor, nullptr), MP_STATUS_INVALID_HANDLE, "tensor", "destroyed");
    // A good while later too.
    for (int i = 0; i < 500; ++i) {
        (void)make_tensor(context, MP_DTYPE_FP32, {4});
    }
    MP_FAILS(mp_tensor_zero(tensor, nullptr), MP_STATUS_INVALID_HANDLE, "tensor");

    mp_recipe* recipe = make_recipe(context, "fp32").owned.release();
    mp_recipe_destroy(recipe);
    mp_optimizer* optimizer = nullptr;
    MP_FAILS(mp_optimizer_create(context, recipe, nullptr, &optimizer), MP_STATUS_INVALID_HANDLE,
             "recipe");
    mp_context* gone = make_context(1).owned.release();
    mp_context_destroy(gone);
    MP_FAILS(mp_recipe_create(gone, "fp32", &recipe), MP_STATUS_INVALID_HANDLE, "context");
    EXPECT_EQ(recipe, nullptr);
}

TEST(Misuse, HandlesOfAnotherKindAreRecognized) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    auto* disguised = reinterpret_cast<mp_tensor*>(static_cast<mp_recipe*>(recipe));
    MP_FAILS(mp_tensor_zero(disguised, nullptr), MP_STATUS_INVALID_HANDLE, "another kind");
    mp_tensor_destroy(disguised); // ignored
    EXPECT_EQ(mp_recipe_validate(recipe), MP_STATUS_OK);
}

// A garbage collector may run finalizers between a failure and the reading of its words.
TEST(Misuse, DestroyKeepsTheMessage) {
    const Context context = make_context(1);
    Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {4});
    mp_recipe* recipe = nullptr;
    EXPECT_EQ(mp_recipe_create(context, "nonsense", &recipe), MP_STATUS_UNKNOWN_NAME);
    const std::string words = mp_last_error_message();
    tensor = Tensor();
    EXPECT_EQ(mp_last_error_message(), words);
}

TEST(Misuse, ShutdownWaitsForContexts) {
    Context context = make_context(1);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {4});
    context = Context();
    MP_FAILS(mp_library_shutdown(), MP_STATUS_BAD_STATE, "1 context"); // the tensor keeps it alive
}
