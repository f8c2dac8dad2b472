// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_in_file.hpp"

#include <algorithm>

#include "dtype/divide.hpp"
#include "tensor/slice.hpp"

namespace mp::checkpoint {
namespace {

// Of these codes, with the usual rule of the grid: what is in a file is only read.
Format format_of(DType codes, const ScaleGrid& grid) {
    const bool is_mx = grid.dtype == DType::e8m0;
    const numerics::ScaleRule rule = grid.dtype == DType::fp8_e4m3 ? numerics::ScaleRule::nvfp4
                                     : is_mx                       ? numerics::ScaleRule::mx_rceil
                                     : grid.is_one()               ? numerics::ScaleRule::msamp
                                                                   : numerics::ScaleRule::current;
    return {codes, grid, numerics::scale_policy(rule, codes)};
}

} // namespace

WeightFormat weight_in_file(const Manifest& manifest, const std::string& name,
                            const StoredTensor& weight, const ScaleGrid& here) {
    const DType codes = dtype_of(weight.format);
    if (is_scaled(weight.format)) {
        return {weight.format, format_of(codes, kTensorScale)};
    }
    const StoredTensor* scales = manifest.find(name, "param_scale_inv");
    if (scales == nullptr && (format_roles(weight.format) & kForParam) != 0) {
        return {weight.format, {codes, {}, {}}};
    }
    if (scales == nullptr || coding_of(weight.format) != Coding::plain) {
        fail(Code::corrupt_data, "checkpoint: the weight '%s' is %s without scales", name.c_str(),
             format_name(weight.format));
    }
    const int64_t columns = weight.shape.empty() ? 1 : weight.shape.back();
    const int64_t rows = columns == 0 ? 0 : weight.count() / columns;
    for (const ScaleGrid& grid :
         {here, kRowScales, kColumnScales, kRowBlockScales, kColumnBlockScales, kSquareBlockScales,
          kMxRowScales, kMxColumnScales, kNvfp4Scales}) {
        if (has_blocks(grid) && scales->format == format_id(grid.dtype) &&
            scales->shape == std::vector<int64_t>{grid.rows(rows), grid.columns(columns)}) {
            Format format = format_of(codes, grid);
            check_format(format, "checkpoint");
            return {weight.format, format};
        }
    }
    fail(Code::corrupt_data, "checkpoint: the scales of '%s' lie in no grid that is known",
         name.c_str());
}

bool WeightFormat::operator==(const WeightFormat& other) const noexcept {
    return id == other.id && format.dtype == other.format.dtype && format.grid == other.format.grid;
}

optim::StatesPlace cover_of(const optim::StatesPlace& live, const Format& in_file) {
    optim::StatesPlace cover = live;
    const int64_t columns = live.shape.empty() ? 1 : live.shape.back();
    const int64_t rows = columns == 0 ? 0 : live.whole / columns;
    const int64_t unit = slice_unit(in_file.dtype, in_file.grid, rows, columns);
    if (live.count > 0 && unit > 1) {
        cover.start = live.start / unit * unit;
        cover.count = std::min(round_up(live.start + live.count, unit), live.whole) - cover.start;
    }
    return cover;
}

} // namespace mp::checkpoint
