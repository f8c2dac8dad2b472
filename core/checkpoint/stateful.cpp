// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stateful.hpp"

#include <bit>
#include <cmath>

namespace mp::checkpoint {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) {
        count *= size;
    }
    return count;
}

Entry whole_entry(const std::string& name, const std::string& state, StateFormat format,
                  std::vector<int64_t> shape, void* data, const Stream* stream) {
    Entry entry;
    entry.name = name;
    entry.state = state;
    entry.format = format;
    entry.slices = {{0, product(shape), data}};
    entry.shape = std::move(shape);
    entry.stream = stream;
    entry.replicated = true;
    return entry;
}

uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

// Numbers of a manifest by name; corrupt_data where one is missing.
class Numbers {
  public:
    Numbers(const Manifest& manifest, std::string prefix)
        : manifest_(manifest), prefix_(std::move(prefix)) {}
    [[nodiscard]] bool has(const std::string& name) const {
        return manifest_.find_scalar(prefix_ + name) != nullptr;
    }
    [[nodiscard]] uint64_t bits(const std::string& name) const {
        const Scalar* scalar = manifest_.find_scalar(prefix_ + name);
        if (scalar == nullptr) {
            fail(Code::corrupt_data, "checkpoint: the number '%s%s' is missing", prefix_.c_str(),
                 name.c_str());
        }
        return scalar->bits;
    }
    [[nodiscard]] int64_t integer(const std::string& name) const {
        return static_cast<int64_t>(bits(name));
    }
    [[nodiscard]] double number(const std::string& name) const {
        return std::bit_cast<double>(bits(name));
    }

  private:
    const Manifest& manifest_;
    std::string prefix_;
};

class StatefulOptimizer final : public Stateful {
  public:
    explicit StatefulOptimizer(std::shared_ptr<optim::Optimizer> optimizer)
        : optimizer_(std::move(optimizer)) {}

    void add_to(Catalog& catalog) override {
        optimizer_->shard(stream()); // where ranks share it and have not stepped yet
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            for (const optim::SavedTensor& saved : saved_tensors_of(i)) {
                catalog.entries.push_back(entry_of(optimizer_->parameters()[i].name, saved));
            }
        }
        const optim::OptimizerCounts counts = optimizer_->counts(stream());
        const auto add = [&](const std::string& name, uint64_t bits) {
            catalog.scalars.push_back({"optimizer." + name, bits});
        };
        add("skipped_steps", static_cast<uint64_t>(counts.skipped_steps));
        if (counts.outlier_steps > 0) {
            add("outlier_steps", static_cast<uint64_t>(counts.outlier_steps));
        }
        for (std::size_t i = 0; i < counts.guard.last.size(); ++i) {
            for (std::size_t n = 0; n < counts.guard.last[i].size(); ++n) {
                add(guard_name(i, n), bits_of(counts.guard.last[i][n]));
            }
        }
        add("groups", counts.groups.size());
        for (std::size_t g = 0; g < counts.groups.size(); ++g) {
            const numerics::GroupHyper& hyper = counts.groups[g];
            const std::string group = "group" + std::to_string(g) + ".";
            add(group + "lr", bits_of(hyper.lr));
            add(group + "beta1", bits_of(hyper.beta1));
            add(group + "beta2", bits_of(hyper.beta2));
            add(group + "eps", bits_of(hyper.eps));
            add(group + "weight_decay", bits_of(hyper.weight_decay));
            add(group + "rule", static_cast<uint32_t>(hyper.rule));
            add(group + "flags", (hyper.maximize ? 2U : 0U) | (hyper.bias_correction ? 4U : 0U) |
                                     (hyper.enabled ? 8U : 0U));
            add(group + "step", static_cast<uint64_t>(counts.group_steps[g]));
        }
        for (std::size_t i = 0; i < counts.grad_mus.size(); ++i) {
            if (counts.grad_mus[i] != 0.0F) {
                add(mu_name(i), std::bit_cast<uint32_t>(counts.grad_mus[i]));
            }
        }
        catalog.recipe = recipe::recipe_to_json(optimizer_->recipe(),
                                                "fp32"); // all keys follow, so any base will do
        catalog.preset = recipe::recipe_title(optimizer_->recipe());
        catalog.seed = counts.seed;
        catalog.rng_step = counts.step;
    }

    void prepare(const Loaded& loaded) override {
        restored_ = optimizer_->prepare_restore(stream(), counts_of(loaded.manifest()));
    }

    void apply() override { optimizer_->restore(stream(), restored_); }

    void add_weights(Catalog& catalog) override {
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            for (const optim::SavedTensor& saved : saved_tensors_of(i)) {
                if (saved.state.starts_with("param")) {
                    catalog.entries.push_back(entry_of(optimizer_->parameters()[i].name, saved));
                }
            }
        }
    }

    std::unique_ptr<Converter> converter(const Manifest& manifest) const override {
        return std::make_unique<Converter>(manifest, *optimizer_);
    }

  private:
    [[nodiscard]] Stream& stream() const { return optimizer_->context()->stream(); }
    [[nodiscard]] std::vector<optim::SavedTensor> saved_tensors_of(int32_t index) const {
        return optim::saved_tensors(optimizer_->parameters().place(index));
    }

    [[nodiscard]] std::string mu_name(std::size_t parameter) const {
        return optimizer_->parameters()[static_cast<int32_t>(parameter)].name + ".grad_mu";
    }

    // The values that the guard has seen, oldest first; a checkpoint without them has none.
    static std::string guard_name(std::size_t watched, std::size_t number) {
        return std::string("guard.") + (watched == 0 ? "grad_norm." : "loss.") +
               std::to_string(number);
    }

    static optim::GuardValues guard_of(const Numbers& numbers) {
        optim::GuardValues guard;
        for (std::size_t i = 0; i < guard.last.size(); ++i) {
            for (std::size_t n = 0; n < numerics::kMostGuardWindow && numbers.has(guard_name(i, n));
                 ++n) {
                guard.last[i].push_back(numbers.number(guard_name(i, n)));
            }
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
            hyper.lr = group.number("lr");
            hyper.beta1 = group.number("beta1");
            hyper.beta2 = group.number("beta2");
            hyper.eps = group.number("eps");
            hyper.weight_decay = group.number("weight_decay");
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
            const std::string name = mu_name(static_cast<std::size_t>(i));
            counts.grad_mus.push_back(
                numbers.has(name)
                    ? std::bit_cast<float>(static_cast<uint32_t>(numbers.integer(name)))
                    : 0.0F);
        }
        return counts;
    }

    // Minor version 0 had two rules, and a flag for one.
    static numerics::RuleId rule_of(const Manifest& manifest, const Numbers& group,
                                    uint64_t flags) {
        const bool is_old = manifest.minor == 0 && !group.has("rule");
        const uint64_t number = is_old ? flags & 1 : group.bits("rule");
        if (number > UINT32_MAX || !numerics::is_rule(static_cast<uint32_t>(number))) {
            fail(Code::corrupt_data, "checkpoint: a group has a rule that is not known");
        }
        return static_cast<numerics::RuleId>(number);
    }

    std::shared_ptr<optim::Optimizer> optimizer_;
    optim::RestoredCounts restored_;
};

