// SPDX-License-Identifier: Apache-2.0
// optimizer_update: what one thread does. One block takes one chunk; a thread takes groups of eight elements.
// The arithmetic is that of a rule of numerics/rules.hpp.
#pragma once

#include <climits>

#include "cuda/group.cuh"
#include "device/backend.hpp"
#include "device/update_supports.hpp"
#include "numerics/remainder.hpp"

namespace mp::backends::cuda {

// What this kernel loads and stores. supports() and the choice of loads and stores are both made of it.
using UpdateFormats = FormatSet<FormatId::fp32, FormatId::fp16, FormatId::bf16>;

// body(ElementCodec<...>{}) of one of them; the types have no scales, so a type is a format. Folds where it is a constant.
template <typename Body> MP_HD_INLINE void for_format(DType dtype, const Body& body) {
    UpdateFormats::visit(format_id(dtype),
                         [&](auto format) { body(ElementCodec<decltype(format)::kDType>{}); });
}

// What is rounded stochastically, named as in cuda/update_rows.def: a bit for the parameter and one for each state; and
// parameters whose halves go away from zero, which no row has.
enum StochasticFlags : uint32_t {
    kSrNone = 0,
    kSrParam = 1,
    kSrState0 = 2,
    kSrState1 = 4, // and so on
    kHalfAway = 256
};
MP_HD_INLINE constexpr uint32_t state_flag(int k) { return uint32_t{kSrState0} << k; }
static_assert(uint32_t{kSrState0} << numerics::kMaxStates <= kHalfAway);

// The types of a segment and its roundings; nothing is rounded into fp32.
struct UpdateLayout {
    DType param;
    DType grad;
    DType states[numerics::kMaxStates];
    DType compensation;
    DType master;
    uint32_t stochastic;

    MP_HD_INLINE static UpdateLayout of(const UpdateSegment& s, uint32_t asked) {
        UpdateLayout layout = {s.param.dtype,        s.grad.dtype,   {},
                               s.compensation.dtype, s.master.dtype, asked};
        layout.stochastic &= s.param.dtype == DType::fp32 ? ~uint32_t{kSrParam} : ~0U;
        MP_HD_UNROLL
        for (int k = 0; k < numerics::kMaxStates; ++k) {
            const DType dtype = s.states[k].dtype;
            layout.states[k] = dtype;
            layout.stochastic &=
                dtype == DType::fp32 || dtype == DType::none ? ~state_flag(k) : ~0U;
        }
        layout.stochastic |= s.param_half_away != 0 ? kHalfAway : kSrNone;
        return layout;
    }
    bool operator==(const UpdateLayout&) const = default;
};

// The same, known when the kernel is compiled.
template <DType kParam, DType kGrad, DType kState0, DType kState1, DType kCompensation,
          DType kMaster, uint32_t kStochastic>
struct UpdateRow {
    // NOLINTBEGIN(readability-identifier-naming): the members of UpdateLayout
    static constexpr DType param = kParam;
    static constexpr DType grad = kGrad;
    static constexpr DType compensation = kCompensation;
    static constexpr DType master = kMaster;
    static constexpr uint32_t stochastic = kStochastic;
    template <int kState>
    static constexpr DType state = kState == 0   ? kState0
                                   : kState == 1 ? kState1
                                                 : DType::none;
    // NOLINTEND(readability-identifier-naming)

    MP_HD_INLINE static UpdateRow of(const UpdateSegment& /*s*/, uint32_t /*asked*/) { return {}; }
};

template <int kState> MP_HD_INLINE DType state_type(const UpdateLayout& types) {
    return types.states[kState];
}
template <int kState, class Row> MP_HD_INLINE constexpr DType state_type(const Row& /*types*/) {
    return Row::template state<kState>;
}

inline bool has_elements(const UpdateSegment& s, Reason& reason) noexcept {
    const auto has = [&reason](const char* what, const StepArray& a) {
        return !a.exists() || takes_elements(what, a.data, a.dtype, reason);
    };
    return has("a parameter", s.param) && has("a gradient", s.grad) &&
           !numerics::any_state([&](int k) { return !has("a state", s.states[k]); }) &&
           has("a compensation", s.compensation) && has("a master weight", s.master);
}

inline bool takes_update(const OptimizerUpdateDesc& op, Reason& reason) noexcept {
    if (op.table.chunk_count > INT_MAX) {
        reason.set("a grid has at most 2^31 - 1 blocks, one for each chunk of %lld elements",
                   static_cast<long long>(kChunkElements));
        return false;
    }
    if (!update_is_supported<UpdateFormats>(op, reason)) {
        return false;
    }
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        if (!has_elements(op.table.host_segments[i], reason)) {
            return false;
        }
    }
    return true;
}

