// SPDX-License-Identifier: Apache-2.0
#include "step_slots.hpp"

#include <charconv>

#include "boundary.hpp"
#include "objects.hpp"
#include "optim/step_memory.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {

namespace {

static_assert(MP_CODING_FP8_BLOCK == static_cast<int32_t>(Coding::block) &&
              MP_CODING_DYNAMIC8 == static_cast<int32_t>(Coding::dynamic8) &&
              MP_CODING_DYNAMIC4 == static_cast<int32_t>(Coding::dynamic4) &&
              MP_CODING_REMAINDER == static_cast<int32_t>(Coding::remainder) &&
              MP_CODING_FP8_BLOCK128 == static_cast<int32_t>(Coding::block128) &&
              MP_CODING_COMPANDED8 == static_cast<int32_t>(Coding::companded8));

// "slot 7", for messages.
struct SlotName {
    explicit SlotName(int64_t index) { *std::to_chars(text + 5, text + 31, index).ptr = '\0'; }
    char text[32] = "slot ";
};

// What an array of a slot is called, and may be beside elements of a type.
struct SlotArray {
    const char* name;
    const char* name_of_dtype;
    bool is_optional = true;
    bool has_blocks = true;
};
constexpr SlotArray kParam = {"param", "param.dtype", false, false};
constexpr SlotArray kGrad = {"grad", "grad.dtype", false, false};
constexpr SlotArray kMaster = {"master", "master.dtype", true, false};
constexpr SlotArray kCompensation = {"compensation", "compensation.dtype"};
constexpr SlotArray kStates[MP_MAX_RULE_STATES] = {{"states[0]", "states[0].dtype"},
                                                   {"states[1]", "states[1].dtype"},
                                                   {"states[2]", "states[2].dtype"},
                                                   {"states[3]", "states[3].dtype"}};

Coding coding_of(const mp_array& array, const SlotArray& part) {
    const auto coding = static_cast<Coding>(array.coding);
    const bool is_remainder = coding == Coding::remainder && part.name == kMaster.name;
    if (array.coding != MP_CODING_PLAIN && !is_remainder &&
        !(part.has_blocks && has_blocks(coding))) {
        fail(Code::invalid_argument, "%s.coding is %d; it must be one of MP_CODING_* that %s has",
             part.name, static_cast<int>(array.coding), part.name);
    }
    return coding;
}

bool is_absent(const mp_array& array) {
    return array.data == nullptr && array.scale_inv == nullptr && array.dtype == MP_DTYPE_NONE &&
           array.coding == MP_CODING_PLAIN;
}

void read_array(const mp_array& array, const SlotArray& part, StepArray& out) {
    if (part.is_optional && is_absent(array)) {
        return; // as most are
    }
    out.data = array.data;
    out.scale_inv = array.scale_inv;
    out.dtype = dtype_of(array.dtype, part.name_of_dtype, part.is_optional);
    out.coding = coding_of(array, part);
}

void read_slot(const mp_step_slot& slot, UpdateSegment& s) {
    check_flags(slot.flags, 0, "slot.flags");
    s.count = slot.count;
    s.uid = slot.uid;
    s.first = slot.first_element;
    read_array(slot.param, kParam, s.param);
    read_array(slot.grad, kGrad, s.grad);
    read_array(slot.master, kMaster, s.master);
    read_array(slot.compensation, kCompensation, s.compensation);
    for (int k = 0; k < MP_MAX_RULE_STATES; ++k) {
        read_array(slot.states[k], kStates[k], s.states[k]);
    }
}

// Only the weight's is there.
void refuse_other_amaxes(const mp_step_slot& slot) {
    bool is_given = slot.grad.amax != nullptr || slot.master.amax != nullptr ||
                    slot.compensation.amax != nullptr;
    for (const mp_array& state : slot.states) {
        is_given = is_given || state.amax != nullptr;
    }
    if (is_given) {
        fail(Code::unsupported, "an amax is given beside an array that is not the param");
    }
}

void read_amax(const mp_step_slot& slot, const UpdateSegment& s,
               std::vector<optim::ParamAmax>& amaxes) {
    refuse_other_amaxes(slot);
    float* const amax = slot.param.amax;
    if (amax == nullptr) {
        return;
    }
    if (slot.param.scale_inv != nullptr) {
        fail(Code::invalid_argument,
             "param.amax is given for a parameter with a scale, which is made of its amax");
    }
    if (!is_aligned(amax, DType::fp32)) {
        fail(Code::invalid_argument, "param.amax at %p is not aligned to 4 bytes",
             static_cast<const void*>(amax));
    }
    amaxes.push_back({{s.param.data, s.count, s.param.dtype}, amax});
}

} // namespace

// Slots lie struct_size bytes apart, which may be more or less than this library's idea of a slot.
Slots read_slots(const mp_step_slot* slots, int64_t count, numerics::RuleId rule) {
    Slots read;
    if (list_of(slots, count, "slots", "slot_count").empty()) {
        return read;
    }
    const uint32_t stride = size_of_struct(slots, "slots");
    const auto* bytes = reinterpret_cast<const unsigned char*>(slots);
    read.segments.reserve(static_cast<std::size_t>(count));
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
        UpdateSegment& segment = read.segments.emplace_back();
        try {
            const mp_step_slot known = read_struct(slot, "it");
            read_slot(known, segment);
            read_amax(known, segment, read.amaxes);
        } catch (const Error& error) {
            fail(error.status().code(), "%s: %s", name.text, error.status().text());
        }
        optim::check_segment(segment, name.text, rule);
    }
    return read;
}

} // namespace mp::capi
