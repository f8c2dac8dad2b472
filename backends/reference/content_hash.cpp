// SPDX-License-Identifier: Apache-2.0
// content_hash: the sum of all mixed words.
#include "numerics/content_hash.hpp"

#include "device/supports.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

Status run(Device& /*device*/, Queue& /*queue*/, const OpDesc& op) noexcept {
    const auto& hash = static_cast<const ContentHashDesc&>(op);
    const auto* bytes = static_cast<const unsigned char*>(hash.data);
    for (int64_t i = 0; 8 * i < hash.bytes; ++i) {
        *hash.result += numerics::mixed_word(numerics::word_at(bytes, hash.bytes, i),
                                             hash.first_word + static_cast<uint64_t>(i));
    }
    return {};
}

} // namespace

const Candidate kContentHash = {kName, takes_all<ContentHashDesc>, run, nullptr, nullptr};

} // namespace mp::backends::reference
