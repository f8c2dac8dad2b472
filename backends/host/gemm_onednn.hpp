// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN's matmul primitive, as candidates.
#pragma once

#include "interface/backend.hpp"

namespace mp::backends::host {

// fp32 operands as they are.
extern const Candidate kOnednnFp32;
// bf16 operands as they are; oneDNN multiplies exactly and sums in fp32.
extern const Candidate kOnednnBf16;
// fp16 and bf16 operands widened to fp32, which is exact, then the fp32 product.
extern const Candidate kWidenFp32;

} // namespace mp::backends::host
