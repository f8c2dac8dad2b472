// SPDX-License-Identifier: Apache-2.0
// Optimizers over parameters in groups, also sharded over ranks; and what is to be read of their steps.
#pragma once

#include "comm.hpp"
#include "linear.hpp"
#include "model_file.hpp"
#include "model_writer.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** What Optimizer::add_param takes beside the weight. */
struct ParamOptions {
    TensorRef grad = {};      /* main gradient; none: one is made in the recipe's grad.dtype */
    TensorRef init_fp32 = {}; /* exact initial values */
    std::uint32_t flags = 0;
    std::int32_t group = 0;
};

/** One of many, for Optimizer::add_params. */
struct NamedParam {
    std::string name;
    TensorRef param;
    ParamOptions options = {}; /* without the group, which is the call's */
};

/** Named parameters in groups, with states in the recipe's dtypes; sharded where it is made with a communicator. */
class Optimizer : public Handle<mp_optimizer, mp_optimizer_destroy> {
  public:
    using Handle::Handle;
    static result<Optimizer> create(const Context& context, const Recipe& recipe,
                                    const OptimizerOptions& options = {}) {
        return detail::make<Optimizer>(mp_optimizer_create, context, recipe, &options);
    }
    /** The communicator is kept alive. */
    static result<Optimizer> create_sharded(const Context& context, const Recipe& recipe,
                                            Comm& comm, const ShardingOptions& sharding = {},
                                            const OptimizerOptions& options = {}) {
        return detail::make<Optimizer>(mp_optimizer_create_sharded, context, recipe, &options, comm,
                                       &sharding);
    }

    result<int> add_group(const GroupOptions& options = {}) {
        return value<int>(mp_optimizer_add_group, &options);
    }
    result<int> add_param(const std::string& name, const Tensor& param,
                          const ParamOptions& options = {}) {
        const mp_param_desc desc = desc_of(name, param, options);
        return value<int>(mp_optimizer_add_param, options.group, &desc);
    }
    /** All or none, and after the cut one exchange for all; the number of the first one. */
    result<int> add_params(int group, const std::vector<NamedParam>& params) {
        std::vector<mp_param_desc> descs;
        for (const NamedParam& one : params)
            descs.push_back(desc_of(one.name, one.param, one.options));
        return value<int>(mp_optimizer_add_params, group, descs.data(),
                          detail::count_of<std::int32_t>(descs));
    }
    /* Not trained from now on, or trained again, with states of zeros. Like adding it is collective after the cut. */
    result<void> set_frozen(span<const std::int32_t> indices, bool frozen = true,
                            QueueRef queue = {}) {
        return call(mp_optimizer_set_frozen, queue, indices.data(),
                    detail::count_of<std::int32_t>(indices), frozen);
    }
    result<bool> frozen(int index) const { return value<bool>(mp_optimizer_get_frozen, index); }
    result<void> step(ScalerRef scaler = {}, QueueRef queue = {}) {
        return call(mp_optimizer_step, queue, scaler);
    }
    /* A step in parts: a parameter is written as soon as its gradient is final. step_end writes what is left. */
    /** Decides the step. */
    result<void> step_begin(ScalerRef scaler = {}, QueueRef queue = {}) {
        return call(mp_optimizer_step_begin, queue, scaler);
    }
    /** From their own gradients. */
    result<void> step_params(span<const std::int32_t> indices, QueueRef queue = {}) {
        return call(mp_optimizer_step_params, queue, indices.data(),
                    detail::count_of<std::int32_t>(indices), nullptr);
    }
    /** From these gradients, one for each, which are not kept: step_params(indices, {grad}). */
    result<void> step_params(span<const std::int32_t> indices, const std::vector<TensorRef>& grads,
                             QueueRef queue = {}) {
        if (grads.size() != indices.size()) {
            return detail::fail(MP_STATUS_INVALID_ARGUMENT,
                                "step_params: there are " + std::to_string(grads.size()) +
                                    " gradients; there must be one for each of " +
                                    std::to_string(indices.size()) + " parameters");
        }
        std::vector<mp_tensor*> raw;
        for (const TensorRef& grad : grads)
            raw.push_back(grad.get());
        return call(mp_optimizer_step_params, queue, indices.data(),
                    detail::count_of<std::int32_t>(indices), raw.data());
    }
    result<void> step_end(QueueRef queue = {}) { return call(mp_optimizer_step_end, queue); }
    result<void> zero_grad(QueueRef queue = {}) { return call(mp_optimizer_zero_grad, queue); }
    /* These have no gradient in the next step, which passes over them. */
    result<void> mark_unused(span<const std::int32_t> indices, QueueRef queue = {}) {
        return on_params(mp_optimizer_mark_unused, indices, queue);
    }
    /** A step then ends these layers' step too. */
    result<void> set_linears(const std::vector<Linear*>& layers) {
        const auto raw = detail::handles(layers);
        return call(mp_optimizer_set_linears, raw.data(), detail::count_of<std::int32_t>(raw));
    }
    result<OptimizerStats> stats(QueueRef queue = {}) {
        return value<OptimizerStats>(mp_optimizer_get_stats, queue);
    }
    result<void> set_lr(int group, double lr) { return call(mp_optimizer_set_lr, group, lr); }
    result<void> set_lr(int group, const Tensor& lr) {
        return call(mp_optimizer_set_lr_tensor, group, lr);
    }
    result<void> set_enabled(int group, bool enabled) {
        return call(mp_optimizer_set_enabled, group, enabled);
    }
    result<void> set_max_grad_norm(double norm) {
        return call(mp_optimizer_set_max_grad_norm, norm);
    }
    result<void> set_grad_scale(TensorRef scale) {
        return call(mp_optimizer_set_grad_scale_tensor, scale);
    }
    result<void> set_norm_comm(CommRef comm) { return call(mp_optimizer_set_norm_comm, comm); }
    result<Tensor> grad_norm_tensor() const {
        return make<Tensor>(mp_optimizer_get_grad_norm_tensor);
    }
    result<Tensor> found_inf_tensor() const {
        return make<Tensor>(mp_optimizer_get_found_inf_tensor);
    }

