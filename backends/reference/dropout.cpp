// SPDX-License-Identifier: Apache-2.0
// dropout: one element after another, as DropoutDesc says.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

bool is_dropped(const DropoutDesc& op, const numerics::SrKey& key, int64_t i) {
    const auto element = static_cast<uint64_t>(op.first_element + i);
    return numerics::sr_bits16_at(key, numerics::Purpose::dropout, element) < op.drop_below;
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& desc) noexcept {
    const auto& op = static_cast<const DropoutDesc&>(desc);
    const numerics::SrKey key = op.key();
    const float scale = numerics::dropout_scale(op.drop_below);
    for (int64_t i = 0; i < op.destination.count; ++i) {
        float value = 0.0F;
        if (!is_dropped(op, key, i)) {
            value = numerics::load_as_float(op.source.dtype, op.source.data, i) * scale;
        }
        if (op.accumulate) {
            value += numerics::load_as_float(op.destination.dtype, op.destination.data, i);
        }
        numerics::store_from_float(op.destination.dtype, op.destination.data, i, value, false);
    }
    return {};
}

} // namespace

const Candidate kDropout = {kName, takes_all<DropoutDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
