// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stateful.hpp"

#include <bit>

#include "checkpoint/saved_numbers.hpp"

namespace mp::checkpoint {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) {
        count *= size;
    }
    return count;
}

Entry whole_entry(const std::string& name, const std::string& state, FormatId format,
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
        if (state.by_steps != 0) {
            add("by_steps", 1);
        }
    }

    void prepare(const Loaded& loaded) override {
        restored_ = scaler_->converted(state_of(loaded.manifest()));
        const std::string refusal = scaler_->refusal(restored_);
        if (!refusal.empty()) {
            fail(Code::corrupt_data, "checkpoint: %s", refusal.c_str());
        }
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
        state.by_steps = numbers.has("by_steps") ? small("by_steps") : 0;
        return state;
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
        catalog.entries.push_back(whole_entry(name_, kScalingState, format_id(DType::uint8), {size},
                                              bytes_.data(), nullptr));
        catalog.entries.back().agrees = true;
    }

    [[nodiscard]] std::vector<uint32_t> maxima() const override {
        if (!layer_.scaling().reduces_amax()) {
            return {};
        }
        const auto amaxes = linear::ScalingState::saved_amaxes(bytes_);
        return {amaxes.begin(), amaxes.end()};
    }
    void set_maxima(std::span<const uint32_t> bits) override {
        linear::ScalingState::set_saved_amaxes(bytes_, bits);
    }

    void prepare(const Loaded& loaded) override {
        const system::HostBytes& read = loaded.bytes(index_, 0);
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
        catalog.entries.push_back(whole_entry(name_, "data", format_id(DType::uint8),
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
