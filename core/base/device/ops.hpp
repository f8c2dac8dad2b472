// SPDX-License-Identifier: Apache-2.0
// The operations core asks of a device, one plain struct each. Pointers are to the device's memory unless a
// comment says host. Everything in them is checked by core before a backend sees it.
#pragma once

#include <cstdint>

#include "array/sink.hpp"
#include "device/adapter_ops.hpp"
#include "device/op_desc.hpp"
#include "dtype/format_id.hpp"
#include "numerics/delayed_scaling.hpp"
#include "numerics/loss_scale.hpp"
#include "numerics/optimizer_state.hpp"
#include "numerics/quant_stats.hpp"
#include "numerics/rounding.hpp"
#include "numerics/rules.hpp"
#include "numerics/scale_rules.hpp"

namespace mp {

// destination[i] = round(source[i]); fp32, fp16, bf16, fp8 in and out.
struct CastDesc : OpDesc {
    TensorRef source;
    TensorRef destination;
    bool saturate = false; // overflow and infinity become the largest finite value
    // Purpose::cast. What saturates is clamped before it is rounded, and fp8 always saturates.
    numerics::Rounding rounding;
};

// *result = max |source[i]|: the largest bit pattern of |x|, so NaN beats infinity beats numbers; 0 if empty.
struct AmaxDesc : OpDesc {
    TensorRef source;
    float* result = nullptr;
    bool accumulate = false;        // *result itself counts too; a negative one counts as nothing
    const uint32_t* skip = nullptr; // device memory: where it is not 0, *result stays; null: never
};

// destination[j] (+)= (sum over i of source[i, j] * times[i, j]) / divisor[j]. Order, the same on every device: rows are summed
// one after another, from +0 on, in fp32 inside blocks of kColumnSumBlock rows, each product rounded to fp32 before it is added;
// block sums are added one after another in fp32; then comes the division, whose result is +0 where the divisor is 0; and the
// destination's old value (if accumulating) comes last.
inline constexpr int64_t kColumnSumBlock = 64;
struct ColumnSumDesc : OpDesc {
    TensorRef source;      // rows x columns, row-major
    TensorRef destination; // columns
    int64_t rows = 0;
    int64_t columns = 0;
    bool accumulate = false;
    TensorRef times;                // fp32, fp16 or bf16, as the source then is; dtype none: 1
    const float* divisor = nullptr; // by column; null: 1
};

// One array of codes and what it is made of.
struct QuantizeOne {
    ArrayRef source; // plain: fp32, fp16 or bf16
    ArraySink sink;  // codes of a type that is_code()

    [[nodiscard]] MP_HD_INLINE constexpr DType code_type() const { return sink.codes.dtype(); }
    [[nodiscard]] MP_HD_INLINE constexpr const ScaleGrid& grid() const {
        return sink.codes.format.grid;
    }
    [[nodiscard]] MP_HD_INLINE constexpr const numerics::ScalePolicy& policy() const {
        return sink.codes.format.policy;
    }
};

// codes = round(source * multiply) of each block of the grid, saturating for finite values; NaN and infinity
// stay visible: E4M3 codes them as NaN, E5M2 and fp16 as themselves, E2M1, which has neither, by its block's
// scale.
// The scale of a block comes from delayed scaling where that is on and its warm-up is over (grid: one scale for the
// tensor), otherwise from the block's own amax by the format's policy. It keeps its old value where the rule says so.
struct QuantizeDesc : OpDesc {
    ArrayRef source;
    Sink sink; // at least one of its arrays is there

    [[nodiscard]] constexpr QuantizeOne first() const { return {source, sink}; }
    [[nodiscard]] constexpr bool has_second() const { return sink.second.exists(); }
    [[nodiscard]] constexpr QuantizeOne second() const {
        QuantizeOne one = first();
        one.sink.codes = sink.second;
        one.sink.transposed = nullptr;
        return one;
    }
};

// A part of a matrix.
struct Window {
    int64_t first_row = 0;
    int64_t first_column = 0;
    int64_t rows = 0;
    int64_t columns = 0;

