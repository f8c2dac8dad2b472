// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameters in groups, their states in the recipe's dtypes, and the step over all of them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "optim/grad_scales.hpp"
#include "optim/norm_group.hpp"
#include "optim/open_step.hpp"
#include "optim/relayout.hpp"
#include "optim/step_guard.hpp"
#include "optim/step_history.hpp"
#include "optim/step_layers.hpp"
#include "optim/step_tables.hpp"

namespace mp::optim {

class Optimizer {
  public:
    Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
              const OptimizerOptions& options);
    Optimizer(const Optimizer&) = delete; // its parts know each other
    Optimizer& operator=(const Optimizer&) = delete;
    // What is behind other ranks has their deadline; to give device memory back would wait without one.
    ~Optimizer();

    [[nodiscard]] const OptimizerOptions& options() const noexcept { return options_; }
    [[nodiscard]] ParamGroups& groups() noexcept { return groups_; }
    [[nodiscard]] const ParamGroups& groups() const noexcept { return groups_; }
    [[nodiscard]] Parameters& parameters() noexcept { return parameters_; }
    [[nodiscard]] const Parameters& parameters() const noexcept { return parameters_; }
    // Counts of steps, and what of the last one is in device memory.
    [[nodiscard]] StepTables& tables() noexcept { return tables_; }
    [[nodiscard]] const StepTables& tables() const noexcept { return tables_; }
    // The same on all ranks; its loss too, where it is watched.
    [[nodiscard]] StepGuard& guard() noexcept { return guard_; }
    [[nodiscard]] const StepGuard& guard() const noexcept { return guard_; }
    // Where it is on, every step waits for its own decision.
    [[nodiscard]] StepHistory& history() noexcept { return history_; }
    // Of the model, not those of set_layers().
    [[nodiscard]] LayerPasses& layer_passes() noexcept { return layer_passes_; }
    [[nodiscard]] const GradScales& grad_scales() const noexcept { return grad_scales_; }
    // Those of its parts that a checkpoint keeps; the groups, by which the others are read, first.
    [[nodiscard]] std::array<StepParticipant*, 6> saved() noexcept {
        return {&groups_, &tables_, &guard_, &grad_scales_, &layers_, &layer_passes_};
    }
    // Null where this rank is alone, or before shard().
    [[nodiscard]] shard::Sharding* sharding() const noexcept { return parameters_.sharding(); }
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const recipe::Recipe& recipe() const noexcept { return recipe_; }

    int32_t add_parameter(Stream& stream, int32_t group, const NewParameter& parameter) {
        return add_parameters(stream, group, [&] { return std::vector{parameter}; });
    }
    // Returns the number of the first one. Collective where ranks have cut the parameters: what `list` throws, or what cannot be,
    // they all hear, and then nothing has changed.
    int32_t add_parameters(Stream& stream, int32_t group,
                           const std::function<std::vector<NewParameter>()>& list);
    // From now on these are not trained, or are: likewise.
    void set_frozen(Stream& stream, const std::function<std::span<const int32_t>()>& indices,
                    bool is_frozen);
    // From the next step on; 0: no clipping. The same on all ranks.
    void set_max_grad_norm(double max_grad_norm);
    // As ParamGroups::set_lr_tensor(). A tensor may share no memory with what steps write.
    void set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr);
    // Gradients are divided by it, as by a loss scale; null: by nothing.
    void set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale);
    // The norm and found_inf are those of these ranks too, which hold other parameters. Every step is then collective over them.
    // Null: of this rank's parameters.
    void set_norm_comm(std::shared_ptr<comm::Communicator> comm) {
        norm_group_ = NormGroup(std::move(comm));
    }
    // The layers whose step ends with each step() from now on, instead of those named before. Collective where ranks share
    // the parameters, so that all know the same ones: throws rank_mismatch where they do not. What `list` throws, or what cannot
    // be, they all hear, and then nothing changes.
    void set_layers(const std::function<std::vector<std::shared_ptr<linear::Linear>>()>& list);

    // Where ranks share the parameters: cuts them, and makes this rank's states. Collective; the first step does it
    // where nobody has.
    void shard(Stream& stream);
    // Collective where ranks share the parameters.
    void step(Stream& stream, scaler::LossScaler* scaler);
    // The next step, to be taken in parts: it is open for as long as it is there. This and `scaler`, or null, outlive it. Throws,
    // and nothing has changed, where one is open already.
    [[nodiscard]] std::shared_ptr<OpenStep> begin_step(Stream& stream, scaler::LossScaler* scaler);

  private:
    [[nodiscard]] OpenStep make_step(scaler::LossScaler* scaler);
    [[nodiscard]] StepOptions step_options() const;
    void add_to(Relayout& next, int32_t group, const NewParameter& parameter) const;
    // What a call changes, and what of it ranks must have in common.
    using Change = std::function<shard::Common(Relayout&)>;
    void relayout(Stream& stream, const shard::Common& call, const Change& change);
    void relayout_with_ranks(Stream& stream, Relayout& next, const shard::Common& call,
                             const Change& change);

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    OptimizerOptions options_;
    ParamGroups groups_;
    Parameters parameters_;
    StepTables tables_;
    std::shared_ptr<Tensor> grad_scale_tensor_; // or null
    NormGroup norm_group_;
    StepGuard guard_;
    StepHistory history_;
    StepLayers layers_;
    LayerPasses layer_passes_;
    GradScales grad_scales_;
    StepCalls calls_;
};

} // namespace mp::optim
