// SPDX-License-Identifier: Apache-2.0
#include "linear/merged_weight.hpp"

#include <algorithm>

#include "runtime/select.hpp"

namespace mp::linear {
namespace {

constexpr int64_t kSlabBytes = int64_t{4} << 20; // stays in a processor's caches

GemmDesc product_of(int64_t rows, int64_t columns, int64_t rank, float scale) {
    GemmDesc d{};
    d.m = rows, d.n = columns, d.k = rank;
    d.alpha = scale;
    d.beta = 1.0F;
    d.dtype_a = d.dtype_b = d.dtype_d = DType::fp32;
    return d;
}

std::size_t bytes_of_factors(const MergedWeight::Factors& factors) {
    return static_cast<std::size_t>(factors.a->weight().tensor().count() +
                                    factors.b->weight().tensor().count()) *
           sizeof(float);
}

} // namespace

void widen(Stream& stream, const Tensor& matrix, int64_t first, int64_t rows, float* to) {
    matrix.require_memory("linear: weight");
    const int64_t columns = matrix.columns();
    const TensorRef numbers = {to, rows * columns, DType::fp32};
    if (matrix.scales() != nullptr || is_in_blocks(matrix.dtype())) {
        quant::dequantize_window(stream, matrix.array(), {first, 0, rows, columns}, numbers);
        return;
    }
    auto* const data = static_cast<unsigned char*>(matrix.data());
    cast_tensor(stream,
                {data + bytes_of(matrix.dtype(), first * columns), rows * columns, matrix.dtype()},
                numbers);
}

void row_norms(Stream& stream, const float* matrix, int64_t rows, int64_t columns, float* to) {
    RowNormDesc op{};
    op.kind = OpKind::row_norm;
    op.source = matrix;
    op.rows = rows;
    op.columns = columns;
    op.result = to;
    run_op(stream, op);
}

MergedWeight::MergedWeight(Stream& stream, const Linear& base, std::span<const Factors> adapters)
    : stream_(stream), base_(base) {
    for (const Factors& factors : adapters) {
        const Tensor& a = factors.a->weight().tensor();
        const Tensor& b = factors.b->weight().tensor();
        auto made = std::unique_ptr<Numbers>(new Numbers{{stream, bytes_of_factors(factors)},
                                                         nullptr,
                                                         nullptr,
                                                         a.rows(),
                                                         factors.b->options().scale,
                                                         {}});
        auto* const first = static_cast<float*>(made->memory.data());
        widen(stream, a, 0, a.rows(), first);
        widen(stream, b, 0, b.rows(), first + a.count());
        made->a = first;
        made->b = first + a.count();
        adapters_.push_back(std::move(made));
    }
}

void MergedWeight::read(int64_t first, int64_t rows, float* to) {
    const Tensor& weight = base_.weight().tensor();
    widen(stream_, weight, first, rows, to);
    for (const auto& adapter : adapters_) {
        const GemmDesc desc = product_of(rows, weight.columns(), adapter->rank, adapter->scale);
        adapter->products.try_emplace(rows, stream_.shared_device(), desc)
            .first->second.run(stream_,
                               {adapter->b + first * adapter->rank, adapter->a, nullptr, to, to});
    }
}

void MergedWeight::norms(float* to) {
    const int64_t all = base_.options().out_features, columns = base_.options().in_features;
    const int64_t fit = kSlabBytes / (columns * static_cast<int64_t>(sizeof(float)));
    const int64_t most = std::clamp<int64_t>(fit, 1, all);
    const Scratch slab(stream_, static_cast<std::size_t>(most * columns) * sizeof(float));
    for (int64_t first = 0; first < all; first += most) {
        const int64_t rows = std::min(most, all - first);
        read(first, rows, static_cast<float*>(slab.data()));
        row_norms(stream_, static_cast<const float*>(slab.data()), rows, columns, to + first);
    }
}

} // namespace mp::linear
