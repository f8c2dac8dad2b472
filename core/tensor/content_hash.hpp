// SPDX-License-Identifier: Apache-2.0
// ContentHash: names tensors by their contents, which are read where they are; eight bytes come to the host.
#pragma once

#include "runtime/select.hpp"
#include "tensor/tensor.hpp"

namespace mp {

// Of tensors one after another.
class ContentHash {
  public:
    explicit ContentHash(Stream& stream) : stream_(stream), sum_(stream, sizeof(uint64_t)) {
        stream_.zero(sum_.data(), sizeof(uint64_t));
    }
    void add(const Tensor& tensor) {
        ContentHashDesc op{};
        op.kind = OpKind::content_hash;
        op.data = tensor.data();
        op.bytes = static_cast<int64_t>(tensor.bytes());
        op.first_word = words_;
        op.result = static_cast<uint64_t*>(sum_.data());
        run_op(stream_, op);
        words_ += (tensor.bytes() + 7) / 8;
    }
    // Of the device: of what was added so far, in the order of the stream.
    [[nodiscard]] const uint64_t* sum() const noexcept {
        return static_cast<const uint64_t*>(sum_.data());
    }
    [[nodiscard]] uint64_t value() {
        uint64_t sum = 0;
        stream_.copy(&sum, sum_.data(), sizeof sum, CopyKind::device_to_host);
        stream_.sync();
        return sum;
    }

  private:
    Stream& stream_;
    Scratch sum_;
    uint64_t words_ = 0;
};

} // namespace mp
