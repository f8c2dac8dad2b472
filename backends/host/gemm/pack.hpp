// SPDX-License-Identifier: Apache-2.0
// Packing: rows of op(A) in groups, or columns of op(B) in panels, into the order of the inner loop.
// `kUnit` is the width of a group or panel; its rows or columns are called lines here.
#pragma once

#include "host/gemm/lanes.hpp"
#include "host/gemm/panels.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

MP_ISA_INLINE int64_t words_of(Kind kind, int64_t depth) {
    return is_pair(kind) ? (depth + 1) / 2 : depth;
}

MP_ISA_INLINE void store(uint32_t* to, const Words& words) {
    __builtin_memcpy(to, &words, sizeof(words));
}

// The first kWanted lanes. Of a single square the rest may be written too: the next row overwrites it, and
// groups have slack behind them. Of several it would fall on what the first square has written.
template <int kWanted> MP_ISA_INLINE void store_lanes(uint32_t* to, const Words& words) {
    if constexpr (kWanted == kLanes || (kWanted < kLanes && kGroupRows < kLanes)) {
        store(to, words);
    } else {
        __builtin_memcpy(to, &words, kWanted * sizeof(uint32_t));
    }
}

// The factors of kLanes lines at one word, if the job has any.
template <Kind kKind>
MP_ISA_INLINE Words fold(const PackJob& job, int64_t line, int64_t word, const Words& words) {
    if constexpr (is_code(kKind)) {
        if (job.fold != nullptr) {
            const int64_t block = word * (is_pair(kKind) ? 2 : 1) / job.fold_depth;
            Words factor;
            __builtin_memcpy(&factor, job.fold + block * job.fold_stride + line, sizeof(factor));
            return multiply_packed<kKind>(words, factor);
        }
    }
    return words;
}

// ---- stored along k: squares are transposed ------------------------------------------------------

// Words `word` ... of `lines` lines of the job, kWanted at most, the rest 0; one vector a line.
template <Kind kKind, int kWanted>
MP_ISA_INLINE void load_square(const PackJob& job, int64_t line, int lines, int64_t word,
                               Words (&square)[kLanes]) {
    constexpr int64_t kWordBytes = (is_pair(kKind) ? 2 : 1) * element_size(kKind);
    const int64_t stride_bytes = job.stride * element_size(kKind);
    const auto* from =
        static_cast<const unsigned char*>(job.source) + line * stride_bytes + word * kWordBytes;
    const int64_t bytes_left = job.depth * element_size(kKind) - word * kWordBytes;
    const bool whole = bytes_left >= kLanes * kWordBytes;
    if (whole && lines >= kWanted) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
            square[i] = i < kWanted ? load<kKind>(from + i * stride_bytes) : Words{};
        }
        return;
    }
    for (int i = 0; i < kLanes; ++i) {
        square[i] = Words{};
        if (i < lines && i < kWanted) {
            const auto* row = from + i * stride_bytes;
            square[i] = whole ? load<kKind>(row) : load_some<kKind>(row, bytes_left);
        }
    }
}

// Squares kSquare, kSquare + 1, ... of one unit, over kLanes words.
template <Kind kKind, int kUnit, int kSquare>
MP_ISA_INLINE void pack_squares(const PackJob& job, int64_t first, int64_t word, uint32_t* to,
                                int rows) {
    if constexpr (kSquare * kLanes < kUnit) {
        constexpr int kLeft = kUnit - kSquare * kLanes;
        constexpr int kWanted = kLeft < kLanes ? kLeft : kLanes;
        Words square[kLanes];
        load_square<kKind, kWanted>(job, first + kSquare * kLanes,
                                    min_int(job.count - first - kSquare * kLanes, kWanted), word,
                                    square);
        transpose(square);
        if constexpr (is_code(kKind)) {
            if (job.fold != nullptr) { // a block of k is whole squares
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) {
                    square[i] = fold<kKind>(job, first + kSquare * kLanes, word, square[i]);
                }
            }
        }
        if (rows == kLanes) {
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                store_lanes<kWanted>(to + i * kUnit + kSquare * kLanes, square[i]);
            }
        } else {
            for (int i = 0; i < rows; ++i) {
                store_lanes<kWanted>(to + i * kUnit + kSquare * kLanes, square[i]);
            }
        }
        pack_squares<kKind, kUnit, kSquare + 1>(job, first, word, to, rows);
    }
}

