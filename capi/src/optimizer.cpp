// SPDX-License-Identifier: Apache-2.0
// optimizer.h
#include <charconv>
#include <cstring>
#include <vector>

#include "boundary.hpp"
#include "layer_list.hpp"
#include "memory_report.hpp"
#include "optim/overlap.hpp"
#include "optimizer_options.hpp"
#include "rule_number.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

constexpr uint32_t kRuleFlags = MP_RULE_MAXIMIZE | MP_RULE_NO_BIAS_CORRECTION;
constexpr uint32_t kAdamwFlags = kStepFlags | MP_STEP_SR_PARAM | MP_STEP_SR_EXP_AVG |
                                 MP_STEP_SR_EXP_AVG_SQ | MP_HYPERPARAMETERS_EXPLICIT | kRuleFlags;

// The five hyperparameters, which groups and pointer steps spell alike. Zero means default unless explicit.
template <typename T> numerics::GroupHyper hyper_of(const T& source) {
    numerics::GroupHyper hyper{source.lr, source.beta1, source.beta2, source.eps,
                               source.weight_decay};
    hyper.rule = rule_of(source.rule);
    check_reserved(source.reserved);
    if ((source.flags & MP_HYPERPARAMETERS_EXPLICIT) == 0) {
        const numerics::GroupHyper defaults = numerics::rule_info(hyper.rule).defaults();
        hyper.lr = hyper.lr == 0.0 ? defaults.lr : hyper.lr;
        hyper.beta1 = hyper.beta1 == 0.0 ? defaults.beta1 : hyper.beta1;
        hyper.beta2 = hyper.beta2 == 0.0 ? defaults.beta2 : hyper.beta2;
        hyper.eps = hyper.eps == 0.0 ? defaults.eps : hyper.eps;
    }
    hyper.maximize = (source.flags & MP_RULE_MAXIMIZE) != 0;
    hyper.bias_correction = (source.flags & MP_RULE_NO_BIAS_CORRECTION) == 0;
    return hyper;
}

void write_stats(const numerics::OptimizerState& state, mp_optimizer_stats* destination) {
    mp_optimizer_stats stats{};
    stats.found_inf = state.skip;
    stats.step = state.step;
    stats.skipped_steps = state.skipped_steps;
    stats.grad_norm = state.grad_norm;
    stats.grad_mul = state.grad_mul;
    write_struct(destination, stats, "stats");
}

scaler::LossScaler* scaler_of(mp_scaler* scaler, const Context& context) {
    if (scaler == nullptr) {
        return nullptr;
    }
    scaler::LossScaler& object = *object_of(scaler, "scaler");
    if (&object.context()->stream().device() != &context.stream().device()) {
        fail(Code::invalid_argument, "scaler was made on another device than the parameters");
    }
    return &object;
}

static_assert(MP_CODING_FP8_BLOCK == static_cast<int32_t>(Coding::block) &&
              MP_CODING_DYNAMIC8 == static_cast<int32_t>(Coding::dynamic8) &&
              MP_CODING_DYNAMIC4 == static_cast<int32_t>(Coding::dynamic4) &&
              MP_CODING_REMAINDER == static_cast<int32_t>(Coding::remainder) &&
              MP_CODING_FP8_BLOCK128 == static_cast<int32_t>(Coding::block128) &&
              MP_CODING_COMPANDED8 == static_cast<int32_t>(Coding::companded8));

Coding coding_of(int32_t value, const char* name) {
    const auto coding = static_cast<Coding>(value);
    if (value != MP_CODING_PLAIN && !has_blocks(coding)) {
        fail(Code::invalid_argument, "%s is %d; it must be one of MP_CODING_*", name,
             static_cast<int>(value));
    }
    return coding;
}

// "slot 7", for messages.
struct SlotName {
    explicit SlotName(int64_t index) { *std::to_chars(text + 5, text + 31, index).ptr = '\0'; }
    char text[32] = "slot ";
};

