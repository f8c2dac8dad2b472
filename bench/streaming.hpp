// SPDX-License-Identifier: Apache-2.0
// Streaming kernels: what memory gives a program that reads and writes the same streams and computes next to
// nothing. They are the denominators of every memory-bound ratio.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace mp_bench {

// Memory in 2 MiB pages where the system gives them, touched by the threads that will use it.
class Array {
  public:
    explicit Array(std::size_t bytes);
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array();
    [[nodiscard]] char* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

  private:
    std::size_t bytes_;
    char* data_;
};

enum class Access { read, read_write, write };

struct Stream {
    char* data;
    std::size_t bytes_per_element;
    Access access;
};

// One pass over `count` elements of all streams at once; pure writes are non-temporal. What it reads and writes it
// leaves as it was.
void stream_once(const std::vector<Stream>& streams, std::size_t count, int threads, bool prefetch);

// Bytes that one pass reads plus bytes that it writes.
double bytes_moved(const std::vector<Stream>& streams, std::size_t count);

// Best seconds of `repeats` calls, after one that does not count.
double best_seconds(const std::function<void()>& run, int repeats);

// The same for several calls in turns: what the machine's other guests take of
// the memory, which changes within seconds, then falls upon all.
std::vector<double> best_in_turns(const std::vector<std::function<void()>>& runs, int repeats);

// The better of the pass with and without software prefetch.
double best_stream_seconds(const std::vector<Stream>& streams, std::size_t count, int threads,
                           int repeats);

// STREAM's copy (plain and non-temporal stores) and triad, in GB/s.
struct StreamRates {
    double copy;
    double copy_non_temporal;
    double triad;
};
StreamRates stream_rates(int threads, std::size_t bytes, int repeats);

} // namespace mp_bench
