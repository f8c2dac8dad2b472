// SPDX-License-Identifier: Apache-2.0
// The backward half of Linear.
#include <optional>
#include <utility>

#include "linear/checks.hpp"
#include "linear/linear.hpp"

namespace mp::linear {

void Linear::check_kept(const Saved* saved, const Tensor& dy, int64_t rows) const {
    if (saved == nullptr) {
        fail(Code::bad_state,
             "linear: the weight's gradient needs what a forward kept; this layer was "
             "made with MP_LINEAR_INFERENCE or MP_LINEAR_FROZEN");
    }
    if (saved->rows() < 0) {
        fail(Code::bad_state,
             "linear: backward_weight before any forward; call mp_linear_forward first");
    }
    if (!saved->has_input()) {
        fail(Code::bad_state, "linear: x is not kept: the forward was told to drop it, or dx was "
                              "written over it; run mp_linear_forward_saved with "
                              "MP_FORWARD_RECOMPUTE first, or a forward");
    }
    if (rows != saved->rows()) {
        fail(Code::invalid_shape, "linear: dy is %s but the forward had %lld rows",
             dy.shape().text().c_str(), static_cast<long long>(saved->rows()));
    }
}

bool Linear::rounds_stochastically(const Tensor& dw) const noexcept {
    return rounding_.stochastic && dw.dtype() != DType::fp32;
}

void Linear::check_gradients(const WeightGradients& g) const {
    check_dtype(*g.dw, "dw", true);
    check_shape_is(*g.dw, weight_->shape(), "dw");
    if (rounding_.stochastic && g.dw->scales() != nullptr) {
        fail(Code::unsupported, "linear: dw is quantized, which is rounded to nearest; stochastic "
                                "rounding is for fp16 and bf16 (mp_linear_set_gradient_rounding)");
    }
    if (g.dbias != nullptr) {
        if (bias_ == nullptr) {
            fail(Code::invalid_argument,
                 "linear: dbias is given but the layer has no bias; pass NULL");
        }
        check_dtype(*g.dbias, "dbias");
        check_shape_is(*g.dbias, bias_->shape(), "dbias");
    }
    for (const Tensor* tensor : {g.dw, g.dbias}) {
        if (tensor != nullptr && &tensor->device() != &weight_->device()) {
            fail(Code::invalid_argument, "linear: dw and dbias must be on the layer's device");
        }
    }
}

void Linear::check_apart(const Stream& stream, const Saved* saved, const Tensor& dy,
                         const Tensor* dx, const WeightGradients& g) const {
    MemoryRanges ranges;
    add_own(stream, ranges);
    ranges.add("dy", MemoryRanges::Use::read, &dy);
    ranges.add("dx", MemoryRanges::Use::written, dx);
    ranges.add("dw", MemoryRanges::Use::written, g.dw);
    ranges.add("dbias", MemoryRanges::Use::written, g.dbias);
    if (g.dw != nullptr) {
        saved->add_to(ranges, formats(recipe::GemmRole::wgrad).b, options_.in_features);
    }
    ranges.check("linear");
    if (g.dw == nullptr && saved != nullptr) { // dx may take the place of x, scratch memory may not
        MemoryRanges kept;
        kept.add_workspace(stream);
        saved->add_to(kept, formats(recipe::GemmRole::wgrad).b, options_.in_features);
        kept.check("linear");
    }
}

// Whether a micro-batch is added to what this layer left in codes.
bool Linear::adds_to_codes(const WeightGradients& gradients) const noexcept {
    return gradients.accumulate && gradients.dw->scales() != nullptr &&
           gradients.dw->version() == left_version_;
}

std::string Linear::accumulation_note() {
    if (!adds_to_codes_ || std::exchange(has_noted_, true)) {
        return {};
    }
    return "linear: micro-batches are added into fp8 codes, and each sum is rounded to 3 bits: "
           "after "
           "about 16 equal ones it stops growing. Set grad.dtype to fp32 or bf16 where gradients "
           "are sums of micro-batches";
}

// A gradient that is rounded apart is added to in fp32 and rounded once.
gemm::GemmPlan& Linear::weight_gradient_plan(const Tensor& dw, int64_t rows, bool accumulate) {
    const bool is_wide = dw.scales() != nullptr || rounds_stochastically(dw);
    return plan(recipe::GemmRole::wgrad, rows, is_wide ? DType::fp32 : dw.dtype(), accumulate);
}

void Linear::weight_gradient(Stream& stream, Saved& saved, const ArrayRef& dy, Tensor& dw,
                             bool accumulate) {
    const ArrayRef x = saved.input(stream);
    const bool is_quantized = dw.scales() != nullptr;
    std::optional<Scratch> wide;
    TensorRef target = dw.ref();
    if (is_quantized || rounds_stochastically(dw)) {
        wide.emplace(stream, static_cast<std::size_t>(dw.count()) * sizeof(float));
        target = {wide->data(), dw.count(), DType::fp32};
        if (accumulate && is_quantized) {
            quant::dequantize_matrix(stream, dw.array(), target);
        } else if (accumulate) {
            cast_tensor(stream, dw.ref(), target);
        }
    }
    gemm::GemmPlan& product = weight_gradient_plan(dw, saved.rows(), accumulate);
    product.run(stream, {dy.data, x.data, nullptr, accumulate ? target.data : nullptr, target.data,
                         dy.scale_inv, x.scale_inv});
    if (is_quantized) {
        quant::quantize_matrix(stream, plain_array(target, dw.rows(), dw.columns()),
                               sink_of(dw.array()));
    } else if (wide.has_value()) {
        CastDesc op{};
        op.kind = OpKind::cast;
        op.source = target;
        op.destination = dw.ref();
        op.rounding = rounding_;
        run_op(stream, op);
    }
}

void Linear::bias_gradient(Stream& stream, const Tensor& dy, Tensor& dbias, bool accumulate) const {
    std::optional<Scratch> wide; // the values of codes
    TensorRef source = dy.ref();
    if (dy.scales() != nullptr) {
        wide.emplace(stream, static_cast<std::size_t>(dy.count()) * sizeof(float));
        source = {wide->data(), dy.count(), DType::fp32};
        quant::dequantize_matrix(stream, dy.array(), source);
    }
    ColumnSumDesc op{};
    op.kind = OpKind::column_sum;
    op.source = source;
    op.destination = dbias.ref();
    op.rows = dy.count() / options_.out_features;
    op.columns = options_.out_features;
    op.accumulate = accumulate;
    run_op(stream, op);
}

// Where the products want two formats dy is rounded twice, into the same scratch memory. Codes that waited for the second product
// would leave the cache, which costs more than a second reading: 1 to 4 % of a layer on a Zen 5.
void Linear::multiply_gradient(Stream& stream, Saved* saved, const Tensor& dy, Tensor* dx,
                               const WeightGradients& gradients) {
    const Format& for_dx = formats(recipe::GemmRole::dgrad).a;
    const Format& for_dw = formats(recipe::GemmRole::wgrad).a;
    const Tracking tracking = track(recipe::Operand::grad_output);
    std::optional<ScratchOperand> first;
    if (dx != nullptr) {
        first.emplace(stream, dy, for_dx, tracking);
        std::optional<ScratchOperand> w_scratch;
        const ArrayRef w =
            weight_view(stream, recipe::GemmRole::dgrad, w_scratch, options_.with_stats);
        const ArrayRef& a = first->array();
        plan(recipe::GemmRole::dgrad, dy.rows(), dx->dtype(), false)
            .run(stream, {a.data, w.data, nullptr, nullptr, dx->data(), a.scale_inv, w.scale_inv});
    }
    if (gradients.dw == nullptr) {
        return;
    }
    const bool shares = first.has_value() && for_dw == for_dx;
    std::optional<ScratchOperand> second;
    if (!shares) {
        first.reset();
        second.emplace(stream, dy, for_dw, tracking);
    }
    adds_to_codes_ = adds_to_codes(gradients);
    weight_gradient(stream, *saved, shares ? first->array() : second->array(), *gradients.dw,
                    gradients.accumulate);
    left_version_ = gradients.dw->version();
    note_gradient(gradients.accumulate);
}

void Linear::backward(Stream& stream, Saved* saved, const Tensor& dy, Tensor* dx,
                      const WeightGradients& gradients) {
    forget_old_plans();
    const int64_t rows = rows_of(dy, options_.out_features, "dy", true);
    if (dx != nullptr) {
        weight_->require_memory("linear: weight");
        if (rows_of(*dx, options_.in_features, "dx") != rows) {
            fail(Code::invalid_shape, "linear: dy is %s but dx is %s; both must have the same rows",
                 dy.shape().text().c_str(), dx->shape().text().c_str());
        }
        (void)plan(recipe::GemmRole::dgrad, rows, dx->dtype(), false);
    }
    if (gradients.dw != nullptr) {
        check_kept(saved, dy, rows);
        check_gradients(gradients);
        // Before dx is written: a failed call changes nothing.
        (void)weight_gradient_plan(*gradients.dw, rows, gradients.accumulate);
    }
    check_apart(stream, saved, dy, dx, gradients);
    if (dx != nullptr && saved != nullptr) {
        saved->drop_under(*dx, formats(recipe::GemmRole::wgrad).b, options_.in_features);
    }
    const Format& for_dx = formats(recipe::GemmRole::dgrad).a;
    const Format& for_dw = formats(recipe::GemmRole::wgrad).a;
    count_codes(stream, track(recipe::Operand::grad_output), dy);
    const bool is_rounded = (dx != nullptr && is_rounded_to(dy, for_dx)) ||
                            (gradients.dw != nullptr && is_rounded_to(dy, for_dw));
    if (options_.with_stats && !is_rounded) {
        count_apart(stream, recipe::Operand::grad_output, dy);
    }
    multiply_gradient(stream, saved, dy, dx, gradients);
    if (gradients.dbias != nullptr) {
        bias_gradient(stream, dy, *gradients.dbias, gradients.accumulate);
    }
    amaxes_.count(stream, scaling_, saved);
}

} // namespace mp::linear
