// SPDX-License-Identifier: Apache-2.0
// Compiled for each instruction set into a namespace of its name, MP_BENCH_ISA; the flags are in CMakeLists.txt.
#include "stream_pass.hpp"

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mp_bench::MP_BENCH_ISA {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 2048; // bytes of software prefetch
constexpr std::size_t kBlock = 1024; // bytes of the widest stream
#if defined(__AVX512F__)
constexpr std::size_t kVector = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVector = 32;
#else
constexpr std::size_t kVector = 16;
#endif

using Words = uint64_t __attribute__((vector_size(kVector), may_alias));

// The kernel writes back what it read, as a step's arrays need it. The compiler must not know.
volatile uint64_t zero = 0;

void store_non_temporal(char* target, const Words& value) {
#if defined(__AVX512F__)
    __m512i bits;
    std::memcpy(&bits, &value, sizeof bits);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target), bits);
#elif defined(__AVX2__)
    __m256i bits;
    std::memcpy(&bits, &value, sizeof bits);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target), bits);
#elif defined(__x86_64__)
    __m128i bits;
    std::memcpy(&bits, &value, sizeof bits);
    _mm_stream_si128(reinterpret_cast<__m128i*>(target), bits);
#else
    std::memcpy(target, &value, sizeof value);
#endif
}

template <Access kAccess, bool kNonTemporal>
void pass_over(char* data, std::size_t begin, std::size_t end, bool prefetch, Words& total) {
    const uint64_t nothing = zero;
    Words sum = total; // which the stores cannot alias
    for (std::size_t at = begin; at < end; at += kLine) {
        char* line = data + at;
        if (kAccess != Access::write && prefetch) {
            __builtin_prefetch(line + kAhead);
        }
        for (std::size_t part = 0; part < kLine; part += kVector) {
            Words value = sum;
            if constexpr (kAccess != Access::write) {
                std::memcpy(&value, line + part, sizeof value);
                sum ^= value;
                value += nothing;
            }
            if constexpr (kAccess != Access::read && kNonTemporal) {
                store_non_temporal(line + part, value);
            } else if constexpr (kAccess != Access::read) {
                std::memcpy(line + part, &value, sizeof value);
            }
        }
    }
    total = sum;
}

using PassOver = void (*)(char*, std::size_t, std::size_t, bool, Words&);

PassOver pass_over_for(Access access, const Method& method) {
    switch (access) {
    case Access::read:
        return pass_over<Access::read, false>;
    case Access::read_write:
        return method.non_temporal_updates ? pass_over<Access::read_write, true>
                                           : pass_over<Access::read_write, false>;
    case Access::write:
        break;
    }
    return method.non_temporal_writes ? pass_over<Access::write, true>
                                      : pass_over<Access::write, false>;
}

} // namespace

// Block by block, as many elements of each stream, so that all advance together. A block is whole lines of each, for no
// element has more than 16 bytes.
void stream_pass(const Stream* streams, std::size_t stream_count, std::size_t begin,
                 std::size_t end, const Method& method) {
    std::size_t widest = 1;
    for (const Stream* s = streams; s != streams + stream_count; ++s) {
        widest = s->bytes_per_element > widest ? s->bytes_per_element : widest;
    }
    const std::size_t block = kBlock / widest;
    Words sum = {};
    for (std::size_t at = begin; at < end; at += block) {
        const std::size_t stop = end - at < block ? end : at + block;
        for (const Stream* s = streams; s != streams + stream_count; ++s) {
            pass_over_for(s->access, method)(s->data, at * s->bytes_per_element,
                                             stop * s->bytes_per_element, method.prefetch, sum);
        }
    }
    volatile uint64_t sink = sum[0];
    (void)sink;
}

} // namespace mp_bench::MP_BENCH_ISA
