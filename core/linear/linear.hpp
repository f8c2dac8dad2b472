// SPDX-License-Identifier: Apache-2.0
// Linear: y = x w^T + bias and its gradients, with operands in the formats that a recipe asks for. Keeps what the
// weight gradient needs, the scaling state of its operands, and a plan for each GEMM shape it has met.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gemm/gemm.hpp"
#include "linear/forward_amaxes.hpp"
#include "linear/operand.hpp"
#include "linear/saved.hpp"
#include "linear/scaling_state.hpp"
#include "recipe/recipe.hpp"
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
    // Whether a backward has run since the last end_step().
    [[nodiscard]] bool has_backward() const noexcept { return amaxes_.has_backward(); }
    // Whether all its forwards since then count at the end of this step. It is one of training where a layer had a backward: then
    // only forwards with one count, but of a frozen layer, which may need none.
    [[nodiscard]] bool counts_forwards(bool is_training) const noexcept {
        return !has_backward() && (!is_training || options_.frozen);
    }
    // The amaxes of those forwards, of x and the weight, as bits; what settle_amaxes() adds before end_step(). The first waits.
    [[nodiscard]] std::array<uint32_t, 2> forward_amaxes(Stream& stream) const {
        return amaxes_.forwards(stream);
    }
    void settle_amaxes(Stream& stream, bool is_training) {
        amaxes_.settle(stream, scaling_, counts_forwards(is_training));
    }
    // The weight has changed, or is about to; delayed scales move on.
    void end_step(Stream& stream);

    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }
    [[nodiscard]] const recipe::Recipe& recipe() const noexcept { return recipe_; }
    [[nodiscard]] const LinearOptions& options() const noexcept { return options_; }
    // For a monitor. A layer that was made to count goes on counting.
    void collect_stats(bool on);
    [[nodiscard]] const numerics::Rounding& rounding() const noexcept { return rounding_; }
    void set_rounding(const numerics::Rounding& rounding) noexcept { rounding_ = rounding; }
    // Of x [rows, in_features] when it is kept in lent memory.
    [[nodiscard]] std::size_t saved_bytes(int64_t rows) const;
    [[nodiscard]] const ScalingState& scaling() const noexcept { return scaling_; }
    // What scaling().save() returned. Weights converted before have the scales and amaxes of another state.
    void load_scaling(Stream& stream, const unsigned char* data, std::size_t size);
    [[nodiscard]] bool is_fp8() const noexcept { return high_precision_reason_.empty(); }
    // Why a layer that the recipe means to have fp8 products has none; empty where it has, or where none was asked for.
    [[nodiscard]] std::string fallback() const;
    // What shows that a step has begun without an end of the one before, where that matters; null: nothing does. Said once.
    [[nodiscard]] const char* forgotten_end_step();
    // What the last backward lost by adding a micro-batch into codes; empty where nothing is. Said once.
    [[nodiscard]] std::string accumulation_note();
    // The format of an operand in the product that quantizes it first.
    [[nodiscard]] Format format_of(recipe::Operand operand) const noexcept;
    // In this product. Throws where it has no such operand.
    [[nodiscard]] const Format& format_of(recipe::GemmRole role, recipe::Operand operand) const;
    // Rounds an operand as this product would, and counts it. Throws unless the codes are in its format.
    void quantize(Stream& stream, recipe::GemmRole role, recipe::Operand operand,
                  const Tensor& source, Tensor& codes) const;
    // These serve as the weight, in the formats of fprop and dgrad, instead of copies of its own; null: a copy.
    void set_weight_codes(std::array<std::shared_ptr<Tensor>, 2> codes);
    [[nodiscard]] const std::array<std::shared_ptr<Tensor>, 2>& weight_codes() const noexcept {
        return weight_codes_;
    }
    [[nodiscard]] std::string describe() const;

  private:
    using PlanKey = std::tuple<recipe::GemmRole, int64_t, DType,
                               bool>; // role, rows, dtype of the result, accumulate
    struct RoleFormats {
        Format a;
        Format b;
    };

    void choose_formats();
    [[nodiscard]] const RoleFormats& formats(recipe::GemmRole role) const noexcept {
        return formats_[static_cast<std::size_t>(role)];
    }
    [[nodiscard]] Tracking track(recipe::Operand operand) const noexcept {
        return scaling_.tracking(operand, options_.with_stats);
    }
    [[nodiscard]] int64_t rows_of(const Tensor& tensor, int64_t columns, const char* name,
                                  bool may_be_quantized = false) const;
    gemm::GemmPlan& plan(recipe::GemmRole role, int64_t rows, DType result, bool accumulate);
    void forget_old_plans();
    [[nodiscard]] bool keeps_input() const noexcept {
        return !options_.inference && !options_.frozen;
    }
    void check_codes(const Tensor& codes, const Format& format, const char* name) const;
    // What any call reads, and the queue's workspace, which it writes.
    void add_own(const Stream& stream, MemoryRanges& ranges) const;
    void check_apart(const Stream& stream, const Tensor& x, const Tensor* y, const Saved* saved,
                     Keep keep) const;
    void check_kept(const Saved* saved, const Tensor& dy, int64_t rows) const;
    void check_gradients(const WeightGradients& gradients) const;
    void check_apart(const Stream& stream, const Saved* saved, const Tensor& dy, const Tensor* dx,
                     const WeightGradients& gradients) const;
    [[nodiscard]] bool rounds_stochastically(const Tensor& dw) const noexcept;
    Tracking track_input(Stream& stream, const Tensor& x, Saved* saved, Keep keep);
    Tracking track_weight(Stream& stream, std::size_t product, bool with_stats);
    void multiply_gradient(Stream& stream, Saved* saved, const Tensor& dy, Tensor* dx,
                           const WeightGradients& gradients);
    void note_gradient(bool accumulates);
    [[nodiscard]] bool adds_to_codes(const WeightGradients& gradients) const noexcept;
    // Counts what is not rounded where it is used: operands in high precision, and codes that somebody else made.
    void count_apart(Stream& stream, recipe::Operand operand, const Tensor& tensor) const;
    void count_unrounded(Stream& stream, const Tensor& x, bool keeps_input) const;

    // The caller's, or null.
    [[nodiscard]] const Tensor* given_codes(recipe::GemmRole role) const noexcept;
    [[nodiscard]] bool keeps_weight(const Format& format) const noexcept;
    // `evaluates`: what is converted for it is not counted.
    ArrayRef weight_view(Stream& stream, recipe::GemmRole role,
                         std::optional<ScratchOperand>& scratch, bool with_stats,
                         bool evaluates = false);
    void forget_weight_copies() noexcept;
    void forget_old_weight_copies();
    void bias_gradient(Stream& stream, const Tensor& dy, Tensor& dbias, bool accumulate) const;
    gemm::GemmPlan& weight_gradient_plan(const Tensor& dw, int64_t rows, bool accumulate);
    void weight_gradient(Stream& stream, Saved& saved, const ArrayRef& dy, Tensor& dw,
                         bool accumulate);

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;   // as it is for this layer
    std::string layer_rules_; // patterns of it that the name fits
    LinearOptions options_;
    bool always_counts_ = false; // made with_stats
    std::shared_ptr<Tensor> weight_;
    std::shared_ptr<Tensor> bias_;
    std::array<std::shared_ptr<Tensor>, 2> weight_codes_; // the caller's; fprop, dgrad
    numerics::Rounding rounding_;                         // of gradients of fewer bits than fp32
    std::string high_precision_reason_;                   // empty: fp8 where the recipe says so
    std::array<RoleFormats, 3> formats_;                  // by GemmRole
    ScalingState scaling_;
    ForwardAmaxes amaxes_;

    // Converted weights, by the role that made them; a role with the format of an earlier one has none.
    struct WeightCopy {
        OperandMemory memory;
        bool is_valid = false;
        bool is_uncounted = false; // an evaluation made it, without statistics
        uint64_t capture = 0;      // that made it; 0: none, it is there
    };
    std::array<WeightCopy, 2> weight_copies_; // fprop, dgrad
    std::vector<MemoryWatch> weight_watches_; // of what they were made of: elements, scales, amax
    uint64_t weight_writes_ = 0;              // when they were made

    Saved last_;
    int64_t gradients_begun_ = 0; // since end_step(): overwritten, not added to
    std::optional<uint64_t>
        weight_at_first_; // weight_sample() at the first gradient since end_step()
    bool has_warned_ = false;
    uint64_t left_version_ = 0; // of the last dw, as it was left
    bool adds_to_codes_ = false;
    bool has_noted_ = false;
    std::map<PlanKey, gemm::GemmPlan> plans_;
};

} // namespace mp::linear