// body(row) for the row of cuda/update_rows.def that all segments of a table have as their layout;
// body(UpdateLayout{}), the generic kernel, where they differ or there is no such row. The table has
// segments.
template <typename Body>
auto with_update_layout(const SegmentTable& table, uint32_t stochastic, const Body& body) {
    const UpdateLayout first = UpdateLayout::of(table.host_segments[0], stochastic);
    bool is_one = true;
    for (int64_t i = 1; i < table.segment_count && is_one; ++i) {
        is_one = UpdateLayout::of(table.host_segments[i], stochastic) == first;
    }
    if (is_one) {
#define X(name, param, grad, state0, state1, compensation, master, sr)                             \
    if (first == UpdateLayout{DType::param,                                                        \
                              DType::grad,                                                         \
                              {DType::state0, DType::state1},                                      \
                              DType::compensation,                                                 \
                              DType::master,                                                       \
                              (sr)}) {                                                             \
        return body(UpdateRow<DType::param, DType::grad, DType::state0, DType::state1,             \
                              DType::compensation, DType::master, (sr)>{});                        \
    }
#include "cuda/update_rows.def"
#undef X
    }
    return body(UpdateLayout{});
}

struct UpdateWork {
    const UpdateSegment* segments;
    const Chunk* chunks;
    const numerics::GroupScalars* scalars;
    const numerics::OptimizerState* state;
    uint64_t seed;
    uint32_t stochastic;
    bool zero_grad;
};

inline UpdateWork update_work(const OptimizerUpdateDesc& op) {
    UpdateWork work = {};
    work.segments = op.table.segments;
    work.chunks = op.table.chunks;
    work.scalars = op.scalars;
    work.state = op.state;
    work.seed = op.seed;
    work.stochastic = op.stochastic_param ? kSrParam : kSrNone;
    for (int k = 0; k < numerics::kMaxStates; ++k) {
        work.stochastic |= op.stochastic_states[k] ? state_flag(k) : 0U;
    }
    work.zero_grad = op.zero_grad;
    return work;
}

// A group's values in registers.
struct UpdateValues {
    float weight[kGroup]; // the parameter, or its master
    float grad[kGroup];
    float states[numerics::kMaxStates][kGroup];
    float compensation[kGroup];
};

template <class Rule, class Layout>
MP_HD_INLINE void load_values(const UpdateSegment& s, const Layout& types, const GroupAt& at,
                              UpdateValues& x) {
    for_format(types.grad, [&](auto c) { load_group(c, s.grad.data, at, x.grad); });
    if (types.master != DType::none) {
        for_format(types.master, [&](auto c) { load_group(c, s.master.data, at, x.weight); });
    } else {
        for_format(types.param, [&](auto c) { load_group(c, s.param.data, at, x.weight); });
    }
    numerics::for_each_state<Rule>([&](auto state) {
        constexpr int kState = decltype(state)::kIndex;
        for_format(state_type<kState>(types),
                   [&](auto c) { load_group(c, s.states[kState].data, at, x.states[kState]); });
    });
    if (types.compensation != DType::none) {
        for_format(types.compensation,
                   [&](auto c) { load_group(c, s.compensation.data, at, x.compensation); });
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
    for_format(dtype, [&](auto c) {
        store_group(c, data, at, x,
                    stochastic ? numerics::Narrowing::stochastic : numerics::Narrowing::nearest,
                    bits);
    });
}

// The parameter where its rounding error is carried on: rounded inside the sum.
template <class Layout>
MP_HD_INLINE void store_compensated(const UpdateSegment& s, const Layout& types,
                                    const numerics::SrKey& key, const GroupAt& at,
                                    const float (&delta)[kGroup], UpdateValues& x) {
    const bool stochastic = (types.stochastic & kSrParam) != 0;
    GroupBits bits;
    if (stochastic) {
        bits = group_bits(types.param, key, numerics::Purpose::param, s.first + at.first);
    }
    const numerics::Narrowing rounding =
        stochastic ? numerics::Narrowing::stochastic : numerics::Narrowing::nearest;
    for_format(types.param, [&](auto c) {
        using Param = decltype(c);
        uint32_t codes[kGroup];
        MP_HD_UNROLL
        for (int j = 0; j < kGroup; ++j) {
            (void)numerics::compensated_add(
                x.weight[j], delta[j], x.compensation[j], [&](float updated) {
                    codes[j] = Param::encode(updated, rounding, bits.of(j));
                    return Param::decode(codes[j]);
                });
        }
        store_codes<Param::kSize>(s.param.data, at, codes);
    });
    for_format(types.compensation, [&](auto c) {
        store_group(c, s.compensation.data, at, x.compensation, numerics::Narrowing::nearest,
                    GroupBits{});
    });
}

// A bf16 parameter beside its fp32 master weight.
MP_HD_INLINE void store_half_away(void* param, const GroupAt& at, const float (&master)[kGroup]) {
    uint32_t codes[kGroup];
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        codes[j] = numerics::bf16_half_away(master[j]);
    }
    store_codes<2>(param, at, codes);
}

