// SPDX-License-Identifier: Apache-2.0
// ParamStates: the states of one parameter, or of a slice of its flattened elements: making them, giving them
// their first values, and deriving them again after the weight was written from outside. Knows nothing of
// groups, lists and steps.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/ops.hpp"
#include "optim/memory_plan.hpp"
#include "tensor/slice.hpp"

namespace mp::optim {

// A new tensor of zeros in a format, without the scales of blocks; null for a format of `none`.
std::shared_ptr<Tensor> make_state(const std::shared_ptr<Context>& context, Stream& stream,
                                   FormatId format, const Shape& shape);

// A rule's state, or a compensation, as it is stored.
struct StoredState {
    FormatId format = FormatId::none; // there is no such state
    ArrayRef array; // one row; its count is that of the elements, whatever the bytes of their codes
    bool is_signed = true;
};

using NamedTensor = std::pair<std::string, std::shared_ptr<Tensor>>;

class ParamStates {
  public:
    // All zero. `shape` is the parameter's, or {count} for a slice of it; a slice of states in blocks begins
    // at a multiple of the block size.
    ParamStates(const std::shared_ptr<Context>& context, Stream& stream,
                const StateFormats& formats, const Shape& shape);

    // `param` has the elements that these states belong to, `init_fp32` their exact values or is null. Writes
    // param's rounding of them and, into master or compensation, what that loses. Waits.
    void initialize(Stream& stream, const ArrayRef& param, const TensorRef* init_fp32) const;
    // After somebody else wrote the parameter: the master weight follows it, what was lost is forgotten.
    void sync_master(Stream& stream, const ArrayRef& param) const;

    // Pointers, types, codings and scales of the states.
    void fill(UpdateSegment& segment) const noexcept;
    // The states that exist and their scales, by name.
    [[nodiscard]] std::vector<NamedTensor> list() const;
    // Their codes, without scales.
    template <typename Body> void for_each(const Body& body) const {
        const auto visit = [&body](const std::shared_ptr<Tensor>& state) {
            if (state != nullptr) {
                body(*state);
            }
        };
        for (const Kept& state : states_) {
            visit(state.codes);
        }
        visit(compensation_.codes);
        visit(master_);
    }
    // Every array, scales too, with the bytes of it that belong to one chunk; 0: one number for all elements.
    template <typename Body> void for_each_array(const Body& body) const {
        for (int k = 0; k < rule().state_count; ++k) {
            visit_kept(states_[static_cast<std::size_t>(k)], formats_.states[k], body);
        }
        visit_kept(compensation_, formats_.compensation, body);
        visit_kept({master_, nullptr}, formats_.master, body);
    }
    void add_bytes(MemoryReport& report) const noexcept;
    [[nodiscard]] const StateFormats& formats() const noexcept { return formats_; }
    // One of the rule's states, or "compensation".
    [[nodiscard]] StoredState find(std::string_view name) const noexcept;
    [[nodiscard]] bool has_compensation() const noexcept { return compensation_.codes != nullptr; }
    [[nodiscard]] const std::shared_ptr<Tensor>& master() const noexcept { return master_; }
    [[nodiscard]] bool has_remainder() const noexcept {
        return formats_.master == FormatId::remainder16;
    }

  private:
    int64_t count_;
    StateFormats formats_;
    struct Kept {
        std::shared_ptr<Tensor> codes;        // null: there is none
        std::shared_ptr<Tensor> block_scales; // or null
    };
    Kept make_kept(const std::shared_ptr<Context>& context, Stream& stream, FormatId format,
                   const Shape& shape) const;
    template <typename Body>
    static void visit_kept(const Kept& kept, FormatId format, const Body& body) {
        if (kept.codes == nullptr) {
            return;
        }
        body(*kept.codes, code_bytes(format, kChunkElements));
        if (const TensorScales* const scales = kept.codes->scales(); scales != nullptr) {
            body(*scales->scale_inv, int64_t{0});
            body(*scales->amax, int64_t{0});
        }
        if (kept.block_scales != nullptr) {
            body(*kept.block_scales, scale_bytes(format, kChunkElements));
        }
    }
    [[nodiscard]] StoredState stored(const Kept& kept, FormatId format, bool is_signed) const;
    [[nodiscard]] numerics::RuleInfo rule() const noexcept {
        return numerics::rule_info(formats_.rule);
    }
    std::array<Kept, numerics::kMaxStates> states_; // those of the rule, in its order
    Kept compensation_;
    std::shared_ptr<Tensor> master_; // or null
};

} // namespace mp::optim
