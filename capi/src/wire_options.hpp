// SPDX-License-Identifier: Apache-2.0
// How contributions travel and are added, as reduce.h and sharding.h spell it and core has it.
#pragma once

#include "comm/reduce_scatter.hpp"
#include "objects.hpp"

namespace mp::capi {

#define X(c_name, name)                                                                            \
    static_assert(MP_COMM_ORDER_##c_name == static_cast<int32_t>(comm::SumOrder::name));
#include "comm/orders.def"
#undef X
static_assert(MP_COMM_SCALE_TENSOR == static_cast<int32_t>(comm::WireScale::tensor));
static_assert(MP_COMM_SCALE_BLOCK == static_cast<int32_t>(comm::WireScale::block));
static_assert(MP_COMM_SCALE_MX == static_cast<int32_t>(comm::WireScale::mx));
static_assert(MP_COMM_SCALE_SHARED == static_cast<int32_t>(comm::WireScale::shared));

// A number of a row of constants that begins at 0.
inline int32_t in_range(int32_t value, int32_t last, const char* name, const char* constants) {
    if (value < 0 || value > last) {
        fail(Code::invalid_argument, "%s is %d; it must be one of %s", name, value, constants);
    }
    return value;
}

inline comm::SumOrder order_of(int32_t value, const char* name) {
    return static_cast<comm::SumOrder>(in_range(value, comm::kOrders - 1, name, "MP_COMM_ORDER_*"));
}

// MP_DTYPE_NONE: `otherwise`. fp8 has scales of blocks where nobody says. What has no meaning is refused.
inline Format wire_of(int32_t dtype, int32_t scale, DType otherwise, const char* name,
                      int32_t last_scale = MP_COMM_SCALE_MX) {
    const DType given = dtype_of(dtype, name, true);
    const DType type = given == DType::none ? otherwise : given;
    if (scale < 0 || scale > last_scale) {
        fail(Code::invalid_argument, "the scale of %s is %d; it must be one of MP_COMM_SCALE_*%s",
             name, scale,
             scale == MP_COMM_SCALE_SHARED ? ", and SHARED is a sharded optimizer's" : "");
    }
    const bool is_usual = is_fp8(type) && scale == MP_COMM_SCALE_DEFAULT;
    const Format format = comm::wire_format(type, is_usual ? comm::WireScale::block
                                                           : static_cast<comm::WireScale>(scale));
    comm::check_wire(format, name);
    return format;
}

} // namespace mp::capi
