// SPDX-License-Identifier: Apache-2.0
// The 8-bit dynamic maps (numerics/block_state.hpp) as straight lines. Within a decade the values have equal
// distances, so the code of a magnitude is the integer part of offset + slope * magnitude, with the decade's last
// code as the upper limit. Where the line comes within kDoubt of an integer, rounding could have changed the integer
// part: there the caller searches the map (nearest_code), so that codes are exact.
#pragma once

#include "numerics/block_state.hpp"

namespace mp::numerics {

// By the exponent field of a magnitude in [2^-23, 1], of which 5 bits tell all. A decade ends inside a binade, at
// most one in each: adding to_next carries into the exponent from there on, so the sum's exponent field is the index
// of the line. Below 2^-23 everything has the code of 2^-23.
struct CodePieces {
    static constexpr int32_t kCount = 32;
    static constexpr uint32_t kMask = 31;
    static constexpr float kLeast = 0x1p-23F;
    // Of a code's width. The magnitude may be x * (1 / scale) instead of x / scale, three ulps off, and the line is
    // computed in fp32: together less than 2^-14, and a decade is left 2^-12 late.
    static constexpr float kDoubt = 0x1p-11F;

    uint32_t to_next[kCount];
    float slope[kCount];
    float offset[kCount]; // kDoubt included, so that doubt is a fraction below 2 * kDoubt
    float last[kCount];
};

// The same lines one after another; `end[i]` is where line i ends.
struct CodeLines {
    static constexpr int32_t kCount = 9;

    float end[kCount - 1];
    float slope[kCount];
    float offset[kCount];
    float last[kCount];
};

namespace detail {

struct Line {
    double slope;
    double offset;
    double last;
    double end; // the next line begins here
};

constexpr Line line_through(double x0, double y0, double x1, double y1, double last, double end) {
    const double slope = (y1 - y0) / (x1 - x0);
    return {slope, y0 - slope * x0, last, end};
}

// Lines 0 to 8: the code 0, seven decades, the code of 1. `threshold[k]` is where magnitude code k begins and
// `first` the number of codes in the lowest decade; each next one has twice as many.
constexpr Line map_line(const float* threshold, int32_t first, int32_t index) {
    const double late = 1.0 + 0x1p-18;
    if (index == 0) {
        return line_through(0.0, 0.5, threshold[1], 1.0, 0.0, threshold[1] * late);
    }
    const int32_t count = index == 8 ? 1 : first << (index - 1);
    const int32_t begin = 1 + first * ((1 << (index - 1)) - 1);
    const int32_t end = begin + count;
    if (index == 8) { // far from an integer at 1, which every block has
        return line_through(threshold[begin], begin, 1.0, begin + 0.5, begin, 2.0);
    }
    if (index == 7) { // 1 lies nearer than a decade's first value would
        const double stop = 0.5 * (static_cast<double>(threshold[end - 1]) + threshold[end]);
        return line_through(threshold[begin + 1], begin + 1, threshold[end - 1], end - 1, end - 1,
                            stop);
    }
    // The line reaches the second integer after its last code where the next decade begins.
    const bool is_single = count == 1;
    return line_through(threshold[is_single ? begin : begin + 1],
                        is_single ? begin + 0.2 : begin + 1.0, threshold[end], end + 1, end - 1,
                        threshold[end] * late);
}

constexpr CodePieces make_pieces(const float* threshold, int32_t first) {
    CodePieces pieces{};
    int32_t line = 0;
    for (uint32_t exponent = 104; exponent <= 127; ++exponent) {
        const float begin = float_from_bits(exponent << 23);
        const float next = float_from_bits((exponent + 1) << 23);
        const uint32_t i = exponent & CodePieces::kMask;
        const Line at = map_line(threshold, first, line);
        pieces.slope[i] = static_cast<float>(at.slope);
        pieces.offset[i] = static_cast<float>(at.offset + CodePieces::kDoubt);
        pieces.last[i] = static_cast<float>(at.last);
        pieces.to_next[i] = 0;
        if (at.end > begin && at.end < next) {
            pieces.to_next[i] = bits_from_float(next) - bits_from_float(static_cast<float>(at.end));
            ++line;
        }
    }
    return pieces;
}

constexpr CodeLines make_lines(const float* threshold, int32_t first) {
    CodeLines lines{};
    for (int32_t i = 0; i < CodeLines::kCount; ++i) {
        const Line at = map_line(threshold, first, i);
        lines.slope[i] = static_cast<float>(at.slope);
        lines.offset[i] = static_cast<float>(at.offset + CodePieces::kDoubt);
        lines.last[i] = static_cast<float>(at.last);
        if (i + 1 < CodeLines::kCount) {
            lines.end[i] = static_cast<float>(at.end);
        }
    }
    return lines;
}

} // namespace detail

// Codes are distances from the code of zero: 127 in the signed map, 0 in the other.
inline constexpr CodePieces kSigned8Pieces = detail::make_pieces(kSigned8Map.threshold + 127, 1);
inline constexpr CodePieces kUnsigned8Pieces = detail::make_pieces(kUnsigned8Map.threshold, 2);
inline constexpr CodeLines kSigned8Lines = detail::make_lines(kSigned8Map.threshold + 127, 1);
inline constexpr CodeLines kUnsigned8Lines = detail::make_lines(kUnsigned8Map.threshold, 2);

} // namespace mp::numerics
