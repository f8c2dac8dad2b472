// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numerics/bits.hpp"
#include "optim/state_values.hpp"
#include "quant/quantize.hpp"
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

WeightFormat weight_here(const optim::StatesPlace& place) {
    return {place.weight, place.param.format};
}

bool is_same(const optim::StateFormats& a, const optim::StateFormats& b) {
    return std::equal(std::begin(a.states), std::end(a.states), std::begin(b.states)) &&
           a.compensation == b.compensation && a.master == b.master && a.half_away == b.half_away;
}

FormatId format_in_file(const Manifest& manifest, const std::string& name, const char* state) {
    const StoredTensor* stored = manifest.find(name, state);
    return stored != nullptr ? stored->format : FormatId::none;
}

bool has_states(const Manifest& manifest, const std::string& name, const numerics::RuleInfo& rule) {
    return std::any_of(rule.states, rule.states + rule.state_count, [&](numerics::StateId state) {
        return manifest.find(name, state_spec(state).name) != nullptr;
    });
}

std::vector<float> read(Stream& stream, const LooseStates& from, const char* state,
                        const Tensor& through, const std::string& owner) {
    optim::read_values(stream, from.states, from.place.param, state, through.ref(), owner);
    std::vector<float> numbers(static_cast<std::size_t>(through.count()));
    stream.copy(numbers.data(), through.data(), through.bytes(), CopyKind::device_to_host);
    stream.sync();
    return numbers;
}

constexpr const char* kWeight = "fp32_param";

// Of the elements of `live`, of which the file may have given more.
std::vector<float> read_weight(Stream& stream, const LooseStates& from,
                               const optim::StatesPlace& live, const Tensor& values,
                               const std::string& owner) {
    if (from.place.count == live.count) {
        return read(stream, from, kWeight, values, owner);
    }
    const Tensor cover(values.context(), stream, DType::fp32, Shape{{from.place.count}, 1});
    const std::vector<float> all = read(stream, from, kWeight, cover, owner);
    const auto first = static_cast<std::ptrdiff_t>(live.start - from.place.start);
    std::vector<float> numbers(all.begin() + first, all.begin() + first + live.count);
    stream.copy(values.data(), numbers.data(), values.bytes(), CopyKind::host_to_device);
    stream.sync();
    return numbers;
}

// `amax`: the bits of that of the whole weight where its scales depend on it, else null.
void write_frozen(Stream& stream, const LooseStates& to, const TensorRef& exact,
                  const uint32_t* amax) {
    const ArrayRef& weight = to.place.param;
    const Scratch whole(stream, sizeof(float));
    if (amax != nullptr) {
        stream.copy(whole.data(), amax, sizeof *amax, CopyKind::host_to_device);
    }
    quant::convert(stream, plain_array(exact, weight.rows, weight.columns), weight,
                   amax != nullptr ? static_cast<const float*>(whole.data()) : nullptr);
    stream.sync();
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
    void add_same(int64_t count) { count_ += static_cast<double>(count); }
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

    // Numbers that are taken as they are.
    void add_same(int64_t count, const optim::StateFormats& formats) {
        weights.add_same(count);
        const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
        for (int k = 0; k < rule.state_count; ++k) {
            if (formats.states[k] != FormatId::none) {
                states[static_cast<std::size_t>(rule.states[k])].add_same(count);
            }
        }
    }
    void add(const Losses& other) {
        weights.add(other.weights);
        for (std::size_t k = 0; k < std::size(states); ++k) {
            states[k].add(other.states[k]);
        }
    }
};

LooseStates::LooseStates(const optim::StatesPlace& like, const WeightFormat& weight,
                         const optim::StateFormats& formats,
                         const std::shared_ptr<Context>& context, Stream& stream)
    : param(make_tensor(
          context, stream, weight.format,
          slice_shape(weight.format.grid, like.shape.empty() ? 1 : like.shape.back(), like.count))),
      states(context, stream, formats, Shape{{like.count}, 1}), place(like) {
    place.weight = weight.id;
    place.formats = formats;
    place.param = slice_of(*param);
    place.states = &states;
}

Stream& Converter::stream_of(int32_t index) const {
    return target_.parameters().state_stream(index, target_.context()->stream());
}

bool has_new_states(const Manifest& manifest, const optim::Parameters& parameters, int32_t index) {
    const optim::Parameter& p = parameters[index];
    return !p.layout.is_frozen && manifest.find(p.name, "param") != nullptr &&
           !has_states(manifest, p.name, numerics::rule_info(p.layout.formats.rule));
}

bool has_other_weight(const Manifest& manifest, const optim::Parameters& parameters,
                      int32_t index) {
    const std::string& name = parameters[index].name;
    const StoredTensor* stored = manifest.find(name, "param");
    if (stored == nullptr) {
        return false;
    }
    const optim::StatesPlace here = optim::states_place(parameters, index);
    if (!parameters[index].layout.is_frozen) { // which says all, also where no element is here
        return stored->format != here.weight;
    }
    return !(weight_in_file(manifest, name, *stored, here.param.format.grid) == weight_here(here));
}

