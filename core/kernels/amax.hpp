// SPDX-License-Identifier: Apache-2.0
// amax as a Kokkos kernel. The maximum of bit patterns does not depend on the order.
#pragma once

#include "kernels/element.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

struct AmaxChunks {
    TensorRef source;
    TableOps ops;
    uint32_t* largest;

    void operator()(int64_t chunk) const {
        const int64_t start = chunk * kChunkElements;
        const int64_t left = source.count - start;
        const uint32_t here =
            ops.table->amax(source, start, left < kChunkElements ? left : kChunkElements);
        Kokkos::atomic_max(largest, here);
    }
};

struct AmaxElements {
    TensorRef source;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t i, uint32_t& largest) const {
        const float x = load_element(source.dtype, source.data, i);
        const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }
};

template <class Exec, class Ops> void amax(const Exec& exec, const Ops& ops, const AmaxDesc& op) {
    if constexpr (kIsHost<Exec>) {
        uint32_t largest = 0;
        for_each(exec, "mp::amax", divide_up(op.source.count, kChunkElements),
                 AmaxChunks{op.source, ops, &largest});
        *op.result = numerics::float_from_bits(largest);
    } else {
        // The result's bits; the reduction ends on the device, so nobody waits for it.
        using Result = Kokkos::View<uint32_t, typename Exec::memory_space,
                                    Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
        const Result result(reinterpret_cast<uint32_t*>(op.result));
        Kokkos::parallel_reduce(
            "mp::amax",
            Kokkos::RangePolicy<Exec, Kokkos::IndexType<int64_t>>(exec, 0, op.source.count),
            AmaxElements{op.source}, Kokkos::Max<uint32_t, typename Exec::memory_space>(result));
    }
}

} // namespace mp::kernels