    /** "param", "grad", "exp_avg", "exp_avg_sq", ...: the state itself. */
    result<Tensor> state(int index, const std::string& name) const {
        return make<Tensor>(mp_optimizer_get_state, index, name);
    }
    result<Tensor> grad(int index) const { return state(index, "grad"); }
    /** Its values, decoded into a tensor in fp32, and back. */
    result<void> read_state(int index, const std::string& name, const Tensor& values,
                            QueueRef queue = {}) const {
        return call(mp_optimizer_read_state, queue, index, name, values);
    }
    result<void> write_state(int index, const std::string& name, const Tensor& values,
                             QueueRef queue = {}) {
        return call(mp_optimizer_write_state, queue, index, name, values);
    }
    /** After the caller wrote into a parameter. */
    result<void> sync_master(int index, QueueRef queue = {}) {
        return call(mp_optimizer_sync_master, queue, index);
    }
    result<void> set_step(std::int64_t step, QueueRef queue = {}) {
        return call(mp_optimizer_set_step, queue, step);
    }
    result<std::int64_t> group_step(int group, QueueRef queue = {}) const {
        return value<std::int64_t>(mp_optimizer_get_group_step, queue, group);
    }
    result<void> set_group_step(int group, std::int64_t step, QueueRef queue = {}) {
        return call(mp_optimizer_set_group_step, queue, group, step);
    }