void read_slot(const mp_step_slot& slot, numerics::RuleId rule, int64_t index, UpdateSegment& s) {
    check_flags(slot.flags, 0, "slot.flags");
    s.count = slot.count;
    s.uid = slot.uid;
    s.param.data = slot.param;
    s.grad.data = slot.grad;
    s.states[0].data = slot.exp_avg;
    s.states[1].data = slot.exp_avg_sq;
    s.compensation.data = slot.compensation;
    s.master.data = slot.master;
    s.param.dtype = dtype_of(slot.param_dtype, "param_dtype");
    s.grad.dtype = dtype_of(slot.grad_dtype, "grad_dtype");
    s.states[0].dtype = dtype_of(slot.exp_avg_dtype, "exp_avg_dtype", true);
    s.states[1].dtype = dtype_of(slot.exp_avg_sq_dtype, "exp_avg_sq_dtype", true);
    s.compensation.dtype = dtype_of(slot.compensation_dtype, "compensation_dtype", true);
    s.master.dtype = dtype_of(slot.master_dtype, "master_dtype", true);
    s.param.scale_inv = slot.param_scale_inv;
    s.grad.scale_inv = slot.grad_scale_inv;
    s.states[0].scale_inv = slot.exp_avg_scale_inv;
    s.states[1].scale_inv = slot.exp_avg_sq_scale_inv;
    s.master.scale_inv = slot.master_scale_inv;
    s.compensation.scale_inv = slot.compensation_scale_inv;
    s.compensation.coding = coding_of(slot.compensation_coding, "compensation_coding");
    s.states[0].coding = coding_of(slot.exp_avg_coding, "exp_avg_coding");
    s.states[1].coding = coding_of(slot.exp_avg_sq_coding, "exp_avg_sq_coding");
    if (slot.master_coding != MP_CODING_PLAIN && slot.master_coding != MP_CODING_REMAINDER) {
        fail(Code::invalid_argument,
             "master_coding is %d; it must be MP_CODING_PLAIN or MP_CODING_REMAINDER",
             static_cast<int>(slot.master_coding));
    }
    s.master.coding = static_cast<Coding>(slot.master_coding);
    optim::check_segment(s, SlotName(index).text, rule);
}

// Slots lie struct_size bytes apart, which may be more or less than this library's idea of a slot.
std::vector<UpdateSegment> segments_of(const mp_step_slot* slots, int64_t count,
                                       numerics::RuleId rule) {
    if (count < 0) {
        fail(Code::invalid_argument, "slot_count is %lld; it must be >= 0",
             static_cast<long long>(count));
    }
    std::vector<UpdateSegment> segments;
    if (count == 0) {
        return segments;
    }
    const uint32_t stride = size_of_struct(slots, "slots");
    const auto* bytes = reinterpret_cast<const unsigned char*>(slots);
    segments.reserve(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const auto* slot =
            reinterpret_cast<const mp_step_slot*>(bytes + static_cast<std::size_t>(i) * stride);
        if (size_of_struct(slot, "slots[i]") != stride) {
            fail(Code::invalid_argument,
                 "slots[%lld].struct_size is %u but slots[0].struct_size is %u; all must be equal",
                 static_cast<long long>(i), size_of_struct(slot, "slots[i]"), stride);
        }
        read_slot(read_struct(slot, "slots[i]"), rule, i, segments.emplace_back());
    }
    return segments;
}

const float* aligned(const float* pointer, const char* name) {
    if (!is_aligned(pointer, DType::fp32)) {
        fail(Code::invalid_argument, "%s at %p is not aligned to 4 bytes", name,
             static_cast<const void*>(pointer));
    }
    return pointer;
}

