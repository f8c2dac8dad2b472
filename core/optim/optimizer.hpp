// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameters in groups, their states in the recipe's dtypes, and the step over all of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "optim/offload.hpp"
#include "optim/step_layers.hpp"
#include "shard/sharding.hpp"

namespace mp::optim {

struct OptimizerOptions {
    uint64_t seed = 0;
    double max_grad_norm = 0.0;
    bool check_finite = false;
    bool zero_grad = false;
    bool eager_compat = false;
    bool offload = false; // states and step on the host
    shard::ShardingOptions sharding;
};

// What the moments of a group are kept in, as the recipe's keys say it; empty: what the recipe says.
struct MomentFormats {
    std::string exp_avg;
    std::string exp_avg_sq;
};

struct NewParameter {
    std::string name;
    std::shared_ptr<Tensor> param;
    std::shared_ptr<Tensor> grad;      // null: made here
    std::shared_ptr<Tensor> init_fp32; // null: the parameter as it is
};

// What a checkpoint keeps of an optimizer beside its tensors.
struct OptimizerCounts {
    int64_t step = 0;
    int64_t skipped_steps = 0;
    uint64_t seed = 0;
    std::vector<numerics::GroupHyper> groups; // device_lr is the caller's, and not kept
    std::vector<int64_t> group_steps;
};

// An array of a parameter that a step reads and changes, as far as it is here.
struct SavedTensor {
    std::string state; // "param", "exp_avg", "exp_avg_scale_inv", ...
    StateFormat format;
    std::vector<int64_t>
        shape;         // of the whole, in elements; of scales: none, or the number of blocks
    int64_t start = 0; // elements [start, start + count) are here
    int64_t count = 0;
    void* data = nullptr;
    const Stream* stream = nullptr;
    bool is_everywhere = true; // all of it, on every rank
    bool is_copy = false;      // a rank of another group has the same
};

// The elements of a parameter whose states are here, and all that is kept of them.
struct StatesPlace {
    StateFormat weight;
    StateFormats formats;
    std::vector<int64_t> shape; // of the whole parameter
    int64_t whole = 0;          // elements of it
    int64_t start = 0;          // elements [start, start + count) are here
    int64_t count = 0;
    bool is_everywhere = true;
    bool is_copy = false;
    const Stream* stream = nullptr;
    TensorSlice param;
    const ParamStates* states = nullptr; // null: nothing is here
};
// Every rank lists all that there is, also what it has no element of.
std::vector<SavedTensor> saved_tensors(const StatesPlace& place);

// What restore() writes, made beforehand so that it needs no memory.
struct RestoredCounts {
    OptimizerCounts counts;
    StepCounts memory;
};

class Optimizer {
  public:
    // Throws for what cannot be; `ranks` 0: nobody shares it. So that ranks can refuse before they ask each other.
    static void check_options(const OptimizerOptions& options, int32_t ranks);
    Optimizer(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
              const OptimizerOptions& options);

    int32_t add_group(const numerics::GroupHyper& hyper, const MomentFormats& formats = {});
    [[nodiscard]] const recipe::Recipe& recipe_of_group(int32_t group) const {
        return group_recipes_.at(static_cast<std::size_t>(group));
    }
    // What its formats and hyperparameters do badly together; empty: nothing.
    [[nodiscard]] std::string warning_of_group(int32_t group) const;
    int32_t add_parameter(Stream& stream, int32_t group, const NewParameter& parameter);
    // -1: all groups. Replaces a tensor.
    void set_lr(int32_t group, double lr);
    // One fp32 element that every step reads where it is; null: the number again. -1: all groups.
    void set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr);
    // Gradients are divided by it, as by a loss scale; null: by nothing.
    void set_grad_scale_tensor(const std::shared_ptr<Tensor>& scale);
    // Parameters of a group that is off are not touched, and their gradients do not count in the norm.
    void set_enabled(int32_t group, bool enabled); // -1: all groups
    // After somebody else wrote parameters: master weights follow them, compensations are forgotten.
    void sync_master(Stream& stream, int32_t index); // -1: all parameters

    // Where ranks share the parameters: cuts them, and makes this rank's states. Collective; the first step does it
    // where nobody has. No parameter can be added after it.
    void shard(Stream& stream);
    [[nodiscard]] bool is_sharded() const noexcept { return options_.sharding.comm != nullptr; }
    [[nodiscard]] const comm::Communicator& comm() const noexcept {
        return *options_.sharding.comm;
    }
    // What this rank has sent for it.
    [[nodiscard]] comm::Traffic traffic() const noexcept {
        return sharding_ != nullptr ? sharding_->groups().traffic() : comm().traffic();
    }
    // Null where this rank is alone, or before shard().
    [[nodiscard]] shard::Sharding* sharding() const noexcept { return sharding_.get(); }

    // The layers whose step ends with each step() from now on, instead of those named before. Collective where ranks share
    // the parameters, so that all know the same ones; throws rank_mismatch where they do not, and then nothing changes.
    void set_layers(std::vector<std::shared_ptr<linear::Linear>> layers);

    // Collective where ranks share the parameters.
    void step(Stream& stream, scaler::LossScaler* scaler);
    void zero_grad(Stream& stream) const;

    [[nodiscard]] numerics::OptimizerState read_state(Stream& stream) const; // waits
    void set_step(Stream& stream, int64_t step); // t of all groups too; waits
    // t of one group: the steps it took part in.
    [[nodiscard]] int64_t group_step(Stream& stream, int32_t group) const; // waits
    void set_group_step(Stream& stream, int32_t group, int64_t step);      // waits