    result<OptimizerOptions> options() const {
        return value<OptimizerOptions>(mp_optimizer_get_desc);
    }
    result<int> group_count() const { return value<int>(mp_optimizer_get_group_count); }
    result<GroupOptions> group(int index) const {
        return value<GroupOptions>(mp_optimizer_get_group, index);
    }
    result<bool> enabled(int group) const { return value<bool>(mp_optimizer_get_enabled, group); }
    result<int> param_count() const { return value<int>(mp_optimizer_get_param_count); }
    result<std::string> param_name(int index) const {
        return text(mp_optimizer_get_param_name, index);
    }
    result<int> param_group(int index) const {
        return value<int>(mp_optimizer_get_param_group, index);
    }
    result<MemoryReport> memory() const { return value<MemoryReport>(mp_optimizer_get_memory); }
    /** What steps with offload have moved, and how long they took. */
    result<OffloadTraffic> offload_traffic() const {
        return value<OffloadTraffic>(mp_optimizer_get_offload_traffic);
    }

    /* First values, also of deferred parameters; see first_values.h. */
    result<void> init_params(std::uint64_t seed, span<const mp_param_init> inits,
                             QueueRef queue = {}) {
        return call(mp_optimizer_init_params, queue, seed, inits.data(),
                    detail::count_of<std::int32_t>(inits));
    }
    /** Of all parameters. */
    result<void> load_params(const ModelFile& model, const std::string& prefix = {},
                             QueueRef queue = {}) {
        return call(mp_optimizer_load_params, queue, model, prefix.c_str(), nullptr, 0);
    }
    result<void> load_params(const ModelFile& model, const std::string& prefix,
                             span<const std::int32_t> indices, QueueRef queue = {}) {
        const std::int32_t none = 0; // NULL would be all parameters
        return call(mp_optimizer_load_params, queue, model, prefix.c_str(),
                    indices.size() == 0 ? &none : indices.data(),
                    detail::count_of<std::int32_t>(indices));
    }
    /** Of all parameters; the writer is that of one rank, nullptr on the others. Exact: MP_WRITE_PARAMS_EXACT. */
    result<void> write_params(ModelWriterRef writer, const std::string& prefix = {},
                              std::uint32_t flags = 0, QueueRef queue = {}) {
        return call(mp_optimizer_write_params, queue, writer, prefix.c_str(), nullptr, 0, flags);
    }
    result<void> write_params(ModelWriterRef writer, const std::string& prefix,
                              span<const std::int32_t> indices, std::uint32_t flags = 0,
                              QueueRef queue = {}) {
        const std::int32_t none = 0; // NULL would be all parameters
        return call(mp_optimizer_write_params, queue, writer, prefix.c_str(),
                    indices.size() == 0 ? &none : indices.data(),
                    detail::count_of<std::int32_t>(indices), flags);
    }
    /** fill(index, first, values) writes values, a span<float>, and returns an mp_status. `root` as in C. */
    template <class Fill>
    result<void> fill_params(span<const std::int32_t> indices, Fill fill, int root = -1,
                             QueueRef queue = {}) {
        const mp_fill_fn write = [](std::int32_t index, std::int64_t first, std::int64_t count,
                                    float* values, void* payload) -> mp_status {
            return detail::guarded([&]() -> mp_status {
                return (*static_cast<Fill*>(payload))(
                    index, first, span<float>(values, static_cast<std::size_t>(count)));
            });
        };
        return call(mp_optimizer_fill_params, queue, indices.data(),
                    detail::count_of<std::int32_t>(indices), write, static_cast<void*>(&fill),
                    static_cast<std::int32_t>(root));
    }

    /* What stands out, and the last steps; see watch.h. */
    /** Skips steps that stand out from now on. */
    result<void> set_guard(const GuardOptions& guard, QueueRef queue = {}) {
        return call(mp_optimizer_set_guard, queue, &guard);
    }
    result<void> clear_guard(QueueRef queue = {}) {
        return call(mp_optimizer_set_guard, queue, nullptr);
    }
    /** Both bounds are 0 where there is none. */
    result<GuardOptions> guard() const { return value<GuardOptions>(mp_optimizer_get_guard); }
    /** Of the step to come. */
    result<void> set_loss(double loss) { return call(mp_optimizer_set_loss, loss); }
    /** Keeps so many of the last steps, 0: none; and writes them to path when the first goes wrong. */
    result<void> set_history(int steps, const std::string& path = {}) {
        return call(mp_optimizer_set_history, steps, path.empty() ? nullptr : path.c_str());
    }
    result<int> record_count() const { return value<int>(mp_optimizer_get_record_count); }
    /** 0: the oldest. */
    result<StepRecord> record(int index) const {
        return value<StepRecord>(mp_optimizer_get_record, index);
    }
    /** The first tensor that was not finite, in words; empty: there was none. */
    result<std::string> bad_tensor() const { return text(mp_optimizer_get_bad_tensor); }

