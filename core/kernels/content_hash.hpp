// SPDX-License-Identifier: Apache-2.0
// content_hash as a Kokkos kernel. A sum modulo 2^64 does not depend on the order.
#pragma once

#include "kernels/exec.hpp"
#include "numerics/content_hash.hpp"

namespace mp::kernels {

// A thread adds up some words, and then to the result.
struct ContentHash {
    static constexpr int64_t kWords = 64;

    const unsigned char* data;
    int64_t bytes, words;
    uint64_t first_word;
    unsigned long long* result;

    KOKKOS_INLINE_FUNCTION void operator()(int64_t piece) const {
        const int64_t end = (piece + 1) * kWords < words ? (piece + 1) * kWords : words;
        uint64_t sum = 0;
        for (int64_t i = piece * kWords; i < end; ++i) {
            sum += numerics::mixed_word(numerics::word_at(data, bytes, i),
                                        first_word + static_cast<uint64_t>(i));
        }
        Kokkos::atomic_add(result, static_cast<unsigned long long>(sum));
    }
};

template <class Exec> void content_hash(const Exec& exec, const ContentHashDesc& op) {
    const int64_t words = divide_up(op.bytes, 8);
    for_each(exec, "mp::content_hash", divide_up(words, ContentHash::kWords),
             ContentHash{static_cast<const unsigned char*>(op.data), op.bytes, words, op.first_word,
                         reinterpret_cast<unsigned long long*>(op.result)});
}

} // namespace mp::kernels
