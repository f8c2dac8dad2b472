// SPDX-License-Identifier: Apache-2.0
// sum_parts: one element after another, as SumPartsDesc says.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/quantize.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

float value_of(const SumPartsDesc& op, const SumPart& part, int64_t i) {
    const float code = numerics::load_as_float(part.dtype, part.codes, i);
    if (part.scale_inv == nullptr) {
        return code;
    }
    const int64_t index = op.grid.index(0, i, op.count);
    return numerics::dequantize_element(
        code, numerics::load_as_float(op.grid.dtype, part.scale_inv, index));
}

template <class Wide> Wide sum_of(const SumPartsDesc& op, int64_t i) {
    Wide stack[numerics::kSumDepth] = {};
    int32_t depth = 0;
    for (int32_t p = 0; p < op.part_count; ++p) {
        stack[depth++] = static_cast<Wide>(value_of(op, op.host_parts[p], i));
        for (int32_t merge = 0; merge < op.host_parts[p].merges && depth > 1; ++merge) {
            --depth;
            stack[depth - 1] = stack[depth - 1] + stack[depth];
        }
    }
    return stack[0];
}

void store(const SumPartsDesc& op, int64_t i, double sum) {
    const DType to = op.destination.dtype;
    const float once = to == DType::fp32 ? static_cast<float>(sum) : numerics::to_float_odd(sum);
    const float known =
        numerics::is_nan(once) ? numerics::float_from_bits(numerics::kFloatQuietNan) : once;
    numerics::store_from_float(to, op.destination.data, i, known, false);
}

// Which of the blocks an element is in.
int64_t block_of(const SumPartsDesc& op, int64_t i) {
    return (op.first_element + i) / numerics::kExactBlock -
           op.first_element / numerics::kExactBlock;
}

void sum_fixed(const SumPartsDesc& op, int64_t i) {
    const numerics::FixedPoint fixed =
        numerics::fixed_point(op.block_amax[block_of(op, i)], op.fixed_bits);
    uint64_t sum = 0;
    bool is_nan = false;
    for (int32_t p = 0; p < op.part_count; ++p) {
        const SumPart& part = op.host_parts[p];
        const int64_t units = part.dtype == DType::int64
                                  ? numerics::detail::load_element<int64_t>(part.codes, i)
                                  : numerics::to_fixed(fixed, value_of(op, part, i));
        is_nan = is_nan || units == numerics::kUnitsNan || !fixed.is_finite;
        sum += static_cast<uint64_t>(units);
    }
    const int64_t units = is_nan ? numerics::kUnitsNan : static_cast<int64_t>(sum);
    if (op.destination.dtype == DType::int64) {
        numerics::detail::store_element<int64_t>(op.destination.data, i, units);
    } else {
        store(op, i,
              is_nan ? static_cast<double>(numerics::float_from_bits(numerics::kFloatQuietNan))
                     : numerics::from_units(units, fixed.unit));
    }
}

void raise_amax(const SumPartsDesc& op, int64_t i) {
    uint32_t& largest = op.block_amax[block_of(op, i)];
    if (i == 0 || (op.first_element + i) % numerics::kExactBlock == 0) {
        largest = 0;
    }
    for (int32_t p = 0; p < op.part_count; ++p) {
        const float x = value_of(op, op.host_parts[p], i);
        const uint32_t magnitude =
            numerics::is_nan(x) ? numerics::kFloatQuietNan
                                : numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const SumPartsDesc&>(desc);
    for (int64_t i = 0; i < op.count; ++i) {
        switch (op.mode) {
        case SumMode::fp32:
            store(op, i, static_cast<double>(sum_of<float>(op, i)));
            break;
        case SumMode::fp64:
            store(op, i, sum_of<double>(op, i));
            break;
        case SumMode::fixed:
            sum_fixed(op, i);
            break;
        case SumMode::largest:
            raise_amax(op, i);
            break;
        }
    }
    return {};
}

} // namespace

const Candidate kSumParts = {kName, takes_all<SumPartsDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