    /* Of a sharded one; see sharding.h. */
    result<void> shard(QueueRef queue = {}) { return call(mp_optimizer_shard, queue); }
    result<void> grad_ready(int index, QueueRef queue = {}) {
        return call(mp_optimizer_grad_ready, queue, index);
    }
    result<void> end_microbatch(QueueRef queue = {}) {
        return call(mp_optimizer_end_microbatch, queue);
    }
    result<void> acquire_grad(int index, QueueRef queue = {}) {
        return call(mp_optimizer_acquire_grad, queue, index);
    }
    result<void> gather_begin(span<const std::int32_t> indices, QueueRef queue = {}) {
        return on_params(mp_optimizer_gather_begin, indices, queue);
    }
    result<void> gather_wait(span<const std::int32_t> indices, QueueRef queue = {}) {
        return on_params(mp_optimizer_gather_wait, indices, queue);
    }
    result<void> gather_free(span<const std::int32_t> indices, QueueRef queue = {}) {
        return on_params(mp_optimizer_gather_free, indices, queue);
    }
    /* Layer by layer: weights come and go, and gradients leave, with the passes of a layer. */
    /** The parameters that each layer uses, in the order of forward: set_layer_params({{0, 1}, {2}}). Weights are fetched
     * `prefetch` layers ahead. */
    result<void> set_layer_params(const std::vector<std::vector<std::int32_t>>& layers,
                                  int prefetch = 1) {
        std::vector<std::int32_t> counts, indices;
        for (const auto& layer : layers) {
            counts.push_back(detail::count_of<std::int32_t>(layer));
            indices.insert(indices.end(), layer.begin(), layer.end());
        }
        return call(mp_optimizer_set_layer_params, detail::count_of<std::int32_t>(layers),
                    counts.data(), indices.data(), prefetch);
    }
    /** pass: MP_PASS_*, the same at the end. A step ends what has not ended. */
    result<void> layer_begin(int layer, int pass, QueueRef queue = {}) {
        return call(mp_optimizer_layer_begin, queue, layer, pass);
    }
    result<void> layer_end(int layer, int pass, QueueRef queue = {}) {
        return call(mp_optimizer_layer_end, queue, layer, pass);
    }
    struct Slice {
        std::int64_t start = 0, count = 0;
    };
    result<Slice> slice(int index, int rank) const {
        Slice slice;
        return detail::give(mp_optimizer_get_slice(raw_, index, rank, &slice.start, &slice.count),
                            slice);
    }
    result<ShardingProgress> progress() const {
        return value<ShardingProgress>(mp_optimizer_get_progress);
    }
    result<double> grad_mu(int index) const {
        return value<double>(mp_optimizer_get_grad_mu, index);
    }
    result<CommTraffic> traffic() const { return value<CommTraffic>(mp_optimizer_get_traffic); }

  private:
    static mp_param_desc desc_of(const std::string& name, TensorRef param,
                                 const ParamOptions& options) {
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.flags = options.flags;
        desc.name = name.c_str();
        desc.param = param.get();
        desc.grad = options.grad.get();
        desc.init_fp32 = options.init_fp32.get();
        return desc;
    }
    template <class Function>
    result<void> on_params(Function function, span<const std::int32_t> indices, QueueRef queue) {
        return call(function, queue, indices.data(), detail::count_of<std::int32_t>(indices));
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
