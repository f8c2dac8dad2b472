// SPDX-License-Identifier: Apache-2.0
#include "tensor/format.hpp"

#include "status/status.hpp"

namespace mp {
namespace {

using numerics::ScaleRule;

std::string extent_text(int32_t extent) { return extent == 0 ? "all" : std::to_string(extent); }

} // namespace

std::string format_text(const Format& format) {
    std::string text = dtype_name(format.dtype);
    if (!format.is_quantized()) {
        return text;
    }
    if (format.grid.is_one()) {
        text += " with one scale";
    } else if (format.grid == kRowScales || format.grid == kColumnScales) {
        text += format.grid == kRowScales ? " with a scale for each row"
                                          : " with a scale for each column";
    } else {
        text += " with a scale for each " + extent_text(format.grid.block_rows) + "x" +
                extent_text(format.grid.block_columns);
    }
    if (format.grid.dtype != DType::fp32) {
        text += std::string(" in ") + dtype_name(format.grid.dtype);
    }
    return text;
}

void check_format(const Format& format, const char* what) {
    const ScaleRule rule = format.policy.rule;
    const ScaleGrid& grid = format.grid;
    if (rule == ScaleRule::nvfp4) {
        if (grid != kNvfp4Scales || format.dtype != DType::fp4_e2m1) {
            fail(Code::invalid_argument,
                 "%s: NVFP4 is fp4_e2m1 codes with fp8_e4m3 scales of 1x16 under the rule nvfp4; "
                 "this is %s",
                 what, format_text(format).c_str());
        }
        if (format.policy.power_of_two) {
            fail(Code::invalid_argument,
                 "%s: NVFP4's scales are fp8_e4m3; they cannot be powers of two only", what);
        }
        if (format.policy.max_code != max_finite(format.dtype)) {
            fail(Code::invalid_argument,
                 "%s: NVFP4's largest element has the largest code, and no margin; leave it 0",
                 what);
        }
        return;
    }
    if (is_packed(format.dtype) && grid == kMxColumnScales) {
        fail(Code::invalid_argument,
             "%s: the two codes in a byte of %s are neighbours of a row, so blocks lie along rows: "
             "1x32",
             what, dtype_name(format.dtype));
    }
    const bool is_packed_mx = is_packed(format.dtype) && grid == kMxRowScales;
    if (!is_fp8(format.dtype) && !is_packed_mx &&
        !(format.dtype == DType::fp16 && rule == ScaleRule::msamp)) {
        fail(Code::invalid_dtype,
             "%s: codes are fp8_e4m3 or fp8_e5m2, fp16 under the rule msamp, fp4_e2m1 under scales "
             "of "
             "1x32 in e8m0; not %s with %s",
             what, dtype_name(format.dtype), format_text(format).c_str());
    }
    if (numerics::is_mx(rule) != (grid.dtype == DType::e8m0)) {
        fail(Code::invalid_argument,
             "%s: e8m0 scales and the mx rules go together; this has %s scales under %s rule", what,
             dtype_name(grid.dtype), numerics::is_mx(rule) ? "an mx" : "another");
    }
    if (grid.dtype != DType::fp32 && grid.dtype != DType::e8m0) {
        fail(Code::invalid_dtype, "%s: scales are fp32 or e8m0, not %s", what,
             dtype_name(grid.dtype));
    }
    if (rule == ScaleRule::msamp && grid != kTensorScale) {
        fail(Code::invalid_argument, "%s: the rule msamp has one scale for the tensor", what);
    }
}

} // namespace mp
