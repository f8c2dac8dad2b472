// SPDX-License-Identifier: Apache-2.0
// quant.h
#include "quant/quantize.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "boundary.hpp"
#include "objects.hpp"
#include "quant_format.hpp"
#include "rounding.hpp"
#include "tensor/memory_ranges.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

using numerics::QuantStats;
using numerics::ScaleRule;

// By MP_SCALING_* - 1.
constexpr std::array kGrids = {kTensorScale,    kRowScales,         kColumnScales,
                               kRowBlockScales, kColumnBlockScales, kSquareBlockScales,
                               kMxRowScales,    kMxColumnScales,    kNvfp4Scales};
static_assert(kGrids.size() == MP_SCALING_NVFP4);
static_assert(static_cast<int32_t>(ScaleRule::nvfp4) + 1 == MP_SCALE_RULE_NVFP4);
static_assert(static_cast<int32_t>(ScaleRule::mx_rceil) + 1 == MP_SCALE_RULE_MX_RCEIL);

constexpr int32_t kMaxMargin = 20;

int32_t usual_rule(int32_t scaling) {
    if (scaling == MP_SCALING_NVFP4) {
        return MP_SCALE_RULE_NVFP4;
    }
    const bool is_mx = scaling == MP_SCALING_MX_1X32 || scaling == MP_SCALING_MX_32X1;
    return is_mx ? MP_SCALE_RULE_MX_RCEIL : MP_SCALE_RULE_CURRENT;
}

const TensorScales& scales_of(const mp_tensor* tensor) {
    const Tensor& object = *object_of(tensor, "tensor");
    if (object.scales() == nullptr) {
        fail(Code::invalid_argument,
             "tensor %s of %s has no scales; make it with mp_tensor_create_quantized",
             object.shape().text().c_str(), dtype_name(object.dtype()));
    }
    return *object.scales();
}

// Products read scales in pieces of 16 bytes.
constexpr int64_t kScaleAlignment = 16;

// Of a quantized tensor in the caller's memory.
void check_pieces(const QuantizedMemory& memory, const Format& format, int64_t count) {
    if (count > 0) {
        (void)required(memory.codes, "codes");
        (void)required(memory.scale_inv, "scale_inv");
    }
    if (format.policy.rule == ScaleRule::nvfp4) {
        (void)required(memory.amax, "amax, which NVFP4's scales are relative to,");
    }
    if (!is_aligned(memory.codes, format.dtype)) {
        fail(Code::invalid_argument, "codes at %p are not aligned to their %lld bytes",
             memory.codes, static_cast<long long>(dtype_size(format.dtype)));
    }
    if (!is_aligned(memory.scale_inv, kScaleAlignment)) {
        fail(Code::invalid_argument, "scale_inv at %p is not aligned to 16 bytes",
             memory.scale_inv);
    }
    if (!is_aligned(memory.amax, DType::fp32)) {
        fail(Code::invalid_argument, "amax at %p is not aligned to 4 bytes", memory.amax);
    }
}

// No piece of a quantized tensor may lie in another one.
void check_pieces_apart(const Tensor& tensor) {
    MemoryRanges ranges;
    ranges.add("the codes", MemoryRanges::Use::written, &tensor);
    ranges.check("quantize");
}

// What mp_quantize_args asks for.
class QuantizeCall {
  public:
    explicit QuantizeCall(const mp_quantize_args* source)
        : args_(read_optional_struct(source, "args")) {
        check_flags(args_.flags, MP_QUANTIZE_CHECK_AMAX, "args.flags");
        rounding_ = rounding_of(args_, "quantize");
        if (!is_aligned(args_.amax_pointer, DType::fp32)) {
            fail(Code::invalid_argument, "args.amax_pointer at %p is not aligned to 4 bytes",
                 static_cast<const void*>(args_.amax_pointer));
        }
        if (checks_amax() && args_.amax_pointer == nullptr) {
            fail(Code::null_argument,
                 "args.amax_pointer is NULL; MP_QUANTIZE_CHECK_AMAX needs one");
        }
    }