    [[nodiscard]] MP_HD_INLINE constexpr int64_t count() const { return rows * columns; }
    bool operator==(const Window&) const = default;
};
constexpr Window whole_of(const ArrayRef& array) noexcept {
    return {0, 0, array.rows, array.columns};
}

// destination = the numbers of a window of the source, row after row: code * scale_inv in fp32, or what a block of the source's
// type says (numerics/block_types.hpp), rounded once to the destination's type. A window has whole blocks of such a type.
struct DequantizeDesc : OpDesc {
    ArrayRef source;
    Window window;
    TensorRef destination; // fp32, fp16 or bf16
};

// *result += sum, modulo 2^64, of mixed_word(word i, first_word + i) over the 8-byte words of the array, in any order.
struct ContentHashDesc : OpDesc {
    const void* data = nullptr; // of any alignment
    int64_t bytes = 0;
    uint64_t first_word = 0; // place of the array's first word in what is hashed
    uint64_t* result = nullptr;
};

// update_delayed() for each of so many states.
struct DelayedUpdateDesc : OpDesc {
    numerics::DelayedState* states = nullptr;
    float* histories = nullptr; // state_count x rule.history_len
    int32_t state_count = 0;
    numerics::DelayedRule rule;
};

// D = epilogue(alpha op(A) op(B) + beta C + bias), row-major; see mixedprec/gemm.h. A and B may be codes with
// scales, whose values are code * scale_inv. Scales do not enter the products:
//   no scale changes along k:  op(A) op(B) = (sum * scale_a) * scale_b      with sum the fp32 sum over all k
//   one does:                  total = 0; for each block of k, the finer of both grids' and in their order:
//                              total = total + (sum * scale_a) * scale_b    with sum the fp32 sum over the block
// each operation rounded to fp32 (DeepSeek-V3's promotion rule); a missing scale is 1. Where all scales are powers
// of two, an implementation may multiply the codes by them instead as long as nothing leaves the normal range.
// Or B alone is codes, of fp8, of half a byte or in blocks (one matrix without padding): op(B) is their numbers as dequantize
// rounds them to A's type.
// Where D is fp8, d is what would be stored as fp32, and the codes are round(d * multiply_d), finite d saturating,
// infinity and NaN visible as in QuantizeDesc (a vendor's library may saturate infinity: amax_d shows it); there is no C.
struct GemmDesc : OpDesc {
    int64_t m = 0, n = 0, k = 0;
    int64_t lda = 0, ldb = 0, ldc = 0, ldd = 0; // elements from row to row, as stored
    int64_t batch_count = 1;
    int64_t batch_stride_a = 0, batch_stride_b = 0, batch_stride_c = 0, batch_stride_d = 0;
    float alpha = 1.0F;
    float beta = 0.0F;
    DType dtype_a = DType::none;
    DType dtype_b = DType::none;
    DType dtype_d = DType::none;    // also C's
    DType dtype_bias = DType::none; // none: no bias
    // Over A as stored: of a whole tensor, or with lda == its columns and batch_count 1. Extents along k divide
    // each other.
    ScaleGrid scale_a;
    ScaleGrid scale_b;
    // Every scale is one: then code * scale_inv is exact in bf16, or nearly always.
    bool power_of_two_scales = false;
    bool fast_accumulation = false; // a device may sum fp8 products in less than fp32
    bool trans_a = false;
    bool trans_b = false;
    bool gelu = false;
    bool is_chosen_by_name = false; // by the caller: a candidate that is slow takes it, too
    bool operator==(const GemmDesc&) const = default;
};
struct GemmBuffers {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    const void* c = nullptr;
    void* d = nullptr;
    const void* scale_a = nullptr; // scale_inv of A
    const void* scale_b = nullptr;
    const float* amax_b = nullptr;     // of NVFP4 codes
    const float* multiply_d = nullptr; // fp8 D: device memory, one element; null: 1
    float* amax_d = nullptr; // becomes the maximum of itself and D's, before rounding; may be null
};

// One array of a step: where it is, and how numbers become codes and codes numbers. dtype none: there is no such array.
struct StepArray {
    void* data = nullptr;
    // Null: none, numbers are their codes. Else value = code * scale_inv: one fp32 number; or what the coding's blocks
    // have, one for each (numerics/block_state.hpp).
    void* scale_inv = nullptr;
    DType dtype = DType::none;
    Coding coding = Coding::plain;

