// SPDX-License-Identifier: Apache-2.0
// Linear: y = x w^T + bias and its gradients: products over operands in the formats that a policy resolves, with the scaling
// state of the operands, and what the weight gradient needs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "linear/dropout.hpp"
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
    float scale = 1.0F;      // of the product, and so of both gradients
    uint32_t drop_below = 0; // of x, where it is trained: of 65536 elements so many are dropped
    std::string name;        // for the recipe's rules and for messages; may be empty
};

// Where the weight gradients go; a null tensor is not wanted.
struct WeightGradients {
    Tensor* dw = nullptr;
    Tensor* dbias = nullptr;
    bool accumulate = false;
};

// Where y or dx goes; a null tensor is not wanted.
struct Result {
    Tensor* tensor = nullptr;
    bool accumulate = false; // added to what is there, and rounded once more
    bool is_bare = false;    // y without the bias
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

    // Whether a forward keeps x.
    [[nodiscard]] bool keeps_input() const noexcept {
        return !options_.inference && !options_.frozen;
    }
    // The layer's own: what the last forward kept. Null: none is kept.
    [[nodiscard]] Saved* last() noexcept { return keeps_input() ? &last_ : nullptr; }
    // The same of a layer that has adapters, which keep something where it does not.
    [[nodiscard]] Saved& last_with_adapters() noexcept { return last_; }
    // The two halves of a call; a pass over a layer with all its adapters (layer_pass.hpp) has both for each.
    // Throws for what cannot be, but for memory that is named twice, and changes nothing.
    void prepare_forward(Stream& stream, const Tensor& x, const Result& y, Saved* saved, Keep keep);
    void prepare_backward(Stream& stream, const Saved* saved, const Tensor& dy, const Result& dx,
                          const WeightGradients& gradients);
    // Without y: only what is kept, `again`. `saved` null: nothing is, and only a backward without it counts what was seen. A
    // layer that is frozen, or of inference, keeps no x in it.
    void forward(Stream& stream, const std::shared_ptr<Tensor>& whole, const Result& y,
                 Saved* saved, Keep keep);
    // Without dx: only the weight's gradients; gradients.dw null: only dx, for which `saved` may be null.
    // What of x dx is written over is kept no longer.
    void backward(Stream& stream, Saved* saved, const Tensor& dy, const Result& dx,
                  const WeightGradients& gradients);
    // Instead of a backward of which nothing is wanted: its forward counts all the same.
    void pass_over(Stream& stream, Saved& saved);
    // Memory of the caller's that a call reads and writes, beside x, y, dx and dy.
    void add_forward(MemoryRanges& ranges, const Tensor& x, const Saved* saved, Keep keep) const;
    void add_backward(MemoryRanges& ranges, const Saved* saved, const WeightGradients& g) const;
    void add_kept(MemoryRanges& ranges, const Saved& saved) const; // x
    // The weight has changed, or is about to; delayed scales move on.
    void end_step(Stream& stream);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const LinearOptions& options() const noexcept { return options_; }
    [[nodiscard]] const recipe::LayerPolicy& policy() const noexcept { return *policy_; }
    [[nodiscard]] WeightOperand& weight() noexcept { return weight_; }
    [[nodiscard]] const WeightOperand& weight() const noexcept { return weight_; }
    [[nodiscard]] const Tensor* bias() const noexcept { return bias_.get(); }
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
    // What any call reads.
    void add_own(MemoryRanges& ranges) const;
    // That it does not lie where x is kept.
    void check_workspace(const Stream& stream, const Saved* saved) const;
    Tracking track_input(Stream& stream, const Tensor& x, Saved* saved, Keep keep);
    // How codes of an operand are made at this time.
    [[nodiscard]] Sink making(recipe::GemmRole role, recipe::Operand operand,
                              const Tracking& tracking, uint64_t time) const;
    // Whose random bits this forward has.
    Pass begin_pass(Saved* saved, Keep keep);
    void multiply_gradient(Stream& stream, Saved* saved, uint64_t time, const Tensor& dy,
                           const Result& dx, const WeightGradients& gradients);
    // Whether a backward finds out what its forward dropped: an evaluation drops nothing.
    [[nodiscard]] bool has_dropped(const Saved* saved) const noexcept {
        return dropout_.is_used() && saved != nullptr && saved->rows() >= 0;
    }
    // What dx is multiplied into: fp32 that is then dropped out, or dx itself.
    [[nodiscard]] gemm::GemmPlan& data_product(const Saved* saved, int64_t rows, const Result& dx);
    void end_backward(Stream& stream, Saved* saved, Pass& pass);
    void data_gradient(Stream& stream, const Saved* saved, uint64_t time, const ArrayRef& dy,
                       const Result& dx);
    // What a forward that is given this leaves in it.
    [[nodiscard]] bool keeps_input(const Saved* saved, Keep keep) const noexcept {
        return saved != nullptr && keep != Keep::scale && keeps_input();
    }
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
    Dropout dropout_;
    Saved last_;
};

// Of x [rows, in_features] when it is kept in lent memory.
std::size_t saved_bytes(const Linear& layer, int64_t rows);
// Rounds an operand as this product would, and counts it. Throws unless the codes are in its format.
void quantize_operand(Stream& stream, const Linear& layer, recipe::GemmRole role,
                      recipe::Operand operand, const Tensor& source, Tensor& codes);

} // namespace mp::linear