// The parameter, and its master where it has one.
template <class Layout>
MP_HD_INLINE void store_plain(const UpdateSegment& s, const Layout& types,
                              const numerics::SrKey& key, const GroupAt& at,
                              const float (&delta)[kGroup], UpdateValues& x) {
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        x.weight[j] = x.weight[j] + delta[j];
    }
    if (types.master != DType::none) {
        for_format(types.master, [&](auto c) {
            store_group(c, s.master.data, at, x.weight, numerics::Narrowing::nearest, GroupBits{});
        });
    }
    if ((types.stochastic & kHalfAway) != 0) {
        store_half_away(s.param.data, at, x.weight);
        return;
    }
    store_values(types, types.param, kSrParam, numerics::Purpose::param, key, s.first, s.param.data,
                 at, x.weight);
}

template <class Layout>
MP_HD_INLINE void zero_gradient(const UpdateSegment& s, const Layout& types, const GroupAt& at) {
    for_format(types.grad, [&](auto c) {
        constexpr uint32_t kZeros[kGroup] = {};
        store_codes<decltype(c)::kSize>(s.grad.data, at, kZeros);
    });
}

template <class Rule, class Layout>
MP_HD_INLINE void update_group(const UpdateSegment& s, const Layout& types,
                               const typename Rule::Scalars& scalars, float grad_mul,
                               const numerics::SrKey& key, bool zero_grad, const GroupAt& at) {
    UpdateValues x = {};
    load_values<Rule>(s, types, at, x);
    float delta[kGroup];
    MP_HD_UNROLL
    for (int j = 0; j < kGroup; ++j) {
        float states[numerics::kMaxStates];
        MP_HD_UNROLL
        for (int k = 0; k < Rule::kStateCount; ++k) {
            states[k] = x.states[k][j];
        }
        delta[j] = Rule::delta(scalars, x.weight[j], x.grad[j] * grad_mul, states);
        MP_HD_UNROLL
        for (int k = 0; k < Rule::kStateCount; ++k) {
            x.states[k][j] = states[k];
        }
    }
    if (types.compensation != DType::none) {
        store_compensated(s, types, key, at, delta, x);
    } else {
        store_plain(s, types, key, at, delta, x);
    }
    numerics::for_each_state<Rule>([&](auto state) {
        constexpr int kState = decltype(state)::kIndex;
        store_values(types, state_type<kState>(types), state_flag(kState),
                     numerics::state_purpose(kState), key, s.first, s.states[kState].data, at,
                     x.states[kState]);
    });
    if (zero_grad) {
        zero_gradient(s, types, at);
    }
}

template <class Layout, int... kStates>
MP_HD_INLINE bool are_states_aligned(const UpdateSegment& s, const Layout& types,
                                     std::integer_sequence<int, kStates...> /*all*/) {
    return (is_group_aligned(s.states[kStates].data, dtype_size(state_type<kStates>(types))) &&
            ...);
}

template <class Layout>
MP_HD_INLINE bool are_groups_aligned(const UpdateSegment& s, const Layout& types) {
    // Absent arrays are null pointers, which are aligned.
    return is_group_aligned(s.param.data, dtype_size(types.param)) &&
           is_group_aligned(s.grad.data, dtype_size(types.grad)) &&
           are_states_aligned(s, types, std::make_integer_sequence<int, numerics::kMaxStates>{}) &&
           is_group_aligned(s.compensation.data, dtype_size(types.compensation)) &&
           is_group_aligned(s.master.data, dtype_size(types.master));
}

template <class Layout>
MP_HD_INLINE void update_thread(const UpdateWork& work, int64_t block, int thread, int threads) {
    if (work.state->skip != 0 && !work.zero_grad) {
        return;
    }
    const Chunk chunk = work.chunks[block];
    const UpdateSegment s = work.segments[chunk.segment];
    const Layout types = Layout::of(s, work.stochastic);
    const bool is_aligned = are_groups_aligned(s, types);
    const int64_t left = s.count - chunk.start;
    const int size = static_cast<int>(left < kChunkElements ? left : kChunkElements);
    const auto for_each_group = [&](const auto& body) {
        for (int done = thread * kGroup; done < size; done += threads * kGroup) {
            const int count = size - done < kGroup ? size - done : kGroup;
            body(GroupAt{chunk.start + done, count, is_aligned && count == kGroup});
        }
    };
    if (work.state->skip != 0) {
        for_each_group([&](const GroupAt& at) { zero_gradient(s, types, at); });
        return;
    }
    const numerics::GroupScalars scalars = work.scalars[s.group];
    const numerics::SrKey key =
        numerics::make_sr_key(work.seed, s.uid, static_cast<uint64_t>(work.state->step));
    numerics::with_rule(scalars.rule, [&](auto rule) {
        using Rule = decltype(rule);
        const typename Rule::Scalars k = scalars.as<Rule>();
        for_each_group([&](const GroupAt& at) {
            update_group<Rule>(s, types, k, scalars.grad_mul, key, work.zero_grad, at);
        });
    });
}

} // namespace mp::backends::cuda
