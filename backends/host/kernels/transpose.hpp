// SPDX-License-Identifier: Apache-2.0
// A panel of codes, up to kPanelRows rows of kPanelBytes, as rows of the transposed matrix. 16 x 16
// bytes at a time by interleaving row i with row i + 8, four times.
#pragma once

#include "host/kernels/memory.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// As many rows as bytes in two cache lines: each row of the transposed matrix gets whole lines, and memory takes two that lie
// together in less time than two apart.
inline constexpr int kLineRows = 64;
inline constexpr int kPanelRows = 2 * kLineRows;
inline constexpr int kPanelBytes = 4096;
// From row to row: no power of two, so that the lines of a column are not all in a few sets of the cache.
inline constexpr int kPanelStride = kPanelBytes + 64;

// Codes of one or two bytes.
struct alignas(64) CodePanel {
    unsigned char bytes[kPanelRows * kPanelStride];
};

// Where the panel's element (0, 0) goes: column 0 of the panel begins at `data`, the next `stride`
// elements further.
struct TransposedPlace {
    unsigned char* data;
    int64_t stride;
    bool stream;
};

using Bytes16 = unsigned char __attribute__((vector_size(16)));

MP_ISA_INLINE Bytes16 interleave_low(Bytes16 a, Bytes16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
MP_ISA_INLINE Bytes16 interleave_high(Bytes16 a, Bytes16 b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

#if defined(__AVX512BW__)
// Within each 16 bytes of it.
MP_ISA_INLINE __m512i interleave_low(__m512i a, __m512i b) { return _mm512_unpacklo_epi8(a, b); }
MP_ISA_INLINE __m512i interleave_high(__m512i a, __m512i b) { return _mm512_unpackhi_epi8(a, b); }
#endif

// 16 rows of 16 bytes become their columns; of wider vectors each 16 bytes by themselves.
template <class Vector> MP_ISA_INLINE void transpose_16(Vector (&rows)[16]) {
#pragma GCC unroll 4
    for (int stage = 0; stage < 4; ++stage) {
        Vector next[16];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            next[2 * i] = interleave_low(rows[i], rows[i + 8]);
            next[2 * i + 1] = interleave_high(rows[i], rows[i + 8]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            rows[i] = next[i];
        }
    }
}

// 16 rows of 16 bytes at distances of `from_stride` and `to_stride`.
MP_ISA_INLINE void transpose_16x16(const unsigned char* from, int from_stride, unsigned char* to,
                                   int to_stride) {
    Bytes16 rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        __builtin_memcpy(&rows[i], from + i * from_stride, 16);
    }
    transpose_16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        __builtin_memcpy(to + i * to_stride, &rows[i], 16);
    }
}

// `rows`, whole lines of them, and 16 columns.
MP_ISA_INLINE void store_transposed_columns(const unsigned char* from, int rows,
                                            const TransposedPlace& place) {
    alignas(64) unsigned char lines[16 * kPanelRows];
    for (int row = 0; row < rows; row += 16) {
        transpose_16x16(from + row * kPanelStride, kPanelStride, lines + row, kPanelRows);
    }
    for (int i = 0; i < 16; ++i) {
        copy_or_stream(place.data + i * place.stride, lines + i * kPanelRows, rows, place.stream);
    }
}

#if defined(__AVX512BW__)

// 16 rows of 64 bytes: in result i the quarters are columns i, i + 16, i + 32 and i + 48.
MP_ISA_INLINE void transpose_16x64(const unsigned char* from, __m512i* to) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        rows[i] = _mm512_load_si512(from + i * kPanelStride);
    }
    transpose_16(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
        _mm512_store_si512(to + i, rows[i]);
    }
}

MP_ISA_INLINE void store_line(unsigned char* to, bool stream, __m512i line) {
    if (stream && bytes_to_line(to) == 0) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
    } else {
        _mm512_storeu_si512(to, line);
    }
}

