// SPDX-License-Identifier: Apache-2.0
// GradientNotes: what the order of a layer's gradients shows of mistakes: steps without an end, sums in few bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/tensor.hpp"

namespace mp::linear {

class GradientNotes {
  public:
    // `watches`: something of the layer's lasts until end_step(), so that a forgotten one matters.
    explicit GradientNotes(bool watches) : watches_(watches) {}

    // A gradient of this weight is about to be written, or added.
    void begin(const Tensor& dw, bool accumulates) noexcept;
    // It was.
    void end(const Tensor& weight, const Tensor& dw, bool accumulates);
    // The step has ended, or a checkpoint took the weight's place.
    void start_over() noexcept;

    // What shows that a step has begun without an end of the one before; null: nothing does. Said once.
    [[nodiscard]] const char* forgotten_end_step(const Tensor& weight);
    // What the last gradient lost by being added into codes; empty where nothing is. Said once.
    [[nodiscard]] std::string accumulation();

  private:
    bool watches_;
    int64_t begun_ = 0;                       // since start_over(): overwritten, not added to
    std::optional<uint64_t> weight_at_first_; // a sample of it at the first gradient since then
    bool has_warned_ = false;
    uint64_t left_version_ = 0; // of the last dw, as it was left
    bool adds_to_codes_ = false;
    bool has_noted_ = false;
};

} // namespace mp::linear