    [[nodiscard]] Sink sink() const noexcept {
        Sink sink;
        sink.rounding = rounding_;
        sink.given_amax = args_.amax_pointer;
        return sink;
    }
    // Before anything is written.
    void check(Stream& stream, const Tensor& source, const Tensor& destination,
               const Tensor* transposed) const {
        quant::check_quantize(source, destination, transposed, args_.amax_pointer);
        if (!checks_amax()) {
            return;
        }
        float amax = 0.0F;
        stream.copy(&amax, args_.amax_pointer, sizeof amax, CopyKind::device_to_host);
        stream.sync();
        if (std::signbit(amax)) {
            fail(Code::bad_state,
                 "args.amax_pointer holds %g: nobody wrote an amax since a call took the last one",
                 static_cast<double>(amax));
        }
    }
    // After it: the mark of an amax that was used.
    void take(Stream& stream) const {
        if (checks_amax()) {
            constexpr float kTaken = -1.0F;
            stream.copy(args_.amax_pointer, &kTaken, sizeof kTaken, CopyKind::host_to_device);
            stream.sync();
        }
    }

  private:
    [[nodiscard]] bool checks_amax() const noexcept {
        return (args_.flags & MP_QUANTIZE_CHECK_AMAX) != 0;
    }

    mp_quantize_args args_;
    numerics::Rounding rounding_;
};

// A matrix of mp_quantized_memory, as tensors that own nothing.
class QuantizedMatrix {
  public:
    QuantizedMatrix(const std::shared_ptr<Context>& owner, Stream& stream,
                    const mp_quantized_memory* source, const mp_quant_desc* quant) {
        const auto memory = read_struct(source, "memory");
        const DType dtype = dtype_of(memory.dtype, "memory.dtype");
        const int64_t sizes[] = {memory.rows, memory.columns};
        const Shape shape = checked_shape(2, sizes, dtype, "memory");
        const Format format = format_of(dtype, quant);
        check_format(format, "memory");
        QuantizedMemory pieces{memory.codes, memory.scale_inv, memory.amax};
        check_pieces(pieces, format, shape.count());
        if (pieces.amax == nullptr) { // not wanted
            pieces.amax = amax_.emplace(stream, sizeof(float)).data();
        }
        tensor_.emplace(owner, stream, format, shape, pieces);
        check_pieces_apart(*tensor_);
        if (memory.transposed != nullptr) {
            const Shape swapped{{memory.columns, memory.rows}, 2};
            transposed_.emplace(owner, stream, dtype, swapped, memory.transposed, Deleter{});
        }
    }

    [[nodiscard]] Tensor& tensor() noexcept { return *tensor_; }
    [[nodiscard]] const Tensor& tensor() const noexcept { return *tensor_; }
    [[nodiscard]] Tensor* transposed() noexcept {
        return transposed_.has_value() ? &*transposed_ : nullptr;
    }
    // The other side of the call: numbers of the same shape.
    [[nodiscard]] std::unique_ptr<Tensor> numbers(const void* data, int32_t number,
                                                  const char* name) const {
        const DType dtype = dtype_of(number, name);
        const Shape& shape = tensor_->shape();
        check_shape(shape, dtype, name);
        if (shape.count() > 0) {
            (void)required(data, name);
        }
        if (!is_aligned(data, dtype)) {
            fail(Code::invalid_argument, "%s at %p is not aligned to its elements", name, data);
        }
        return std::make_unique<Tensor>(tensor_->context(), tensor_->stream(), dtype, shape,
                                        const_cast<void*>(data), Deleter{});
    }

  private:
    std::optional<Scratch> amax_;
    std::optional<Tensor> tensor_;
    std::optional<Tensor> transposed_;
};

mp_quant_stats public_stats(const QuantStats& stats) {
    mp_quant_stats result = MP_QUANT_STATS_INIT;
    result.elements = stats.elements;
    result.saturated = stats.saturated;
    result.underflowed = stats.underflowed;
    result.non_finite = stats.non_finite;
    result.amax = static_cast<double>(numerics::float_from_bits(stats.amax_bits));
    return result;
}

} // namespace

