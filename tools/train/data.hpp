// SPDX-License-Identifier: Apache-2.0
// The text, and the batches drawn from it. One byte is one token.
#pragma once

#include <cstdint>
#include <string>

#include "options.hpp"
#include "random.h"

namespace train {

struct Text {
    std::string bytes;
    int64_t train_count = 0; // the first nine tenths; the rest is for validation

    // Reads the file. Both parts must hold context + 1 bytes. Throws a Failure that says what to do.
    explicit Text(const Options& options);

    // Of all bytes: FNV-1a.
    [[nodiscard]] uint64_t hash() const;

    // Fills tokens and targets [batch, context] with batch number `index` of a stream (STREAM_TRAIN or STREAM_VAL).
    void batch(const Options& options, uint64_t stream, int64_t index, uint8_t* tokens,
               uint8_t* targets) const;
};

} // namespace train
