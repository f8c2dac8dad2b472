// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "optim/state_values.hpp"
#include "recipe/automatic.hpp"
#include "recipe/layer_rules.hpp"

namespace mp::checkpoint {
namespace {

recipe::Recipe recipe_of(const Manifest& manifest) {
    try {
        return recipe::recipe_from_json(manifest.recipe.data(), manifest.recipe.size(),
                                        DeviceCapability{})
            .recipe;
    } catch (const Error& error) {
        fail(Code::corrupt_data, "checkpoint: its recipe cannot be used: %s",
             error.status().text());
    }
}

const StoredTensor& stored_weight(const Manifest& manifest, const std::string& name,
                                  const std::vector<int64_t>& shape) {
    const StoredTensor* stored = manifest.find(name, "param");
    if (stored == nullptr) {
        fail(Code::unknown_name, "checkpoint: it does not have the parameter '%s'", name.c_str());
    }
    if (stored->shape != shape) {
        fail(Code::invalid_shape, "checkpoint: parameter '%s' has another shape in the file",
             name.c_str());
    }
    return *stored;
}

std::vector<float> read(Stream& stream, const LooseStates& from, const char* state,
                        const Tensor& through, const std::string& owner) {
    optim::read_values(stream, from.states, from.place.param, state, through.ref(), owner);
    std::vector<float> numbers(static_cast<std::size_t>(through.count()));
    stream.copy(numbers.data(), through.data(), through.bytes(), CopyKind::device_to_host);
    stream.sync();
    return numbers;
}

class Sum {
  public:
    void add(const std::vector<float>& exact, const std::vector<float>& stored) {
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const double error =
                std::fabs(static_cast<double>(stored[i]) - static_cast<double>(exact[i]));
            largest_ = std::max(largest_, error);
            squares_ += error * error;
        }
        count_ += static_cast<double>(exact.size());
    }
    void add(const Sum& other) {
        largest_ = std::max(largest_, other.largest_);
        squares_ += other.squares_;
        count_ += other.count_;
    }
    [[nodiscard]] Difference difference() const noexcept {
        return {largest_, count_ == 0.0 ? 0.0 : std::sqrt(squares_ / count_)};
    }

  private:
    double largest_ = 0.0;
    double squares_ = 0.0;
    double count_ = 0.0;
};

} // namespace

// Numbers alone, so that ranks can send it as it is.
struct Converter::Losses {
    Sum weights;
    Sum states[numerics::kStateIdCount]; // by StateId

    void add(const Losses& other) {
        weights.add(other.weights);
        for (std::size_t k = 0; k < std::size(states); ++k) {
            states[k].add(other.states[k]);
        }
    }
};

LooseStates::LooseStates(const optim::StatesPlace& like, FormatId weight,
                         const optim::StateFormats& formats,
                         const std::shared_ptr<Context>& context, Stream& stream)
    : param(optim::make_state(context, stream, weight, Shape{{like.count}, 1})),
      states(context, stream, formats, Shape{{like.count}, 1}), place(like) {
    place.weight = weight;
    place.formats = formats;
    place.param = slice_of(*param);
    place.states = &states;
}

// Where a parameter's states are, or its weight, if it is frozen.
Stream& Converter::stream_of(int32_t index) const {
    Stream& device = target_.context()->stream();
    return target_.parameters()[index].layout.is_frozen ? device
                                                        : target_.parameters().state_stream(device);
}

Converter::Converter(const Manifest& manifest, const optim::Optimizer& target) : target_(target) {
    const recipe::Recipe recipe = recipe_of(manifest);
    for (int32_t i = 0; i < target.parameters().count(); ++i) {
        const optim::StatesPlace live = optim::states_place(target.parameters(), i);
        const FormatId weight =
            stored_weight(manifest, target.parameters()[i].name, live.shape).format;
        optim::StateFormats formats =
            optim::state_formats(recipe::for_parameter(recipe, target.parameters()[i].name), weight,
                                 live.whole, live.formats.rule);
        const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
        for (int k = 0; k < rule.state_count; ++k) { // a group may have had its own
            const StoredTensor* state =
                manifest.find(target.parameters()[i].name, rule.state(k).name);
            formats.states[k] = state != nullptr ? state->format : formats.states[k];
        }
        if (target.parameters()[i].layout.is_frozen) {
            formats = live.formats; // its weight alone
        }
        saved_.push_back(
            std::make_unique<LooseStates>(live, weight, formats, target.context(), stream_of(i)));
    }
}

