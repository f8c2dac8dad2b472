// SPDX-License-Identifier: Apache-2.0
#include "linear/layer_pass.hpp"

#include <algorithm>
#include <optional>

#include "linear/checks.hpp"

namespace mp::linear {
namespace {

// Of what a pass makes of such numbers; of codes fp32.
DType type_like(const Tensor& tensor) noexcept {
    return tensor.scales() == nullptr ? tensor.dtype() : DType::fp32;
}

// What lies between the two layers of each adapter, [rows, r], one after another in the same scratch memory: t in a forward, dt
// in a backward.
class Inner {
  public:
    // As wide as the numbers `like`; fp32 where those are codes.
    Inner(Stream& stream, const LayerPass& pass, const Tensor& like, int64_t rows) {
        const DType dtype = type_like(like);
        std::size_t most = 0;
        for (const AdapterPass& adapter : pass.adapters) {
            const Shape shape{{rows, adapter.a->options().out_features}, 2};
            check_shape(shape, dtype, "linear: x a^T");
            most = std::max(most, static_cast<std::size_t>(bytes_of(dtype, shape.count())));
        }
        if (!pass.adapters.empty()) {
            memory_.emplace(stream, most);
        }
        for (const AdapterPass& adapter : pass.adapters) {
            const Shape shape{{rows, adapter.a->options().out_features}, 2};
            tensors_.push_back(std::make_shared<Tensor>(adapter.a->context(), stream, dtype, shape,
                                                        memory_->data(), Deleter{}));
        }
    }

    [[nodiscard]] const std::shared_ptr<Tensor>& of(std::size_t adapter) const {
        return tensors_[adapter];
    }

