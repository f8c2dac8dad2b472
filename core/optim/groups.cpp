// SPDX-License-Identifier: Apache-2.0
#include "optim/groups.hpp"

#include "numerics/bits.hpp"
#include "optim/saved_counts.hpp"
#include "optim/step_memory.hpp"
#include "recipe/keys.hpp"
#include "recipe/layer_rules.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
const float* scalar_address(const Tensor* tensor, const Device& device, const char* name) {
    if (tensor == nullptr) {
        return nullptr;
    }
    if (tensor->count() != 1) {
        fail(Code::invalid_shape, "optimizer: %s is %s; it must have one element", name,
             tensor->shape().text().c_str());
    }
    if (tensor->dtype() != DType::fp32) {
        fail(Code::invalid_dtype, "optimizer: %s is %s; it must be fp32", name,
             dtype_name(tensor->dtype()));
    }
    if (&tensor->device() != &device) {
        fail(Code::invalid_argument, "optimizer: %s is not on the context's device", name);
    }
    return static_cast<const float*>(tensor->data());
}

namespace {

// For one more, and at least twice as many where it grows.
template <typename T> void make_room(std::vector<T>& list) {
    if (list.size() == list.capacity()) {
        list.reserve(2 * list.size() + 1);
    }
}

} // namespace

int32_t ParamGroups::add(const numerics::GroupHyper& hyper, const FormatsOfGroup& formats) {
    check_hyper(hyper);
    const recipe::Recipe own = with_formats(recipe_, formats, hyper.rule);
    make_room(lr_tensors_); // so that only the first of the four can fail
    make_room(recipes_);
    make_room(formats_);
    FormatsOfGroup kept = formats;
    hyper_.push_back(hyper);
    recipes_.push_back(own);
    formats_.push_back(std::move(kept));
    lr_tensors_.emplace_back();
    changes_.plan = true;
    return static_cast<int32_t>(hyper_.size()) - 1;
}

recipe::Recipe ParamGroups::recipe_of(int32_t group, const std::string& parameter) const {
    return recipe_.layers.empty()
               ? recipe(group)
               : with_formats(recipe::for_parameter(recipe_, parameter),
                              formats_.at(static_cast<std::size_t>(group)), hyper(group).rule);
}

std::string second_moment_warning(FormatId format, bool is_stochastic,
                                  const numerics::GroupHyper& hyper, const std::string& remedy) {
    if (format == FormatId::fp16) {
        return "optimizer: fp16 second moments underflow for gradients below 2.4e-4 and are "
               "infinite for those above 256, whose weights then stay; use bf16 or fp32, or "
               "fp16_scaled";
    }
    if (format != FormatId::bf16 || is_stochastic ||
        hyper.beta2 <= recipe::kLargestBeta2ForNearestBf16) {
        return {};
    }
    return "optimizer: at beta2 " + std::to_string(hyper.beta2) +
           " a bf16 second moment rounded to nearest can grow but never decrease; use beta2 <= "
           "0.996, or set " +
           remedy;
}

std::string eps_warning(const numerics::GroupHyper& hyper) {
    const bool is_read = second_moment(hyper.rule) >= 0 && hyper.device_values == nullptr;
    return is_read && static_cast<float>(hyper.eps) == 0.0F
               ? "optimizer: eps is 0 in fp32: elements whose gradients have all been 0 become NaN "
                 "(0 / 0); set it to 1e-8, say"
               : std::string();
}

std::string ParamGroups::eps_warning() const {
    for (const numerics::GroupHyper& one : hyper_) {
        if (std::string text = optim::eps_warning(one); !text.empty()) {
            return text;
        }
    }
    return {};
}

std::string ParamGroups::warning(int32_t group) const {
    const numerics::RuleInfo rule = numerics::rule_info(hyper(group).rule);
    const int second = second_moment(hyper(group).rule);
    if (second < 0) {
        return {};
    }
    const recipe::StatePolicy& state = recipe(group).state(rule.states[second]);
    return second_moment_warning(
        state.format, state.rounding != recipe::RoundingMode::nearest, hyper(group),
        std::string("optimizer.") + rule.state(second).name + ".rounding to stochastic");
}

