// SPDX-License-Identifier: Apache-2.0
// cast: destination[i] = round(source[i]) between any two floating types.
#include "device/supports.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

using numerics::load_as_float;

// Everything passes where the destination is fp32: nothing overflows in a conversion that does not convert.
float clamped(DType dtype, float x) {
    return dtype == DType::fp32 ? x : numerics::clamp_to_finite(x, max_finite(dtype));
}

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& cast = static_cast<const CastDesc&>(op);
    const DType to = cast.destination.dtype;
    const numerics::SrKey key = cast.rounding.key();
    for (int64_t i = 0; i < cast.destination.count; ++i) {
        const float x = load_as_float(cast.source.dtype, cast.source.data, i);
        if (cast.rounding.stochastic) {
            const uint32_t bits =
                numerics::sr_bits32_at(key, numerics::Purpose::cast,
                                       static_cast<uint64_t>(cast.rounding.first_element + i));
            const float kept = cast.saturate ? clamped(to, x) : x;
            (void)numerics::store_from_float_sr(to, cast.destination.data, i, kept, bits,
                                                cast.saturate);
        } else {
            numerics::store_from_float(to, cast.destination.data, i, x, cast.saturate);
        }
    }
    return {};
}

} // namespace

const Candidate kCast = {kName, takes_all<CastDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
