// SPDX-License-Identifier: Apache-2.0
// column_sum: the gradient of a bias, or of a magnitude. The order of the additions is that of ColumnSumDesc; every sum
// starts at +0.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/magnitude.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

float value_at(const ColumnSumDesc& op, int64_t i) {
    const float x = numerics::load_as_float(op.source.dtype, op.source.data, i);
    return op.times.dtype == DType::none
               ? x
               : x * numerics::load_as_float(op.times.dtype, op.times.data, i);
}

float sum_block(const ColumnSumDesc& op, int64_t first_row, int64_t column) {
    const int64_t end =
        first_row + kColumnSumBlock < op.rows ? first_row + kColumnSumBlock : op.rows;
    float sum = 0.0F;
    for (int64_t row = first_row; row < end; ++row) {
        sum += value_at(op, row * op.columns + column);
    }
    return sum;
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const ColumnSumDesc&>(desc);
    for (int64_t column = 0; column < op.columns; ++column) {
        float sum = 0.0F;
        for (int64_t row = 0; row < op.rows; row += kColumnSumBlock) {
            sum += sum_block(op, row, column);
        }
        if (op.divisor != nullptr) {
            const float divisor = numerics::load_as_float(DType::fp32, op.divisor, column);
            sum = numerics::quotient_or_zero(sum, divisor);
        }
        if (op.accumulate) {
            sum += numerics::load_as_float(op.destination.dtype, op.destination.data, column);
        }
        numerics::store_from_float(op.destination.dtype, op.destination.data, column, sum, false);
    }
    return {};
}

} // namespace

const Candidate kColumnSum = {kName, takes_all<ColumnSumDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
