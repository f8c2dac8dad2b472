// SPDX-License-Identifier: Apache-2.0
#include "layer_list.hpp"

#include <algorithm>

#include "boundary.hpp"
#include "linear/advice.hpp"
#include "process/float_environment.hpp"

namespace mp::capi {

std::vector<std::shared_ptr<LinearObject>> listed_layers(mp_linear* const* linears, int32_t count) {
    if (count < 0) {
        fail(Code::invalid_argument, "count is %d; it must be >= 0", static_cast<int>(count));
    }
    std::vector<std::shared_ptr<LinearObject>> layers;
    for (int32_t i = 0; i < count; ++i) {
        if (required(linears, "linears")[i] != nullptr) {
            layers.push_back(object_of(linears[i], "linears[i]"));
        }
    }
    return layers;
}

mp_linear_stats public_stats(const linear::Linear& layer, recipe::Operand operand,
                             const linear::OperandState& state) {
    mp_linear_stats info{};
    info.struct_size = sizeof(info);
    info.operand = static_cast<int32_t>(operand);
    info.dtype = static_cast<int32_t>(layer.policy().first(operand).dtype);
    info.elements = state.stats.elements;
    info.saturated = state.stats.saturated;
    info.underflowed = state.stats.underflowed;
    info.non_finite = state.stats.non_finite;
    info.amax = static_cast<double>(numerics::float_from_bits(state.stats.amax_bits));
    if (!state.history.empty()) {
        info.scale_inv = 1.0 / static_cast<double>(state.delayed.multiply);
        info.history_amax =
            static_cast<double>(*std::max_element(state.history.begin(), state.history.end()));
        info.history_len = static_cast<int32_t>(state.history.size());
        info.updates = state.delayed.updates;
    }
    return info;
}

std::vector<std::shared_ptr<LinearObject>>
monitored(const std::vector<std::shared_ptr<LinearObject>>& layers) {
    std::vector<std::shared_ptr<LinearObject>> found;
    for (const auto& layer : layers) {
        if (layer->monitor != nullptr) {
            found.push_back(layer);
        }
    }
    return found;
}

void check_monitors(const std::vector<std::shared_ptr<LinearObject>>& layers, Stream& stream) {
    if (!monitored(layers).empty()) {
        stream.refuse_capture("linear: a monitor is to be called");
    }
}

void call_monitor(LinearObject& object, Stream& stream) {
    if (object.monitor == nullptr || ++object.steps < object.every) {
        return;
    }
    object.steps = 0;
    // The function may end the monitoring, or set another one: then it is called no more, and its payload may be gone.
    const mp_linear_monitor_fn monitor = object.monitor;
    void* const payload = object.payload;
    const std::string name = object.name;
    const uint64_t setting = object.monitor_setting;
    for (int32_t number = 0; number < MP_OPERAND_COUNT; ++number) {
        const auto operand = static_cast<recipe::Operand>(number);
        const linear::OperandState state = object.layer.scaling().read(stream, operand);
        const mp_linear_stats info = public_stats(object.layer, operand, state);
        const std::string advice =
            linear::advice_for(object.layer.policy().recipe().fp8, operand, state.stats);
        {
            const process::CallerFloats floats;
            monitor(payload, name.c_str(), &info, advice.empty() ? nullptr : advice.c_str());
        }
        if (object.monitor_setting != setting) {
            return;
        }
    }
    object.layer.scaling().clear_stats(stream);
}

} // namespace mp::capi
