// SPDX-License-Identifier: Apache-2.0
// adamw: what one thread does. One block takes one chunk; a thread takes groups of eight elements.
// The arithmetic is numerics/adamw_update.hpp.
#pragma once

#include <climits>

#include "cuda/group.cuh"
#include "interface/backend.hpp"
#include "numerics/remainder.hpp"

namespace mp::backends::cuda {

// What is rounded stochastically, named as in cuda/adamw_rows.def; and parameters whose halves go
// away from zero, which no row has.
enum AdamwSr : uint32_t {
    kSrNone = 0,
    kSrParam = 1,
    kSrExpAvg = 2,
    kSrExpAvgSq = 4,
    kHalfAway = 8
};

// The types of a segment and its roundings; nothing is rounded into fp32.
struct AdamwLayout {
    DType param;
    DType grad;
    DType exp_avg;
    DType exp_avg_sq;
    DType compensation;
    DType master;
    uint32_t stochastic;

    MP_HD_INLINE static AdamwLayout of(const AdamwSegment& s, uint32_t asked) {
        uint32_t stochastic = asked;
        stochastic &= s.param_dtype == DType::fp32 ? ~uint32_t{kSrParam} : ~0U;
        stochastic &= s.exp_avg_dtype == DType::fp32 ? ~uint32_t{kSrExpAvg} : ~0U;
        stochastic &= s.exp_avg_sq_dtype == DType::fp32 ? ~uint32_t{kSrExpAvgSq} : ~0U;
        stochastic |= s.param_half_away != 0 ? kHalfAway : kSrNone;
        return {s.param_dtype,        s.grad_dtype,   s.exp_avg_dtype, s.exp_avg_sq_dtype,
                s.compensation_dtype, s.master_dtype, stochastic};
    }
    bool operator==(const AdamwLayout&) const = default;
};

// The same, known when the kernel is compiled.
template <DType kParam, DType kGrad, DType kExpAvg, DType kExpAvgSq, DType kCompensation,
          DType kMaster, uint32_t kStochastic>
struct AdamwRow {
    // NOLINTBEGIN(readability-identifier-naming): the members of AdamwLayout
    static constexpr DType param = kParam;
    static constexpr DType grad = kGrad;
    static constexpr DType exp_avg = kExpAvg;
    static constexpr DType exp_avg_sq = kExpAvgSq;
    static constexpr DType compensation = kCompensation;
    static constexpr DType master = kMaster;
    static constexpr uint32_t stochastic = kStochastic;
    // NOLINTEND(readability-identifier-naming)

