// SPDX-License-Identifier: Apache-2.0
#include "optim/state_values.hpp"

#include <algorithm>
#include <cmath>

#include "optim/exact_weight.hpp"
#include "optim/host_values.hpp"
#include "quant/quantize.hpp"

namespace mp::optim {
namespace {

void read_weight(Stream& stream, const ParamStates& states, const ArrayRef& param,
                 const TensorRef& destination) {
    const Tensor* master = states.master().get();
    if (states.has_remainder() || (master == nullptr && states.has_compensation())) {
        std::vector<float> values(static_cast<std::size_t>(param.count()));
        read_exact_weight(stream, states, param, 0, values);
        upload_floats(stream, destination, values);
    } else {
        quant::convert(stream, master != nullptr ? slice_of(*master) : param,
                       plain_array(destination));
    }
}

void write_weight(Stream& stream, const ParamStates& states, const ArrayRef& param,
                  const TensorRef& source) {
    if (source.dtype == DType::fp32) {
        states.initialize(stream, param, &source);
        return;
    }
    const Buffer wide = stream.allocate(static_cast<std::size_t>(source.count) * sizeof(float));
    const TensorRef exact = {wide.data(), source.count, DType::fp32};
    quant::convert(stream, plain_array(source), plain_array(exact));
    states.initialize(stream, param, &exact);
    stream.sync(); // before the memory goes
}

[[noreturn]] void fail_unknown(const ParamStates& states, const std::string& name,
                               const std::string& owner) {
    std::string names;
    const numerics::RuleInfo rule = numerics::rule_info(states.formats().rule);
    for (int k = 0; k < rule.state_count; ++k) {
        names += std::string(rule.state(k).name) + ", ";
    }
    fail(Code::unknown_name,
         "optimizer: parameter '%s' has no values of '%.64s'; it has: %sfp32_param%s",
         owner.c_str(), name.c_str(), names.c_str(),
         states.has_compensation() ? ", compensation" : "");
}

// What a step could never have left: it would go on with it for ever.
void check_numbers(const ParamStates& states, const std::string& name,
                   const std::vector<float>& values, const std::string& owner) {
    const numerics::RuleInfo rule = numerics::rule_info(states.formats().rule);
    const bool is_signed =
        std::none_of(rule.states, rule.states + rule.state_count, [&](numerics::StateId state) {
            return name == state_spec(state).name && !state_spec(state).is_signed;
        });
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i]) || (!is_signed && values[i] < 0.0F)) {
            fail(Code::invalid_argument,
                 "optimizer: element %zu of '%s' of parameter '%s' is %g; it must be finite%s", i,
                 name.c_str(), owner.c_str(), static_cast<double>(values[i]),
                 is_signed ? "" : " and not negative");
        }
    }
}

} // namespace

void read_values(Stream& stream, const ParamStates& states, const ArrayRef& param,
                 const std::string& name, const TensorRef& destination, const std::string& owner) {
    const StoredState state = states.find(name);
    const ArrayRef plain = plain_array(destination);
    if (has_blocks(state.format)) {
        upload_floats(stream, destination, read_stored(stream, state));
    } else if (state.format != FormatId::none) {
        quant::convert(stream, state.array, plain);
    } else if (name == "fp32_param") {
        read_weight(stream, states, param, destination);
    } else {
        fail_unknown(states, name, owner);
    }
    stream.sync();
}

void write_values(Stream& stream, const ParamStates& states, const ArrayRef& param,
                  const std::string& name, const TensorRef& source, const std::string& owner) {
    const StoredState state = states.find(name);
    const ArrayRef plain = plain_array(source);
    const bool is_known = state.format != FormatId::none || name == "fp32_param";
    const std::vector<float> values =
        is_known ? download_floats(stream, source) : std::vector<float>();
    check_numbers(states, name, values, owner);
    if (has_blocks(state.format)) {
        write_stored(stream, state, values);
    } else if (state.format != FormatId::none) {
        quant::convert(stream, plain, state.array);
    } else if (name == "fp32_param") {
        write_weight(stream, states, param, source);
    } else {
        fail_unknown(states, name, owner);
    }
    stream.sync();
}

} // namespace mp::optim
