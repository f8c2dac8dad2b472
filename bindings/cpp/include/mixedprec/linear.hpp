// SPDX-License-Identifier: Apache-2.0
// Planned matrix products, and linear layers over tensors or plain memory.
#pragma once

#include "recipe.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** A planned matrix product. */
class Gemm : public Handle<mp_gemm, mp_gemm_destroy> {
  public:
    using Handle::Handle;
    static result<Gemm> create(const Context& context, const GemmOptions& options) {
        return detail::make<Gemm>(mp_gemm_create, context, &options);
    }
    result<void> run(const Tensor& a, const Tensor& b, const Tensor& d, TensorRef bias = {},
                     TensorRef c = {}, QueueRef queue = {}) {
        return call(mp_gemm_run, queue, a, b, bias, c, d);
    }
    /** Operands with scales, results with a factor. */
    result<void> run(const GemmArgs& args, QueueRef queue = {}) {
        return call(mp_gemm_run_scaled, queue, &args);
    }
    result<std::string> describe() const { return text(mp_gemm_describe); }
};

/** What one forward keeps for its backward. */
class Saved : public Handle<mp_saved, mp_saved_destroy> {
  public:
    using Handle::Handle;
    /** Memory of the caller's for it, linear.saved_bytes(rows) of it. */
    result<void> set_memory(void* memory, std::size_t bytes) {
        return call(mp_saved_set_memory, memory, bytes);
    }
    result<span<std::byte>> memory() const {
        void* memory = nullptr;
        std::size_t bytes = 0;
        const mp_status status = mp_saved_get_memory(raw_, &memory, &bytes);
        span<std::byte> found(static_cast<std::byte*>(memory), bytes);
        return detail::give(status, found);
    }
};

/** A linear layer whose products follow a recipe: y = x w^T + bias. */
class Linear : public Handle<mp_linear, mp_linear_destroy> {
  public:
    using Handle::Handle;
    using Monitor = std::function<void(std::string_view name, const mp_linear_stats& stats,
                                       std::string_view advice)>;
    Linear(Linear&&) = default;
    Linear& operator=(Linear&& other) noexcept {
        end_monitor();
        monitor_ = std::move(other.monitor_);
        Handle::operator=(std::move(other));
        return *this;
    }
    ~Linear() { end_monitor(); }

