// SPDX-License-Identifier: Apache-2.0
// What the host's matrix products have in common: each is an implementation that makes plans.
#pragma once

#include <memory>

#include "device/backend.hpp"
#include "host/resources/resources.hpp"

namespace mp::backends::host {

class HostGemm : public Plan {
  public:
    // May run on several of the caller's threads at once. On the number of threads it was planned for, or another.
    virtual Status run(const Resources& with, const GemmBuffers& buffers) const noexcept = 0;
};

struct GemmImplementation {
    const char* name;
    bool (*supports)(const GemmDesc& op, Reason& reason) noexcept;
    // A plan for `threads` threads.
    Status (*make)(const GemmDesc& op, int32_t threads, std::unique_ptr<HostGemm>& out) noexcept;
};

bool has_common_results(const GemmDesc& op, Reason& reason) noexcept;

// Why there are so many, and when each may go. oneDNN's stay as long as it is the library for products.
//   kBlockedFp32  what a machine without oneDNN multiplies by: goes when oneDNN must be there
//   kWidenFp32    fp16, fp8 and scaled operands, which oneDNN 2.6 does not take, and bf16 without a fast dot instruction:
//                 goes when oneDNN takes them at the rate of its fp32 product
//   kBlockedBf16  fp8 codes under scales, decoded while they are packed, by the dot instruction, and bf16 without oneDNN:
//                 goes when oneDNN takes such codes at the rate of its bf16 product
// The simple product (ops/simple_gemm.cpp) takes every type and scale there is, and stays.

// Our own blocked product: of fp32 operands, of narrower ones widened (exactly) to fp32, and of bf16 ones, or fp8
// widened (exactly) to it, by the dot instruction.
extern const GemmImplementation kBlockedFp32;
extern const GemmImplementation kWidenFp32;
extern const GemmImplementation kBlockedBf16;

// Few rows by a weight in blocks, which reads nothing but its codes. Stays: no library decodes ggml's blocks.
extern const GemmImplementation kFewRows;

// oneDNN's. Without it they take nothing, and say why.
extern const GemmImplementation kOnednnFp32;
extern const GemmImplementation kOnednnBf16;

struct OnednnFeatures {
    bool is_there = false; // in this build, and on this machine
    bool has_amx = false;  // it multiplies bf16 by AMX tiles here
};
OnednnFeatures onednn_features() noexcept;
// One line: version and instruction set, or why it is not there.
void describe_onednn(TextLine<512>& text) noexcept;

} // namespace mp::backends::host