    [[nodiscard]] int32_t parameter_count() const noexcept {
        return static_cast<int32_t>(parameters_.size());
    }
    // "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master", and with "_scale_inv" the scale
    // or scales of each; throws where there is none.
    [[nodiscard]] std::shared_ptr<Tensor> state(int32_t index, const std::string& name) const;
    // The values of a state, see state_values.hpp; `values` is fp32, fp16 or bf16 with the count of the elements whose
    // states are here. Wait.
    void read_state(Stream& stream, int32_t index, const std::string& name,
                    const Tensor& values) const;
    void write_state(Stream& stream, int32_t index, const std::string& name, const Tensor& values);
    // For a checkpoint (saved_state.cpp). prepare_restore() throws for groups that are not as many as there are, and for
    // numbers out of their domain. restore() comes after the states were written; it waits, and fails only where
    // another rank is lost while weights are published.
    [[nodiscard]] const std::string& parameter_name(int32_t index) const {
        return parameters_.at(static_cast<std::size_t>(index)).name;
    }
    [[nodiscard]] int32_t parameter_group(int32_t index) const {
        return parameters_.at(static_cast<std::size_t>(index)).group;
    }
    [[nodiscard]] StatesPlace states_place(int32_t index) const;
    [[nodiscard]] Stream& state_stream() const noexcept { return state_stream(context_->stream()); }
    [[nodiscard]] std::vector<SavedTensor> saved_tensors(int32_t index) const;
    [[nodiscard]] OptimizerCounts counts(Stream& stream) const;                           // waits
    [[nodiscard]] RestoredCounts prepare_restore(Stream& stream, OptimizerCounts counts); // waits
    void restore(Stream& stream, const RestoredCounts& restored);
    [[nodiscard]] MemoryReport memory() const noexcept;
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const recipe::Recipe& recipe() const noexcept { return recipe_; }

  private:
    void check_counts(const OptimizerCounts& counts) const;
    struct Parameter {
        std::string name;
        int32_t group = 0;
        std::shared_ptr<Tensor> param;
        std::shared_ptr<Tensor> grad;
        std::shared_ptr<Tensor>
            stepped; // what the step writes: param, or under offload its copy on the host
        std::optional<ParamStates> states; // of the elements that are here; none before shard()
        std::shared_ptr<Tensor> init_fp32; // until shard()
    };

    void check_group(int32_t group, bool may_be_all) const;
    // The element's address; null for a null tensor.
    const float* check_scalar(const Tensor* tensor, const char* name) const;
    [[nodiscard]] const Parameter& parameter(int32_t index) const;
    void check_values(int32_t index, const Tensor& values) const;
    void check_new(int32_t group, const NewParameter& parameter) const;
    void check_format(const NewParameter& parameter) const;
    void check_apart(const NewParameter& parameter) const;
    // A parameter of fp8 codes that are gathered for use; its owner keeps the exact values.
    [[nodiscard]] bool is_gathered_codes(const Tensor& param) const noexcept;
    [[nodiscard]] numerics::RuleId rule_of(const Parameter& parameter) const {
        return groups_[static_cast<std::size_t>(parameter.group)].rule;
    }
    [[nodiscard]] StateFormats formats_of(const Parameter& parameter) const {
        return state_formats(recipe_of_group(parameter.group), weight_format(*parameter.param),
                             parameter.param->count(), rule_of(parameter));
    }
    // What the step keeps a weight in.
    [[nodiscard]] StateFormat weight_format(const Tensor& param) const noexcept;
    // The elements whose states are here, and where the step finds them.
    [[nodiscard]] shard::ShardSlice piece(int32_t index) const;
    [[nodiscard]] TensorSlice weight(int32_t index) const;
    [[nodiscard]] UpdateSegment segment(int32_t index) const;
    [[nodiscard]] uint64_t definition() const;
    void agree(Stream& stream, scaler::LossScaler* scaler, uint64_t weights, const Status& own);
    void step_on_ranks(Stream& stream, scaler::LossScaler* scaler);
    void touch_weights();
    [[nodiscard]] StepOptions step_options() const;
    void refresh(Stream& stream);
    void make_plan(Stream& stream);
    // Where the states are, and what works on them.
    [[nodiscard]] Stream& state_stream(Stream& stream) const noexcept {
        return options_.offload ? context_->host_stream() : stream;
    }
    void make_states(Stream& stream, int32_t index);
    void initialize(Stream& stream, int32_t index);

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    OptimizerOptions options_;
    std::vector<numerics::GroupHyper> groups_;
    std::vector<recipe::Recipe> group_recipes_; // recipe_ with a group's own formats
    // What device_lr points to, and the like for gradients.
    std::vector<std::shared_ptr<Tensor>> lr_tensors_; // by group; null: none
    std::shared_ptr<Tensor> grad_scale_tensor_;
    std::vector<Parameter> parameters_;
    std::unordered_map<std::string, int32_t> names_;
    SegmentPlan plan_; // empty under offload
    std::unique_ptr<Offload> offload_;
    std::unique_ptr<shard::Sharding> sharding_;
    StepLayers layers_;
    int64_t calls_ = 0; // of step() on ranks
    StepMemory memory_;
    bool plan_is_stale_ = true;
    bool hyper_is_stale_ = true;
};

} // namespace mp::optim