    /** Over the caller's weight [out, in] and bias [out] or nullptr, which are kept alive. The name is for the recipe's rules. */
    static result<Linear> create(const Context& context, const Recipe& recipe,
                                 std::int64_t in_features, std::int64_t out_features,
                                 const Tensor& weight, TensorRef bias = {}, std::uint32_t flags = 0,
                                 const std::string& name = {}) {
        mp_linear_desc desc = desc_of(in_features, out_features, flags);
        desc.name = name.empty() ? nullptr : name.c_str();
        return detail::make<Linear>(mp_linear_create, context, recipe, &desc, weight, bias);
    }
    /** Over plain memory, which the caller keeps where it is while the layer lives: a temporary vector does not compile. x of
     * forward is another matter: the layer never keeps its address (MP_LINEAR_COPY_INPUT). */
    template <class Weight, class = detail::KeptByAddress<Weight>>
    static result<Linear> over(const Context& context, const Recipe& recipe,
                               std::int64_t in_features, std::int64_t out_features, Weight&& weight,
                               std::uint32_t flags = 0) {
        return over(context, recipe, in_features, out_features, weight, span<const float>(), flags);
    }
    template <class Weight, class Bias, class = element_of<const Bias>,
              class = detail::KeptByAddress<Weight, Bias>>
    static result<Linear> over(const Context& context, const Recipe& recipe,
                               std::int64_t in_features, std::int64_t out_features, Weight&& weight,
                               Bias&& bias, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, bias,
                           flags | MP_LINEAR_COPY_INPUT);
    }
    /** The same for forward_by_address, without a copy of an x that has the recipe's own type. */
    template <class Weight, class = detail::KeptByAddress<Weight>>
    static result<Linear> over_by_address(const Context& context, const Recipe& recipe,
                                          std::int64_t in_features, std::int64_t out_features,
                                          Weight&& weight, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, span<const float>(),
                           flags);
    }
    template <class Weight, class Bias, class = element_of<const Bias>,
              class = detail::KeptByAddress<Weight, Bias>>
    static result<Linear> over_by_address(const Context& context, const Recipe& recipe,
                                          std::int64_t in_features, std::int64_t out_features,
                                          Weight&& weight, Bias&& bias, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, bias, flags);
    }

    result<void> forward(const Tensor& x, const Tensor& y, QueueRef queue = {}) {
        return call(mp_linear_forward, queue, x, y);
    }
    /** dx and dbias may be nullptr; flags: MP_BACKWARD_ACCUMULATE. */
    result<void> backward(const Tensor& dy, TensorRef dx, TensorRef dw, TensorRef dbias = {},
                          std::uint32_t flags = 0, QueueRef queue = {}) {
        return call(mp_linear_backward, queue, dy, dx, dw, dbias, flags);
    }
    result<void> backward_data(const Tensor& dy, const Tensor& dx, QueueRef queue = {}) {
        return call(mp_linear_backward_data, queue, dy, dx);
    }
    result<void> backward_weight(const Tensor& dy, const Tensor& dw, TensorRef dbias = {},
                                 std::uint32_t flags = 0, QueueRef queue = {}) {
        return call(mp_linear_backward_weight, queue, dy, dw, dbias, flags);
    }
    /** On plain memory: x is [rows, in_features], y is [rows, out_features]. x may change or go when this returns: a layer that
     * would keep its address is refused. Those of Linear::over do not. */
    template <class X, class Y>
    result<void> forward(std::int64_t rows, const X& x, Y&& y, QueueRef queue = {}) {
        return forward_memory(rows, x, y, queue, false);
    }
    /** The same without a copy: where x has the recipe's own type (fp32 of an fp32 recipe) it must stay what and where it is
     * until backward. A temporary vector does not compile. */
    template <class X, class Y, class = detail::KeptByAddress<X>>
    result<void> forward_by_address(std::int64_t rows, X&& x, Y&& y, QueueRef queue = {}) {
        return forward_memory(rows, x, y, queue, true);
    }
    /** dx, dw and dbias may be empty spans. */
    template <class Dy, class Dx, class Dw, class Dbias>
    result<void> backward(std::int64_t rows, const Dy& dy, Dx&& dx, Dw&& dw, Dbias&& dbias,
                          std::uint32_t flags = 0, QueueRef queue = {}) {
        static_assert(dtype_in<const Dy> == dtype_in<Dx> && dtype_in<Dw> == dtype_in<Dbias>,
                      "dy and dx have one type, and dw and dbias have one");
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        if (const mp_status status = mp_linear_get_desc(raw_, &desc); status < 0)
            return detail::done(status);
        const auto fits = [](const auto& s, std::int64_t count) {
            return std::data(s) == nullptr || detail::count_of(s) == count;
        };
        if (!fits(dy, rows * desc.out_features) || !fits(dx, rows * desc.in_features) ||
            !fits(dw, desc.in_features * desc.out_features) || !fits(dbias, desc.out_features)) {
            return detail::fail(
                MP_STATUS_INVALID_SHAPE,
                "linear: dy must have rows * out_features elements, dx rows * in_features, "
                "dw in_features * out_features, dbias out_features");
        }
        return call(mp_linear_backward_pointers, queue, rows, std::data(dy), std::data(dx),
                    dtype_in<Dx>, std::data(dw), std::data(dbias), dtype_in<Dw>, flags);
    }
    /** The end of a step for many layers; not beside Optimizer::set_linears. */
    static result<void> end_step(const std::vector<Linear*>& layers, CommRef comm = {},
                                 QueueRef queue = {}) {
        const auto raw = detail::handles(layers);
        return detail::call(mp_linear_end_step, raw.data(), detail::count_of<std::int32_t>(raw),
                            queue, comm);
    }

    result<Saved> make_saved() { return make<Saved>(mp_saved_create); }
    /** y may be nullptr with MP_FORWARD_RECOMPUTE. */
    result<void> forward(const Tensor& x, TensorRef y, Saved& saved, std::uint32_t flags = 0,
                         QueueRef queue = {}) {
        return call(mp_linear_forward_saved, queue, x, y, saved, flags);
    }
    result<void> backward(const Saved& saved, const Tensor& dy, TensorRef dx, TensorRef dw,
                          TensorRef dbias = {}, std::uint32_t flags = 0, QueueRef queue = {}) {
        return call(mp_linear_backward_saved, queue, saved, dy, dx, dw, dbias, flags);
    }
    result<std::size_t> saved_bytes(std::int64_t rows) const {
        return value<std::size_t>(mp_linear_get_saved_bytes, rows);
    }
    result<void> set_gradient_rounding(const CastOptions& options) {
        return call(mp_linear_set_gradient_rounding, &options);
    }
    /** What an operand of a product is rounded to: MP_PRODUCT_*, MP_OPERAND_*. */
    struct Form {
        std::int32_t dtype = 0;
        QuantOptions quant;
    };
    result<Form> operand_format(std::int32_t product, std::int32_t operand) const {
        Form form;
        return detail::give(
            mp_linear_get_operand_format(raw_, product, operand, &form.dtype, &form.quant), form);
    }
    result<void> quantize(std::int32_t product, std::int32_t operand, const Tensor& source,
                          const Tensor& codes, QueueRef queue = {}) {
        return call(mp_linear_quantize, queue, product, operand, source, codes);
    }
    result<void> set_weight_codes(TensorRef fprop, TensorRef dgrad) {
        return call(mp_linear_set_weight_codes, fprop, dgrad);
    }
    result<Tensor> weight_codes(std::int32_t product) const {
        return make<Tensor>(mp_linear_get_weight_codes, product);
    }
    result<Tensor> multiply_tensor(std::int32_t operand) const {
        return make<Tensor>(mp_linear_get_multiply_tensor, operand);
    }

    result<std::string> describe() const { return text(mp_linear_describe); }
    result<LinearStats> stats(std::int32_t operand) const {
        return value<LinearStats>(mp_linear_get_stats, operand);
    }
    result<void> clear_stats(QueueRef queue = {}) { return call(mp_linear_clear_stats, queue); }
    result<std::string> advice(std::int32_t operand) const {
        return text(mp_linear_get_advice, operand);
    }
    /** Hands every so many steps' statistics to a function; an empty one ends it. It lasts as long as this object. */
    result<void> set_monitor(const std::string& name, int every, Monitor monitor) {
        auto next = monitor ? std::make_unique<Monitor>(std::move(monitor)) : nullptr;
        const mp_linear_monitor_fn tell = [](void* payload, const char* layer,
                                             const mp_linear_stats* stats, const char* advice) {
            Monitor& function = *static_cast<Monitor*>(payload);
            detail::guarded([&] { return function(layer, *stats, advice ? advice : ""), 0; });
        };
        const mp_status status =
            mp_linear_set_monitor(raw_, name.c_str(), every, next ? tell : nullptr, next.get());
        if (status >= 0)
            monitor_ = std::move(next);
        return detail::done(status);
    }
    /** What the layer must remember for training to go on bit for bit. */
    result<std::vector<std::byte>> scaling() const {
        return text<std::vector<std::byte>>(mp_linear_get_scaling);
    }
    result<void> set_scaling(span<const std::byte> bytes) {
        return call(mp_linear_set_scaling, bytes.data(), bytes.size());
    }

  private:
    static mp_linear_desc desc_of(std::int64_t in_features, std::int64_t out_features,
                                  std::uint32_t flags) {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.flags = flags;
        desc.in_features = in_features;
        desc.out_features = out_features;
        return desc;
    }
    template <class Weight, class Bias>
    static result<Linear> over_memory(const Context& context, const Recipe& recipe,
                                      std::int64_t in_features, std::int64_t out_features,
                                      const Weight& weight, const Bias& bias, std::uint32_t flags) {
        const mp_linear_desc desc = desc_of(in_features, out_features, flags);
        const bool has_bias = std::data(bias) != nullptr;
        if (detail::count_of(weight) != in_features * out_features ||
            (has_bias && detail::count_of(bias) != out_features)) {
            return detail::fail<Linear>(
                MP_STATUS_INVALID_SHAPE,
                "linear: the weight must have in_features * out_features elements "
                "and the bias out_features");
        }
        return detail::make<Linear>(mp_linear_create_pointers, context, recipe, &desc,
                                    std::data(weight), dtype_in<const Weight>, std::data(bias),
                                    has_bias ? dtype_in<const Bias> : MP_DTYPE_NONE);
    }
    /* Whether forward keeps an x of this type by its address. */
    bool refers_to(std::int32_t dtype, std::uint32_t flags) const {
        constexpr std::uint32_t kKeepsNoAddress =
            MP_LINEAR_COPY_INPUT | MP_LINEAR_INFERENCE | MP_LINEAR_FROZEN;
        std::int32_t kept = MP_DTYPE_NONE;
        mp_quant_desc form = MP_QUANT_DESC_INIT;
        const mp_status status =
            mp_linear_get_operand_format(raw_, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, &kept, &form);
        return (flags & kKeepsNoAddress) == 0 && status >= 0 && kept == dtype && form.scaling == 0;
    }
    template <class X, class Y>
    result<void> forward_memory(std::int64_t rows, const X& x, Y& y, QueueRef queue,
                                bool by_address) {
        static_assert(dtype_in<const X> == dtype_in<Y>, "x and y have one type");
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        if (const mp_status status = mp_linear_get_desc(raw_, &desc); status < 0)
            return detail::done(status);
        if (detail::count_of(x) != rows * desc.in_features ||
            detail::count_of(y) != rows * desc.out_features) {
            return detail::fail(
                MP_STATUS_INVALID_SHAPE,
                "linear: x must have rows * in_features elements and y rows * out_features");
        }
        if (!by_address && refers_to(dtype_in<const X>, desc.flags)) {
            return detail::fail(
                MP_STATUS_INVALID_ARGUMENT,
                "linear: this layer would keep the address of x, which has the recipe's own type; "
                "make it by Linear::over or with MP_LINEAR_COPY_INPUT, or call forward_by_address");
        }
        return call(mp_linear_forward_pointers, queue, rows, std::data(x), std::data(y),
                    dtype_in<Y>);
    }
    /* An optimizer may keep the layer for longer than this object keeps the function. */
    void end_monitor() {
        if (monitor_ && raw_)
            static_cast<void>(mp_linear_set_monitor(raw_, "", 0, nullptr, nullptr));
        monitor_.reset();
    }
    std::unique_ptr<Monitor> monitor_;
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
