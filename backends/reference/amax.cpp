// SPDX-License-Identifier: Apache-2.0
// amax: the largest |x| of an array, compared as bit patterns so that a NaN or an infinity in the
// data is what comes out.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/scale_rules.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& amax = static_cast<const AmaxDesc&>(op);
    if (amax.skip != nullptr && *amax.skip != 0) {
        return {};
    }
    uint32_t largest = numerics::amax_so_far(amax.accumulate ? *amax.result : 0.0F);
    for (int64_t i = 0; i < amax.source.count; ++i) {
        const float x = numerics::load_as_float(amax.source.dtype, amax.source.data, i);
        const uint32_t magnitude = numerics::bits_from_float(x) & numerics::kFloatMagnitudeMask;
        largest = magnitude > largest ? magnitude : largest;
    }
    *amax.result = numerics::float_from_bits(largest);
    return {};
}

} // namespace

const Candidate kAmax = {kName, takes_all<AmaxDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
