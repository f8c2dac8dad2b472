// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/ranking.hpp"

#include <cstring>

#include "host/gemm/panels.hpp"

namespace mp::backends::host {

namespace {

struct Row {
    bool (*applies)(const Processor& processor) noexcept;
    ProductOrder order;
};

// The first row that applies. fp32 is the same in each: oneDNN's product, which blocked_fp32 did not reach on most shapes,
// is first where there is oneDNN. docs/performance.md has the rates behind the rows; measure again with a newer oneDNN, or
// for a processor that no row was measured on: `mixedprec_bench --only gemm` has each implementation by its name.
const Row kRows[] = {
    {[](const Processor& p) noexcept { return p.onednn.has_amx; },
     {"AMX tiles, which only oneDNN uses here: 8 times the rate of fp32 by the data sheet",
      {&kFewRows, &kOnednnFp32, &kBlockedFp32, &kOnednnBf16, &kBlockedBf16, &kWidenFp32},
      true}},
    {[](const Processor& p) noexcept { return p.isa == Processor::Isa::avx512_bf16 && p.is_amd; },
     {"AMD with a bf16 dot instruction, at twice the rate of fp32",
      {&kFewRows, &kOnednnFp32, &kBlockedFp32, &kBlockedBf16, &kOnednnBf16, &kWidenFp32},
      true}},
    {[](const Processor& p) noexcept { return p.isa == Processor::Isa::avx512_bf16; },
     {"a bf16 dot instruction at half the rate of fp32, as on Intel processors: bf16 is widened",
      {&kFewRows, &kOnednnFp32, &kBlockedFp32, &kWidenFp32, &kBlockedBf16, &kOnednnBf16},
      false}},
    {[](const Processor& /*p*/) noexcept { return true; },
     {"no bf16 dot instruction in use: bf16 is widened",
      {&kFewRows, &kOnednnFp32, &kBlockedFp32, &kWidenFp32, &kBlockedBf16, &kOnednnBf16},
      false}},
};

} // namespace

Processor this_processor() noexcept {
    Processor processor;
    const char* name = active_panel_table().name;
    if (std::strcmp(name, "avx512_bf16") == 0) {
        processor.isa = Processor::Isa::avx512_bf16;
    } else if (std::strcmp(name, "avx512") == 0) {
        processor.isa = Processor::Isa::avx512;
    } else if (std::strcmp(name, "avx2") == 0) {
        processor.isa = Processor::Isa::avx2;
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    processor.is_amd = __builtin_cpu_is("amd") != 0;
#endif
    processor.onednn = onednn_features();
    return processor;
}

const ProductOrder& product_order(const Processor& processor) noexcept {
    const Row* row = kRows;
    while (!row->applies(processor)) {
        ++row;
    }
    return row->order;
}

} // namespace mp::backends::host
