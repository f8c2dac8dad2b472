// SPDX-License-Identifier: Apache-2.0
// scaler.h
#include <cmath>
#include <vector>

#include "boundary.hpp"
#include "objects.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_SCALER_DYNAMIC == static_cast<int32_t>(recipe::ScalerKind::dynamic));
static_assert(MP_SCALER_STATIC == static_cast<int32_t>(recipe::ScalerKind::fixed));
static_assert(MP_SCALER_NONE == static_cast<int32_t>(recipe::ScalerKind::none));

namespace {

recipe::ScalerPolicy policy_of(const mp_scaler_desc& desc) {
    check_flags(desc.flags, MP_SCALER_REFILL_ON_GOOD_STEP | MP_SCALER_ERROR_AT_MIN, "flags");
    if (desc.kind < MP_SCALER_DYNAMIC || desc.kind > MP_SCALER_NONE) {
        fail(Code::invalid_argument,
             "scaler: kind is %d; it must be MP_SCALER_DYNAMIC, _STATIC or _NONE", desc.kind);
    }
    recipe::ScalerPolicy policy;
    policy.kind = static_cast<recipe::ScalerKind>(desc.kind);
    const auto number = [](double value, double fallback) {
        return value == 0.0 ? fallback : value;
    };
    policy.init_scale = number(desc.init_scale, policy.init_scale);
    policy.rule.growth_factor = number(desc.growth_factor, policy.rule.growth_factor);
    policy.rule.backoff_factor = number(desc.backoff_factor, policy.rule.backoff_factor);
    policy.rule.min_scale = desc.min_scale;
    policy.rule.max_scale = desc.max_scale;
    policy.rule.growth_interval =
        desc.growth_interval == 0 ? policy.rule.growth_interval : desc.growth_interval;
    policy.rule.hysteresis = desc.hysteresis == 0 ? policy.rule.hysteresis : desc.hysteresis;
    policy.rule.count_offset = desc.count_offset;
    policy.rule.refill_on_good_step = (desc.flags & MP_SCALER_REFILL_ON_GOOD_STEP) != 0 ? 1 : 0;
    policy.rule.error_at_min = (desc.flags & MP_SCALER_ERROR_AT_MIN) != 0 ? 1 : 0;
    return policy;
}

mp_scaler_desc desc_of(const recipe::ScalerPolicy& policy) {
    mp_scaler_desc desc = MP_SCALER_DESC_INIT;
    desc.kind = static_cast<int32_t>(policy.kind);
    desc.init_scale = policy.init_scale;
    desc.growth_factor = policy.rule.growth_factor;
    desc.backoff_factor = policy.rule.backoff_factor;
    desc.min_scale = policy.rule.min_scale;
    desc.max_scale = policy.rule.max_scale;
    desc.growth_interval = policy.rule.growth_interval;
    desc.hysteresis = policy.rule.hysteresis;
    desc.count_offset = policy.rule.count_offset;
    desc.flags = (policy.rule.refill_on_good_step != 0 ? MP_SCALER_REFILL_ON_GOOD_STEP : 0U) |
                 (policy.rule.error_at_min != 0 ? MP_SCALER_ERROR_AT_MIN : 0U);
    return desc;
}

} // namespace

mp_status mp_scaler_desc_preset(mp_scaler_desc* desc, size_t size, const char* name) {
    return boundary(
        [&] { init_struct(desc, size, desc_of(scaler::scaler_preset(required(name, "name")))); });
}

mp_status mp_scaler_create(mp_context* context, const mp_scaler_desc* desc, mp_scaler** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const recipe::ScalerPolicy policy = policy_of(read_optional_struct(desc, "desc"));
        auto scaler = std::make_shared<scaler::LossScaler>(owner, policy);
        complete(owner->stream());
        *out = make_handle<mp_scaler>(std::move(scaler));
    });
}

mp_status mp_scaler_create_from_recipe(mp_context* context, mp_recipe* recipe, mp_scaler** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        auto scaler = std::make_shared<scaler::LossScaler>(owner, use_recipe(recipe).scaler);
        complete(owner->stream());
        *out = make_handle<mp_scaler>(std::move(scaler));
    });
}

mp_status mp_scaler_get_scale(mp_scaler* scaler, mp_queue* queue, double* scale) {
    return boundary([&] {
        const scaler::LossScaler& object = *object_of(scaler, "scaler");
        *required(scale, "scale") =
            static_cast<double>(object.read(stream_of(queue, *object.context())).scale);
    });
}

