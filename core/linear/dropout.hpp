// SPDX-License-Identifier: Apache-2.0
// Dropout of what a layer multiplies: which elements go follows from the layer's name, its trainer's seed and the pass, so that a
// backward finds them again without anything kept.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "linear/passes.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

class Dropout {
  public:
    Dropout() = default;
    // An element goes with the probability drop_below / 65536; 0: none does.
    Dropout(uint32_t drop_below, const std::string& layer);

    [[nodiscard]] bool is_used() const noexcept { return drop_below_ > 0; }
    // to (+)= what is left of it, times 65536 / (65536 - drop_below).
    void run(Stream& stream, const TensorRef& from, const TensorRef& to, uint64_t seed,
             uint64_t time, bool accumulate = false) const;

  private:
    uint32_t drop_below_ = 0;
    uint64_t uid_ = 0;
};

// What dropout leaves of a matrix, in its type and in scratch memory.
class DroppedMatrix {
  public:
    DroppedMatrix(Stream& stream, const Dropout& dropout, const ArrayRef& source,
                  const std::shared_ptr<Context>& context, uint64_t seed, uint64_t time);
    [[nodiscard]] const std::shared_ptr<Tensor>& tensor() const noexcept { return tensor_; }

  private:
    Scratch memory_;
    std::shared_ptr<Tensor> tensor_;
};

} // namespace mp::linear
