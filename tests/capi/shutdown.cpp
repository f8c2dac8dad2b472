// SPDX-License-Identifier: Apache-2.0
// After mp_library_shutdown the library is over, in words. A program of its own, since there is no way back.
#include "support.hpp"

using namespace mp_test;

TEST(Shutdown, IsFinal) {
    {
        const Context context = make_context();
        const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {100});
        const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
        MP_OK(mp_tensor_amax(tensor, nullptr, amax));
    }
    MP_OK(mp_library_shutdown());
    MP_OK(mp_library_shutdown()); // again is nothing
    mp_context* context = nullptr;
    MP_FAILS(mp_context_create(nullptr, &context), MP_STATUS_BAD_STATE, "shutdown");
}
