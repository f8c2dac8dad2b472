// SPDX-License-Identifier: Apache-2.0
// The operations that low-rank adapters of a layer (LoRA, DoRA) need beside products. As in ops.hpp, pointers are to the
// device's memory, and everything is checked by core before a backend sees it.
#pragma once

#include <cstdint>

#include "array/tensor_ref.hpp"
#include "device/op_desc.hpp"
#include "numerics/dropout.hpp"
#include "numerics/philox.hpp"

namespace mp {

// destination[i] = round(value), or round(fl32(destination[i] + value)) where it accumulates, rounded to nearest even.
// value = fl32(source[i] * dropout_scale(drop_below)), or +0 for a dropped element, whatever its source is. An element is
// dropped where its 16 random bits, sr_bits16 of Purpose::dropout, are below drop_below. Both arrays are fp32, fp16 or bf16,
// and may be the same memory of one type.
struct DropoutDesc : OpDesc {
    TensorRef source;
    TensorRef destination;
    uint32_t drop_below = 0; // of numerics::kDropoutUnit, and less than that; 0: nothing is dropped
    bool accumulate = false;
    // The random bits are Philox's of (seed, uid, step, element); step is sr_time() where there are micro-batches.
    uint64_t seed = 0;
    uint64_t uid = 0;
    uint64_t step = 0;
    int64_t first_element = 0; // which logical element the first is

    [[nodiscard]] MP_HD_INLINE constexpr numerics::SrKey key() const {
        return numerics::make_sr_key(seed, uid, step);
    }
};

} // namespace mp
