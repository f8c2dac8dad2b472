// SPDX-License-Identifier: Apache-2.0
// Sink: where numbers are written as codes, by whichever operation has them.
#pragma once

#include <cstdint>

#include "array/array_ref.hpp"
#include "numerics/delayed_scaling.hpp"
#include "numerics/quant_stats.hpp"
#include "numerics/rounding.hpp"

namespace mp {

// What is learned about numbers while they become codes; all in device memory, all may be absent.
struct Tracking {
    numerics::DelayedState* delayed = nullptr; // the scale is this one's, once its warm-up is over
    int32_t warm_up = 0;
    numerics::QuantStats* stats = nullptr; // added to, for every array that is written
    float* amax = nullptr;                 // becomes the maximum of itself and the numbers'
};

// One array that is written.
struct ArraySink {
    ArrayRef codes;              // data null: only `transposed` is wanted
    void* transposed = nullptr;  // the same codes transposed, columns x rows; may be null
    numerics::Rounding rounding; // Purpose::cast
    Tracking tracking;
    // Stands for the numbers' own amax where their scale is chosen (grid: one scale for all, or NVFP4, whose scales are relative
    // to it; no delayed scaling): what is larger saturates. Its sign is ignored. NVFP4's codes get it as their amax. Null: the
    // amax is found.
    const float* given_amax = nullptr;
};

struct Sink : ArraySink {
    // The same numbers under another grid, in the same reading of them where a device can; none: not wanted. Not beside delayed
    // scaling or a given amax.
    ArrayRef second;
};

// Nothing but codes.
constexpr Sink sink_of(const ArrayRef& codes) {
    Sink sink;
    sink.codes = codes;
    return sink;
}

} // namespace mp
