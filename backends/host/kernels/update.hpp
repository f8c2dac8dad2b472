// SPDX-License-Identifier: Apache-2.0
// The fused optimizer step of one chunk. One body takes every format and rule: what is fp32 already is stepped where it
// lies, all else through tiles of fp32. Where a segment has scaled states there are two passes, the first of which only
// measures. Some layouts have a faster loop with the same bits: those of update_rows.def, and states in blocks
// (update_block_row.hpp).
#pragma once

#include "host/kernels/jobs.hpp"
#include "host/kernels/update_block_row.hpp"
#include "host/kernels/update_formats.hpp"
#include "host/kernels/update_pairs.hpp"
#include "host/kernels/update_streams.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

struct UpdateTiles {
    alignas(64) float weight[kTile];
    alignas(64) float grad[kTile];
    alignas(64) float states[numerics::kMaxStates][kTile];
    alignas(64) float compensation[kTile];
};

// One array of the step: where its elements are in fp32 while the step works on a tile of them.
struct StagedArray {
    const StepArray* array;
    FloatInMemory* in_place; // the array itself, or null: a tile is loaded and stored
    FormatFunctions format;

    MP_ISA_INLINE void choose(const StepArray& of, bool is_signed, bool may_be_in_place) {
        array = &of;
        const bool is = may_be_in_place && of.dtype == DType::fp32;
        in_place = is ? static_cast<FloatInMemory*>(of.data) : nullptr;
        format = is ? FormatFunctions{} : functions_of(of, is_signed);
    }
    MP_ISA_INLINE FloatInMemory* open(const UpdateSegment& s, int64_t element, int n,
                                      float* tile) const {
        if (in_place != nullptr) {
            return in_place + element;
        }
        format.load(s, *array, element, n, tile);
        return tile;
    }
    // `bits` null: to nearest.
    MP_ISA_INLINE void close(const UpdateSegment& s, int64_t element, int n, float* tile,
                             const numerics::BlockScale& scale, const TileBits* bits) const {
        if (in_place == nullptr) {
            format.store(s, *array, element, n, tile, scale, bits);
        }
    }
};