bool is_power_of_two(double value) {
    int exponent = 0;
    return std::frexp(value, &exponent) == 0.5;
}

class StatefulScaler final : public Stateful {
  public:
    explicit StatefulScaler(std::shared_ptr<scaler::LossScaler> scaler)
        : scaler_(std::move(scaler)) {}

    void add_to(Catalog& catalog) override {
        const numerics::LossScaleState state = scaler_->read(scaler_->context()->stream());
        const auto add = [&](const char* name, uint64_t bits) {
            catalog.scalars.push_back({std::string("scaler.") + name, bits});
        };
        add("scale", std::bit_cast<uint32_t>(state.scale));
        add("found_inf", state.found_inf != 0.0F ? 1 : 0);
        add("growth_tracker", static_cast<uint32_t>(state.growth_tracker));
        add("hysteresis_tracker", static_cast<uint32_t>(state.hysteresis_tracker));
        add("failed_at_min", state.failed_at_min);
        add("good_steps", static_cast<uint64_t>(state.good_steps));
        add("overflow_steps", static_cast<uint64_t>(state.overflow_steps));
    }

    void prepare(const Loaded& loaded) override {
        restored_ = state_of(loaded.manifest());
        check_state(restored_);
    }

    void apply() override { scaler_->write(scaler_->context()->stream(), restored_); }

  private:
    static numerics::LossScaleState state_of(const Manifest& manifest) {
        const Numbers numbers(manifest, "scaler.");
        const auto small = [&](const char* name) {
            const uint64_t bits = numbers.bits(name);
            if (bits > UINT32_MAX) {
                fail(Code::corrupt_data, "checkpoint: scaler.%s does not fit 32 bits", name);
            }
            return static_cast<uint32_t>(bits);
        };
        numerics::LossScaleState state;
        state.scale = std::bit_cast<float>(small("scale"));
        if (const uint32_t found_inf = small("found_inf"); found_inf <= 1) {
            state.found_inf = static_cast<float>(found_inf);
        } else {
            fail(Code::corrupt_data, "checkpoint: scaler.found_inf is %u; it must be 0 or 1",
                 found_inf);
        }
        state.growth_tracker = static_cast<int32_t>(small("growth_tracker"));
        state.hysteresis_tracker = static_cast<int32_t>(small("hysteresis_tracker"));
        state.failed_at_min = small("failed_at_min");
        state.good_steps = numbers.integer("good_steps");
        state.overflow_steps = numbers.integer("overflow_steps");
        return state;
    }

