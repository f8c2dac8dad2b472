// SPDX-License-Identifier: Apache-2.0
// Adapters of frozen layers: LoRA, rsLoRA, DoRA.
#pragma once

#include "linear.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** scale * (drop(x) * a^T) * b^T beside a frozen layer's own product, as long as this object lives. */
class Adapter : public Handle<mp_adapter, mp_adapter_destroy> {
  public:
    using Handle::Handle;
    /** Over a [r, in] and b [out, r], which are kept alive. */
    static result<Adapter> create(const Linear& linear, const Recipe& recipe, const Tensor& a,
                                  const Tensor& b, const AdapterOptions& options = {}) {
        return detail::make<Adapter>(mp_adapter_create, linear, recipe, &options, a, b);
    }
    /** Over plain memory, which the caller keeps where it is while the adapter lives; options.rank is needed. A temporary vector
     * does not compile. */
    template <class A, class B, class = detail::KeptByAddress<A, B>>
    static result<Adapter> over(const Linear& linear, const Recipe& recipe,
                                const AdapterOptions& options, A&& a, B&& b) {
        static_assert(dtype_in<A> == dtype_in<B>, "a and b have one type");
        mp_linear_desc sizes = MP_LINEAR_DESC_INIT;
        if (const mp_status status = mp_linear_get_desc(linear.get(), &sizes); status < 0) {
            Adapter none;
            return detail::give(status, none);
        }
        if (detail::count_of(a) != options.rank * sizes.in_features ||
            detail::count_of(b) != options.rank * sizes.out_features) {
            return detail::fail<Adapter>(
                MP_STATUS_INVALID_SHAPE,
                "adapter: a must have rank * in_features elements, b rank * out_features");
        }
        return detail::make<Adapter>(mp_adapter_create_pointers, linear, recipe, &options,
                                     std::data(a), std::data(b), dtype_in<A>);
    }

    /** Where a backward of the layer writes; nullptr: not wanted. */
    result<void> set_grads(TensorRef da, TensorRef db) {
        return call(mp_adapter_set_grads, da, db);
    }
    /** DoRA's magnitude [out] and its gradient, or nullptr. */
    result<void> set_magnitude(TensorRef magnitude, TensorRef gradient = {}) {
        return call(mp_adapter_set_magnitude, magnitude, gradient);
    }
    /** To what the rows of the merged weight have now. */
    result<void> init_magnitude(QueueRef queue = {}) {
        return call(mp_adapter_init_magnitude, queue);
    }
    result<void> set_active(bool active) { return call(mp_adapter_set_active, active ? 1 : 0); }
    result<bool> is_active() const {
        std::int32_t active = 0;
        const mp_status status = mp_adapter_get_active(raw_, &active);
        bool is_on = active != 0;
        return detail::give(status, is_on);
    }
    result<AdapterOptions> options() const { return value<AdapterOptions>(mp_adapter_get_desc); }

    /** The layers that it is: of x, and of what that gives. */
    struct Layers {
        Linear a;
        Linear b;
    };
    result<Layers> layers() const {
        mp_linear *a = nullptr, *b = nullptr;
        const mp_status status = mp_adapter_get_linears(raw_, &a, &b);
        Layers layers{Linear(a), Linear(b)};
        return detail::give(status, layers);
    }
};

/** Rows of a layer's weight with its active adapters, from first_row on. flags: MP_MERGE_REQUANTIZE. */
inline result<void> merge_adapters(Linear& linear, const Tensor& target, std::int64_t first_row = 0,
                                   std::uint32_t flags = 0, MergeReport* report = nullptr,
                                   QueueRef queue = {}) {
    return detail::call(mp_linear_merge_adapters, linear, queue, first_row, target, flags, report);
}

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