Converter::Converter(const Manifest& manifest, const optim::Optimizer& target) : target_(target) {
    const recipe::Recipe recipe = recipe_of(manifest);
    for (int32_t i = 0; i < target.parameters().count(); ++i) {
        const optim::StatesPlace live = optim::states_place(target.parameters(), i);
        const std::string& name = target.parameters()[i].name;
        const StoredTensor& weight = stored_weight(manifest, name, live.shape);
        optim::StateFormats formats;
        formats.rule = live.formats.rule;
        const numerics::RuleInfo rule = numerics::rule_info(formats.rule);
        if (has_states(manifest, name, rule)) {
            formats = optim::state_formats(recipe::for_parameter(recipe, name), weight.format,
                                           live.whole, live.formats.rule);
        }
        for (int k = 0; k < rule.state_count; ++k) { // a group may have had its own
            const FormatId state = format_in_file(manifest, name, rule.state(k).name);
            formats.states[k] = state != FormatId::none ? state : formats.states[k];
        }
        if (target.parameters()[i].layout.is_frozen) { // its weight alone, with all bits it had
            std::fill(std::begin(formats.states), std::end(formats.states), FormatId::none);
        }
        const WeightFormat in_file = weight_in_file(manifest, name, weight, live.param.format.grid);
        saved_.push_back(std::make_unique<LooseStates>(cover_of(live, in_file.format), in_file,
                                                       formats, target.context(), stream_of(i)));
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
        if (target_.parameters()[i].layout.is_frozen) {
            catalog.frozen.insert(target_.parameters()[i].name);
        }
    }
}

std::vector<uint32_t> Converter::own_amaxes() const {
    std::vector<uint32_t> amaxes;
    for (int32_t i = 0; i < target_.parameters().count(); ++i) {
        amaxes.push_back(0);
        const LooseStates& from = *saved_[static_cast<std::size_t>(i)];
        if (from.place.count == 0 || !optim::shares_amax(target_.parameters()[i])) {
            continue;
        }
        Stream& stream = stream_of(i);
        const Tensor values(target_.context(), stream, DType::fp32, Shape{{from.place.count}, 1});
        const std::vector<float> numbers =
            read(stream, from, kWeight, values, target_.parameters()[i].name);
        amaxes.back() = numerics::amax_bits(numbers.data(), values.count());
    }
    return amaxes;
}

Conversion Converter::convert(Ranks& ranks) {
    std::vector<uint32_t> amaxes(static_cast<std::size_t>(target_.parameters().count()));
    for (const std::vector<uint32_t>& own : together(ranks, [&] { return own_amaxes(); })) {
        std::transform(own.begin(), own.end(), amaxes.begin(), amaxes.begin(),
                       [](uint32_t a, uint32_t b) { return std::max(a, b); });
    }
    const std::vector<Losses> all = together(ranks, [&] {
        Losses own;
        Losses shared; // other ranks find these, too, and they count once
        for (int32_t i = 0; i < target_.parameters().count(); ++i) {
            const optim::StatesPlace place = optim::states_place(target_.parameters(), i);
            const bool counts = place.is_everywhere ? ranks.rank() == 0 : !place.is_copy;
            convert_one(i, amaxes[static_cast<std::size_t>(i)], counts ? own : shared);
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

void Converter::convert_one(int32_t index, uint32_t amax, Losses& losses) {
    std::unique_ptr<LooseStates> from = std::move(saved_[static_cast<std::size_t>(index)]);
    const optim::StatesPlace live = optim::states_place(target_.parameters(), index);
    if (live.count == 0) {
        return;
    }
    Stream& stream = stream_of(index);
    const WeightFormat weight = weight_here(live);
    if (from->place.count == live.count &&
        WeightFormat{from->place.weight, from->place.param.format} == weight &&
        is_same(from->states.formats(), live.formats)) {
        plan_copies(stream, from->place, live);
        losses.add_same(live.count, live.formats);
        fresh_.push_back(std::move(from));
        return;
    }
    fresh_.push_back(
        std::make_unique<LooseStates>(live, weight, live.formats, target_.context(), stream));
    const LooseStates& fresh = *fresh_.back();
    const std::string& name = target_.parameters()[index].name;
    const Tensor values(target_.context(), stream, DType::fp32, Shape{{live.count}, 1});
    const auto move = [&](const char* state, Sum& loss, const auto& write) {
        const std::vector<float> exact = state == kWeight
                                             ? read_weight(stream, *from, live, values, name)
                                             : read(stream, *from, state, values, name);
        write(state);
        loss.add(exact, read(stream, fresh, state, values, name));
    };
    move(kWeight, losses.weights, [&](const char* state) {
        if (!target_.parameters()[index].layout.is_frozen) {
            optim::write_values(stream, fresh.states, fresh.place.param, state, values.ref(), name);
        } else {
            write_frozen(stream, fresh, values.ref(),
                         optim::shares_amax(target_.parameters()[index]) ? &amax : nullptr);
        }
    });
    const numerics::RuleInfo rule = numerics::rule_info(live.formats.rule);
    for (int k = 0; k < rule.state_count; ++k) {
        if (live.formats.states[k] == FormatId::none ||
            from->states.formats().states[k] == FormatId::none) {
            continue; // frozen, or new: zeros
        }
        move(rule.state(k).name, losses.states[static_cast<std::size_t>(rule.states[k])],
             [&](const char* state) {
                 optim::write_values(stream, fresh.states, fresh.place.param, state, values.ref(),
                                     name);
             });
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
