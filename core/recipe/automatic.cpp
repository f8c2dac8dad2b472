// SPDX-License-Identifier: Apache-2.0
#include "recipe/automatic.hpp"

namespace mp::recipe {
namespace {

struct Choice {
    const char* preset;
    const char* fact;
};

Choice choose_fp8(const DeviceCapability& c) {
    if (c.has_fast_fp8) {
        return {"fp8_current",
                "fp8 was asked for, and it multiplies fp8 with one scale for a tensor fast"};
    }
    return {"fp8_current", "fp8 was asked for; its products are exact here but computed in a wider "
                           "type, so they save memory, not time"};
}

Choice choose(const DeviceCapability& c) {
    if (c.has_fast_bf16) {
        return {"bf16_mixed", c.has_fast_fp8
                                  ? "it multiplies bf16 fast; fp8 only on request (auto_fp8)"
                                  : "it multiplies bf16 fast"};
    }
    if (c.has_fast_fp16) {
        return {"fp16_mixed", "it multiplies fp16 fast, but not bf16"};
    }
    return {"fp32", "it multiplies nothing faster than fp32"};
}

} // namespace

PresetChoice resolve_preset(const std::string& name, const DeviceCapability& capability) {
    if (name != "auto" && name != "auto_fp8") {
        return {&find_preset(name), {}};
    }
    const Choice chosen = name == "auto" ? choose(capability) : choose_fp8(capability);
    return {&find_preset(chosen.preset),
            std::string(capability.name) + ": " + chosen.fact + "; so " + chosen.preset};
}

} // namespace mp::recipe
