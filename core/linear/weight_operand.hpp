// SPDX-License-Identifier: Apache-2.0
// WeightOperand: the weight as a layer's products read it: its own elements, codes of the caller's, or a copy that is kept.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "context/context.hpp"
#include "linear/forward_amaxes.hpp"
#include "linear/operand.hpp"
#include "linear/scaling_state.hpp"
#include "recipe/layer_policy.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

// Where a layer counts what a use of an operand shows.
struct Counting {
    const ScalingState& scaling;
    ForwardAmaxes& amaxes;
    bool with_stats = false;
};

class WeightOperand {
  public:
    struct Options {
        bool is_frozen = false; // never changes, so it is converted once
        bool is_cached = false; // converted copies serve until forget()
    };
    WeightOperand(std::shared_ptr<Context> context,
                  std::shared_ptr<const recipe::LayerPolicy> policy, std::shared_ptr<Tensor> weight,
                  const Options& options)
        : context_(std::move(context)), policy_(std::move(policy)), weight_(std::move(weight)),
          options_(options) {}

    [[nodiscard]] const Tensor& tensor() const noexcept { return *weight_; }
    // These serve in the formats of fprop and dgrad, instead of copies of its own; null: a copy. Throws for other formats.
    void set_codes(std::array<std::shared_ptr<Tensor>, 2> codes);
    [[nodiscard]] const std::array<std::shared_ptr<Tensor>, 2>& codes() const noexcept {
        return codes_;
    }
    // Those that a product takes, or null.
    [[nodiscard]] const Tensor* given_codes(recipe::GemmRole role) const noexcept;
    // Throws where what this product reads of the caller's is deferred, or sharded and not gathered.
    void require_memory(recipe::GemmRole role) const;
    // What any product may read of the caller's.
    void add_to(MemoryRanges& ranges) const;

    // For a product that is enqueued now. `scratch` lives until then. `evaluates`: a copy that is made for it has not counted.
    ArrayRef view(Stream& stream, recipe::GemmRole role, std::optional<ScratchOperand>& scratch,
                  const Counting& counting, bool evaluates = false);
    // The weight has changed, or is about to.
    void forget() noexcept;
    // As the caller may have written to the weight since: the copies that need not serve longer.
    void forget_uncached() noexcept {
        if (!options_.is_cached && !options_.is_frozen) {
            forget();
        }
    }
    [[nodiscard]] std::string describe() const;

  private:
    [[nodiscard]] bool keeps(const Format& format) const noexcept;
    void forget_old();

    // By the role that made it; a role with the format of an earlier one has none.
    struct Copy {
        OperandMemory memory;
        bool is_valid = false;
        bool is_uncounted = false; // an evaluation made it, without statistics
        uint64_t capture = 0;      // that made it; 0: none, it is there
    };

    std::shared_ptr<Context> context_;
    std::shared_ptr<const recipe::LayerPolicy> policy_;
    std::shared_ptr<Tensor> weight_;
    Options options_;
    std::array<std::shared_ptr<Tensor>, 2> codes_; // the caller's; fprop, dgrad
    std::array<Copy, 2> copies_;                   // fprop, dgrad
    std::vector<MemoryWatch> watches_; // of what they were made of: elements, scales, amax
    uint64_t writes_ = 0;              // when they were made
};

} // namespace mp::linear
