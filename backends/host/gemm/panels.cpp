// SPDX-License-Identifier: Apache-2.0
// Which compiled panel table runs: the one of the instruction set that the other kernels use.
#include "host/gemm/panels.hpp"

#include <cstring>

#include "host/kernels/isa.hpp"

namespace mp::backends::host {

// Defined by panel_table.inc.hpp in each of these files.
namespace panels_baseline {
extern const PanelTable kTable;
}
#if MP_HAS_AVX2
namespace panels_avx2 {
extern const PanelTable kTable;
}
#endif
#if MP_HAS_AVX512
namespace panels_avx512 {
extern const PanelTable kTable;
}
namespace panels_avx512_bf16 {
extern const PanelTable kTable;
}
#endif

FinishJob finish_job(const GemmDesc& desc, const GemmBuffers& buffers, int64_t batch, int64_t row,
                     int64_t column) noexcept {
    const auto address = [](const void* data, int64_t element, DType dtype) {
        return data == nullptr ? nullptr
                               : static_cast<const char*>(data) + element * dtype_size(dtype);
    };
    FinishJob job{};
    job.alpha = desc.alpha;
    job.beta = desc.beta;
    job.gelu = desc.gelu;
    job.dtype_d = desc.dtype_d;
    job.dtype_bias = desc.dtype_bias;
    if (desc.dtype_bias != DType::none) {
        job.bias = address(buffers.bias, column, desc.dtype_bias);
    }
    if (desc.beta != 0.0F) {
        job.c =
            address(buffers.c, batch * desc.batch_stride_c + row * desc.ldc + column, desc.dtype_d);
    }
    job.stride_c = desc.ldc;
    job.d = static_cast<char*>(buffers.d) +
            (batch * desc.batch_stride_d + row * desc.ldd + column) * dtype_size(desc.dtype_d);
    job.stride_d = desc.ldd;
    job.multiply = buffers.multiply_d == nullptr ? 1.0F : *buffers.multiply_d;
    return job;
}

const PanelTable& active_panel_table() noexcept {
    [[maybe_unused]] const char* name = active_isa().name;
#if MP_HAS_AVX512
    if (std::strncmp(name, "avx512", 6) == 0) { // also avx512_vbmi, which has nothing for products
        return __builtin_cpu_supports("avx512bf16") ? panels_avx512_bf16::kTable
                                                    : panels_avx512::kTable;
    }
#endif
#if MP_HAS_AVX2
    if (std::strcmp(name, "avx2") == 0) {
        return panels_avx2::kTable;
    }
#endif
    return panels_baseline::kTable;
}

} // namespace mp::backends::host