// Any formats. What is common to the tiles of a chunk is chosen first.
template <class Rule> struct UpdateBody {
    UpdateTiles tiles;
    UpdateBits bits;
    StagedArray weight;
    StagedArray grad;
    StagedArray states[numerics::kMaxStates];
    StagedArray compensation;
    FormatFunctions param; // of a parameter beside a master weight
    bool has_compensation;
    bool is_made_of_master;

    // Not in place: memory is only read.
    explicit MP_ISA_INLINE UpdateBody(const UpdateContext& c, bool in_place = true) {
        const UpdateSegment& s = *c.segment;
        has_compensation = s.compensation.exists();
        is_made_of_master = s.master.exists() && !s.has_remainder();
        // A scaled parameter is made of its master's values where they are.
        weight.choose(s.master.exists() ? s.master : s.param, true,
                      in_place && !(is_made_of_master && s.param.scale_inv != nullptr));
        grad.choose(s.grad, true, true);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            states[k].choose(s.states[k], numerics::is_signed_state<Rule>(k), in_place);
        }
        if (has_compensation) {
            compensation.choose(s.compensation, true, in_place);
        }
        if (is_made_of_master) {
            param = functions_of(s.param, true);
        }
    }

    static MP_ISA_INLINE const TileBits* bits_if(const UpdateContext& c, uint32_t flag,
                                                 const TileBits& all) {
        return (c.stochastic & flag) != 0 ? &all : nullptr;
    }

    // New values from old ones; returns where the weight's are.
    MP_ISA_INLINE FloatInMemory* compute(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        fill_bits<Rule>(c, element, n, bits);
        UpdateStreams streams = {weight.open(s, element, n, tiles.weight),
                                 grad.open(s, element, n, tiles.grad),
                                 {},
                                 nullptr,
                                 &bits.param};
        for (int k = 0; k < Rule::kStateCount; ++k) {
            streams.states[k] = states[k].open(s, element, n, tiles.states[k]);
        }
        if (has_compensation) {
            streams.compensation = compensation.open(s, element, n, tiles.compensation);
        }
        update_streams<Rule>(streams, c, n);
        return streams.weight;
    }

    // The master weight is stored first, rounded where it is not fp32, and the parameter is made of it.
    MP_ISA_INLINE void store_from_master(const UpdateContext& c, FloatInMemory* values,
                                         int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        if (weight.in_place == nullptr) {
            float rounded[kTile];
            __builtin_memcpy(rounded, tiles.weight, sizeof(rounded));
            weight.close(s, element, n, rounded, c.scaling->master, nullptr);
            if (s.master.scale_inv != nullptr) {
                widen_scaled_tile(s.master.dtype,
                                  element_address(s.master.data, s.master.dtype, element),
                                  c.scaling->master.scale_inv, tiles.weight, n);
            }
        }
        store_param(c, values, element, n);
    }

    // Nothing has read the parameter's memory, so where it is too large to be kept in the caches it is written around them.
    MP_ISA_INLINE void store_param(const UpdateContext& c, FloatInMemory* values, int64_t element,
                                   int n) const {
        const StepArray& to = c.segment->param;
        void* memory = element_address(to.data, to.dtype, element);
        const int64_t bytes = n * dtype_size(to.dtype);
        alignas(64) unsigned char buffer[4 * kTile];
        const bool stream = may_stream(c.stream_param, memory, bytes);
        void* target = stream ? buffer : memory;
        if (c.segment->param_half_away != 0) {
            store_half_away(values, target, n);
        } else {
            param.store_numbers(target, n, values, c.scaling->param,
                                bits_if(c, kSrParam, bits.param));
        }
        if (stream) {
            stream_lines(memory, buffer, bytes);
        }
    }

    MP_ISA_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        FloatInMemory* values = compute(c, element, n);
        if (is_made_of_master) {
            store_from_master(c, values, element, n);
        } else {
            // A compensated parameter is representable already, whichever way it was rounded.
            const bool is_rounded = has_compensation || s.has_remainder();
            weight.close(s, element, n, tiles.weight, c.scaling->param,
                         is_rounded ? nullptr : bits_if(c, kSrParam, bits.param));
        }
        if (has_compensation) {
            compensation.close(s, element, n, tiles.compensation, c.scaling->param, nullptr);
        }
        for (int k = 0; k < Rule::kStateCount; ++k) {
            states[k].close(s, element, n, tiles.states[k], c.scaling->states[k],
                            bits_if(c, state_flag(k), bits.states[k]));
        }
    }

    // The first pass: writes nothing but the maxima.
    MP_ISA_INLINE void measure(const UpdateContext& c, int64_t element, int n,
                               UpdateScaling& maxima) {
        (void)compute(c, element, n);
        raise(maxima.weight_amax, tiles.weight, n);
        for (int k = 0; k < Rule::kStateCount; ++k) {
            raise(maxima.state_amax[k], tiles.states[k], n);
        }
    }
    static MP_ISA_INLINE void raise(uint32_t& largest, const float* values, int n) {
        const uint32_t here = amax_as<DType::fp32>(values, n);
        largest = here > largest ? here : largest;
    }
};

template <class Rule, DType kGrad, bool kCompensated, uint32_t kSr> struct Bf16Row {
    explicit MP_ISA_INLINE Bf16Row(const UpdateContext& /*c*/) {}

    static MP_ISA_INLINE void tile(const UpdateContext& c, int64_t element, int n) {
        const UpdateSegment& s = *c.segment;
        UpdateBits bits;
        if constexpr (kSr != kSrNone) {
            fill_bits<Rule>(c, element, n, bits);
        }
        const auto at = [element](const StepArray& a) {
            return element_address(a.data, DType::bf16, element);
        };
        const auto bits_if = [](uint32_t flag, const TileBits& all) {
            return (kSr & flag) != 0 ? all.high : nullptr;
        };
        UpdatePairs pairs = {at(s.param),
                             element_address(s.grad.data, kGrad, element),
                             {},
                             kCompensated ? at(s.compensation) : nullptr,
                             bits_if(kSrParam, bits.param),
                             {}};
        for (int k = 0; k < Rule::kStateCount; ++k) {
            pairs.states[k] = at(s.states[k]);
            pairs.state_bits[k] = bits_if(state_flag(k), bits.states[k]);
        }
        update_pairs_tile<Rule, kCompensated, kSr, kGrad>(pairs, *c.scalars, n);
    }
};

