// SPDX-License-Identifier: Apache-2.0
#include "quant/quantize.hpp"

#include "runtime/select.hpp"
#include "tensor/memory_ranges.hpp"

namespace mp::quant {
namespace {

void check_source(const Tensor& source, const char* call) {
    if (source.scales() != nullptr) {
        fail(Code::invalid_dtype, "%s: source is quantized already; mp_tensor_dequantize it first",
             call);
    }
    if (source.dtype() != DType::fp32 && source.dtype() != DType::fp16 &&
        source.dtype() != DType::bf16) {
        fail(Code::invalid_dtype, "%s: source is %s; it must be fp32, fp16 or bf16", call,
             dtype_name(source.dtype()));
    }
}

const TensorScales& scales_of(const Tensor& tensor, const char* call, const char* name) {
    if (tensor.scales() == nullptr) {
        fail(Code::invalid_argument,
             "%s: %s has no scales; make it with mp_tensor_create_quantized", call, name);
    }
    return *tensor.scales();
}

void check_pair(const Tensor& source, const Tensor& destination, const char* call) {
    if (source.shape() != destination.shape()) {
        fail(Code::invalid_shape, "%s: source is %s but destination is %s; both must be the same",
             call, source.shape().text().c_str(), destination.shape().text().c_str());
    }
    if (&source.device() != &destination.device()) {
        fail(Code::invalid_argument, "%s: the tensors are on different devices", call);
    }
}

void check_transposed(const Tensor& source, const Tensor& destination, const Tensor& transposed) {
    const Shape wanted = {{source.columns(), source.rows()}, 2};
    if (transposed.shape() != wanted) {
        fail(Code::invalid_shape, "mp_tensor_quantize: transposed is %s; it must be %s",
             transposed.shape().text().c_str(), wanted.text().c_str());
    }
    if (transposed.dtype() != destination.dtype()) {
        fail(Code::invalid_dtype,
             "mp_tensor_quantize: transposed is %s; it must be %s like "
             "destination",
             dtype_name(transposed.dtype()), dtype_name(destination.dtype()));
    }
    if (&transposed.device() != &source.device()) {
        fail(Code::invalid_argument, "mp_tensor_quantize: transposed is on another device");
    }
}

} // namespace

std::size_t bytes_of_codes(const Format& format, int64_t rows, int64_t columns) {
    return static_cast<std::size_t>(bytes_of(format.dtype, rows * columns));
}

std::size_t bytes_of_scales(const Format& format, int64_t rows, int64_t columns) {
    return static_cast<std::size_t>(format.grid.count(rows, columns) *
                                    dtype_size(format.grid.dtype));
}

void quantize_matrix(Stream& stream, const ArrayRef& source, const Sink& sink) {
    run_op(stream, QuantizeDesc{{OpKind::quantize}, source, sink});
}

void raise_amax(Stream& stream, const float* from, float* to) {
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = {const_cast<float*>(from), 1, DType::fp32};
    op.result = to;
    op.accumulate = true;
    run_op(stream, op);
}

void set_scale(Stream& stream, const Format& format, const float* amax, float* scale_inv) {
    const Scratch unused_code(stream, sizeof(float));
    const TensorRef largest = {const_cast<float*>(amax), 1, DType::fp32};
    Sink sink = sink_of({unused_code.data(), scale_inv, nullptr, format, 1, 1});
    sink.given_amax = amax;
    quantize_matrix(stream, plain_array(largest), sink);
}

void dequantize_matrix(Stream& stream, const ArrayRef& source, const TensorRef& destination) {
    dequantize_window(stream, source, whole_of(source), destination);
}

void dequantize_window(Stream& stream, const ArrayRef& source, const Window& window,
                       const TensorRef& destination) {
    run_op(stream, DequantizeDesc{{OpKind::dequantize}, source, window, destination});
}

void check_quantize(const Tensor& source, const Tensor& destination,
                    const Tensor* destination_transposed, const float* given_amax) {
    constexpr const char* kCall = "mp_tensor_quantize";
    check_source(source, kCall);
    (void)scales_of(destination, kCall, "destination");
    check_pair(source, destination, kCall);
    if (destination_transposed != nullptr) {
        check_transposed(source, destination, *destination_transposed);
    }
    MemoryRanges ranges;
    ranges.add("source", MemoryRanges::Use::read, &source);
    ranges.add("destination", MemoryRanges::Use::written, &destination);
    ranges.add("transposed", MemoryRanges::Use::written, destination_transposed);
    // Who takes the amax marks it as taken.
    ranges.add("args.amax_pointer", MemoryRanges::Use::written, given_amax, sizeof(float));
    ranges.check(kCall);
}

void quantize_tensor(Stream& stream, const Tensor& source, Tensor& destination,
                     Tensor* destination_transposed, Sink sink) {
    check_quantize(source, destination, destination_transposed, sink.given_amax);
    sink.codes = destination.array();
    sink.transposed = destination_transposed == nullptr ? nullptr : destination_transposed->data();
    quantize_matrix(stream, source.array(), sink);
}

void dequantize_tensor(Stream& stream, const Tensor& source, Tensor& destination) {
    constexpr const char* kCall = "mp_tensor_dequantize";
    if (!is_in_blocks(source.dtype())) {
        (void)scales_of(source, kCall, "source");
    }
    check_source(destination, kCall);
    check_pair(source, destination, kCall);
    MemoryRanges ranges;
    ranges.add("source", MemoryRanges::Use::read, &source);
    ranges.add("destination", MemoryRanges::Use::written, &destination);
    ranges.check(kCall);
    dequantize_matrix(stream, source.array(), destination.ref());
}

void convert(Stream& stream, const ArrayRef& source, const ArrayRef& destination,
             const float* given_amax) {
    if (source.count() == 0) {
        return;
    }
    if (source.format.is_quantized()) {
        const Buffer wide =
            stream.allocate(static_cast<std::size_t>(source.count()) * sizeof(float));
        const TensorRef numbers = {wide.data(), source.count(), DType::fp32};
        dequantize_matrix(stream, source, numbers);
        convert(stream, plain_array(numbers, destination.rows, destination.columns), destination,
                given_amax);
        stream.sync(); // before the memory goes
    } else if (destination.format.is_quantized()) {
        Sink sink = sink_of(destination);
        sink.given_amax = given_amax;
        quantize_matrix(stream, source, sink);
    } else {
        cast_tensor(stream, source.elements(), destination.elements());
    }
}

} // namespace mp::quant
