// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameters in groups, their states in the recipe's dtypes, and the step over all of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/cohorts.hpp"
#include "optim/groups.hpp"
#include "optim/norm_group.hpp"
#include "optim/offload.hpp"
#include "optim/parameters.hpp"
#include "optim/step_guard.hpp"
#include "optim/step_history.hpp"
#include "optim/step_layers.hpp"

namespace mp::optim {

struct OptimizerOptions {
    uint64_t seed = 0;
    double max_grad_norm = 0.0;
    bool check_finite = false;
    bool zero_grad = false;
    bool offload = false; // states and step on the host
    shard::ShardingOptions sharding;
};
// Throws for what cannot be; `ranks` 0: nobody shares it. So that ranks can refuse before they ask each other.
void check_options(const OptimizerOptions& options, int32_t ranks);

// What a checkpoint keeps of an optimizer beside its tensors.
struct OptimizerCounts {
    int64_t step = 0;
    int64_t skipped_steps = 0;
    int64_t outlier_steps = 0;
    uint64_t seed = 0;
    std::vector<numerics::GroupHyper> groups; // device_lr is the caller's, and not kept
    std::vector<int64_t> group_steps;
    // By parameter. Empty: an earlier format did not keep it; groups are then known by their numbers.
    std::vector<int32_t> param_groups;
    std::vector<int64_t> param_steps;
    // By parameter: SharedScales::mu(), 0 where it has none or no step has moved it.
    std::vector<float> grad_mus;
    GuardValues guard;
};

// What restore() writes, made beforehand so that it needs no memory.
struct RestoredCounts {
    OptimizerCounts counts; // groups in the order of those here
    StepCounts values;
    Cohorts cohorts;
    StepMemory tables; // of the cohorts
};

class Optimizer {
  public:
    Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
              const OptimizerOptions& options);

    [[nodiscard]] const OptimizerOptions& options() const noexcept { return options_; }
    [[nodiscard]] ParamGroups& groups() noexcept { return groups_; }
    [[nodiscard]] const ParamGroups& groups() const noexcept { return groups_; }
    [[nodiscard]] Parameters& parameters() noexcept { return parameters_; }
    [[nodiscard]] const Parameters& parameters() const noexcept { return parameters_; }
    int32_t add_parameter(Stream& stream, int32_t group, const NewParameter& parameter);
    // From the next step on; 0: no clipping. The same on all ranks.
    void set_max_grad_norm(double max_grad_norm);
    // As ParamGroups::set_lr_tensor(). A tensor may share no memory with what steps write.
    void set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr);
    // Gradients are divided by it, as by a loss scale; null: by nothing.
    void set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale);

    // The norm and found_inf are those of these ranks too, which hold other parameters. Every step is then collective over them.
    // Null: of this rank's parameters.
    void set_norm_comm(std::shared_ptr<comm::Communicator> comm);

    // Where ranks share the parameters: cuts them, and makes this rank's states. Collective; the first step does it
    // where nobody has. No parameter can be added after it.
    void shard(Stream& stream);
    [[nodiscard]] bool is_sharded() const noexcept { return options_.sharding.comm != nullptr; }
    [[nodiscard]] const comm::Communicator& comm() const noexcept {
        return *options_.sharding.comm;
    }
    // What this rank has sent for it.
    [[nodiscard]] comm::Traffic traffic() const noexcept {
        return sharding() != nullptr ? sharding()->groups().traffic() : comm().traffic();
    }
    // Null where this rank is alone, or before shard().
    [[nodiscard]] shard::Sharding* sharding() const noexcept { return parameters_.sharding(); }

    // The layers whose step ends with each step() from now on, instead of those named before. Collective where ranks share
    // the parameters, so that all know the same ones; throws rank_mismatch where they do not, and then nothing changes.
    void set_layers(std::vector<std::shared_ptr<linear::Linear>> layers);

    // Skips steps that stand out; without a value none does. What it has seen is kept where the options stay. The same on all
    // ranks.
    void set_guard(Stream& stream, const std::optional<GuardOptions>& options); // waits
    [[nodiscard]] const StepGuard& guard() const noexcept { return guard_; }
    // Of the step to come; the same on all ranks where the guard watches it.
    void set_loss(double loss) noexcept { guard_.set_loss(loss); }
    // Every step then waits for its own decision.
    void set_history(StepHistory history) noexcept { history_ = std::move(history); }
    [[nodiscard]] const StepHistory& history() const noexcept { return history_; }

    // Collective where ranks share the parameters.
    void step(Stream& stream, scaler::LossScaler* scaler);

    [[nodiscard]] numerics::OptimizerState read_state(Stream& stream) const; // waits
    // In device memory, at one place as long as the optimizer lives.
    [[nodiscard]] numerics::OptimizerState* device_state() const noexcept {
        return memory_.state();
    }
    void set_step(Stream& stream, int64_t step); // t of all parameters too; waits
    // t of one group: the steps that the parameters it began with took part in. Those that came later have their own, until
    // it is set.
    [[nodiscard]] int64_t group_step(Stream& stream, int32_t group) const; // waits
    void set_group_step(Stream& stream, int32_t group, int64_t step);      // waits

    // FP8-LM's factor of a gradient that ranks reduce under a shared scale; 0 where it is not.
    [[nodiscard]] float grad_mu(int32_t parameter) const;

    // For a checkpoint. prepare_restore() throws for groups that do not fit those here, and for numbers out of their
    // domain. restore() comes after the states were written; it waits, and fails only where another rank is lost
    // while weights are published.
    [[nodiscard]] OptimizerCounts counts(Stream& stream) const;                           // waits
    [[nodiscard]] RestoredCounts prepare_restore(Stream& stream, OptimizerCounts counts); // waits
    void restore(Stream& stream, RestoredCounts&& restored);
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const recipe::Recipe& recipe() const noexcept { return recipe_; }

  private:
    [[nodiscard]] bool is_enabled(const Parameter& parameter) const {
        return groups_.hyper(parameter.group).enabled;
    }
    static void check_counts(const OptimizerCounts& counts);
    void agree(Stream& stream, scaler::LossScaler* scaler, uint64_t weights, const Status& own);
    void step_on_ranks(Stream& stream, scaler::LossScaler* scaler);
    [[nodiscard]] std::string bad_gradient(Stream& stream) const;
    [[nodiscard]] BadTensors bad_tensors(Stream& stream) const;
    void remember_step(Stream& stream, const scaler::LossScaler* scaler) noexcept;
    void add_to_history(Stream& stream, const scaler::LossScaler* scaler,
                        std::optional<double> loss);
    void log_skip(Stream& stream) const noexcept;
    void log_memory() const noexcept;
    [[nodiscard]] StepOptions step_options() const;
    [[nodiscard]] std::vector<int32_t> enabled_parameters() const;
    void check_norm_group() const;
    void check_apart(const NewParameter& parameter) const;
    void check_gather() const;
    void refresh(Stream& stream);
    void make_plan(Stream& stream, const Cohorts& cohorts);

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    OptimizerOptions options_;
    ParamGroups groups_;
    Parameters parameters_;
    std::shared_ptr<Tensor> grad_scale_tensor_; // or null
    NormGroup norm_group_;
    SegmentPlan plan_; // empty under offload
    std::unique_ptr<Offload> offload_;
    StepLayers layers_;
    StepGuard guard_;
    std::vector<float> kept_mus_; // grad_mus of a checkpoint that have no use here
    StepHistory history_;
    int64_t calls_ = 0; // of step() on ranks
    Cohorts cohorts_;   // the rows of memory_
    StepMemory memory_;
};

} // namespace mp::optim
