// SPDX-License-Identifier: Apache-2.0
#include "recipe/automatic.hpp"

namespace mp {
namespace {

struct Row {
    int32_t from; // 10 x major + minor of the compute capability
    const char* preset;
    const char* fp8_preset; // null: this generation has no fp8 products
    const char* reason;
};

// By generation, the newest last. Emulated support does not count: a GPU before 8.0 has no bf16 products.
constexpr Row kCudaRows[] = {
    {0, "fp32", nullptr, "it has no fast 16-bit products"},
    {70, "fp16_mixed", nullptr, "it has fp16 products, and bf16 only from 8.0 on"},
    {80, "bf16_mixed", nullptr, "it has bf16 products, and fp8 only from 8.9 on"},
    {89, "bf16_mixed", "fp8_current", "it has bf16 products, and fp8 with one scale for a tensor"},
    {90, "bf16_mixed", "fp8_current", "it has bf16 and fp8 products"},
    {100, "bf16_mixed", "mxfp8", "it has bf16 products, and fp8 with microscaling"},
    {110, "bf16_mixed", "fp8_current", "it has bf16 and fp8 products"},
};

std::string sentence(const std::string& device, const std::string& fact, const char* preset) {
    return device + ": " + fact + "; so " + preset;
}

PresetChoice choose_for_cuda(const DeviceCapability& capability, bool wants_fp8) {
    const int32_t number = capability.major * 10 + capability.minor;
    const Row* row = kCudaRows;
    for (const Row& candidate : kCudaRows) {
        row = number >= candidate.from ? &candidate : row;
    }
    const bool gets_fp8 = wants_fp8 && row->fp8_preset != nullptr;
    const char* preset = gets_fp8 ? row->fp8_preset : row->preset;
    std::string fact = row->reason;
    if (!wants_fp8 && row->fp8_preset != nullptr) {
        fact += ", which are chosen only on request (auto_fp8)";
    }
    const std::string device = "compute capability " + std::to_string(capability.major) + "." +
                               std::to_string(capability.minor);
    return {&find_preset(preset), sentence(device, fact, preset)};
}

PresetChoice choose_for_host(const DeviceCapability& capability, bool wants_fp8) {
    if (wants_fp8) {
        return {&find_preset("fp8_current"),
                sentence("host",
                         "fp8 was asked for; its products are exact here but not faster "
                         "than what they are computed with",
                         "fp8_current")};
    }
    if (capability.has_fast_bf16) {
        return {&find_preset("bf16_mixed"),
                sentence("host", "bf16 products are measured as clearly faster than fp32 ones",
                         "bf16_mixed")};
    }
    return {&find_preset("fp32"),
            sentence("host", "16-bit products are not faster than fp32 ones", "fp32")};
}

} // namespace

DeviceFacts facts_of(const Device& device) noexcept { return {device.kind(), device.capability()}; }

PresetChoice resolve_preset(const std::string& name, const DeviceFacts& facts) {
    const bool wants_fp8 = name == "auto_fp8";
    if (name != "auto" && !wants_fp8) {
        return {&find_preset(name), {}};
    }
    return facts.kind == DeviceKind::cuda ? choose_for_cuda(facts.capability, wants_fp8)
                                          : choose_for_host(facts.capability, wants_fp8);
}

} // namespace mp
