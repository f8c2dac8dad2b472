// SPDX-License-Identifier: Apache-2.0
// ParamGroups: the hyperparameters of each group of parameters, and the recipe with the group's own formats.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "numerics/rules.hpp"
#include "optim/layout.hpp"
#include "optim/step_participant.hpp"
#include "recipe/recipe.hpp"
#include "tensor/tensor.hpp"

namespace mp::optim {

// The address of one fp32 element on the device; null for a null tensor. Throws for anything else.
const float* scalar_address(const Tensor* tensor, const Device& device, const char* name);

// Of second moments that can only grow, or in fp16; empty where there is nothing to say. `remedy`: "set" what helps.
std::string second_moment_warning(FormatId format, bool is_stochastic,
                                  const numerics::GroupHyper& hyper, const std::string& remedy);
// Of an eps that is 0, where it is a number of the host's and the rule divides.
std::string eps_warning(const numerics::GroupHyper& hyper);

class ParamGroups final : public StepParticipant {
  public:
    ParamGroups(const recipe::Recipe& recipe, const Device& device)
        : recipe_(recipe), device_(&device) {}

    int32_t add(const numerics::GroupHyper& hyper, const FormatsOfGroup& formats = {});
    [[nodiscard]] std::size_t size() const noexcept { return hyper_.size(); }
    [[nodiscard]] const std::vector<numerics::GroupHyper>& hyper() const noexcept { return hyper_; }
    [[nodiscard]] const numerics::GroupHyper& hyper(int32_t group) const {
        return hyper_.at(static_cast<std::size_t>(group));
    }
    [[nodiscard]] const recipe::Recipe& recipe(int32_t group) const {
        return recipes_.at(static_cast<std::size_t>(group));
    }
    // As they were given, and not what the recipe says.
    [[nodiscard]] const FormatsOfGroup& formats(int32_t group) const {
        return formats_.at(static_cast<std::size_t>(group));
    }
    // With what the recipe's rules say of a parameter's name; the group's own formats go over them.
    [[nodiscard]] recipe::Recipe recipe_of(int32_t group, const std::string& parameter) const;
    // What its formats and hyperparameters do badly together; empty: nothing.
    [[nodiscard]] std::string warning(int32_t group) const;
    [[nodiscard]] std::string eps_warning() const; // of the first group that has one
    // Throws for a group that does not exist; -1 is all of them.
    void check(int32_t group, bool may_be_all) const;

    // By group, null where the number is meant; none at all where no group ever had one.
    [[nodiscard]] std::span<const std::shared_ptr<Tensor>> lr_tensors() const noexcept {
        return has_lr_tensors_ ? std::span(lr_tensors_)
                               : std::span<const std::shared_ptr<Tensor>>();
    }

    // -1: all groups. Replaces a tensor.
    void set_lr(int32_t group, double lr);
    // One fp32 element that every step reads where it is; null: the number again. -1: all groups.
    void set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr);
    // Parameters of a group that is off are not touched, and their gradients do not count in the norm. -1: all groups.
    void set_enabled(int32_t group, bool enabled);

    // All but tensors of learning rates are the same on all ranks.
    void propose(comm::Agreement& agreement) override;

    void save(Stream& stream, OptimizerCounts& counts) const override;
    // Throws for groups that are not as many, or whose rules keep other states.
    void prepare_restore(Stream& stream, RestoredCounts& restored) const override;
    void restore(Stream& stream, RestoredCounts& restored) override;

    // What changed since a step was prepared; who prepares it clears this.
    struct Changes {
        bool plan = true; // which parameters are stepped
        bool hyper = true;
    };
    [[nodiscard]] Changes& changes() noexcept { return changes_; }

  private:
    template <class Body> void for_each(int32_t group, const Body& body) {
        check(group, true);
        if (group >= 0) {
            body(static_cast<std::size_t>(group));
            return;
        }
        for (std::size_t i = 0; i < hyper_.size(); ++i) {
            body(i);
        }
    }

    recipe::Recipe recipe_;
    const Device* device_; // the context's
    std::vector<numerics::GroupHyper> hyper_;
    std::vector<FormatsOfGroup> formats_;
    std::vector<recipe::Recipe> recipes_;             // recipe_ with a group's own formats
    std::vector<std::shared_ptr<Tensor>> lr_tensors_; // what device_lr points to; null: none
    bool has_lr_tensors_ = false;
    std::vector<TextLine<120>> shown_; // in an agreement, of each group
    Changes changes_;
};

} // namespace mp::optim