// The 16 rows of each of four parts become lines of columns i, i + 16, i + 32 and i + 48.
MP_ISA_INLINE void join_lines(const __m512i (*parts)[16], int i, __m512i* lines) {
    const __m512i lower = _mm512_shuffle_i32x4(parts[0][i], parts[1][i], 0x44);
    const __m512i upper = _mm512_shuffle_i32x4(parts[0][i], parts[1][i], 0xEE);
    const __m512i lower_rest = _mm512_shuffle_i32x4(parts[2][i], parts[3][i], 0x44);
    const __m512i upper_rest = _mm512_shuffle_i32x4(parts[2][i], parts[3][i], 0xEE);
    lines[0] = _mm512_shuffle_i32x4(lower, lower_rest, 0x88);
    lines[1] = _mm512_shuffle_i32x4(lower, lower_rest, 0xDD);
    lines[2] = _mm512_shuffle_i32x4(upper, upper_rest, 0x88);
    lines[3] = _mm512_shuffle_i32x4(upper, upper_rest, 0xDD);
}

// kLines lines of rows, and columns 64 at a time; how many columns were done.
template <int kLines>
MP_ISA_INLINE int store_transposed_lines(const CodePanel& panel, int columns,
                                         const TransposedPlace& place) {
    __m512i parts[4 * kLines][16]; // of 16 rows each
    int done = 0;
    for (; done + 64 <= columns; done += 64) {
        for (int part = 0; part < 4 * kLines; ++part) {
            transpose_16x64(panel.bytes + 16 * part * kPanelStride + done, parts[part]);
        }
        for (int i = 0; i < 16; ++i) {
            __m512i lines[kLines][4];
            for (int line = 0; line < kLines; ++line) {
                join_lines(parts + 4 * line, i, lines[line]);
            }
            for (int quarter = 0; quarter < 4; ++quarter) {
                unsigned char* to = place.data + (done + i + 16 * quarter) * place.stride;
                for (int line = 0; line < kLines; ++line) {
                    store_line(to + line * kLineRows, place.stream, lines[line][quarter]);
                }
            }
        }
    }
    return done;
}
MP_ISA_INLINE int store_transposed_by_64(const CodePanel& panel, int rows, int columns,
                                         const TransposedPlace& place) {
    return rows == 2 * kLineRows ? store_transposed_lines<2>(panel, columns, place)
           : rows == kLineRows   ? store_transposed_lines<1>(panel, columns, place)
                                 : 0;
}

#else

MP_ISA_INLINE int store_transposed_by_64(const CodePanel&, int, int, const TransposedPlace&) {
    return 0;
}

#endif

// Rows and columns from the first ones on, kSize bytes a code, one by one.
template <int kSize>
MP_ISA_INLINE void store_transposed_slowly(const CodePanel& panel, int first_row, int rows,
                                           int first_column, int columns,
                                           const TransposedPlace& place) {
    for (int column = first_column; column < columns; ++column) {
        unsigned char* to = place.data + column * place.stride * kSize;
        const unsigned char* from = panel.bytes + column * kSize;
        for (int row = first_row; row < rows; ++row) {
            __builtin_memcpy(to + row * kSize, from + row * kPanelStride, kSize);
        }
    }
}

// Rows 0 ... rows - 1 and columns 0 ... columns - 1 of the panel, whose codes have `size` bytes.
MP_ISA_FUNCTION inline void store_transposed(const CodePanel& panel, int size, int rows,
                                             int columns, const TransposedPlace& place) {
    if (size == 2) {
        store_transposed_slowly<2>(panel, 0, rows, 0, columns, place);
        return;
    }
    const int whole = rows / kLineRows * kLineRows;
    int done = store_transposed_by_64(panel, whole, columns, place);
    for (; whole > 0 && done + 16 <= columns; done += 16) {
        store_transposed_columns(panel.bytes + done, whole,
                                 {place.data + done * place.stride, place.stride, place.stream});
    }
    store_transposed_slowly<1>(panel, 0, whole, done, columns, place);
    store_transposed_slowly<1>(panel, whole, rows, 0, columns, place);
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
