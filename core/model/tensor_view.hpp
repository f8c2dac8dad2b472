// SPDX-License-Identifier: Apache-2.0
// TensorView: a tensor that is read from others: their rows behind each other, some of its rows, in another order, or transposed.
// Nothing of it lies in memory: what is asked for is read from where it is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/tensor_source.hpp"

namespace mp::model {

class TensorView {
  public:
    TensorView(FileType type,
               std::vector<int64_t> shape); // throws invalid_shape where it is too large
    TensorView(const TensorView&) = delete;
    TensorView& operator=(const TensorView&) = delete;
    virtual ~TensorView() = default;

    [[nodiscard]] FileType type() const noexcept { return type_; }
    [[nodiscard]] const std::vector<int64_t>& shape() const noexcept { return shape_; }
    [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] int64_t row_bytes() const noexcept {
        return shape_.empty() || shape_[0] == 0 ? 0 : bytes_ / shape_[0];
    }
    // Of bytes that it has. Any thread.
    virtual void read(int64_t offset, unsigned char* to, int64_t bytes) const = 0;
    // The first tensor that it is read from.
    [[nodiscard]] virtual std::size_t first_source() const noexcept = 0;

  private:
    FileType type_;
    std::vector<int64_t> shape_;
    int64_t bytes_ = 0;
};
using TensorViewPtr = std::unique_ptr<const TensorView>;

// The source outlives the view.
TensorViewPtr view_of(const TensorSource& source, std::size_t index);
// These throw invalid_shape and invalid_dtype.
// Along dimension 0; the other dimensions and the type are equal.
TensorViewPtr join_views(std::vector<TensorViewPtr> parts);
// Rows first to end - 1.
TensorViewPtr rows_of(TensorViewPtr view, int64_t first, int64_t end);
// Of so many parts of as many rows each one, from 0 on.
TensorViewPtr part_of(TensorViewPtr view, int64_t part, int64_t parts);
// Of two dimensions, and elements of whole bytes.
TensorViewPtr transposed(TensorViewPtr view);
// Rows of rotary embeddings, head by head: the two of a pair lie half a head apart (Hugging Face), or side by side (llama's
// GGUF).
TensorViewPtr half_to_pairs(TensorViewPtr view, int64_t heads);
TensorViewPtr pairs_to_half(TensorViewPtr view, int64_t heads);

} // namespace mp::model
