// SPDX-License-Identifier: Apache-2.0
#include "streaming.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <omp.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace mp_bench {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kAhead = 2048; // bytes of software prefetch

// The yardstick writes back what it read, as the kernels' arrays need it. The compiler must not know.
volatile uint64_t zero = 0;

using Words = uint64_t __attribute__((vector_size(64), may_alias));

void store_non_temporal(char* target, Words value) {
#if defined(__AVX512F__)
    __m512i bits;
    std::memcpy(&bits, &value, sizeof bits);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), bits);
#elif defined(__SSE2__)
    for (int i = 0; i < 4; ++i) {
        __m128i bits;
        std::memcpy(&bits, reinterpret_cast<const char*>(&value) + 16 * i, sizeof bits);
        _mm_stream_si128(reinterpret_cast<__m128i*>(target + 16 * i), bits);
    }
#else
    std::memcpy(target, &value, sizeof value);
#endif
}

void pass_over(const Stream& stream, std::size_t begin, std::size_t end, bool prefetch,
               uint64_t nothing, Words& sum) {
    for (std::size_t at = begin; at < end; at += kLine) {
        char* line = stream.data + at;
        if (stream.access == Access::write) {
            store_non_temporal(line, sum);
            continue;
        }
        if (prefetch) {
            __builtin_prefetch(line + kAhead);
        }
        Words value;
        std::memcpy(&value, line, sizeof value);
        sum ^= value;
        if (stream.access == Access::read_write) {
            value += nothing;
            std::memcpy(line, &value, sizeof value);
        }
    }
}

// The share of one thread, block by block so that all streams advance together.
void pass_of_thread(const std::vector<Stream>& streams, std::size_t begin, std::size_t end,
                    bool prefetch) {
    constexpr std::size_t kBlock = 512; // elements
    const uint64_t nothing = zero;
    Words sum = {};
    for (std::size_t at = begin; at < end; at += kBlock) {
        const std::size_t stop = std::min(end, at + kBlock);
        for (const Stream& stream : streams) {
            pass_over(stream, at * stream.bytes_per_element, stop * stream.bytes_per_element,
                      prefetch, nothing, sum);
        }
    }
    volatile uint64_t sink = sum[0];
    (void)sink;
}

} // namespace

Array::Array(std::size_t bytes)
    : bytes_((bytes + kPage - 1) / kPage * kPage),
      data_(static_cast<char*>(std::aligned_alloc(kPage, bytes_))) {
    if (data_ == nullptr) {
        throw std::bad_alloc();
    }
    (void)madvise(data_, bytes_, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (std::size_t page = 0; page < bytes_; page += kPage) {
        std::memset(data_ + page, 0, kPage);
    }
}

Array::~Array() { std::free(data_); }

void stream_once(const std::vector<Stream>& streams, std::size_t count, int threads,
                 bool prefetch) {
#pragma omp parallel num_threads(threads)
    {
        const auto rank = static_cast<std::size_t>(omp_get_thread_num());
        const std::size_t share = (count / static_cast<std::size_t>(threads)) / 4096 * 4096;
        const std::size_t end =
            rank + 1 == static_cast<std::size_t>(threads) ? count : (rank + 1) * share;
        pass_of_thread(streams, rank * share, end, prefetch);
    }
}

double bytes_moved(const std::vector<Stream>& streams, std::size_t count) {
    double bytes = 0;
    for (const Stream& stream : streams) {
        bytes += static_cast<double>(stream.bytes_per_element * count) *
                 (stream.access == Access::read_write ? 2 : 1);
    }
    return bytes;
}

namespace {

double seconds_of(const std::function<void()>& run) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    run();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

} // namespace

double best_seconds(const std::function<void()>& run, int repeats) {
    return best_in_turns({run}, repeats)[0];
}

std::vector<double> best_in_turns(const std::vector<std::function<void()>>& runs, int repeats) {
    std::vector<double> best(runs.size(), 1e30);
    for (int i = 0; i <= repeats; ++i) {
        for (std::size_t which = 0; which < runs.size(); ++which) {
            const double seconds = seconds_of(runs[which]);
            best[which] = i == 0 ? best[which] : std::min(best[which], seconds);
        }
    }
    return best;
}

double best_stream_seconds(const std::vector<Stream>& streams, std::size_t count, int threads,
                           int repeats) {
    double best = 1e30;
    for (const bool prefetch : {false, true}) {
        best = std::min(
            best, best_seconds([&] { stream_once(streams, count, threads, prefetch); }, repeats));
    }
    return best;
}

StreamRates stream_rates(int threads, std::size_t bytes, int repeats) {
    const Array a(bytes), b(bytes), c(bytes);
    const std::size_t count = bytes / sizeof(double);
    auto* x = reinterpret_cast<double*>(a.data());
    auto* y = reinterpret_cast<double*>(b.data());
    auto* z = reinterpret_cast<double*>(c.data());
    const double moved = static_cast<double>(bytes);
    const double copy = best_seconds(
        [&] {
#pragma omp parallel for num_threads(threads) schedule(static)
            for (std::size_t i = 0; i < count; ++i) {
                y[i] = x[i];
            }
        },
        repeats);
    const double triad = best_seconds(
        [&] {
#pragma omp parallel for num_threads(threads) schedule(static)
            for (std::size_t i = 0; i < count; ++i) {
                z[i] = x[i] + 3.0 * y[i];
            }
        },
        repeats);
    const std::vector<Stream> streams = {{a.data(), 8, Access::read}, {b.data(), 8, Access::write}};
    const double non_temporal = best_stream_seconds(streams, count, threads, repeats);
    return {2 * moved / copy / 1e9, 2 * moved / non_temporal / 1e9, 3 * moved / triad / 1e9};
}

} // namespace mp_bench