void step_pointers(const Context& context, Stream& stream, const mp_step_args& args,
                   std::vector<UpdateSegment> segments, scaler::LossScaler* scaler,
                   mp_optimizer_stats* stats) {
    check_flags(args.flags, kAdamwFlags, "args.flags");
    numerics::GroupHyper hyper = hyper_of(args);
    optim::check_hyper(hyper);
    hyper.device_lr = aligned(args.lr_pointer, "args.lr_pointer");
    if ((args.flags & MP_OPTIMIZER_EAGER_COMPAT) != 0 &&
        ((args.flags & kRuleFlags) != 0 || hyper.rule != numerics::RuleId::adamw)) {
        fail(Code::unsupported,
             "args: the eager order of roundings is MP_RULE_ADAMW's alone, without "
             "MP_RULE_MAXIMIZE or MP_RULE_NO_BIAS_CORRECTION");
    }
    if (args.step < 1) {
        fail(Code::invalid_argument, "args.step is %lld; the first step is 1",
             static_cast<long long>(args.step));
    }
    optim::StepOptions options;
    options.seed = args.seed;
    options.max_grad_norm = args.max_grad_norm;
    const bool is_elsewhere = args.grad_scale == 0.0 || args.grad_scale_pointer != nullptr;
    options.grad_scale = is_elsewhere ? 1.0 : args.grad_scale;
    options.device_grad_scale = aligned(args.grad_scale_pointer, "args.grad_scale_pointer");
    if (!(options.max_grad_norm >= 0.0 && options.max_grad_norm < 1e30) ||
        !(options.grad_scale > 0.0 && options.grad_scale < 1e30)) {
        fail(Code::invalid_argument,
             "args: max_grad_norm is %g and grad_scale is %g; the first must be >= 0, the second "
             "positive",
             options.max_grad_norm, options.grad_scale);
    }
    options.check_finite = (args.flags & MP_OPTIMIZER_CHECK_FINITE) != 0;
    options.zero_grad = (args.flags & MP_OPTIMIZER_ZERO_GRAD) != 0;
    options.eager_compat = (args.flags & MP_OPTIMIZER_EAGER_COMPAT) != 0;
    options.stochastic_param = (args.flags & MP_STEP_SR_PARAM) != 0;
    options.stochastic_states[0] = (args.flags & MP_STEP_SR_EXP_AVG) != 0;
    options.stochastic_states[1] = (args.flags & MP_STEP_SR_EXP_AVG_SQ) != 0;
    if (stats != nullptr) {
        (void)size_of_struct(stats, "stats"); // before anything changes
    }
    optim::check_no_overlap(segments, hyper.rule, options.zero_grad);
    const SegmentPlan plan(stream, std::move(segments));
    numerics::OptimizerState state;
    state.step = args.step - 1;
    const optim::StepMemory memory(stream, {hyper}, {state, {state.step}});
    memory.step(stream, plan, scaler, options);
    if (stats != nullptr) {
        write_stats(memory.read(stream).state, stats);
    } else if (!context.stream().device().is_host()) {
        stream.sync(); // before the tables of this call go
    }
}

} // namespace

mp_status mp_optimizer_create(mp_context* context, mp_recipe* recipe, const mp_optimizer_desc* desc,
                              mp_optimizer** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        *out = make_handle<mp_optimizer>(
            std::make_shared<OptimizerObject>(owner, use_recipe(recipe), options_of(desc)));
    });
}

mp_status mp_optimizer_add_group(mp_optimizer* optimizer, const mp_param_group_desc* desc,
                                 int32_t* index) {
    return boundary([&]() -> mp_status {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        (void)required(index, "index");
        const auto source = read_optional_struct(desc, "desc");
        check_flags(source.flags, MP_HYPERPARAMETERS_EXPLICIT | kRuleFlags, "desc.flags");
        const numerics::GroupHyper hyper = hyper_of(source);
        const auto text_of = [](const char* text) {
            return std::string(text != nullptr ? text : "");
        };
        *index = object.groups().add(
            hyper, {text_of(source.exp_avg_format), text_of(source.exp_avg_sq_format)});
        if (const std::string warning = object.groups().warning(*index); !warning.empty()) {
            return warn(warning);
        }
        return MP_STATUS_OK;
    });
}

mp_status mp_optimizer_add_param(mp_optimizer* optimizer, int32_t group, const mp_param_desc* desc,
                                 int32_t* index) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        const auto source = read_struct(desc, "desc");
        check_flags(source.flags, 0, "desc.flags");
        optim::NewParameter parameter;
        parameter.name = required(source.name, "desc.name");
        parameter.param = object_of(source.param, "desc.param");
        if (source.grad != nullptr) {
            parameter.grad = object_of(source.grad, "desc.grad");
        }
        if (source.init_fp32 != nullptr) {
            parameter.init_fp32 = object_of(source.init_fp32, "desc.init_fp32");
        }
        const int32_t number = object.add_parameter(object.context()->stream(), group, parameter);
        if (index != nullptr) {
            *index = number;
        }
    });
}

mp_status mp_optimizer_set_lr(mp_optimizer* optimizer, int32_t group, double lr) {
    return boundary([&] { object_of(optimizer, "optimizer")->groups().set_lr(group, lr); });
}

mp_status mp_optimizer_set_lr_tensor(mp_optimizer* optimizer, int32_t group, mp_tensor* lr) {
    return boundary([&] {
        object_of(optimizer, "optimizer")
            ->groups()
            .set_lr_tensor(group, lr == nullptr ? nullptr : object_of(lr, "lr"));
    });
}

mp_status mp_optimizer_set_grad_scale_tensor(mp_optimizer* optimizer, mp_tensor* grad_scale) {
    return boundary([&] {
        object_of(optimizer, "optimizer")
            ->set_grad_scale_tensor(grad_scale == nullptr ? nullptr
                                                          : object_of(grad_scale, "grad_scale"));
    });
}

