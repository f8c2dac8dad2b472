// SPDX-License-Identifier: Apache-2.0
// The formats in which tests send gradients.
#pragma once

#include "comm/wire.hpp"

namespace mp::test {

using comm::WireScale;

inline constexpr Format kFp32 = comm::wire_format(DType::fp32);
inline constexpr Format kBf16 = comm::wire_format(DType::bf16);
inline constexpr Format kFp16 = comm::wire_format(DType::fp16);
inline constexpr Format kBlocks = comm::wire_format(DType::fp8_e4m3, WireScale::block);
inline constexpr Format kMx = comm::wire_format(DType::fp8_e5m2, WireScale::mx);
inline constexpr Format kTensor = comm::wire_format(DType::fp8_e4m3, WireScale::tensor);
inline constexpr Format kWireFormats[] = {kFp32, kBf16, kFp16, kBlocks, kMx, kTensor};

} // namespace mp::test
