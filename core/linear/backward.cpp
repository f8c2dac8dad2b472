// SPDX-License-Identifier: Apache-2.0
// The backward half of Linear.
#include <optional>

#include "linear/checks.hpp"
#include "linear/linear.hpp"

namespace mp::linear {

using recipe::GemmRole;
using recipe::Operand;

namespace {

bool rounds_stochastically(const numerics::Rounding& rounding, const Tensor& dw) noexcept {
    return rounding.stochastic && dw.dtype() != DType::fp32;
}

// A gradient that is rounded apart is added to in fp32 and rounded once.
DType result_of_wgrad(const numerics::Rounding& rounding, const Tensor& dw) noexcept {
    const bool is_wide = dw.scales() != nullptr || rounds_stochastically(rounding, dw);
    return is_wide ? DType::fp32 : dw.dtype();
}

void check_gradients(const WeightGradients& g, const numerics::Rounding& rounding,
                     const Tensor& weight, const Tensor* bias) {
    g.dw->require_memory("linear: dw");
    check_dtype(*g.dw, "dw", true);
    check_shape_is(*g.dw, weight.shape(), "dw");
    if (rounding.stochastic && g.dw->scales() != nullptr) {
        fail(Code::unsupported, "linear: dw is quantized, which is rounded to nearest; stochastic "
                                "rounding is for fp16 and bf16 (mp_linear_set_gradient_rounding)");
    }
    if (g.dbias != nullptr) {
        if (bias == nullptr) {
            fail(Code::invalid_argument,
                 "linear: dbias is given but the layer has no bias; pass NULL");
        }
        check_dtype(*g.dbias, "dbias");
        check_shape_is(*g.dbias, bias->shape(), "dbias");
    }
    for (const Tensor* tensor : {g.dw, g.dbias}) {
        if (tensor != nullptr && &tensor->device() != &weight.device()) {
            fail(Code::invalid_argument, "linear: dw and dbias must be on the layer's device");
        }
    }
}

void bias_gradient(Stream& stream, const Tensor& dy, Tensor& dbias, bool accumulate) {
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
    op.rows = dy.count() / dbias.count();
    op.columns = dbias.count();
    op.accumulate = accumulate;
    run_op(stream, op);
}

} // namespace

void Linear::add_backward(MemoryRanges& ranges, const Saved* saved,
                          const WeightGradients& g) const {
    add_own(ranges);
    ranges.add("dw", MemoryRanges::Use::written, g.dw);
    ranges.add("dbias", MemoryRanges::Use::written, g.dbias);
    if (g.dw != nullptr) { // else dx may take the place of x
        add_kept(ranges, *saved);
    }
}

void Linear::add_kept(MemoryRanges& ranges, const Saved& saved) const {
    saved.add_to(ranges, policy_->b(GemmRole::wgrad), options_.in_features);
}

void Linear::check_workspace(const Stream& stream, const Saved* saved) const {
    MemoryRanges ranges;
    ranges.add_workspace(stream);
    if (saved != nullptr) {
        add_kept(ranges, *saved);
    }
    ranges.check("linear");
}

void Linear::weight_gradient(Stream& stream, Saved& saved, const ArrayRef& dy,
                             const WeightGradients& gradients) {
    Tensor& dw = *gradients.dw;
    ArrayRef x = saved.input(stream);
    std::optional<DroppedMatrix> dropped;
    if (saved.is_whole()) {
        dropped.emplace(stream, dropout_, x, context_, scaling_.passes().seed(), saved.pass().time);
        x = dropped->tensor()->array();
    }
    const bool is_quantized = dw.scales() != nullptr;
    std::optional<Scratch> wide;
    TensorRef target = dw.ref();
    if (is_quantized || rounds_stochastically(rounding_, dw)) {
        wide.emplace(stream, static_cast<std::size_t>(dw.count()) * sizeof(float));
        target = {wide->data(), dw.count(), DType::fp32};
        if (gradients.accumulate && is_quantized) {
            quant::dequantize_matrix(stream, dw.array(), target);
        } else if (gradients.accumulate) {
            cast_tensor(stream, dw.ref(), target);
        }
    }
    products_
        .plan(GemmRole::wgrad, saved.rows(), result_of_wgrad(rounding_, dw), gradients.accumulate)
        .run(stream, {dy.data, x.data, nullptr, gradients.accumulate ? target.data : nullptr,
                      target.data, dy.scale_inv, x.scale_inv});
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

gemm::GemmPlan& Linear::data_product(const Saved* saved, int64_t rows, const Result& dx) {
    return has_dropped(saved)
               ? products_.plan(GemmRole::dgrad, rows, DType::fp32, false)
               : products_.plan(GemmRole::dgrad, rows, dx.tensor->dtype(), dx.accumulate);
}

void Linear::data_gradient(Stream& stream, const Saved* saved, uint64_t time, const ArrayRef& dy,
                           const Result& dx) {
    std::optional<ScratchOperand> w_scratch;
    const ArrayRef w =
        weight_.view(stream, GemmRole::dgrad, w_scratch, {scaling_, amaxes_, options_.with_stats});
    gemm::GemmPlan& product = data_product(saved, dy.rows, dx);
    void* const target = dx.tensor->data();
    if (!has_dropped(saved)) {
        product.run(stream, {dy.data, w.data, nullptr, dx.accumulate ? target : nullptr, target,
                             dy.scale_inv, w.scale_inv});
        return;
    }
    const Scratch wide(stream, static_cast<std::size_t>(dx.tensor->count()) * sizeof(float));
    product.run(stream,
                {dy.data, w.data, nullptr, nullptr, wide.data(), dy.scale_inv, w.scale_inv});
    dropout_.run(stream, {wide.data(), dx.tensor->count(), DType::fp32}, dx.tensor->ref(),
                 scaling_.passes().seed(), time, dx.accumulate);
}

// Where the products want two formats dy is rounded twice, into the same scratch memory. Codes that waited for the second product
// would leave the cache, which costs more than a second reading: 1 to 4 % of a layer on a Zen 5.
void Linear::multiply_gradient(Stream& stream, Saved* saved, uint64_t time, const Tensor& dy,
                               const Result& dx, const WeightGradients& gradients) {
    const Format& for_dx = policy_->a(GemmRole::dgrad);
    const Format& for_dw = policy_->a(GemmRole::wgrad);
    const Tracking tracking = scaling_.tracking(Operand::grad_output, options_.with_stats);
    const auto how_for = [&](GemmRole role) {
        return making(role, Operand::grad_output, tracking, time);
    };
    std::optional<ScratchOperand> first;
    if (dx.tensor != nullptr) {
        first.emplace(stream, dy, for_dx, how_for(GemmRole::dgrad));
        data_gradient(stream, saved, time, first->array(), dx);
    }
    if (gradients.dw == nullptr) {
        return;
    }
    const bool shares = first.has_value() && for_dw == for_dx;
    std::optional<ScratchOperand> second;
    if (!shares) {
        first.reset();
        second.emplace(stream, dy, for_dw, how_for(GemmRole::wgrad));
    }
    notes_.begin(*gradients.dw, gradients.accumulate);
    weight_gradient(stream, *saved, shares ? first->array() : second->array(), gradients);
    notes_.end(weight_.tensor(), *gradients.dw, gradients.accumulate);
}

void Linear::prepare_backward(Stream& stream, const Saved* saved, const Tensor& dy,
                              const Result& dx, const WeightGradients& gradients) {
    products_.forget_old();
    const Device& device = weight_.tensor().device();
    const int64_t rows = rows_of(dy, options_.out_features, device, "dy", true);
    refuse_frozen_bits(stream);
    if (dx.tensor != nullptr) {
        weight_.require_memory(GemmRole::dgrad);
        check_rows(dy, "dy", rows, *dx.tensor, "dx",
                   rows_of(*dx.tensor, options_.in_features, device, "dx"));
        (void)data_product(saved, rows, dx);
    }
    if (gradients.dw != nullptr) {
        check_kept(keeps_input() ? saved : nullptr, dy, rows);
        check_gradients(gradients, rounding_, weight_.tensor(), bias_.get());
        // Before dx is written: a failed call changes nothing.
        (void)products_.plan(GemmRole::wgrad, rows, result_of_wgrad(rounding_, *gradients.dw),
                             gradients.accumulate);
    }
    check_workspace(stream, saved);
}

void Linear::backward(Stream& stream, Saved* saved, const Tensor& dy, const Result& dx,
                      const WeightGradients& gradients) {
    if (dx.tensor != nullptr && saved != nullptr) {
        saved->drop_under(*dx.tensor, policy_->b(GemmRole::wgrad), options_.in_features);
    }
    count_codes(stream, scaling_.tracking(Operand::grad_output, options_.with_stats), dy);
    const bool is_rounded =
        (dx.tensor != nullptr && is_rounded_to(dy, policy_->a(GemmRole::dgrad))) ||
        (gradients.dw != nullptr && is_rounded_to(dy, policy_->a(GemmRole::wgrad)));
    if (options_.with_stats && !is_rounded) {
        count_unrounded(stream, scaling_, Operand::grad_output, dy);
    }
    Pass apart = scaling_.passes().of_backward();
    Pass& pass = saved != nullptr && saved->rows() >= 0 ? saved->pass() : apart;
    multiply_gradient(stream, saved, pass.time, dy, dx, gradients);
    if (gradients.dbias != nullptr) {
        bias_gradient(stream, dy, *gradients.dbias, gradients.accumulate);
    }
    end_backward(stream, saved, pass);
}

void Linear::end_backward(Stream& stream, Saved* saved, Pass& pass) {
    amaxes_.count(stream, scaling_, saved);
    scaling_.passes().end(pass);
}

void Linear::pass_over(Stream& stream, Saved& saved) {
    if (saved.rows() >= 0) {
        end_backward(stream, &saved, saved.pass());
    }
}

} // namespace mp::linear