Format mp::capi::format_of(DType dtype, const mp_quant_desc* source) {
    const auto desc = read_optional_struct(source, "quant");
    check_flags(desc.flags, MP_QUANT_POWER_OF_TWO, "quant.flags");
    const int32_t scaling = desc.scaling == 0 ? MP_SCALING_TENSOR : desc.scaling;
    if (scaling < MP_SCALING_TENSOR || scaling > MP_SCALING_NVFP4) {
        fail(Code::invalid_argument, "quant.scaling is %d; it must be one of MP_SCALING_*",
             desc.scaling);
    }
    const int32_t rule = desc.rule == 0 ? usual_rule(scaling) : desc.rule;
    if (rule < MP_SCALE_RULE_CURRENT || rule > MP_SCALE_RULE_NVFP4) {
        fail(Code::invalid_argument, "quant.rule is %d; it must be one of MP_SCALE_RULE_*",
             desc.rule);
    }
    if (desc.margin < 0 || desc.margin > kMaxMargin) {
        fail(Code::invalid_argument, "quant.margin is %d; it must be in 0..%d", desc.margin,
             kMaxMargin);
    }
    if (!(desc.amax_epsilon >= 0.0 && desc.amax_epsilon <= 1e30)) {
        fail(Code::invalid_argument, "quant.amax_epsilon is %g; it must be in 0..1e30",
             desc.amax_epsilon);
    }
    Format format{};
    format.dtype = dtype;
    format.grid = kGrids[static_cast<std::size_t>(scaling - 1)];
    format.policy = numerics::scale_policy(static_cast<ScaleRule>(rule - 1), dtype, desc.margin);
    format.policy.power_of_two = (desc.flags & MP_QUANT_POWER_OF_TWO) != 0;
    format.policy.epsilon = static_cast<float>(desc.amax_epsilon);
    return format;
}

mp_quant_desc mp::capi::desc_of(const Format& format) {
    mp_quant_desc desc = MP_QUANT_DESC_INIT;
    for (std::size_t i = 0; i < kGrids.size(); ++i) {
        desc.scaling = kGrids[i] == format.grid ? static_cast<int32_t>(i) + 1 : desc.scaling;
    }
    desc.rule = static_cast<int32_t>(format.policy.rule) + 1;
    desc.flags = format.policy.power_of_two ? MP_QUANT_POWER_OF_TWO : 0;
    desc.amax_epsilon = static_cast<double>(format.policy.epsilon);
    desc.margin = std::ilogb(max_finite(format.dtype) / format.policy.max_code);
    return desc;
}

mp_status mp_tensor_create_quantized(mp_context* context, const mp_tensor_desc* desc,
                                     const mp_quant_desc* quant, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const TensorSpec spec = spec_of(*owner, desc, MP_TENSOR_DEFERRED);
        auto tensor =
            spec.is_deferred
                ? std::make_shared<Tensor>(owner, *spec.stream, format_of(spec.dtype, quant),
                                           spec.shape, Deferred{})
                : std::make_shared<Tensor>(owner, *spec.stream, format_of(spec.dtype, quant),
                                           spec.shape);
        complete(*spec.stream);
        *out = make_handle<mp_tensor>(std::move(tensor));
    });
}

mp_status mp_tensor_get_quant_desc(const mp_tensor* tensor, mp_quant_desc* desc) {
    return boundary([&] { write_struct(desc, desc_of(scales_of(tensor).format), "desc"); });
}

mp_status mp_tensor_get_scales(const mp_tensor* tensor, mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(scales_of(tensor).scale_inv);
    });
}

mp_status mp_tensor_get_quantized_amax(const mp_tensor* tensor, mp_tensor** out) {
    return boundary([&] {
        output(out);
        *out = make_handle<mp_tensor>(scales_of(tensor).amax);
    });
}

mp_status mp_tensor_wrap_quantized(mp_context* context, const mp_tensor_desc* desc,
                                   const mp_quant_desc* quant, void* codes, void* scale_inv,
                                   float* amax, mp_deleter_fn deleter, void* payload,
                                   mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const TensorSpec spec = spec_of(*owner, desc);
        const Format format = format_of(spec.dtype, quant);
        const QuantizedMemory memory{codes, scale_inv, amax};
        check_pieces(memory, format, spec.shape.count());
        auto tensor = std::make_shared<Tensor>(owner, *spec.stream, format, spec.shape, memory);
        check_pieces_apart(*tensor);
        complete(*spec.stream);
        mp_tensor* handle = make_handle<mp_tensor>(tensor);
        tensor->give_back_by({deleter, payload}); // last: on failure the memory stays the caller's
        *out = handle;
    });
}