template <Kind kKind, int kUnit> MP_ISA_FUNCTION void pack_along_k(const PackJob& job) {
    const int64_t words = words_of(kKind, job.depth);
    uint32_t* unit = job.packed;
    for (int64_t first = 0; first < job.count; first += kUnit, unit += job.unit_stride) {
        for (int64_t word = 0; word < words; word += kLanes) {
            pack_squares<kKind, kUnit, 0>(job, first, word, unit + word * kUnit,
                                          min_int(words - word, kLanes));
        }
    }
}

// ---- stored across k: rows are cut ---------------------------------------------------------------

template <Kind kKind>
MP_ISA_INLINE Words load_across(const unsigned char* row, int64_t stride_bytes, bool has_second,
                                int64_t line, int64_t lines_left) {
    const auto* from = row + line * element_size(kKind);
    const bool whole = lines_left >= kLanes;
    if constexpr (is_pair(kKind)) {
        constexpr int64_t kSize = element_size(kKind);
        unsigned char buffer[2][2 * kLanes] = {};
        const unsigned char* low = from;
        const unsigned char* high = from + stride_bytes;
        if (!whole) {
            __builtin_memcpy(buffer[0], low, static_cast<std::size_t>(kSize * lines_left));
            low = buffer[0];
            if (has_second) {
                __builtin_memcpy(buffer[1], high, static_cast<std::size_t>(kSize * lines_left));
                high = buffer[1];
            }
        }
        high = has_second ? high : buffer[1];
        if constexpr (is_code(kKind)) {
            return pair_words(load_codes<kKind>(low), load_codes<kKind>(high));
        } else {
            return load_halves(low) | (load_halves(high) << 16);
        }
    } else {
        return whole ? load<kKind>(from) : load_some<kKind>(from, lines_left * element_size(kKind));
    }
}

template <Kind kKind, int kUnit> MP_ISA_FUNCTION void pack_across_k(const PackJob& job) {
    constexpr int64_t kStep = is_pair(kKind) ? 2 : 1;
    const int64_t stride_bytes = job.stride * element_size(kKind);
    for (int64_t k = 0; k < job.depth; k += kStep) {
        const auto* row = static_cast<const unsigned char*>(job.source) + k * stride_bytes;
        const bool has_second = k + 1 < job.depth;
        uint32_t* to = job.packed + k / kStep * kUnit;
        for (int64_t first = 0; first < job.count; first += kUnit, to += job.unit_stride) {
            for (int line = 0; line < kUnit; line += kLanes) {
                const int64_t left = job.count - first - line;
                Words words = {};
                if (left > 0) {
                    words = load_across<kKind>(row, stride_bytes, has_second, first + line, left);
                    words = fold<kKind>(job, first + line, k / kStep, words);
                }
                store(to + line, words);
            }
        }
    }
}

template <Kind kKind, int kUnit> MP_ISA_INLINE void pack_kind(const PackJob& job) {
    if (job.k_contiguous) {
        pack_along_k<kKind, kUnit>(job);
    } else {
        pack_across_k<kKind, kUnit>(job);
    }
}

template <int kUnit> MP_ISA_INLINE void pack(const PackJob& job) {
    switch (job.dtype) {
    case DType::fp16:
        return pack_kind<Kind::fp16, kUnit>(job);
    case DType::bf16:
        return pack_kind<Kind::bf16, kUnit>(job);
    case DType::fp8_e4m3:
        return pack_kind<Kind::e4m3, kUnit>(job);
    case DType::fp8_e5m2:
        return pack_kind<Kind::e5m2, kUnit>(job);
    default:
        return pack_kind<Kind::fp32, kUnit>(job);
    }
}

template <int kUnit> MP_ISA_INLINE void pack_pairs(const PackJob& job) {
    switch (job.dtype) {
    case DType::fp8_e4m3:
        return pack_kind<Kind::e4m3_pairs, kUnit>(job);
    case DType::fp8_e5m2:
        return pack_kind<Kind::e5m2_pairs, kUnit>(job);
    default:
        return pack_kind<Kind::bf16_pairs, kUnit>(job);
    }
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