// Clears what the tile has just read, so the lines are in the cache.
MP_ISA_INLINE void clear_grad(const UpdateSegment& s, int64_t element, int n) {
    __builtin_memset(element_address(s.grad.data, s.grad.dtype, element), 0,
                     static_cast<std::size_t>(n * dtype_size(s.grad.dtype)));
}

template <class Row>
MP_ISA_FUNCTION void update_tiles(const UpdateJob& job, const UpdateContext& c) {
    Row row(c);
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_streams(*c.segment, element, n);
        row.tile(c, element, n);
        if (job.op->zero_grad) {
            clear_grad(*c.segment, element, n);
        }
    }
    if (c.stream_param) {
        finish_stream();
    }
}

inline constexpr UpdateScaling kNoScaling = {};

MP_ISA_INLINE UpdateContext update_context(const UpdateJob& job) {
    const UpdateSegment& s = *job.segment;
    return {&s,
            &job.op->scalars[s.group],
            numerics::make_sr_key(job.op->seed, s.uid, job.step),
            stochastic_flags(*job.op, s),
            job.stream,
            job.scaling != nullptr ? job.scaling : &kNoScaling};
}

template <class Rule>
MP_ISA_FUNCTION void measure_tiles(const UpdateJob& job, const UpdateContext& c,
                                   UpdateScaling& maxima) {
    UpdateBody<Rule> body(c, false);
    for (int64_t done = 0; done < job.count; done += kTile) {
        const int64_t element = job.start + done;
        const int n = min_int(job.count - done, kTile);
        prefetch_streams(*c.segment, element, n);
        body.measure(c, element, n, maxima);
    }
}

inline void measure_chunk(const UpdateJob& job, UpdateScaling& maxima) {
    const UpdateContext c = update_context(job);
    numerics::with_rule(c.scalars->rule, [&](auto rule) MP_INLINED {
        measure_tiles<decltype(rule)>(job, c, maxima);
    });
}

// The number of a row among those whose arrays are bf16.
MP_ISA_INLINE constexpr uint32_t row_key(DType grad, DType compensation, uint32_t stochastic) {
    return static_cast<uint32_t>(grad) << 16 | static_cast<uint32_t>(compensation) << 8 |
           stochastic;
}

template <class Rule> MP_ISA_INLINE bool is_bf16_row(const UpdateSegment& s) {
    const auto is_bf16 = [](const StepArray& a) { return a.format() == FormatId::bf16; };
    bool are = is_bf16(s.param) && s.grad.scale_inv == nullptr && !s.master.exists();
    for (int k = 0; k < Rule::kStateCount; ++k) {
        are = are && is_bf16(s.states[k]);
    }
    return are;
}

template <class Rule> void update_chunk_by(const UpdateJob& job, const UpdateContext& c) {
    const UpdateSegment& s = *job.segment;
    if (is_bf16_row<Rule>(s)) {
        switch (row_key(s.grad.dtype, s.compensation.dtype, c.stochastic)) {
#define X(name, grad, compensation, stochastic)                                                    \
    case row_key(DType::grad, DType::compensation, stochastic):                                    \
        return update_tiles<                                                                       \
            Bf16Row<Rule, DType::grad, DType::compensation != DType::none, (stochastic)>>(job, c);
#include "host/kernels/update_rows.def"
#undef X
        default:
            break;
        }
    } else if (is_block_row<Rule>(c, DType::bf16)) {
        return update_tiles<BlockRow<Rule, DType::bf16>>(job, c);
    } else if (is_block_row<Rule>(c, DType::fp32)) {
        return update_tiles<BlockRow<Rule, DType::fp32>>(job, c);
    }
    update_tiles<UpdateBody<Rule>>(job, c);
}

inline void update_chunk(const UpdateJob& job) {
    const UpdateContext c = update_context(job);
    numerics::with_rule(c.scalars->rule,
                        [&](auto rule) MP_INLINED { update_chunk_by<decltype(rule)>(job, c); });
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
