// SPDX-License-Identifier: Apache-2.0
// Two copies of Kokkos in one process: the program's own, started before and finalized while the library is still
// in use, and the library's. Neither notices the other.
#include <Kokkos_Core.hpp>

#include "../capi/support.hpp"

using namespace mp_test;

namespace {

float largest(mp_context* context) {
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {100000}, numbers(100000, 3));
    const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
    EXPECT_TRUE(succeeded(mp_tensor_amax(tensor, nullptr, amax)));
    return values_of(context, amax)[0];
}

} // namespace

TEST(KokkosHost, BothCopiesLiveTheirOwnLives) {
    const Context context = make_context();
    const float before = largest(context);
    Kokkos::initialize();
    {
        Kokkos::View<double*> view("own", 1000);
        Kokkos::deep_copy(view, 2.0);
        double sum = 0;
        Kokkos::parallel_reduce(
            1000, KOKKOS_LAMBDA(int i, double& partial) { partial += view(i); }, sum);
        EXPECT_EQ(sum, 2000.0);
        EXPECT_EQ(largest(context), before);
    }
    Kokkos::finalize();
    EXPECT_EQ(largest(context), before);
    EXPECT_TRUE(Kokkos::is_finalized());
}
