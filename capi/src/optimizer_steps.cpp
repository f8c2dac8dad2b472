// SPDX-License-Identifier: Apache-2.0
// Steps: mp_optimizer_step, and step_parts.h.
#include <utility>
#include <vector>

#include "boundary.hpp"
#include "layer_list.hpp"
#include "mixedprec/step_parts.h"
#include "optimizer_options.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

// What follows a step that was taken: the monitors are called, and what is likely a mistake is said once.
mp_status after_step(OptimizerObject& object, Stream& stream, scaler::LossScaler* scale) {
    for (const auto& layer : monitored(object.layers)) {
        call_monitor(*layer, stream);
    }
    if (object.parameters().count() == 0 && !std::exchange(object.has_warned_of_nothing, true)) {
        return warn("optimizer: it has no parameters; add them with mp_optimizer_add_param");
    }
    if (const std::string warning = object.groups().eps_warning();
        !warning.empty() && !std::exchange(object.has_warned_of_eps, true)) {
        return warn(warning);
    }
    if (scale != nullptr && scale->checks() && scale->forgets_update(&object)) {
        return warn("scaler: two steps of this optimizer without mp_scaler_update between them; "
                    "found_inf stays, and the loss scale never moves");
    }
    return MP_STATUS_OK;
}

optim::OpenStep& open_step_of(const OptimizerObject& object) {
    if (object.open_step == nullptr) {
        fail(Code::bad_state, "optimizer: no step is open; call mp_optimizer_step_begin first");
    }
    return *object.open_step;
}

std::vector<std::shared_ptr<Tensor>> tensors_of(mp_tensor* const* handles, int32_t count) {
    std::vector<std::shared_ptr<Tensor>> tensors;
    for (int32_t i = 0; handles != nullptr && i < count; ++i) {
        tensors.push_back(object_of(handles[i], "grads[i]"));
    }
    return tensors;
}

} // namespace

mp_status mp_optimizer_step(mp_optimizer* optimizer, mp_queue* queue, mp_scaler* scaler) {
    return boundary([&]() -> mp_status {
        OptimizerObject& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        scaler::LossScaler* scale = scaler_of(scaler, *object.context());
        check_monitors(object.layers, stream);
        object.step(stream, scale);
        return after_step(object, stream, scale);
    });
}

mp_status mp_optimizer_step_begin(mp_optimizer* optimizer, mp_queue* queue, mp_scaler* scaler) {
    return boundary([&] {
        OptimizerObject& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        std::shared_ptr<scaler::LossScaler> scale;
        if (scaler_of(scaler, *object.context()) != nullptr) {
            scale = object_of(scaler, "scaler");
        }
        check_monitors(object.layers, stream);
        object.open_step = object.begin_step(stream, scale.get());
        object.open_scaler = std::move(scale);
    });
}

mp_status mp_optimizer_step_params(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                   int32_t count, mp_tensor* const* grads) {
    return boundary([&] {
        const OptimizerObject& object = *object_of(optimizer, "optimizer");
        optim::OpenStep& step = open_step_of(object);
        const auto parameters = list_of(indices, count, "indices", "count");
        step.apply(stream_of(queue, *object.context()), parameters, tensors_of(grads, count));
    });
}

mp_status mp_optimizer_step_end(mp_optimizer* optimizer, mp_queue* queue) {
    return boundary([&]() -> mp_status {
        OptimizerObject& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        open_step_of(object).end(stream);
        object.open_step.reset();
        const std::shared_ptr<scaler::LossScaler> scale = std::move(object.open_scaler);
        return after_step(object, stream, scale.get());
    });
}