void ParamGroups::check(int32_t group, bool may_be_all) const {
    if (group < (may_be_all ? -1 : 0) || group >= static_cast<int32_t>(size())) {
        fail(Code::invalid_argument,
             "optimizer: group is %d but there are %zu group(s)%s; add one with "
             "mp_optimizer_add_group",
             group, size(), may_be_all ? ", and -1 for all" : "");
    }
}

void ParamGroups::set_lr(int32_t group, double lr) {
    check(group, true);
    numerics::GroupHyper probe;
    probe.lr = lr;
    check_hyper(probe);
    for_each(group, [&](std::size_t i) {
        hyper_[i].lr = lr;
        hyper_[i].device_lr = nullptr;
        lr_tensors_[i] = nullptr;
    });
    changes_.hyper = true;
}

void ParamGroups::set_lr_tensor(int32_t group, const std::shared_ptr<Tensor>& lr) {
    check(group, true);
    const float* scalar = scalar_address(lr.get(), *device_, "lr");
    has_lr_tensors_ = has_lr_tensors_ || lr != nullptr;
    for_each(group, [&](std::size_t i) {
        hyper_[i].device_lr = scalar;
        lr_tensors_[i] = lr;
    });
    changes_.hyper = true;
}

void ParamGroups::set_enabled(int32_t group, bool enabled) {
    for_each(group, [&](std::size_t i) {
        changes_.plan = changes_.plan || hyper_[i].enabled != enabled;
        hyper_[i].enabled = enabled;
    });
}

namespace {

uint64_t hash_of(const numerics::GroupHyper& hyper) {
    system::Fnv64 hash;
    for (const numerics::HyperName& known : numerics::kHyperNames) {
        hash.add(numerics::bits_from_double(hyper.*known.value));
    }
    hash.add(static_cast<int64_t>(hyper.rule));
    for (const bool flag : {hyper.maximize, hyper.bias_correction, hyper.enabled}) {
        hash.add(flag ? 1 : 0);
    }
    return hash.value();
}

} // namespace

void ParamGroups::propose(comm::Agreement& agreement) {
    agreement.must_equal("the number of groups", size());
    shown_.resize(size());
    for (std::size_t g = 0; g < size(); ++g) {
        const numerics::GroupHyper& group = hyper_[g];
        shown_[g].set("group %zu: lr %g, betas %g %g, eps %g, weight_decay %g%s", g, group.lr,
                      group.beta1, group.beta2, group.eps, group.weight_decay,
                      group.enabled ? "" : ", off");
        agreement.must_equal("a group's lr, betas, eps, weight_decay, rule or switches",
                             hash_of(group), shown_[g].c_str());
    }
}

void ParamGroups::save(Stream& /*stream*/, OptimizerCounts& counts) const {
    counts.groups = hyper_;
}

void ParamGroups::prepare_restore(Stream& /*stream*/, RestoredCounts& restored) const {
    const std::vector<numerics::GroupHyper>& saved = restored.counts.groups;
    if (saved.size() != size()) {
        fail(Code::bad_state, "optimizer: %zu group(s) were saved, but there are %zu", saved.size(),
             size());
    }
    for (std::size_t i = 0; i < size(); ++i) {
        check_hyper(saved[i]);
        if (!numerics::have_same_states(saved[i].rule, hyper_[i].rule)) {
            fail(Code::bad_state,
                 "optimizer: group %zu was saved with rule %s, whose states %s does not have; add "
                 "the group with the rule that was saved",
                 i, numerics::rule_info(saved[i].rule).name,
                 numerics::rule_info(hyper_[i].rule).name);
        }
    }
}

void ParamGroups::restore(Stream& /*stream*/, RestoredCounts& restored) {
    const std::vector<numerics::GroupHyper>& saved = restored.counts.groups;
    for (std::size_t i = 0; i < size(); ++i) {
        const float* device_lr = hyper_[i].device_lr;
        hyper_[i] = saved[i];
        hyper_[i].device_lr = device_lr;
    }
    changes_.plan = true; // other groups may be on
}

} // namespace mp::optim