mp_status mp_tensor_quantize(const mp_tensor* source, mp_queue* queue, mp_tensor* destination,
                             mp_tensor* transposed, const mp_quantize_args* args,
                             mp_quant_stats* stats) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        Tensor* to_transposed =
            transposed == nullptr ? nullptr : object_of(transposed, "transposed").get();
        const QuantizeCall call(args);
        Stream& stream = stream_of(queue, to);
        if (stats != nullptr) {
            (void)size_of_struct(stats, "stats");
        }
        call.check(stream, from, to, to_transposed);
        std::optional<Buffer> counters;
        Sink sink = call.sink();
        if (stats != nullptr) {
            counters.emplace(stream.allocate(sizeof(QuantStats)));
            stream.zero(counters->data(), sizeof(QuantStats));
            sink.tracking.stats = counters->as<QuantStats>();
        }
        quant::quantize_tensor(stream, from, to, to_transposed, sink);
        call.take(stream);
        if (stats != nullptr) {
            QuantStats counted;
            stream.copy(&counted, counters->data(), sizeof(counted), CopyKind::device_to_host);
            stream.sync();
            write_struct(stats, public_stats(counted), "stats");
        }
    });
}

mp_status mp_tensor_quantize_pointers(mp_context* context, mp_queue* queue, const void* source,
                                      int32_t source_dtype, const mp_quant_desc* quant,
                                      const mp_quantized_memory* destination,
                                      const mp_quantize_args* args) {
    return boundary([&] {
        const std::shared_ptr<Context> owner = object_of(context, "context");
        Stream& stream = stream_of(queue, *owner);
        const QuantizeCall call(args);
        QuantizedMatrix to(owner, stream, destination, quant);
        const auto from = to.numbers(source, source_dtype, "source");
        call.check(stream, *from, to.tensor(), to.transposed());
        quant::quantize_tensor(stream, *from, to.tensor(), to.transposed(), call.sink());
        call.take(stream);
    });
}

mp_status mp_tensor_dequantize_pointers(mp_context* context, mp_queue* queue,
                                        const mp_quantized_memory* source,
                                        const mp_quant_desc* quant, void* destination,
                                        int32_t destination_dtype) {
    return boundary([&] {
        const std::shared_ptr<Context> owner = object_of(context, "context");
        Stream& stream = stream_of(queue, *owner);
        QuantizedMatrix from(owner, stream, source, quant);
        if (from.transposed() != nullptr) {
            fail(Code::invalid_argument, "source.transposed must be NULL: it is not read");
        }
        const auto to = from.numbers(destination, destination_dtype, "destination");
        quant::dequantize_tensor(stream, from.tensor(), *to);
    });
}

mp_status mp_tensor_get_scale_grid(const mp_quant_desc* quant, int64_t rows, int64_t columns,
                                   int64_t* grid_rows, int64_t* grid_columns, int32_t* dtype) {
    return boundary([&] {
        const ScaleGrid grid = format_of(DType::fp8_e4m3, quant).grid;
        const int64_t sizes[] = {rows, columns};
        (void)checked_shape(2, sizes, DType::fp8_e4m3, "matrix");
        (void)required(grid_columns, "grid_columns");
        (void)required(dtype, "dtype");
        *required(grid_rows, "grid_rows") = grid.rows(rows);
        *grid_columns = grid.columns(columns);
        *dtype = static_cast<int32_t>(grid.dtype);
    });
}

mp_status mp_tensor_dequantize(const mp_tensor* source, mp_queue* queue, mp_tensor* destination) {
    return boundary([&] {
        const Tensor& from = *object_of(source, "source");
        Tensor& to = *object_of(destination, "destination");
        quant::dequantize_tensor(stream_of(queue, to), from, to);
    });
}
