// SPDX-License-Identifier: Apache-2.0
// Loss scaling.
#pragma once

#include "comm.hpp"
#include "recipe.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

class Scaler : public Handle<mp_scaler, mp_scaler_destroy> {
  public:
    using Handle::Handle;
    static result<Scaler> create(const Context& context, const ScalerOptions& options = {}) {
        return detail::make<Scaler>(mp_scaler_create, context, &options);
    }
    static result<Scaler> create(const Context& context, const Recipe& recipe) {
        return detail::make<Scaler>(mp_scaler_create_from_recipe, context, recipe);
    }
    /** "torch", "megatron", "deepspeed" or "apex". */
    static result<ScalerOptions> preset(const std::string& name) {
        ScalerOptions options;
        return detail::give(mp_scaler_desc_preset(&options, sizeof(mp_scaler_desc), name.c_str()),
                            options);
    }
    result<double> scale(QueueRef queue = {}) { return value<double>(mp_scaler_get_scale, queue); }
    result<void> update(QueueRef queue = {}) { return call(mp_scaler_update, queue); }
    /** Whether gradients in the caller's memory are finite: pointers, their types, and their sizes. */
    result<void> check(span<const void* const> grads, span<const std::int32_t> dtypes,
                       span<const std::int64_t> elements, QueueRef queue = {}) {
        if (grads.size() != dtypes.size() || grads.size() != elements.size()) {
            return detail::fail(MP_STATUS_INVALID_ARGUMENT,
                                "check: pointers, types and sizes differ in number");
        }
        return call(mp_scaler_check_pointers, queue, detail::count_of(grads), grads.data(),
                    dtypes.data(), elements.data());
    }
    result<Tensor> scale_tensor() const { return make<Tensor>(mp_scaler_get_scale_tensor); }
    result<Tensor> found_inf_tensor() const { return make<Tensor>(mp_scaler_get_found_inf_tensor); }
    result<void> combine(Comm& comm, QueueRef queue = {}) {
        return call(mp_scaler_combine, queue, comm);
    }
    result<ScalerState> state(QueueRef queue = {}) {
        return value<ScalerState>(mp_scaler_get_state, queue);
    }
    result<void> set_state(const ScalerState& state, QueueRef queue = {}) {
        return call(mp_scaler_set_state, queue, &state);
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
