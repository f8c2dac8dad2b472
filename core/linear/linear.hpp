// SPDX-License-Identifier: Apache-2.0
// Linear: y = x w^T + bias and its gradients: products over operands in the formats that a policy resolves, with the scaling
// state of the operands, and what the weight gradient needs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "linear/forward_amaxes.hpp"
#include "linear/gradient_notes.hpp"
#include "linear/operand.hpp"
#include "linear/products.hpp"
#include "linear/saved.hpp"
#include "linear/scaling_state.hpp"
#include "linear/weight_operand.hpp"
#include "recipe/layer_policy.hpp"
#include "tensor/tensor.hpp"

namespace mp::linear {

struct LinearOptions {
    int64_t in_features = 0;
    int64_t out_features = 0;
    bool inference = false;        // nothing of x is kept
    bool frozen = false;           // likewise; the weight never changes, so it is converted once
    bool cache_weight = false;     // converted weights serve until end_step()
    bool is_first_or_last = false; // of the whole model
    bool with_stats = false;
    bool copy_input = false; // never x by reference
    std::string name;        // for the recipe's rules and for messages; may be empty
};

// Where the weight gradients go; a null tensor is not wanted.
struct WeightGradients {
    Tensor* dw = nullptr;
    Tensor* dbias = nullptr;
    bool accumulate = false;
};

// What a forward leaves in what it was given to keep.
enum class Keep {
    nothing, // an evaluation: counts nothing either
    input,   // x
    scale,   // how x was scaled, and its rows: x is brought back by `again`
    again,   // x once more, by the scale that is kept; nothing is counted
};

class Linear {
  public:
    Linear(std::shared_ptr<Context> context, const recipe::Recipe& recipe,
           const LinearOptions& options, std::shared_ptr<Tensor> weight,
           std::shared_ptr<Tensor> bias);

    // The layer's own: what the last forward kept. Null: none is kept.
    [[nodiscard]] Saved* last() noexcept { return keeps_input() ? &last_ : nullptr; }
    // y null: only what is kept, `again`. `saved` null: nothing is, and only a backward without it counts what was seen.
    void forward(Stream& stream, const std::shared_ptr<Tensor>& x, Tensor* y, Saved* saved,
                 Keep keep = Keep::input);
    // dx null: only the weight's gradients; gradients.dw null: only dx, for which `saved` may be null.
    // What of x dx is written over is kept no longer.
    void backward(Stream& stream, Saved* saved, const Tensor& dy, Tensor* dx,
                  const WeightGradients& gradients);
    // The weight has changed, or is about to; delayed scales move on.
    void end_step(Stream& stream);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const LinearOptions& options() const noexcept { return options_; }
    [[nodiscard]] const recipe::LayerPolicy& policy() const noexcept { return *policy_; }
    [[nodiscard]] WeightOperand& weight() noexcept { return weight_; }
    [[nodiscard]] const WeightOperand& weight() const noexcept { return weight_; }
    [[nodiscard]] const ScalingState& scaling() const noexcept { return scaling_; }
    // What scaling().save() returned. Weights converted before have the scales and amaxes of another state.
    void load_scaling(Stream& stream, const unsigned char* data, std::size_t size);
    // Whose steps end this layer's. Codes of a weight that were made of other random bits are made again.
    void set_trainer(const Trainer& trainer) noexcept;
    // Throws bad_state in a capture where operands are rounded stochastically.
    void refuse_frozen_bits(const Stream& stream) const;
    // Of forwards whose backward has not run, or will not.
    [[nodiscard]] ForwardAmaxes& amaxes() noexcept { return amaxes_; }
    [[nodiscard]] GradientNotes& notes() noexcept { return notes_; }
    // For a monitor. A layer that was made to count goes on counting.
    void collect_stats(bool on);
    // Of gradients of fewer bits than fp32.
    [[nodiscard]] const numerics::Rounding& rounding() const noexcept { return rounding_; }
    void set_rounding(const numerics::Rounding& rounding) noexcept { rounding_ = rounding; }
    [[nodiscard]] std::string describe() const;

  private:
    [[nodiscard]] bool keeps_input() const noexcept {
        return !options_.inference && !options_.frozen;
    }
    // What any call reads, and the queue's workspace, which it writes.
    void add_own(const Stream& stream, MemoryRanges& ranges) const;
    void check_forward(const Stream& stream, const Tensor& x, const Tensor* y, const Saved* saved,
                       Keep keep) const;
    void check_backward(const Stream& stream, const Saved* saved, const Tensor& dy,
                        const Tensor* dx, const WeightGradients& gradients) const;
    Tracking track_input(Stream& stream, const Tensor& x, Saved* saved, Keep keep);
    // How codes of an operand are made at this time.
    [[nodiscard]] Sink making(recipe::GemmRole role, recipe::Operand operand,
                              const Tracking& tracking, uint64_t time) const;
    // Whose random bits this forward has.
    Pass begin_pass(Saved* saved, Keep keep);
    void multiply_gradient(Stream& stream, Saved* saved, uint64_t time, const Tensor& dy,
                           Tensor* dx, const WeightGradients& gradients);
    void weight_gradient(Stream& stream, Saved& saved, const ArrayRef& dy,
                         const WeightGradients& gradients);

    std::shared_ptr<Context> context_;
    LinearOptions options_;
    bool always_counts_; // made with_stats
    std::shared_ptr<const recipe::LayerPolicy> policy_;
    WeightOperand weight_;
    std::shared_ptr<Tensor> bias_;
    Products products_;
    ScalingState scaling_;
    ForwardAmaxes amaxes_;
    GradientNotes notes_;
    numerics::Rounding rounding_;
    Saved last_;
};

// Of x [rows, in_features] when it is kept in lent memory.
std::size_t saved_bytes(const Linear& layer, int64_t rows);
// Rounds an operand as this product would, and counts it. Throws unless the codes are in its format.
void quantize_operand(Stream& stream, const Linear& layer, recipe::GemmRole role,
                      recipe::Operand operand, const Tensor& source, Tensor& codes);

} // namespace mp::linear