  private:
    std::optional<Scratch> memory_;
    std::vector<std::shared_ptr<Tensor>> tensors_;
};

WeightGradients gradient_of(Tensor* dw, const WeightGradients& gradients) {
    return {dw, nullptr, gradients.accumulate};
}

MergedWeight::Factors factors_of(const AdapterPass& adapter) { return {adapter.a, adapter.b}; }

// Whether what b gives is wanted.
bool goes_on(const AdapterPass& adapter, const Tensor* dx) noexcept {
    return dx != nullptr || adapter.da != nullptr;
}

void check_forward(const Stream& stream, const LayerPass& pass, const Tensor& x, const Tensor* y,
                   const Inner& inner, Keep keep) {
    MemoryRanges ranges;
    ranges.add_workspace(stream);
    ranges.add("x", MemoryRanges::Use::read, &x);
    ranges.add("y", MemoryRanges::Use::written, y);
    for (const AdapterPass& adapter : pass.adapters) {
        ranges.add("the magnitude", MemoryRanges::Use::read, adapter.magnitude.values);
    }
    pass.base->add_forward(ranges, x, pass.saved, keep);
    for (std::size_t i = 0; i < pass.adapters.size(); ++i) {
        const AdapterPass& adapter = pass.adapters[i];
        adapter.a->add_forward(ranges, x, adapter.saved_a, keep);
        adapter.b->add_forward(ranges, *inner.of(i), adapter.saved_b, keep);
    }
    ranges.check("linear");
}

// What an adapter's a keeps while its gradient is not wanted: a later backward may want it, and dx alone may take its place.
void check_kept_inputs(const LayerPass& pass) {
    for (const AdapterPass& adapter : pass.adapters) {
        if (adapter.saved_a != nullptr && adapter.da == nullptr) {
            MemoryRanges ranges;
            ranges.add("dw", MemoryRanges::Use::written, adapter.db);
            ranges.add("the magnitude's gradient", MemoryRanges::Use::written,
                       adapter.magnitude.gradient);
            adapter.a->add_kept(ranges, *adapter.saved_a);
            ranges.check("linear");
        }
    }
}

void check_backward(const Stream& stream, const LayerPass& pass, const Tensor& dy, const Tensor* dx,
                    const WeightGradients& gradients) {
    MemoryRanges ranges;
    ranges.add_workspace(stream);
    ranges.add("dy", MemoryRanges::Use::read, &dy);
    ranges.add("dx", MemoryRanges::Use::written, dx);
    for (const AdapterPass& adapter : pass.adapters) {
        ranges.add("the magnitude", MemoryRanges::Use::read, adapter.magnitude.values);
        ranges.add("the magnitude's gradient", MemoryRanges::Use::written,
                   adapter.magnitude.gradient);
    }
    pass.base->add_backward(ranges, pass.saved, gradients);
    for (const AdapterPass& adapter : pass.adapters) {
        adapter.a->add_backward(ranges, adapter.saved_a, gradient_of(adapter.da, gradients));
        adapter.b->add_backward(ranges, adapter.saved_b, gradient_of(adapter.db, gradients));
        if (adapter.saved_b != nullptr && adapter.db == nullptr) { // a later backward may want it
            adapter.b->add_kept(ranges, *adapter.saved_b);
        }
    }
    ranges.check("linear");
}

int64_t rows_in(const Tensor& tensor, int64_t columns) { return tensor.count() / columns; }

void check_result(const LayerPass& pass, const Tensor& x, int64_t rows, const Tensor* y) {
    if (y != nullptr) {
        const Linear& base = *pass.base;
        check_rows(x, "x", rows, *y, "y",
                   rows_of(*y, base.options().out_features, base.weight().tensor().device(), "y"));
    }
}

} // namespace

const AdapterPass* scaling_adapter(const LayerPass& pass) {
    for (const AdapterPass& adapter : pass.adapters) {
        if (adapter.magnitude.values == nullptr) {
            continue;
        }
        if (pass.adapters.size() > 1) {
            fail(Code::unsupported,
                 "linear: an adapter with a magnitude scales the whole sum, so it is the only one "
                 "that is active; switch the others off (mp_adapter_set_active)");
        }
        return &adapter;
    }
    return nullptr;
}

void forward(Stream& stream, const LayerPass& pass, const std::shared_ptr<Tensor>& x, Tensor* y,
             Keep keep) {
    const int64_t rows = rows_in(*x, pass.base->options().in_features);
    const AdapterPass* const scaling = scaling_adapter(pass);
    std::optional<ScaledForward> scaled;
    if (scaling != nullptr && (y != nullptr || scaling->magnitude.gradient != nullptr)) {
        pass.base->prepare_forward(stream, *x, {}, pass.saved, keep); // u has the rows of this x
        check_result(pass, *x, rows, y);
        scaled.emplace(stream, *pass.base, factors_of(*scaling), scaling->magnitude, type_like(*x),
                       rows, keep);
    }
    Tensor* sum = scaled.has_value() ? &scaled->directions() : y;
    pass.base->prepare_forward(stream, *x, {sum, false, scaled.has_value()}, pass.saved, keep);
    const Inner inner(stream, pass, *x, rows);
    for (std::size_t i = 0; i < pass.adapters.size(); ++i) {
        const AdapterPass& adapter = pass.adapters[i];
        Tensor& t = *inner.of(i);
        adapter.a->prepare_forward(stream, *x, {&t}, adapter.saved_a, keep);
        adapter.b->prepare_forward(stream, t, {sum, true}, adapter.saved_b, keep);
    }
    check_forward(stream, pass, *x, y, inner, keep);
    if (scaled.has_value()) {
        scaled->begin();
        sum = &scaled->directions();
    }
    if (sum != nullptr || pass.adapters.empty()) {
        pass.base->forward(stream, x, {sum, false, scaled.has_value()}, pass.saved, keep);
    }
    for (std::size_t i = 0; i < pass.adapters.size(); ++i) {
        const AdapterPass& adapter = pass.adapters[i];
        adapter.a->forward(stream, x, {inner.of(i).get()}, adapter.saved_a, keep);
        adapter.b->forward(stream, inner.of(i), {sum, true}, adapter.saved_b, keep);
    }
    if (scaled.has_value()) {
        scaled->finish(y);
    }
    for (const AdapterPass& adapter : pass.adapters) { // of a forward with a magnitude
        if (adapter.magnitude.values == nullptr && adapter.magnitude.kept != nullptr) {
            adapter.magnitude.kept->drop();
        }
    }
}

namespace {

// Of all that dy, or what a magnitude makes of it, goes through.
void prepare_backward(Stream& stream, const LayerPass& pass, const Tensor& dy, Tensor* dx,
                      const WeightGradients& gradients, const Inner& inner) {
    for (std::size_t i = 0; i < pass.adapters.size(); ++i) {
        const AdapterPass& adapter = pass.adapters[i];
        Tensor* const dt = goes_on(adapter, dx) ? inner.of(i).get() : nullptr;
        adapter.b->prepare_backward(stream, adapter.saved_b, dy, {dt},
                                    gradient_of(adapter.db, gradients));
        if (dt != nullptr) {
            adapter.a->prepare_backward(stream, adapter.saved_a, *dt, {dx, true},
                                        gradient_of(adapter.da, gradients));
        }
    }
}

void backward_of_adapter(Stream& stream, const AdapterPass& adapter, const Tensor& dy, Tensor& dt,
                         Tensor* dx, const WeightGradients& gradients) {
    const bool continues = goes_on(adapter, dx);
    if (continues || adapter.db != nullptr) {
        adapter.b->backward(stream, adapter.saved_b, dy, {continues ? &dt : nullptr},
                            gradient_of(adapter.db, gradients));
    } else if (adapter.saved_b != nullptr) {
        adapter.b->pass_over(stream, *adapter.saved_b);
    }
    if (continues) {
        adapter.a->backward(stream, adapter.saved_a, dt, {dx, true},
                            gradient_of(adapter.da, gradients));
    } else if (adapter.saved_a != nullptr) {
        adapter.a->pass_over(stream, *adapter.saved_a);
    }
}

} // namespace

void backward(Stream& stream, const LayerPass& pass, const Tensor& dy, Tensor* dx,
              const WeightGradients& gradients) {
    pass.base->prepare_backward(stream, pass.saved, dy, {dx}, gradients);
    const AdapterPass* const scaling = scaling_adapter(pass);
    std::optional<ScaledBackward> scaled;
    if (scaling != nullptr) {
        scaled.emplace(stream, *pass.base, factors_of(*scaling), scaling->magnitude, dy);
    }
    const Tensor& sum = scaled.has_value() ? scaled->gradient() : dy;
    const Inner inner(stream, pass, dy, rows_in(dy, pass.base->options().out_features));
    prepare_backward(stream, pass, sum, dx, gradients, inner);
    check_backward(stream, pass, dy, dx, gradients);
    check_kept_inputs(pass);
    if (scaled.has_value()) {
        scaled->run(gradients.accumulate);
    }
    if (dx != nullptr || gradients.dw != nullptr || pass.adapters.empty()) {
        pass.base->backward(stream, pass.saved, sum, {dx}, gradients);
    } else if (pass.saved != nullptr) {
        pass.base->pass_over(stream, *pass.saved);
    }
    for (std::size_t i = 0; i < pass.adapters.size(); ++i) {
        backward_of_adapter(stream, pass.adapters[i], sum, *inner.of(i), dx, gradients);
    }
}

} // namespace mp::linear
