// SPDX-License-Identifier: Apache-2.0
// Matrices to codes with scales and back, over memory of one device.
#pragma once

#include "device/ops.hpp"
#include "runtime/stream.hpp"
#include "tensor/format.hpp"
#include "tensor/slice.hpp"

namespace mp::quant {

// `source` is plain fp32, fp16 or bf16.
void quantize_matrix(Stream& stream, const ArrayRef& source, const Sink& sink);
void dequantize_matrix(Stream& stream, const ArrayRef& source, const TensorRef& destination);
void dequantize_window(Stream& stream, const ArrayRef& source, const Window& window,
                       const TensorRef& destination);

// *to becomes the larger of both amaxes.
void raise_amax(Stream& stream, const float* from, float* to);
// *scale_inv becomes that of codes with one scale, for numbers of this amax, not negative. The format's rule may keep it.
void set_scale(Stream& stream, const Format& format, const float* amax, float* scale_inv);

// The same for tensors, seen as matrices with their last dimension as columns.
// Throws where quantize_tensor() would.
void check_quantize(const Tensor& source, const Tensor& destination,
                    const Tensor* destination_transposed, const float* given_amax);
// `sink` says all but the arrays.
void quantize_tensor(Stream& stream, const Tensor& source, Tensor& destination,
                     Tensor* destination_transposed, Sink sink = {});
void dequantize_tensor(Stream& stream, const Tensor& source, Tensor& destination);

// Bytes of the codes, or of the scales, of such an array.
std::size_t bytes_of_codes(const Format& format, int64_t rows, int64_t columns);
std::size_t bytes_of_scales(const Format& format, int64_t rows, int64_t columns);

// destination = source, rounded or quantized, where either may have a scale. A scaled source goes through fp32
// memory, and waits for it. `given_amax`: as Sink's, or null.
void convert(Stream& stream, const ArrayRef& source, const ArrayRef& destination,
             const float* given_amax = nullptr);

} // namespace mp::quant
