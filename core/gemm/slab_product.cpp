// SPDX-License-Identifier: Apache-2.0
#include "gemm/slab_product.hpp"

#include <algorithm>

#include "gemm/gemm.hpp"
#include "quant/quantize.hpp"

namespace mp::gemm {
namespace {

// Of numbers. A slab stays in a processor's caches; a device's product of one still fills it.
constexpr int64_t kSlabBytes = int64_t{4} << 20;
// What columns of a slab are a multiple of; of any block's elements, too.
constexpr int64_t kColumns = 256;

int64_t slab_columns(const GemmDesc& desc) {
    const int64_t column = std::max<int64_t>(desc.k, 1) * dtype_size(desc.dtype_a);
    const int64_t fit = kSlabBytes / column / kColumns * kColumns;
    return std::min(desc.n, std::max(fit, kColumns));
}

GemmDesc product_of_slab(const GemmDesc& desc, int64_t columns) {
    GemmDesc d = desc;
    d.n = columns;
    d.dtype_b = desc.dtype_a;
    d.scale_b = {};
    d.ldb = 0;
    d.batch_stride_a = d.batch_stride_b = d.batch_stride_c = d.batch_stride_d = 0;
    return d;
}

template <class Memory> Memory* at_element(Memory* memory, DType dtype, int64_t i) {
    using Byte = std::conditional_t<std::is_const_v<Memory>, const char, char>;
    return memory == nullptr ? nullptr : static_cast<Byte*>(memory) + bytes_of(dtype, i);
}

} // namespace

SlabProduct::SlabProduct(const std::shared_ptr<Device>& device, const GemmDesc& desc,
                         const char* implementation)
    : desc_(desc), columns_(slab_columns(desc)),
      whole_(std::make_unique<GemmPlan>(device, product_of_slab(desc, columns_), implementation)) {
    if (const int64_t rest = columns_ == 0 ? 0 : desc.n % columns_; rest != 0) {
        rest_ = std::make_unique<GemmPlan>(device, product_of_slab(desc, rest), implementation);
    }
}

SlabProduct::~SlabProduct() = default;

void SlabProduct::run(Stream& stream, const GemmBuffers& buffers) {
    const GemmDesc& d = desc_;
    if (d.m == 0) {
        return;
    }
    const Scratch slab(stream, static_cast<std::size_t>(bytes_of(d.dtype_a, d.k * columns_)));
    const ArrayRef codes = {const_cast<void*>(buffers.b),
                            const_cast<void*>(buffers.scale_b),
                            const_cast<float*>(buffers.amax_b),
                            {d.dtype_b, d.scale_b, {}},
                            d.trans_b ? d.n : d.k,
                            d.trans_b ? d.k : d.n};
    for (int64_t first = 0; first < d.n; first += columns_) {
        const int64_t count = std::min(columns_, d.n - first);
        const Window window =
            d.trans_b ? Window{first, 0, count, d.k} : Window{0, first, d.k, count};
        quant::dequantize_window(stream, codes, window, {slab.data(), d.k * count, d.dtype_a});
        GemmBuffers part = buffers;
        part.b = slab.data();
        part.scale_b = nullptr;
        part.bias = at_element(buffers.bias, d.dtype_bias, first);
        part.c = at_element(buffers.c, d.dtype_d, first);
        part.d = at_element(buffers.d, d.dtype_d, first);
        (count == columns_ ? whole_ : rest_)->run(stream, part);
    }
}

std::string SlabProduct::describe() const {
    return "B is decoded " + std::to_string(columns_) + " columns at a time, for " +
           whole_->describe();
}

} // namespace mp::gemm