    [[nodiscard]] MP_HD_INLINE constexpr bool exists() const { return dtype != DType::none; }
    // The scale of the whole tensor, or null.
    [[nodiscard]] MP_HD_INLINE constexpr float* tensor_scale() const {
        return has_blocks(coding) ? nullptr : static_cast<float*>(scale_inv);
    }
    [[nodiscard]] MP_HD_INLINE constexpr FormatId format() const {
        const bool is_scaled = coding == Coding::plain && scale_inv != nullptr;
        return format_id(dtype, is_scaled ? Coding::scaled : coding);
    }
};

inline constexpr int64_t kSliceUnit = 8; // elements of one block of random numbers

// One array of parameters with everything that belongs to it. Scales of what the step writes are renewed by
// ScaleRule::msamp; the gradient's is only read.
struct UpdateSegment {
    int64_t count = 0;
    uint64_t uid = 0;
    // Where the arrays begin in their parameter, a multiple of kSliceUnit: random bits belong to
    // elements of the parameter, so a slice is rounded as it would be in the whole.
    int64_t first = 0;
    StepArray param;
    StepArray grad;
    StepArray master; // its coding may be remainder: the int16 part that a bf16 parameter lacks
    StepArray compensation;
    StepArray states[numerics::kMaxStates]; // those of the group's rule, in its order
    int32_t group = 0;
    // Not 0: a bf16 parameter is its fp32 master weight rounded with halves away from zero, as beside
    // a remainder (numerics/remainder.hpp), instead of to even.
    int32_t param_half_away = 0;