    void check_state(const numerics::LossScaleState& state) const {
        const recipe::ScalerPolicy& policy = scaler_->policy();
        const auto scale = static_cast<double>(state.scale);
        // Doubled and halved, a power of two stays one.
        const bool by_powers =
            is_power_of_two(policy.init_scale) && is_power_of_two(policy.rule.growth_factor) &&
            is_power_of_two(policy.rule.backoff_factor) &&
            (policy.rule.min_scale == 0.0 || is_power_of_two(policy.rule.min_scale)) &&
            (policy.rule.max_scale == 0.0 || is_power_of_two(policy.rule.max_scale));
        if (!(scale > 0.0 && std::isfinite(scale)) || (by_powers && !is_power_of_two(scale))) {
            fail(Code::corrupt_data,
                 "checkpoint: the loss scale is %g; this scaler cannot come to it", scale);
        }
        if (state.growth_tracker < 0 ||
            state.growth_tracker > policy.rule.growth_interval + policy.rule.count_offset ||
            state.hysteresis_tracker > policy.rule.hysteresis || state.failed_at_min > 1 ||
            state.good_steps < 0 || state.overflow_steps < 0) {
            fail(Code::corrupt_data,
                 "checkpoint: the loss scaler's counts are out of the bounds of this scaler");
        }
    }

    std::shared_ptr<scaler::LossScaler> scaler_;
    numerics::LossScaleState restored_;
};

class StatefulLinear final : public Stateful {
  public:
    StatefulLinear(std::string name, linear::Linear& layer, std::shared_ptr<void> owner)
        : name_(std::move(name)), layer_(layer), owner_(std::move(owner)) {}

    void add_to(Catalog& catalog) override {
        bytes_ = layer_.scaling().save(stream());
        index_ = catalog.entries.size();
        const auto size = static_cast<int64_t>(bytes_.size());
        catalog.entries.push_back(
            whole_entry(name_, "scaling", DType::uint8, {size}, bytes_.data(), nullptr));
        catalog.entries.back().agrees = true;
    }

    [[nodiscard]] std::vector<uint32_t> maxima() const override {
        return layer_.scaling().reduces_amax() ? linear::ScalingState::saved_amaxes(bytes_)
                                               : std::vector<uint32_t>();
    }
    void set_maxima(std::span<const uint32_t> bits) override {
        linear::ScalingState::set_saved_amaxes(bytes_, bits);
    }

    void prepare(const Loaded& loaded) override {
        const std::vector<unsigned char>& read = loaded.bytes(index_, 0);
        layer_.scaling().check_saved(read.data(), read.size());
    }

    void apply() override { layer_.load_scaling(stream(), bytes_.data(), bytes_.size()); }

  private:
    [[nodiscard]] Stream& stream() const { return layer_.context()->stream(); }

    std::string name_;
    linear::Linear& layer_;
    std::shared_ptr<void> owner_;
    std::vector<unsigned char> bytes_;
    std::size_t index_ = 0; // of its entry
};

class StatefulData final : public Stateful {
  public:
    StatefulData(std::string name, void* data, std::size_t bytes)
        : name_(std::move(name)), data_(data), bytes_(bytes) {}
    void add_to(Catalog& catalog) override {
        catalog.entries.push_back(whole_entry(name_, "data", DType::uint8,
                                              {static_cast<int64_t>(bytes_)}, data_, nullptr));
    }
    void prepare(const Loaded& /*loaded*/) override {}
    void apply() override {}
    [[nodiscard]] bool survives_conversion() const noexcept override { return true; }

  private:
    std::string name_;
    void* data_;
    std::size_t bytes_;
};

} // namespace

std::unique_ptr<Stateful> stateful_optimizer(std::shared_ptr<optim::Optimizer> optimizer) {
    return std::make_unique<StatefulOptimizer>(std::move(optimizer));
}
std::unique_ptr<Stateful> stateful_scaler(std::shared_ptr<scaler::LossScaler> scaler) {
    return std::make_unique<StatefulScaler>(std::move(scaler));
}
std::unique_ptr<Stateful> stateful_linear(const std::string& name, linear::Linear& layer,
                                          std::shared_ptr<void> owner) {
    return std::make_unique<StatefulLinear>(name, layer, std::move(owner));
}
std::unique_ptr<Stateful> stateful_data(const std::string& name, void* data, std::size_t bytes) {
    return std::make_unique<StatefulData>(name, data, bytes);
}

} // namespace mp::checkpoint
