// SPDX-License-Identifier: Apache-2.0
// The operations that low-rank adapters of a layer (LoRA, DoRA) need beside products. As in ops.hpp, pointers are to the
// device's memory, and everything is checked by core before a backend sees it.
#pragma once

#include <cstdint>

#include "array/tensor_ref.hpp"
#include "device/op_desc.hpp"
#include "numerics/dropout.hpp"
#include "numerics/magnitude.hpp"
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

// result[i] = sqrt(sum over j of source[i, j]^2), in fp32. Order, the same on every device: lane l of numerics::kNormLanes adds
// the squares of elements l, l + kNormLanes, ... of the row one after another, from +0 on, each by one fused multiply-add; lanes
// are added as a balanced binary tree, neighbours first; the root is IEEE's.
struct RowNormDesc : OpDesc {
    const float* source = nullptr; // rows x columns, row-major
    float* result = nullptr;       // rows
    int64_t rows = 0;
    int64_t columns = 0;
};

// destination[i, j] = round(fl32(fl32(source[i, j] * g) + bias[j])), with g = fl32(magnitude[j] / norm[j]), which is +0 where
// the norm is 0; rounded to nearest even. All but the norm are fp32, fp16 or bf16. Source and destination may be the same memory
// of one type.
struct ScaleColumnsDesc : OpDesc {
    TensorRef source; // rows x columns, row-major, as the destination
    TensorRef destination;
    int64_t rows = 0;
    int64_t columns = 0;
    TensorRef magnitude;         // columns
    const float* norm = nullptr; // columns
    TensorRef bias;              // columns; dtype none: nothing is added
};

} // namespace mp
