// SPDX-License-Identifier: Apache-2.0
// Built without CUDA there is no baseline.
#include "raw_gemm.hpp"

namespace mp_bench {

RawGemm raw_gemm_cuda(mp_context* /*context*/, const GemmShape& /*shape*/) {
    return {"cuBLASLt", {}, {}};
}

} // namespace mp_bench
