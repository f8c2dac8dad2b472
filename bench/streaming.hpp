// SPDX-License-Identifier: Apache-2.0
// Streaming kernels: what memory gives a program that reads and writes the same streams and computes next to
// nothing. The fastest of them is the baseline of every memory-bound ratio.
#pragma once

#include <cstddef>
#include <vector>

#include "measure.hpp"
#include "stream_pass.hpp"

namespace mp_bench {

// `count` elements of all streams at once.
struct Pass {
    std::vector<Stream> streams;
    std::size_t count;
};

// The passes one after the other, by the method that was fastest here and now: plain or non-temporal stores, with or
// without prefetch. What is read and written stays as it was; what is only written does not.
Baseline best_streaming(const std::vector<Pass>& passes, int threads);

// Bytes that the passes read plus bytes that they write.
double bytes_moved(const std::vector<Pass>& passes);

// The widest instruction set that these kernels have and this machine runs, whatever the library was told to use.
const char* streaming_isa();

// STREAM's copy (plain and non-temporal stores) and triad, in GB/s; medians.
struct StreamRates {
    double copy;
    double copy_non_temporal;
    double triad;
};
StreamRates stream_rates(int threads, std::size_t bytes, const Turns& turns);

} // namespace mp_bench
