// SPDX-License-Identifier: Apache-2.0
#include "linear/magnitude.hpp"

#include "linear/checks.hpp"
#include "runtime/select.hpp"

namespace mp::linear {
namespace {

std::unique_ptr<Tensor> matrix_over(const Linear& layer, Stream& stream, DType dtype, int64_t rows,
                                    void* data) {
    const Shape shape{{rows, layer.options().out_features}, 2};
    return std::make_unique<Tensor>(layer.context(), stream, dtype, shape, data, Deleter{});
}

void scale_columns(Stream& stream, const Tensor& from, const Tensor& to, const Tensor& magnitude,
                   const float* norms, const Tensor* bias) {
    ScaleColumnsDesc op{};
    op.kind = OpKind::scale_columns;
    op.source = from.ref();
    op.destination = to.ref();
    op.magnitude = magnitude.ref();
    op.norm = norms;
    op.bias = bias != nullptr ? bias->ref() : TensorRef{};
    op.rows = from.rows();
    op.columns = from.columns();
    run_op(stream, op);
}

void measure_rows(Stream& stream, const Linear& base, const MergedWeight::Factors& adapter,
                  float* norms) {
    MergedWeight(stream, base, {&adapter, 1}).norms(norms);
}

} // namespace

float* KeptDirection::norms(Stream& stream, int64_t out) {
    const auto bytes = static_cast<std::size_t>(out) * sizeof(float);
    if (norms_.bytes() < bytes) {
        norms_ = stream.allocate(bytes);
    }
    return norms_.as<float>();
}

ArrayRef KeptDirection::directions(Stream& stream, DType dtype, int64_t rows, int64_t out) {
    return u_.place(stream, {dtype, {}, {}}, rows, out);
}

ScaledForward::ScaledForward(Stream& stream, const Linear& base,
                             const MergedWeight::Factors& adapter, const Magnitude& magnitude,
                             DType type, int64_t rows, Keep keep)
    : stream_(stream), base_(base), adapter_(adapter), magnitude_(magnitude), type_(type),
      rows_(rows), keeps_(magnitude.kept != nullptr && magnitude.gradient != nullptr &&
                          keep != Keep::scale && keep != Keep::nothing),
      is_again_(keep == Keep::again), u_(matrix_over(base, stream, type, rows, nullptr)) {
    magnitude.values->require_memory("linear: the adapter's magnitude");
}

void ScaledForward::begin() {
    const int64_t out = base_.options().out_features;
    KeptDirection* const kept = magnitude_.kept;
    const bool has_norms = is_again_ && kept != nullptr && kept->rows() >= 0;
    const auto bytes = static_cast<std::size_t>(out) * sizeof(float);
    norms_ = kept != nullptr ? kept->norms(stream_, out)
                             : static_cast<float*>(norm_memory_.emplace(stream_, bytes).data());
    if (kept != nullptr) { // until the new one is complete
        keeps_ ? kept->note(-1, false) : kept->drop();
    }
    void* place = nullptr;
    if (keeps_) {
        place = kept->directions(stream_, type_, rows_, out).data;
    } else {
        const auto elements = static_cast<std::size_t>(bytes_of(type_, rows_ * out));
        place = u_memory_.emplace(stream_, elements).data();
    }
    u_ = matrix_over(base_, stream_, type_, rows_, place);
    if (!has_norms) {
        measure_rows(stream_, base_, adapter_, norms_);
    }
}

void ScaledForward::finish(Tensor* y) {
    if (magnitude_.kept != nullptr) {
        magnitude_.kept->note(rows_, keeps_);
    }
    if (y != nullptr) {
        scale_columns(stream_, *u_, *y, *magnitude_.values, norms_, base_.bias());
    }
}

ScaledBackward::ScaledBackward(Stream& stream, const Linear& base,
                               const MergedWeight::Factors& adapter, const Magnitude& magnitude,
                               const Tensor& dy)
    : stream_(stream), base_(base), adapter_(adapter), magnitude_(magnitude), dy_(dy),
      memory_(stream, dy.bytes()),
      scaled_(matrix_over(base, stream, dy.dtype(), dy.rows(), memory_.data())) {
    check_dtype(dy, "dy, which an adapter's magnitude scales,");
    magnitude.values->require_memory("linear: the adapter's magnitude");
    if (magnitude.gradient == nullptr) {
        return;
    }
    magnitude.gradient->require_memory("linear: the magnitude's gradient");
    if (magnitude.kept == nullptr || !magnitude.kept->has_directions()) {
        fail(Code::bad_state,
             "linear: the magnitude's gradient needs what a forward kept; run a forward that keeps "
             "it, after mp_adapter_set_magnitude has named the gradient");
    }
    if (magnitude.kept->rows() != dy.rows()) {
        fail(Code::invalid_shape, "linear: dy is %s but the forward had %lld rows",
             dy.shape().text().c_str(), static_cast<long long>(magnitude.kept->rows()));
    }
}

void ScaledBackward::run(bool accumulate) {
    std::optional<Scratch> memory;
    const int64_t out = base_.options().out_features;
    float* norms = nullptr;
    if (magnitude_.kept != nullptr && magnitude_.kept->rows() >= 0) {
        norms = magnitude_.kept->norms();
    } else {
        norms = static_cast<float*>(
            memory.emplace(stream_, static_cast<std::size_t>(out) * sizeof(float)).data());
        measure_rows(stream_, base_, adapter_, norms);
    }
    scale_columns(stream_, dy_, *scaled_, *magnitude_.values, norms, nullptr);
    if (magnitude_.gradient == nullptr) {
        return;
    }
    ColumnSumDesc op{};
    op.kind = OpKind::column_sum;
    op.source = dy_.ref();
    op.times = magnitude_.kept->directions(stream_).elements();
    op.divisor = norms;
    op.destination = magnitude_.gradient->ref();
    op.rows = dy_.rows();
    op.columns = out;
    op.accumulate = accumulate;
    run_op(stream_, op);
}

} // namespace mp::linear
