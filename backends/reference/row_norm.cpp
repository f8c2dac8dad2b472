// SPDX-License-Identifier: Apache-2.0
// row_norm: one element after another, in the lanes and the tree of RowNormDesc.
#include <cmath>

#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/magnitude.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

float norm_of(const RowNormDesc& op, int64_t row) {
    float lanes[numerics::kNormLanes] = {};
    for (int64_t column = 0; column < op.columns; ++column) {
        const float x = numerics::load_as_float(DType::fp32, op.source, row * op.columns + column);
        float& lane = lanes[column % numerics::kNormLanes];
        lane = std::fma(x, x, lane);
    }
    for (int distance = 1; distance < numerics::kNormLanes; distance *= 2) {
        for (int i = 0; i < numerics::kNormLanes; i += 2 * distance) {
            lanes[i] += lanes[i + distance];
        }
    }
    return std::sqrt(lanes[0]);
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const RowNormDesc&>(desc);
    for (int64_t row = 0; row < op.rows; ++row) {
        numerics::store_from_float(DType::fp32, op.result, row, norm_of(op, row), false);
    }
    return {};
}

} // namespace

const Candidate kRowNorm = {kName, takes_all<RowNormDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
