// SPDX-License-Identifier: Apache-2.0
// A step on the caller's pointers: mp_optimizer_step_pointers of optimizer.h.
#include <charconv>
#include <vector>

#include "boundary.hpp"
#include "optim/groups.hpp"
#include "optim/overlap.hpp"
#include "optim/step_memory.hpp"
#include "optimizer_options.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

constexpr uint32_t kArgsFlags = kStepFlags | MP_STEP_SR_PARAM | MP_STEP_SR_EXP_AVG |
                                MP_STEP_SR_EXP_AVG_SQ | MP_HYPERPARAMETERS_EXPLICIT | kRuleFlags;

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

void read_slot(const mp_step_slot& slot, UpdateSegment& s) {
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
        const SlotName name(i);
        const uint32_t size = size_of_struct(slot, name.text);
        if (size != stride) {
            fail(Code::invalid_argument,
                 "%s.struct_size is %u but that of slot 0 is %u; all must be equal", name.text,
                 size, stride);
        }
        UpdateSegment& segment = segments.emplace_back();
        try {
            read_slot(read_struct(slot, "it"), segment);
        } catch (const Error& error) {
            fail(error.status().code(), "%s: %s", name.text, error.status().text());
        }
        optim::check_segment(segment, name.text, rule);
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
    check_flags(args.flags, kArgsFlags, "args.flags");
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
    if (!(options.max_grad_norm >= 0.0 && options.max_grad_norm < 1e30)) {
        fail(Code::invalid_argument,
             "args: max_grad_norm is %g; it must be 0 (no clipping) or positive, below 1e30",
             options.max_grad_norm);
    }
    if (!(options.grad_scale > 0.0 && options.grad_scale < 1e30)) {
        fail(Code::invalid_argument,
             "args: grad_scale is %g; it must be 0 (which is 1) or positive, below 1e30",
             options.grad_scale);
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

// Once, as it holds for all steps.
std::string warning_of(const mp_step_args& args, const std::vector<UpdateSegment>& segments) {
    if (!optim::has_second_moment(rule_of(args.rule))) {
        return {};
    }
    for (const UpdateSegment& segment : segments) {
        std::string warning = optim::second_moment_warning(
            segment.states[1].format(), (args.flags & MP_STEP_SR_EXP_AVG_SQ) != 0,
            hyper_of(args).beta2, "MP_STEP_SR_EXP_AVG_SQ");
        if (!warning.empty()) {
            return warning;
        }
    }
    return {};
}

} // namespace

mp_status mp_optimizer_step_pointers(mp_context* context, mp_queue* queue, const mp_step_args* args,
                                     const mp_step_slot* slots, int64_t slot_count,
                                     mp_scaler* scaler, mp_optimizer_stats* stats) {
    return boundary([&]() -> mp_status {
        const Context& owner = *object_of(context, "context");
        const mp_step_args read = read_struct(args, "args");
        std::vector<UpdateSegment> segments = segments_of(slots, slot_count, rule_of(read.rule));
        const std::string warning = read.step == 1 ? warning_of(read, segments) : std::string();
        step_pointers(owner, stream_of(queue, owner), read, std::move(segments),
                      scaler_of(scaler, owner), stats);
        return warning.empty() ? MP_STATUS_OK : warn(warning);
    });
}
