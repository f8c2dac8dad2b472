// SPDX-License-Identifier: Apache-2.0
// Matrices to codes with scales and back, over memory of one device.
#pragma once

#include "device/ops.hpp"
#include "runtime/stream.hpp"
#include "tensor/format.hpp"
#include "tensor/slice.hpp"

namespace mp::quant {

// What is learned about a matrix while it is quantized; all in device memory, all may be absent.
struct Tracking {
    numerics::DelayedSlot* slot = nullptr; // the scale is this one's, once its warm-up is over
    int32_t warm_up = 0;
    numerics::QuantStats* stats = nullptr; // added to
    float* amax = nullptr; // becomes the maximum of itself and the matrix's; not without a slot
};

// What is given instead of found.
struct QuantOptions {
    const float* amax = nullptr; // device memory; as QuantizeDesc::given_amax
    numerics::Rounding rounding;
};

// Where codes go. `amax` receives the matrix's largest |x|; required for NVFP4, else may be null.
struct QuantOutput {
    void* codes = nullptr;
    void* codes_transposed = nullptr;
    void* scale_inv = nullptr;
    float* amax = nullptr;
};

// `source` is rows x columns of fp32, fp16 or bf16.
void quantize_matrix(Stream& stream, const TensorRef& source, int64_t rows, int64_t columns,
                     const Format& format, const QuantOutput& output, const Tracking& tracking = {},
                     const QuantOptions& options = {});
void dequantize_matrix(Stream& stream, const ScaledRef& source, const TensorRef& destination);

// The same for tensors, seen as matrices with their last dimension as columns.
// Throws where quantize_tensor() would.
void check_quantize(const Tensor& source, const Tensor& destination,
                    const Tensor* destination_transposed, const QuantOptions& options);
void quantize_tensor(Stream& stream, const Tensor& source, Tensor& destination,
                     Tensor* destination_transposed, const Tracking& tracking = {},
                     const QuantOptions& options = {});
void dequantize_tensor(Stream& stream, const Tensor& source, Tensor& destination);

// Bytes of so many codes or scales.
std::size_t bytes_of_codes(const Format& format, int64_t rows, int64_t columns);
std::size_t bytes_of_scales(const Format& format, int64_t rows, int64_t columns);

// destination = source, rounded or quantized, where either may have a scale. A scaled source goes through fp32
// memory, and waits for it.
void convert(Stream& stream, const TensorSlice& source, const TensorSlice& destination);

} // namespace mp::quant
