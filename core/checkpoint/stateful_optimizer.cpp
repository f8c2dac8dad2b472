// SPDX-License-Identifier: Apache-2.0
// The optimizer: its tensors, and the numbers beside them.
#include <bit>

#include "checkpoint/saved_numbers.hpp"
#include "checkpoint/stateful.hpp"
#include "optim/saved_counts.hpp"

namespace mp::checkpoint {
namespace {

uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

// Ends of the names of what is kept of a parameter.
constexpr const char* kGroup = ".group";
constexpr const char* kOwnStep = ".own_step";
constexpr const char* kMu = ".grad_mu";

class StatefulOptimizer final : public Stateful {
  public:
    explicit StatefulOptimizer(std::shared_ptr<optim::Optimizer> optimizer)
        : optimizer_(std::move(optimizer)) {}

    void add_to(Catalog& catalog) override {
        optimizer_->shard(stream()); // where ranks share it and have not stepped yet
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            for (const optim::SavedTensor& saved : saved_tensors_of(i)) {
                catalog.entries.push_back(entry_of(name_of(i), saved));
            }
            if (optimizer_->parameters()[i].layout.is_frozen) {
                catalog.frozen.insert(name_of(i));
            }
        }
        const optim::OptimizerCounts counts = optim::saved_counts(stream(), *optimizer_);
        add_scalars(catalog, counts);
        add_groups(catalog, counts);
        catalog.recipe = recipe::recipe_to_json(optimizer_->recipe(),
                                                "fp32"); // all keys follow, so any base will do
        catalog.preset = recipe::recipe_title(optimizer_->recipe());
        catalog.seed = counts.seed;
        catalog.rng_step = counts.step;
    }

    void prepare(const Loaded& loaded) override {
        restored_ = optim::prepare_restore(stream(), *optimizer_, counts_of(loaded.manifest()));
    }

    void apply() override { optim::restore_counts(stream(), *optimizer_, std::move(restored_)); }

    void add_weights(Catalog& catalog) override {
        optimizer_->tables().refuse_open();
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            for (const optim::SavedTensor& saved : saved_tensors_of(i)) {
                if (saved.state.starts_with("param")) {
                    catalog.entries.push_back(entry_of(name_of(i), saved));
                }
            }
        }
    }

    std::unique_ptr<Converter> converter(const Manifest& manifest) const override {
        return std::make_unique<Converter>(manifest, *optimizer_);
    }
    bool is_kept_otherwise(const Manifest& manifest) const override {
        optimizer_->shard(stream());
        const optim::Parameters& parameters = optimizer_->parameters();
        for (int32_t i = 0; i < parameters.count(); ++i) {
            if (has_new_states(manifest, parameters, i) ||
                has_other_weight(manifest, parameters, i)) {
                return true;
            }
        }
        return false;
    }

  private:
    [[nodiscard]] Stream& stream() const { return optimizer_->context()->stream(); }
    [[nodiscard]] std::vector<optim::SavedTensor> saved_tensors_of(int32_t index) const {
        return optim::saved_tensors(optim::states_place(optimizer_->parameters(), index));
    }

    [[nodiscard]] const std::string& name_of(int32_t parameter) const {
        return optimizer_->parameters()[parameter].name;
    }

    static void add(Catalog& catalog, const std::string& name, uint64_t bits) {
        catalog.scalars.push_back({"optimizer." + name, bits});
    }

    static void add_scalars(Catalog& catalog, const optim::OptimizerCounts& counts) {
        add(catalog, "skipped_steps", static_cast<uint64_t>(counts.skipped_steps));
        if (counts.outlier_steps > 0) {
            add(catalog, "outlier_steps", static_cast<uint64_t>(counts.outlier_steps));
        }
        for (std::size_t i = 0; i < counts.guard.last.size(); ++i) {
            for (std::size_t n = 0; n < counts.guard.last[i].size(); ++n) {
                add(catalog, guard_name(i, std::to_string(n)), bits_of(counts.guard.last[i][n]));
            }
            if (!counts.guard.last[i].empty()) {
                add(catalog, guard_name(i, "count"), static_cast<uint64_t>(counts.guard.count[i]));
            }
        }
        add(catalog, "groups", counts.groups.size());
        for (std::size_t g = 0; g < counts.groups.size(); ++g) {
            const numerics::GroupHyper& hyper = counts.groups[g];
            const std::string group = "group" + std::to_string(g) + ".";
            for (const numerics::HyperName& known : numerics::kHyperNames) {
                add(catalog, group + known.name, bits_of(hyper.*known.value));
            }
            add(catalog, group + "rule", static_cast<uint32_t>(hyper.rule));
            add(catalog, group + "flags",
                (hyper.maximize ? 2U : 0U) | (hyper.bias_correction ? 4U : 0U) |
                    (hyper.enabled ? 8U : 0U));
            add(catalog, group + "step", static_cast<uint64_t>(counts.group_steps[g]));
        }
    }