Entry entry_of(const std::string& parameter, const optim::SavedTensor& saved) {
    const bool is_scale = value_rule(saved.state) != ValueRule::any;
    Entry entry;
    entry.name = parameter;
    entry.state = saved.state;
    entry.format = saved.format;
    entry.shape = saved.shape;
    if (saved.count > 0 || saved.is_everywhere) {
        entry.slices = {{saved.start, saved.count, saved.data}};
    }
    entry.stream = saved.stream;
    entry.rule = value_rule(saved.state);
    entry.replicated = saved.is_everywhere;
    entry.is_copy = saved.is_copy;
    entry.agrees = is_scale && saved.is_everywhere;
    return entry;
}

void Converter::add_to(Catalog& catalog) const {
    for (int32_t i = 0; i < target_.parameters().count(); ++i) {
        for (const optim::SavedTensor& one :
             optim::saved_tensors(saved_[static_cast<std::size_t>(i)]->place)) {
            catalog.entries.push_back(entry_of(target_.parameters()[i].name, one));
        }
    }
}

Conversion Converter::convert(Ranks& ranks) {
    const std::vector<Losses> all = together(ranks, [&] {
        Losses own;
        Losses shared; // other ranks find these, too, and they count once
        for (int32_t i = 0; i < target_.parameters().count(); ++i) {
            const optim::StatesPlace place = optim::states_place(target_.parameters(), i);
            const bool counts = place.is_everywhere ? ranks.rank() == 0 : !place.is_copy;
            convert_one(i, counts ? own : shared);
        }
        return own;
    });
    Losses sum;
    for (const Losses& one : all) {
        sum.add(one);
    }
    Conversion conversion = {true, sum.weights.difference(), {}};
    for (std::size_t k = 0; k < std::size(sum.states); ++k) {
        conversion.states[k] = sum.states[k].difference();
    }
    return conversion;
}

void Converter::convert_one(int32_t index, Losses& losses) {
    const std::unique_ptr<LooseStates> from = std::move(saved_[static_cast<std::size_t>(index)]);
    const optim::StatesPlace live = optim::states_place(target_.parameters(), index);
    if (live.count == 0) {
        return;
    }
    Stream& stream = stream_of(index);
    fresh_.push_back(
        std::make_unique<LooseStates>(live, live.weight, live.formats, target_.context(), stream));
    const LooseStates& fresh = *fresh_.back();
    const std::string& name = target_.parameters()[index].name;
    const Tensor values(target_.context(), stream, DType::fp32, Shape{{live.count}, 1});
    const auto move = [&](const char* state, Sum& loss) {
        const std::vector<float> exact = read(stream, *from, state, values, name);
        optim::write_values(stream, fresh.states, fresh.place.param, state, values.ref(), name);
        loss.add(exact, read(stream, fresh, state, values, name));
    };
    move("fp32_param", losses.weights);
    const numerics::RuleInfo rule = numerics::rule_info(live.formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        if (live.formats.states[k] == FormatId::none) {
            continue; // frozen
        }
        move(rule.state(k).name, losses.states[static_cast<std::size_t>(rule.states[k])]);
    }
    plan_copies(stream, fresh.place, live);
}

void Converter::plan_copies(Stream& stream, const optim::StatesPlace& from,
                            const optim::StatesPlace& to) {
    const std::vector<optim::SavedTensor> sources = optim::saved_tensors(from);
    const std::vector<optim::SavedTensor> targets = optim::saved_tensors(to);
    for (std::size_t i = 0; i < targets.size(); ++i) {
        const int64_t bytes = code_bytes(targets[i].format, targets[i].count);
        copies_.push_back(
            {&stream, targets[i].data, sources[i].data, static_cast<std::size_t>(bytes)});
    }
}

void Converter::commit() const {
    for (const Copy& copy : copies_) {
        copy.stream->copy(copy.to, copy.from, copy.bytes, CopyKind::device_to_device);
    }
    for (const Copy& copy : copies_) {
        copy.stream->sync();
    }
}

} // namespace mp::checkpoint
