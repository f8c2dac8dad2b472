// SPDX-License-Identifier: Apache-2.0
#include "numerics/content_hash.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

constexpr int64_t kWords = 8192; // of one job

// Words first ... end - 1, of which the array has all bytes.
uint64_t sum_of(const unsigned char* bytes, int64_t first, int64_t end, uint64_t place) noexcept {
    uint64_t sum = 0;
    for (int64_t i = first; i < end; ++i) {
        uint64_t word = 0; // little-endian, as every processor that the host's kernels are for
        std::memcpy(&word, bytes + 8 * i, sizeof word);
        sum += numerics::mixed_word(word, place + static_cast<uint64_t>(i));
    }
    return sum;
}

void content_hash(ThreadPool& threads, const ContentHashDesc& op) noexcept {
    const auto* bytes = static_cast<const unsigned char*>(op.data);
    const int64_t words = op.bytes / 8;
    std::atomic<uint64_t> sum{0};
    threads.for_each(divide_up(words, kWords), [&](int64_t job) {
        const int64_t end = std::min(words, (job + 1) * kWords);
        sum.fetch_add(sum_of(bytes, job * kWords, end, op.first_word), std::memory_order_relaxed);
    });
    if (op.bytes % 8 != 0) {
        sum += numerics::mixed_word(numerics::word_at(bytes, op.bytes, words),
                                    op.first_word + static_cast<uint64_t>(words));
    }
    *op.result += sum;
}

} // namespace

const Candidate kContentHash = kByThreads<content_hash, ContentHashDesc>;

} // namespace mp::backends::host