    MP_HD_INLINE static AdamwRow of(const AdamwSegment& /*s*/, uint32_t /*asked*/) { return {}; }
};

// What this kernel computes, beside the code that computes it: plain fp32, fp16 and bf16 arrays. Anything else is
// refused, whatever another candidate takes.
inline bool takes_array(const char* what, const void* data, DType dtype, Reason& reason) noexcept {
    if (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16) {
        reason.set("%s is %s; this takes fp32, fp16 and bf16", what, dtype_name(dtype));
        return false;
    }
    return takes_elements(what, data, dtype, reason);
}

inline bool takes_segment(const AdamwSegment& s, Reason& reason) noexcept {
    const bool is_scaled = s.param_scale_inv != nullptr || s.grad_scale_inv != nullptr ||
                           s.exp_avg_scale_inv != nullptr || s.exp_avg_sq_scale_inv != nullptr ||
                           s.master_scale_inv != nullptr;
    const bool is_coded = s.exp_avg_coding != Coding::plain ||
                          s.exp_avg_sq_coding != Coding::plain || s.master_coding != Coding::plain;
    if (is_scaled || is_coded) {
        reason.set("an array has %s; this takes plain ones", is_scaled ? "a scale" : "a coding");
        return false;
    }
    if (s.param_half_away != 0 && (s.param_dtype != DType::bf16 || s.master_dtype != DType::fp32)) {
        reason.set("halves go away from zero in bf16 parameters beside an fp32 master weight only");
        return false;
    }
    return takes_array("a parameter", s.param, s.param_dtype, reason) &&
           takes_array("a gradient", s.grad, s.grad_dtype, reason) &&
           takes_array("exp_avg", s.exp_avg, s.exp_avg_dtype, reason) &&
           takes_array("exp_avg_sq", s.exp_avg_sq, s.exp_avg_sq_dtype, reason) &&
           (s.compensation_dtype == DType::none ||
            takes_array("a compensation", s.compensation, s.compensation_dtype, reason)) &&
           (s.master_dtype == DType::none ||
            takes_array("a master weight", s.master, s.master_dtype, reason));
}

inline bool takes_adamw(const AdamwDesc& op, Reason& reason) noexcept {
    if (op.table.chunk_count > INT_MAX) {
        reason.set("a grid has at most 2^31 - 1 blocks, one for each chunk of %lld elements",
                   static_cast<long long>(kChunkElements));
        return false;
    }
    if (op.eager_compat) {
        reason.set("the eager order of roundings is the reference's alone");
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const AdamwSegment& s = op.table.host_segments[i];
        if (!takes_segment(s, reason)) {
            return false;
        }
        if (s.param_half_away != 0 && op.stochastic_param) {
            reason.set("a parameter whose halves go away from zero is rounded in this one way");
            return false;
        }
    }
    return true;
}

// body(row) for the row of cuda/adamw_rows.def that all segments of a table have as their layout;
// body(AdamwLayout{}), the generic kernel, where they differ or there is no such row. The table has
// segments.
template <typename Body>
auto with_adamw_layout(const SegmentTable& table, uint32_t stochastic, const Body& body) {
    const AdamwLayout first = AdamwLayout::of(table.host_segments[0], stochastic);
    bool is_one = true;
    for (int64_t i = 1; i < table.segment_count && is_one; ++i) {
        is_one = AdamwLayout::of(table.host_segments[i], stochastic) == first;
    }
    if (is_one) {
#define X(name, param, grad, exp_avg, exp_avg_sq, compensation, master, sr)                        \
    if (first == AdamwLayout{DType::param, DType::grad, DType::exp_avg, DType::exp_avg_sq,         \
                             DType::compensation, DType::master, (sr)}) {                          \
        return body(AdamwRow<DType::param, DType::grad, DType::exp_avg, DType::exp_avg_sq,         \
                             DType::compensation, DType::master, (sr)>{});                         \
    }
#include "cuda/adamw_rows.def"
#undef X
    }
    return body(AdamwLayout{});
}

struct AdamwWork {
    const AdamwSegment* segments;
    const Chunk* chunks;
    const numerics::AdamwScalars* scalars;
    const numerics::OptimizerState* state;
    uint64_t seed;
    uint32_t stochastic;
    bool zero_grad;
};

inline AdamwWork adamw_work(const AdamwDesc& op) {
    AdamwWork work = {};
    work.segments = op.table.segments;
    work.chunks = op.table.chunks;
    work.scalars = op.scalars;
    work.state = op.state;
    work.seed = op.seed;
    work.stochastic = (op.stochastic_param ? kSrParam : 0U) |
                      (op.stochastic_exp_avg ? kSrExpAvg : 0U) |
                      (op.stochastic_exp_avg_sq ? kSrExpAvgSq : 0U);
    work.zero_grad = op.zero_grad;
    return work;
}

// A group's values in registers.
struct AdamwValues {
    float weight[kGroup]; // the parameter, or its master
    float grad[kGroup];
    float exp_avg[kGroup];
    float exp_avg_sq[kGroup];
    float compensation[kGroup];
};

template <class Layout>
MP_HD_INLINE void load_values(const AdamwSegment& s, const Layout& types, const GroupAt& at,
                              AdamwValues& x) {
    for_wide_type(types.grad, [&](auto c) { load_group(c, s.grad, at, x.grad); });
    if (types.master != DType::none) {
        for_wide_type(types.master, [&](auto c) { load_group(c, s.master, at, x.weight); });
    } else {
        for_wide_type(types.param, [&](auto c) { load_group(c, s.param, at, x.weight); });
    }
    for_wide_type(types.exp_avg, [&](auto c) { load_group(c, s.exp_avg, at, x.exp_avg); });
    for_wide_type(types.exp_avg_sq, [&](auto c) { load_group(c, s.exp_avg_sq, at, x.exp_avg_sq); });
    if (types.compensation != DType::none) {
        for_wide_type(types.compensation,
                      [&](auto c) { load_group(c, s.compensation, at, x.compensation); });
    }
}

// Rounds and stores one array of the step.
template <class Layout>
MP_HD_INLINE void store_values(const Layout& types, DType dtype, uint32_t flag,
                               numerics::Purpose purpose, const numerics::SrKey& key, int64_t first,
                               void* data, const GroupAt& at, const float (&x)[kGroup]) {
    const bool stochastic = (types.stochastic & flag) != 0;
    GroupBits bits;
    if (stochastic) {
        bits = group_bits(dtype, key, purpose, first + at.first);
    }
    for_wide_type(dtype, [&](auto c) {
        store_group(c, data, at, x, stochastic ? Rounding::stochastic : Rounding::nearest, bits);
    });
}

// The parameter where its rounding error is carried on: rounded inside the sum.
template <class Layout>
MP_HD_INLINE void store_compensated(const AdamwSegment& s, const Layout& types,
                                    const numerics::SrKey& key, const GroupAt& at,
                                    const float (&delta)[kGroup], AdamwValues& x) {
    const bool stochastic = (types.stochastic & kSrParam) != 0;
    GroupBits bits;
    if (stochastic) {
        bits = group_bits(types.param, key, numerics::Purpose::param, s.first + at.first);
    }
    const Rounding rounding = stochastic ? Rounding::stochastic : Rounding::nearest;
    for_wide_type(types.param, [&](auto c) {
        using Param = decltype(c);
        uint32_t codes[kGroup];
        MP_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            (void)numerics::compensated_add(
                x.weight[j], delta[j], x.compensation[j], [&](float updated) {
                    codes[j] = Param::encode(updated, rounding, bits.of(j));
                    return Param::decode(codes[j]);
                });
        }
        store_codes<Param::kSize>(s.param, at, codes);
    });
    for_wide_type(types.compensation, [&](auto c) {
        store_group(c, s.compensation, at, x.compensation, Rounding::nearest, GroupBits{});
    });
}

