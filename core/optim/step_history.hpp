// SPDX-License-Identifier: Apache-2.0
// StepHistory: what the last steps of an optimizer were, for the first one that goes wrong.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "status/status.hpp"

namespace mp::optim {

enum class StepOutcome : uint32_t { taken, non_finite, outlier };

struct StepRecord {
    int64_t call = 0; // steps asked for so far, this one included
    int64_t step = 0; // steps taken so far, this one included
    StepOutcome outcome = StepOutcome::taken;
    double loss = 0.0; // NaN: nobody gave it
    double loss_scale = 1.0;
    double lr = 0.0; // of the first group
    double grad_norm = 0.0;
    double grad_mul = 1.0;
    double grad_norm_z = 0.0;
    double loss_z = 0.0;
};

// Operands that a layer quantized and that were not finite.
struct BadOperand {
    std::string layer;
    const char* operand = "";
    int64_t count = 0;
};

// What was not finite when a step was.
struct BadTensors {
    std::string first; // in words: "the gradient of 'h0.qkv.weight'"
    std::vector<BadOperand> operands;
};

class StepHistory {
  public:
    StepHistory() = default;
    // The last `capacity` steps; 0: none. A path: the first step that is not finite writes them to this file.
    StepHistory(int32_t capacity, std::string path);

    [[nodiscard]] bool is_on() const noexcept { return capacity_ > 0; }
    void add(const StepRecord& record) noexcept; // overwrites the oldest; takes no memory
    [[nodiscard]] int32_t count() const noexcept {
        return static_cast<int32_t>(std::min<int64_t>(calls_, capacity_));
    }
    // The oldest is 0. Throws for a record that there is not.
    [[nodiscard]] const StepRecord& at(int32_t index) const;
    // Of the first step that was not finite.
    [[nodiscard]] bool has_bad() const noexcept { return has_bad_; }
    [[nodiscard]] const BadTensors& bad() const noexcept { return bad_; }
    void set_bad(BadTensors bad) noexcept {
        bad_ = std::move(bad);
        has_bad_ = true;
    }
    // Replaces the file where there is a path.
    [[nodiscard]] Status write() const noexcept;
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    [[nodiscard]] std::string to_json() const;

    int32_t capacity_ = 0;
    std::string path_;
    int64_t calls_ = 0;
    std::vector<StepRecord> ring_;
    bool has_bad_ = false;
    BadTensors bad_;
};

} // namespace mp::optim