mp_status mp_scaler_check_pointers(mp_scaler* scaler, mp_queue* queue, int64_t count,
                                   const void* const* grads, const int32_t* dtypes,
                                   const int64_t* elements) {
    return boundary([&] {
        scaler::LossScaler& object = *object_of(scaler, "scaler");
        if (count < 0) {
            fail(Code::invalid_argument, "count is %lld; it must be >= 0",
                 static_cast<long long>(count));
        }
        if (count == 0) {
            return;
        }
        (void)required(grads, "grads");
        (void)required(dtypes, "dtypes");
        (void)required(elements, "elements");
        std::vector<TensorRef> refs;
        for (int64_t i = 0; i < count; ++i) {
            UpdateSegment probe; // the same checks as a step makes, on the gradient alone
            probe.count = elements[i];
            probe.grad.data = const_cast<void*>(grads[i]);
            probe.grad.dtype = dtype_of(dtypes[i], "dtypes[i]");
            optim::check_gradient(probe, "mp_scaler_check_pointers");
            refs.push_back({probe.grad.data, probe.count, probe.grad.dtype});
        }
        object.check_finite(stream_of(queue, *object.context()), refs);
    });
}

mp_status mp_scaler_get_scale_tensor(mp_scaler* scaler, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<scaler::LossScaler> owner = object_of(scaler, "scaler");
        *out = device_number(owner->context(), owner, &owner->state()->scale);
    });
}

mp_status mp_scaler_get_found_inf_tensor(mp_scaler* scaler, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<scaler::LossScaler> owner = object_of(scaler, "scaler");
        *out = device_number(owner->context(), owner, &owner->state()->found_inf);
    });
}

mp_status mp_scaler_combine(mp_scaler* scaler, mp_queue* queue, mp_comm* comm) {
    return boundary([&] {
        scaler::LossScaler& object = *object_of(scaler, "scaler");
        const std::shared_ptr<CommObject> ranks = object_of(comm, "comm");
        object.combine(stream_of(queue, *object.context()), ready(*ranks));
    });
}

mp_status mp_scaler_update(mp_scaler* scaler, mp_queue* queue) {
    return boundary([&] {
        scaler::LossScaler& object = *object_of(scaler, "scaler");
        object.update(stream_of(queue, *object.context()));
    });
}

mp_status mp_scaler_get_state(mp_scaler* scaler, mp_queue* queue, mp_scaler_state* state) {
    return boundary([&] {
        const scaler::LossScaler& object = *object_of(scaler, "scaler");
        const numerics::LossScaleState source = object.read(stream_of(queue, *object.context()));
        mp_scaler_state result{};
        result.found_inf = source.found_inf != 0.0F ? 1 : 0;
        result.scale = static_cast<double>(source.scale);
        result.growth_tracker = source.growth_tracker;
        result.hysteresis_tracker = source.hysteresis_tracker;
        result.good_steps = source.good_steps;
        result.overflow_steps = source.overflow_steps;
        write_struct(state, result, "state");
        if (source.failed_at_min != 0) {
            fail(Code::bad_state,
                 "scaler: overflow with the loss scale already at its minimum %g; the run "
                 "diverges: lower "
                 "the learning rate",
                 static_cast<double>(source.scale));
        }
    });
}

mp_status mp_scaler_set_state(mp_scaler* scaler, mp_queue* queue, const mp_scaler_state* state) {
    return boundary([&] {
        scaler::LossScaler& object = *object_of(scaler, "scaler");
        const auto source = read_struct(state, "state");
        if (!(source.scale > 0.0 && source.scale <= 3.4e38)) {
            fail(Code::invalid_argument, "scaler: scale is %g; it must be positive and finite",
                 source.scale);
        }
        numerics::LossScaleState target;
        target.scale = static_cast<float>(source.scale);
        target.found_inf = source.found_inf != 0 ? 1.0F : 0.0F;
        target.growth_tracker = source.growth_tracker;
        target.hysteresis_tracker = source.hysteresis_tracker;
        target.good_steps = source.good_steps;
        target.overflow_steps = source.overflow_steps;
        const std::string refusal = object.refusal(target);
        if (!refusal.empty()) {
            fail(Code::invalid_argument, "scaler: %s", refusal.c_str());
        }
        object.write(stream_of(queue, *object.context()), target);
    });
}

void mp_scaler_destroy(mp_scaler* scaler) { destroy_handle(scaler); }
