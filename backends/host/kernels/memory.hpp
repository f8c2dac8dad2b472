// SPDX-License-Identifier: Apache-2.0
// Hints to the memory system: prefetch, and stores that go around the caches. Neither changes a
// result.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "host/kernels/base.hpp"

namespace mp::backends::host::MP_ISA_NAMESPACE {

// How far ahead of the loads. For the many streams of an optimizer step: the hardware's prefetchers
// follow only some at once and stop at the end of each page. Single streams they follow well
// enough.
inline constexpr int64_t kPrefetchBytes = 2048;

// Asks for `bytes` from `address` on, which may lie outside of anything. Never faults.
MP_ISA_INLINE void prefetch_at(const void* address, int64_t bytes) {
    const auto first = reinterpret_cast<uintptr_t>(address);
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<uintptr_t>(i)), 0, 3);
    }
}

// The same into the second-level cache, for what is not used at once.
MP_ISA_INLINE void prefetch_later(const void* address, int64_t bytes) {
    const auto first = reinterpret_cast<uintptr_t>(address);
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<uintptr_t>(i)), 0, 2);
    }
}

// Asks for the `bytes` that are kPrefetchBytes beyond `address`.
MP_ISA_INLINE void prefetch_ahead(const void* address, int64_t bytes) {
    prefetch_at(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(address) +
                                              static_cast<uintptr_t>(kPrefetchBytes)),
                bytes);
}

// The bytes before the next 64-byte boundary.
MP_ISA_INLINE int64_t bytes_to_line(const void* address) {
    return static_cast<int64_t>((64 - (reinterpret_cast<uintptr_t>(address) & 63)) & 63);
}

// A copy of any length, by lines: what the compiler makes of a length that it does not know takes longer than some hundred
// bytes do.
MP_ISA_INLINE void copy_bytes(void* destination, const void* source, int64_t bytes) {
    char* to = static_cast<char*>(destination);
    const char* from = static_cast<const char*>(source);
    int64_t done = 0;
    for (; done + 64 <= bytes; done += 64) {
        __builtin_memcpy(to + done, from + done, 64);
    }
    for (; done < bytes; ++done) {
        to[done] = from[done];
    }
}

// Copies whole cache lines; the destination is 64-byte aligned, the source is whatever it is.
MP_ISA_INLINE void stream_lines(void* destination, const void* source, int64_t bytes) {
    char* to = static_cast<char*>(destination);
    const char* from = static_cast<const char*>(source);
#if defined(__AVX512F__)
    for (int64_t i = 0; i < bytes; i += 64) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
    }
#elif defined(__AVX__)
    for (int64_t i = 0; i < bytes; i += 32) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
    }
#elif defined(__SSE2__)
    for (int64_t i = 0; i < bytes; i += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
#else
    __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

// Where codes or numbers may go around the caches: whole lines of them.
MP_ISA_INLINE bool may_stream(bool is_wanted, const void* destination, int64_t bytes) {
    return is_wanted && bytes % 64 == 0 && bytes_to_line(destination) == 0;
}

MP_ISA_INLINE void copy_or_stream(void* destination, const void* source, int64_t bytes,
                                  bool stream) {
    if (may_stream(stream, destination, bytes)) {
        stream_lines(destination, source, bytes);
    } else {
        copy_bytes(destination, source, bytes);
    }
}

// A copy of any length and alignment around the caches, whole lines of the destination at a time.
MP_ISA_INLINE void stream_bytes(void* destination, const void* source, int64_t bytes) {
    char* to = static_cast<char*>(destination);
    const char* from = static_cast<const char*>(source);
    const int64_t before = bytes_to_line(to) < bytes ? bytes_to_line(to) : bytes;
    const int64_t lines = (bytes - before) / 64 * 64;
    copy_bytes(to, from, before);
    stream_lines(to + before, from + before, lines);
    copy_bytes(to + before + lines, from + before + lines, bytes - before - lines);
}

// After the last stream_lines() of a job: other threads then see the data.
MP_ISA_INLINE void finish_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

} // namespace mp::backends::host::MP_ISA_NAMESPACE
