// SPDX-License-Identifier: Apache-2.0
// A layer whose weight has a trained magnitude (DoRA, arXiv 2402.09353): with v = w + scale b a,
//
//   y = u * m / |v| + bias,  u = x w^T + scale (x a^T) b^T,  |v| the norm of each row of v
//
// The norm counts as a constant in backward, as in the paper (4.3): what is below gets dy * m / |v|, and dm is the sum over
// rows of dy * u / |v|.
#pragma once

#include <memory>
#include <optional>

#include "linear/linear.hpp"
#include "linear/merged_weight.hpp"

namespace mp::linear {

// What a forward leaves for the magnitude's gradient, in the library's memory.
class KeptDirection {
  public:
    // Where |v| of this forward is, [out].
    [[nodiscard]] float* norms(Stream& stream, int64_t out);
    // Where u of this forward is.
    [[nodiscard]] ArrayRef directions(Stream& stream, DType dtype, int64_t rows, int64_t out);
    // Of the newest forward, for work that is enqueued now.
    [[nodiscard]] ArrayRef directions(const Stream& stream) { return u_.array(stream); }
    [[nodiscard]] float* norms() const noexcept { return norms_.as<float>(); }
    // It has run: with so many rows, and u is there, or not.
    void note(int64_t rows, bool has_directions) noexcept {
        rows_ = rows;
        has_directions_ = has_directions;
    }
    // u goes where no graph uses it.
    void drop() noexcept {
        u_.release();
        note(-1, false);
    }
    // -1: none has.
    [[nodiscard]] int64_t rows() const noexcept { return rows_; }
    [[nodiscard]] bool has_directions() const noexcept { return has_directions_; }

  private:
    OperandMemory u_;
    Buffer norms_;
    int64_t rows_ = -1;
    bool has_directions_ = false;
};

struct Magnitude {
    const Tensor* values = nullptr; // [out]; null: there is none
    Tensor* gradient = nullptr;     // null: not wanted
    KeptDirection* kept = nullptr;  // null: nothing is
};

// u of a forward, which then becomes y.
class ScaledForward {
  public:
    // `type`: of u. u has no memory yet, and nothing has changed.
    ScaledForward(Stream& stream, const Linear& base, const MergedWeight::Factors& adapter,
                  const Magnitude& magnitude, DType type, int64_t rows, Keep keep);
    [[nodiscard]] Tensor& directions() const noexcept { return *u_; }
    // Once all has been checked: u gets its memory, another tensor, and |v| is worked out.
    void begin();
    // u is there. y null: it alone was wanted.
    void finish(Tensor* y);

  private:
    Stream& stream_;
    const Linear& base_;
    MergedWeight::Factors adapter_;
    Magnitude magnitude_;
    DType type_;
    int64_t rows_;
    bool keeps_;
    bool is_again_;
    std::optional<Scratch> u_memory_;
    std::optional<Scratch> norm_memory_;
    float* norms_ = nullptr;
    std::unique_ptr<Tensor> u_;
};

// dy * m / |v| of a backward, in scratch memory, and the magnitude's gradient.
class ScaledBackward {
  public:
    // Throws where the gradient is wanted and no forward has kept what it needs, or dy is codes.
    ScaledBackward(Stream& stream, const Linear& base, const MergedWeight::Factors& adapter,
                   const Magnitude& magnitude, const Tensor& dy);
    [[nodiscard]] const Tensor& gradient() const noexcept { return *scaled_; }
    void run(bool accumulate);

  private:
    Stream& stream_;
    const Linear& base_;
    MergedWeight::Factors adapter_;
    Magnitude magnitude_;
    const Tensor& dy_;
    Scratch memory_;
    std::unique_ptr<Tensor> scaled_;
};

} // namespace mp::linear
