// SPDX-License-Identifier: Apache-2.0
#include "tensor/slice.hpp"

#include <algorithm>

namespace mp {

ArrayRef slice_of(const Tensor& tensor) { return slice_of(tensor, 0, tensor.count()); }

ArrayRef slice_of(const Tensor& tensor, int64_t first, int64_t count) {
    return slice_of(tensor.array(), first, count);
}

ArrayRef slice_of(const ArrayRef& whole, int64_t first, int64_t count) {
    const auto behind = [](void* data, DType dtype, int64_t elements) -> void* {
        return data == nullptr ? nullptr
                               : static_cast<unsigned char*>(data) + bytes_of(dtype, elements);
    };
    const ScaleGrid& grid = whole.format.grid;
    const Shape shape = slice_shape(grid, whole.columns, count);
    ArrayRef slice = whole;
    slice.data = behind(whole.data, whole.dtype(), first);
    slice.rows = shape.sizes[0];
    slice.columns = shape.sizes[1];
    if (has_blocks(grid) && first > 0) {
        const int64_t before =
            grid.index(first / whole.columns, first % whole.columns, whole.columns);
        slice.scale_inv = behind(whole.scale_inv, grid.dtype, before);
    }
    return slice;
}

Shape slice_shape(const ScaleGrid& grid, int64_t columns, int64_t count) {
    const bool is_row = !has_blocks(grid) || columns == 0 || count % columns != 0;
    return is_row ? Shape{{1, count}, 2} : Shape{{count / columns, columns}, 2};
}

int64_t slice_unit(DType codes, const ScaleGrid& grid, int64_t rows, int64_t columns) {
    const int64_t all = std::max<int64_t>(rows * columns, 1);
    if (!has_blocks(grid)) {
        return 1;
    }
    if (rows <= 1 && grid.block_columns > 0) {
        return std::min<int64_t>(grid.block_columns, all);
    }
    const bool shares_byte = is_packed(codes) && columns % 2 != 0;
    const int64_t height = grid.block_rows == 0 ? rows : grid.block_rows;
    return std::min<int64_t>(height * columns * (shares_byte && height % 2 != 0 ? 2 : 1), all);
}

void copy_array(Stream& stream, const ArrayRef& from, const ArrayRef& to, CopyKind kind) {
    const auto copy = [&](void* target, const void* source, int64_t bytes) {
        if (target != nullptr && source != nullptr && bytes > 0) {
            stream.copy(target, source, static_cast<std::size_t>(bytes), kind);
        }
    };
    copy(to.data, from.data, bytes_of(from.dtype(), from.count()));
    copy(to.scale_inv, from.scale_inv, bytes_of(from.format.grid.dtype, from.scale_count()));
    copy(to.amax, from.amax, bytes_of(DType::fp32, 1));
}

int64_t bytes_of(const std::shared_ptr<Tensor>& tensor) {
    if (tensor == nullptr) {
        return 0;
    }
    const auto held = [](const Tensor& part) { return part.has_memory() ? part.bytes() : 0; };
    const std::size_t scales = tensor->scales() == nullptr ? 0 : held(*tensor->scales()->scale_inv);
    return static_cast<int64_t>(held(*tensor) + scales);
}

std::shared_ptr<Tensor> scale_of(const std::shared_ptr<Tensor>& tensor) {
    return tensor != nullptr && tensor->scales() != nullptr ? tensor->scales()->scale_inv : nullptr;
}

} // namespace mp