    // Both without a loop, which would put a kernel's copy of the segment into memory.
    // The largest value of these arrays must be known before the first code is stored.
    [[nodiscard]] MP_HD_INLINE constexpr bool has_scaled_states() const {
        return param.scale_inv != nullptr || master.scale_inv != nullptr ||
               numerics::any_state([this](int k)
                                       MP_INLINED { return states[k].tensor_scale() != nullptr; });
    }
    [[nodiscard]] MP_HD_INLINE constexpr bool has_remainder() const {
        return master.coding == Coding::remainder;
    }
};

// What a step with scaled states works out about one segment: first the largest magnitudes of its
// new values as bit patterns (NaN beats infinity beats numbers), then what they are stored with.
struct UpdateScaling {
    uint32_t weight_amax = 0; // of the master weight where there is one, else of the parameter
    uint32_t state_amax[numerics::kMaxStates] = {};
    numerics::BlockScale param;
    numerics::BlockScale master;
    numerics::BlockScale states[numerics::kMaxStates];
};

// Work is cut into chunks of one segment each; a chunk starts at a multiple of kChunkElements.
inline constexpr int64_t kChunkElements = 16384;
struct Chunk {
    int64_t start = 0;
    int32_t segment = 0;
    int32_t reserved = 0;
};

// Segments and chunks, in device memory, with a host copy of the segments for choosing kernels.
struct SegmentTable {
    const UpdateSegment* segments = nullptr;
    const UpdateSegment* host_segments = nullptr;
    const Chunk* chunks = nullptr;
    int64_t segment_count = 0;
    int64_t chunk_count = 0;
};

// state->sum_squares = sum of grad^2 over all segments, in double; a scaled gradient is code *
// scale_inv in fp32 first. Order, the same on every device: a chunk is cut into pieces of
// kStatsBlock elements; lane l of kStatsLanes adds the squares of elements l, l + kStatsLanes, ...
// of the piece one after another; lanes, then the chunk's pieces, then all chunks are each added as
// a balanced binary tree over the next power of two (absent leaves are 0, left + right).
inline constexpr int64_t kStatsBlock = 2048;
inline constexpr int64_t kStatsLanes = 32;
//
// Ranks that hold slices of parameters each do the first half for their own chunks, exchange the sums, and do
// the second half over all of them: the bits of one rank that holds everything.
enum class StatsStage { all, chunks, tree };
struct GradStatsDesc : OpDesc {
    SegmentTable table;
    double* chunk_sums = nullptr; // scratch, chunk_count elements
    numerics::OptimizerState* state = nullptr;
    StatsStage stage = StatsStage::all;
    // Of stage tree: so many sums are there; `table` is not read. The i-th in that order is chunk_sums[places[i]]; null:
    // chunk_sums[i].
    int64_t sum_count = 0;
    const int32_t* places = nullptr;
};

// prepare_step(), then prepare_group() for each group.
struct OptimizerPrepareDesc : OpDesc {
    numerics::OptimizerState* state = nullptr;
    numerics::LossScaleState* scaler = nullptr; // may be null
    const numerics::GroupHyper* hyper = nullptr;
    int64_t* group_steps = nullptr; // t of each group
    numerics::GroupScalars* scalars = nullptr;
    int32_t group_count = 0;
    numerics::StepRule rule;
};

// One fused step over all chunks, each by the rule of its group; where state->skip is set nothing but zero_grad. Random bits are
// keyed by (seed, segment uid, state->step). Segments with scaled states take two passes over the same
// memory: the first computes the new values from the old codes and keeps their maxima only, the
// second computes them again and stores. A parameter beside a master weight is rounded from the
// master weight as it is stored. stochastic_param rounds the parameter so wherever it comes from, beside
// a master weight and inside Kahan's sum too; master weights and compensations are rounded to nearest.
struct OptimizerUpdateDesc : OpDesc {
    SegmentTable table;
    const numerics::GroupScalars* scalars = nullptr; // by group
    const numerics::OptimizerState* state = nullptr;
    uint64_t seed = 0;
    bool stochastic_param = false;
    bool stochastic_states[numerics::kMaxStates] = {};
    bool zero_grad = false;
    UpdateScaling* scaling = nullptr; // scratch, one a segment, where any has scaled states
};

// One contribution to a sum: `count` elements as they came from a rank. Its value is code * scale_inv in fp32 where the
// element type is fp8, else the element.
struct SumPart {
    const void* codes = nullptr;
    const void* scale_inv =
        nullptr;               // of fp8: the operation's grid over one row; null: codes are numbers
    DType dtype = DType::none; // fp32, fp16, bf16, fp8_e4m3, fp8_e5m2; int64 in fixed point only
    int32_t merges = 0;
};

enum class SumMode : int32_t {
    fp32,    // added in fp32
    fp64,    // added in fp64
    fixed,   // integer sum of numerics::to_fixed(): the same in any order
    largest, // no sum: block_amax is what is written
};

// So many parts go along with a launch: what is enqueued needs no memory of its own for them.
inline constexpr int32_t kPartsOfLaunch = 8;

// The parts are added by a stack: each is pushed, and then `merges` times the two values on top are replaced by
// their sum, the lower one first. One value is left; it is rounded once to the destination's type, and a NaN is
// always numerics::kFloatQuietNan's. So merges of 0, 1, 1, ... is a sum from left to right, and any tree can be written.
// Fixed point has no order: merges are not read; a contribution above its block's amax, and every element of a block whose
// amax is not finite, gives NaN; int64 parts and an int64 destination hold units, and in them a NaN is INT64_MIN.
struct SumPartsDesc : OpDesc {
    const SumPart* host_parts = nullptr; // read when the call is made
    // The same in device memory; null: there are kPartsOfLaunch at most, or the device is the host.
    const SumPart* parts = nullptr;
    int32_t part_count = 0;
    SumMode mode = SumMode::fp32;
    int64_t count = 0;
    ScaleGrid grid;        // of the parts with scales; block_rows 0 or 1
    TensorRef destination; // fp32, fp16, bf16; int64 in fixed point
    // Bits of the largest |x| (a NaN as kFloatQuietNan) of each numerics::kExactBlock logical elements: read in fixed
    // point, written by `largest`.
    uint32_t* block_amax = nullptr;
    int64_t first_element = 0; // which logical element the first is
    int32_t fixed_bits = 0;    // numerics::fixed_bits()
    // Bytes that are written before the destination is read, where that is more than it has. Changes no result.
    int64_t written_first = 0;
};

// update_loss_scale().
struct ScalerUpdateDesc : OpDesc {
    numerics::LossScaleState* state = nullptr;
    numerics::LossScaleRule rule;
};

} // namespace mp