// A bf16 parameter beside its fp32 master weight.
MP_HD_INLINE void store_half_away(void* param, const GroupAt& at, const float (&master)[kGroup]) {
    uint32_t codes[kGroup];
    MP_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        codes[j] = numerics::bf16_half_away(master[j]);
    }
    store_codes<2>(param, at, codes);
}

// The parameter, and its master where it has one.
template <class Layout>
MP_HD_INLINE void store_plain(const AdamwSegment& s, const Layout& types,
                              const numerics::SrKey& key, const GroupAt& at,
                              const float (&delta)[kGroup], AdamwValues& x) {
    MP_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        x.weight[j] = x.weight[j] + delta[j];
    }
    if (types.master != DType::none) {
        for_wide_type(types.master, [&](auto c) {
            store_group(c, s.master, at, x.weight, Rounding::nearest, GroupBits{});
        });
    }
    if ((types.stochastic & kHalfAway) != 0) {
        store_half_away(s.param, at, x.weight);
        return;
    }
    store_values(types, types.param, kSrParam, numerics::Purpose::param, key, s.first, s.param, at,
                 x.weight);
}

template <class Layout>
MP_HD_INLINE void adamw_group(const AdamwSegment& s, const Layout& types,
                              const numerics::AdamwScalars& scalars, const numerics::SrKey& key,
                              bool zero_grad, const GroupAt& at) {
    AdamwValues x = {};
    load_values(s, types, at, x);
    float delta[kGroup];
    MP_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        delta[j] =
            numerics::rule_delta(scalars, x.weight[j], x.grad[j], x.exp_avg[j], x.exp_avg_sq[j]);
    }
    if (types.compensation != DType::none) {
        store_compensated(s, types, key, at, delta, x);
    } else {
        store_plain(s, types, key, at, delta, x);
    }
    store_values(types, types.exp_avg, kSrExpAvg, numerics::Purpose::exp_avg, key, s.first,
                 s.exp_avg, at, x.exp_avg);
    store_values(types, types.exp_avg_sq, kSrExpAvgSq, numerics::Purpose::exp_avg_sq, key, s.first,
                 s.exp_avg_sq, at, x.exp_avg_sq);
    if (zero_grad) {
        for_wide_type(types.grad, [&](auto c) {
            constexpr uint32_t kZeros[kGroup] = {};
            store_codes<decltype(c)::kSize>(s.grad, at, kZeros);
        });
    }
}

template <class Layout>
MP_HD_INLINE bool are_groups_aligned(const AdamwSegment& s, const Layout& types) {
    // Absent arrays are null pointers, which are aligned.
    return is_group_aligned(s.param, dtype_size(types.param)) &&
           is_group_aligned(s.grad, dtype_size(types.grad)) &&
           is_group_aligned(s.exp_avg, dtype_size(types.exp_avg)) &&
           is_group_aligned(s.exp_avg_sq, dtype_size(types.exp_avg_sq)) &&
           is_group_aligned(s.compensation, dtype_size(types.compensation)) &&
           is_group_aligned(s.master, dtype_size(types.master));
}

template <class Layout>
MP_HD_INLINE void adamw_thread(const AdamwWork& work, int64_t block, int thread, int threads) {
    if (work.state->skip != 0) {
        return;
    }
    const Chunk chunk = work.chunks[block];
    const AdamwSegment s = work.segments[chunk.segment];
    const Layout types = Layout::of(s, work.stochastic);
    const numerics::AdamwScalars scalars = work.scalars[s.group];
    const numerics::SrKey key =
        numerics::make_sr_key(work.seed, s.uid, static_cast<uint64_t>(work.state->step));
    const bool is_aligned = are_groups_aligned(s, types);
    const int64_t left = s.count - chunk.start;
    const int size = static_cast<int>(left < kChunkElements ? left : kChunkElements);
    for (int done = thread * kGroup; done < size; done += threads * kGroup) {
        const int count = size - done < kGroup ? size - done : kGroup;
        adamw_group(s, types, scalars, key, work.zero_grad,
                    {chunk.start + done, count, is_aligned && count == kGroup});
    }
}

} // namespace mp::backends::cuda