    // By parameter: names that end as no number of a group does. Its step only where it came later than its group's first ones.
    void add_groups(Catalog& catalog, const optim::OptimizerCounts& counts) const {
        for (std::size_t i = 0; i < counts.param_groups.size(); ++i) {
            const std::string& name = name_of(static_cast<int32_t>(i));
            const auto group = static_cast<std::size_t>(counts.param_groups[i]);
            add(catalog, name + kGroup, group);
            if (counts.param_steps[i] != counts.group_steps[group]) {
                add(catalog, name + kOwnStep, static_cast<uint64_t>(counts.param_steps[i]));
            }
        }
        for (std::size_t i = 0; i < counts.grad_mus.size(); ++i) {
            if (counts.grad_mus[i] != 0.0F) {
                add(catalog, name_of(static_cast<int32_t>(i)) + kMu,
                    std::bit_cast<uint32_t>(counts.grad_mus[i]));
            }
        }
    }

    // The values that the guard has seen, oldest first, and how many it has seen in all; a checkpoint without them has none.
    static std::string guard_name(std::size_t watched, const std::string& what) {
        return std::string("guard.") + (watched == 0 ? "grad_norm." : "loss.") + what;
    }

    static optim::GuardValues guard_of(const Numbers& numbers) {
        optim::GuardValues guard;
        for (std::size_t i = 0; i < guard.last.size(); ++i) {
            for (int32_t n = 0; n < numerics::kMostGuardWindow; ++n) {
                const std::string name = guard_name(i, std::to_string(n));
                if (!numbers.has(name)) {
                    break;
                }
                guard.last[i].push_back(numbers.number(name));
            }
            const std::string count = guard_name(i, "count"); // which early ones did not keep
            guard.count[i] = numbers.has(count) ? numbers.integer(count) : 0;
        }
        return guard;
    }

    [[nodiscard]] optim::OptimizerCounts counts_of(const Manifest& manifest) const {
        const Numbers numbers(manifest, "optimizer.");
        optim::OptimizerCounts counts;
        counts.step = manifest.rng_step;
        counts.seed = manifest.seed;
        counts.skipped_steps = numbers.integer("skipped_steps");
        counts.outlier_steps = numbers.has("outlier_steps") ? numbers.integer("outlier_steps") : 0;
        counts.guard = guard_of(numbers);
        const uint64_t groups = numbers.bits("groups");
        if (groups > manifest.scalars.size()) {
            fail(Code::corrupt_data, "checkpoint: its number of groups cannot be");
        }
        for (uint64_t g = 0; g < groups; ++g) {
            const Numbers group(manifest, "optimizer.group" + std::to_string(g) + ".");
            numerics::GroupHyper hyper;
            for (const numerics::HyperName& known : numerics::kHyperNames) {
                hyper.*known.value = group.number(known.name);
            }
            const uint64_t flags = group.bits("flags");
            if (flags > 15) {
                fail(Code::corrupt_data, "checkpoint: a group has flags that are not known");
            }
            hyper.rule = rule_of(manifest, group, flags);
            hyper.maximize = (flags & 2) != 0;
            hyper.bias_correction = (flags & 4) != 0;
            hyper.enabled = (flags & 8) != 0;
            counts.groups.push_back(hyper);
            counts.group_steps.push_back(group.integer("step"));
        }
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            const std::string name = name_of(i) + kMu;
            counts.grad_mus.push_back(
                numbers.has(name)
                    ? std::bit_cast<float>(static_cast<uint32_t>(numbers.integer(name)))
                    : 0.0F);
        }
        if (manifest.minor >= 3) {
            read_groups(manifest, numbers, counts);
        }
        return counts;
    }

    void read_groups(const Manifest& manifest, const Numbers& numbers,
                     optim::OptimizerCounts& counts) const {
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            const uint64_t group = numbers.bits(name_of(i) + kGroup);
            if (group >= counts.groups.size()) {
                fail(Code::corrupt_data,
                     "checkpoint: '%s' was saved in a group that is not in the file",
                     name_of(i).c_str());
            }
            counts.param_groups.push_back(static_cast<int32_t>(group));
            counts.param_steps.push_back(has_new_states(manifest, optimizer_->parameters(), i) ? 0
                                         : numbers.has(name_of(i) + kOwnStep)
                                             ? numbers.integer(name_of(i) + kOwnStep)
                                             : counts.group_steps[group]);
        }
    }

    // Minor version 0 had two rules, and a flag for one.
    static numerics::RuleId rule_of(const Manifest& manifest, const Numbers& group,
                                    uint64_t flags) {
        const bool is_old = manifest.minor == 0 && !group.has("rule");
        const uint64_t number = is_old ? flags & 1 : group.bits("rule");
        if (number >= numerics::kRuleCount) {
            fail(Code::corrupt_data, "checkpoint: a group has a rule that is not known");
        }
        return static_cast<numerics::RuleId>(number);
    }

    std::shared_ptr<optim::Optimizer> optimizer_;
    optim::RestoredCounts restored_;
};

} // namespace

std::unique_ptr<Stateful> stateful_optimizer(std::shared_ptr<optim::Optimizer> optimizer) {
    return std::make_unique<StatefulOptimizer>(std::move(optimizer));
}

} // namespace mp::checkpoint
