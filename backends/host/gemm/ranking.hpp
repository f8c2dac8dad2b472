// SPDX-License-Identifier: Apache-2.0
// The order in which the host's matrix products are tried. It depends on the processor, on the instruction set in use
// and on oneDNN, never on a clock: the same program on the same kind of machine has the same bits in every process.
#pragma once

#include <array>

#include "host/gemm/host_gemm.hpp"

namespace mp::backends::host {

inline constexpr std::size_t kImplementationCount = 6;

// What the order depends on.
struct Processor {
    enum class Isa : int32_t { baseline, avx2, avx512, avx512_bf16 };
    Isa isa = Isa::baseline; // in use, which may be less than there is
    bool is_amd = false;
    OnednnFeatures onednn;
};
Processor this_processor() noexcept;

// A row of the table.
struct ProductOrder {
    const char* processor; // in words
    std::array<const GemmImplementation*, kImplementationCount> items;
    bool has_fast_bf16; // products of bf16 are clearly faster than those of fp32
};
const ProductOrder& product_order(const Processor& processor) noexcept;

} // namespace mp::backends::host