mp_status mp_optimizer_set_enabled(mp_optimizer* optimizer, int32_t group, int32_t enabled) {
    return boundary(
        [&] { object_of(optimizer, "optimizer")->groups().set_enabled(group, enabled != 0); });
}

mp_status mp_optimizer_sync_master(mp_optimizer* optimizer, mp_queue* queue, int32_t index) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.parameters().sync_master(stream_of(queue, *object.context()), index);
    });
}

mp_status mp_optimizer_set_linears(mp_optimizer* optimizer, mp_linear* const* linears,
                                   int32_t count) {
    return boundary([&] {
        OptimizerObject& object = *object_of(optimizer, "optimizer");
        std::vector<std::shared_ptr<LinearObject>> layers = listed_layers(linears, count);
        std::vector<std::shared_ptr<linear::Linear>> inner;
        inner.reserve(layers.size());
        for (const auto& layer : layers) {
            inner.emplace_back(layer, &layer->layer);
        }
        object.set_layers(std::move(inner));
        object.layers = std::move(layers);
    });
}

mp_status mp_optimizer_step(mp_optimizer* optimizer, mp_queue* queue, mp_scaler* scaler) {
    return boundary([&] {
        OptimizerObject& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        scaler::LossScaler* scale = scaler_of(scaler, *object.context());
        object.step(stream, scale);
        for (const auto& layer : object.layers) {
            tell_monitor(*layer, stream);
        }
    });
}

mp_status mp_optimizer_zero_grad(mp_optimizer* optimizer, mp_queue* queue) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.parameters().zero_grad(stream_of(queue, *object.context()));
    });
}

mp_status mp_optimizer_get_stats(mp_optimizer* optimizer, mp_queue* queue,
                                 mp_optimizer_stats* stats) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        write_stats(object.read_state(stream_of(queue, *object.context())), stats);
    });
}

mp_status mp_optimizer_get_param_count(const mp_optimizer* optimizer, int32_t* count) {
    return boundary([&] {
        *required(count, "count") = object_of(optimizer, "optimizer")->parameters().count();
    });
}

mp_status mp_optimizer_get_state(mp_optimizer* optimizer, int32_t index, const char* state,
                                 mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(
            object_of(optimizer, "optimizer")->parameters().state(index, required(state, "state")));
    });
}

mp_status mp_optimizer_read_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                  const char* state, mp_tensor* values) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.parameters().read_state(stream_of(queue, *object.context()), index,
                                       required(state, "state"), *object_of(values, "values"));
    });
}

mp_status mp_optimizer_write_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                   const char* state, mp_tensor* values) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.parameters().write_state(stream_of(queue, *object.context()), index,
                                        required(state, "state"), *object_of(values, "values"));
    });
}

mp_status mp_optimizer_set_step(mp_optimizer* optimizer, mp_queue* queue, int64_t step) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.set_step(stream_of(queue, *object.context()), step);
    });
}

mp_status mp_optimizer_get_group_step(mp_optimizer* optimizer, mp_queue* queue, int32_t group,
                                      int64_t* step) {
    return boundary([&] {
        const optim::Optimizer& object = *object_of(optimizer, "optimizer");
        (void)required(step, "step");
        *step = object.group_step(stream_of(queue, *object.context()), group);
    });
}

mp_status mp_optimizer_set_group_step(mp_optimizer* optimizer, mp_queue* queue, int32_t group,
                                      int64_t step) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        object.set_group_step(stream_of(queue, *object.context()), group, step);
    });
}

mp_status mp_optimizer_get_memory(const mp_optimizer* optimizer, mp_memory_report* report) {
    return boundary(
        [&] { write_report(object_of(optimizer, "optimizer")->parameters().memory(), report); });
}

void mp_optimizer_destroy(mp_optimizer* optimizer) { destroy_handle(optimizer); }

mp_status mp_optimizer_step_pointers(mp_context* context, mp_queue* queue, const mp_step_args* args,
                                     const mp_step_slot* slots, int64_t slot_count,
                                     mp_scaler* scaler, mp_optimizer_stats* stats) {
    return boundary([&] {
        const Context& owner = *object_of(context, "context");
        const mp_step_args read = read_struct(args, "args");
        step_pointers(owner, stream_of(queue, owner), read,
                      segments_of(slots, slot_count, rule_of(read.rule)), scaler_of(scaler, owner),
                      stats);
    });
}
