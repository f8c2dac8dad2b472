// SPDX-License-Identifier: Apache-2.0
// Layout: what arrays a parameter has, decided once: the format of each, where it lies, which elements of it a rank has, for how
// long, and what travels as what. The memory and wire plans, the parameters, the step, checkpoints and what ranks share read it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "comm/wire.hpp"
#include "dtype/format_id.hpp"
#include "numerics/rules.hpp"
#include "recipe/recipe.hpp"
#include "tensor/slice.hpp"

namespace mp::optim {

// The format of a weight or gradient; where it has scales of blocks, of its codes alone.
FormatId format_of(const Tensor& tensor);

// What one parameter is kept in beside its weight; `none` for what it does not have.
struct StateFormats {
    FormatId grad = FormatId::none;
    numerics::RuleId rule = numerics::RuleId::adamw;
    FormatId states[numerics::kMaxStates] = {}; // those of the rule, in its order
    FormatId compensation = FormatId::none;
    FormatId master = FormatId::none;
    bool half_away = false; // the weight is rounded from its fp32 master with halves away from zero
};

// For a parameter of `weight` format with so many elements, stepped by a rule: of the whole parameter, however it is cut
// between ranks, so that the cut does not decide the formats.
StateFormats state_formats(const recipe::Recipe& recipe, FormatId weight, int64_t count,
                           numerics::RuleId rule);

// What the states of a group of parameters are kept in, in its rule's order, as the recipe's keys say it; empty: what the
// recipe says.
using FormatsOfGroup = std::array<std::string, numerics::kMaxStates>;
// The recipe of such a group. A recipe's roundings are those of the whole step; where a group keeps fp32 nothing is rounded.
recipe::Recipe with_formats(const recipe::Recipe& recipe, const FormatsOfGroup& formats,
                            numerics::RuleId rule);

// What a weight of this format is gathered in: the recipe's gather type where that is smaller, for weights of the
// recipe's own type; else its own. Vectors (norms, biases), which no product takes, are never rounded for it.
DType gather_dtype(const recipe::Recipe& recipe, FormatId weight, bool is_vector);

// Which elements of an array a rank has: all, or those of its slice.
enum class Placement { whole, slice };
// Where an array lies: on the context's device, or in host memory; pinned where the device copies from and to it by itself.
enum class Place { device, host, pinned };
[[nodiscard]] constexpr bool is_on_host(Place place) noexcept { return place != Place::device; }
// For how long an array has memory: always, or around its use: weights between gather and release, gradients until they leave.
enum class Lifetime { always, in_use };

struct LayoutArray {
    FormatId format = FormatId::none; // there is no such array
    Lifetime lifetime = Lifetime::always;
    Place place = Place::device;
    // Of a weight in blocks: codes of `format` on a matrix of so many columns. Else none.
    ScaleGrid blocks = {};
    int64_t columns = 0;

    [[nodiscard]] bool exists() const noexcept { return format != FormatId::none; }
    // Those that a rank holds between uses, of so many elements.
    [[nodiscard]] int64_t bytes(int64_t count) const;
};

// How ranks share a model.
struct LayoutOptions {
    int32_t stage = -1; // of ZeRO; -1: nobody shares it
    Format wire = comm::wire_format(DType::fp32);
    bool offload = false;       // states and the step are the host's
    bool offload_grads = false; // and what the step reads of gradients
    bool grads_given = false;   // to the step: there are none here
};

// A parameter as its layout sees it.
struct LayoutTensor {
    int64_t count = 0;
    FormatId memory = FormatId::none; // what its tensor is
    bool is_vector = false;           // of one dimension
    numerics::RuleId rule = numerics::RuleId::adamw;
    bool is_frozen = false; // not trained: it has no gradient and no states
    // Of a frozen one in blocks, whose `memory` is the type of its codes.
    ScaleGrid blocks = {};
    int64_t columns = 0;
    bool grad_stays = false; // in memory of the caller's, which has it always
};
// Of a tensor.
LayoutTensor layout_tensor(const Tensor& tensor, numerics::RuleId rule, bool is_frozen);

struct Layout {
    int64_t count = 0;
    FormatId kept = FormatId::none; // as kept_format()
    bool is_frozen = false;         // no gradient travels, and no weight but in stage 3
    bool is_codes = false;          // the tensor is codes for use only, which ranks gather
    LayoutArray weight;             // the parameter's tensor
    LayoutArray own_weight;         // its owner's slice, where that is not part of the tensor
    LayoutArray grad;
    // Of one that nobody shares, where the step reads it, if `grad` has memory in use only; else none.
    LayoutArray host_grad;
    StateFormats formats;
    Placement states = Placement::whole; // also of the weight, as a checkpoint has it
    Place states_place = Place::device;  // of each of `formats`: one step works on all of them
    // Beside states on the host: those elements, which the step writes and the device's follow.
    LayoutArray host_weight;
    DType gather = DType::none; // what its weight is gathered in
    Format wire;                // what its gradient is reduced in
    // Of its slice over ranks; none: nobody else has a part in its gradient.
    LayoutArray sum;
    bool is_summed_everywhere = false; // sums of all elements too

    // Elements of its weight that no cut parts.
    [[nodiscard]] int64_t unit() const;
    // What the step reads of gradients.
    [[nodiscard]] const LayoutArray& stepped_grad() const noexcept {
        return sum.exists() ? sum : host_grad.exists() ? host_grad : grad;
    }
    // What the step writes on the device: its owner's slice, or the tensor.
    [[nodiscard]] FormatId stepped() const noexcept {
        return own_weight.exists() ? own_weight.format : weight.format;
    }
};

// What the step keeps a weight in, exactly: what its tensor is, but where that is codes for use, which ranks gather.
FormatId kept_format(const recipe::Recipe& recipe, FormatId memory, const LayoutOptions& options);

// `recipe`: with the formats of the parameter's group.
Layout make_layout(const recipe::Recipe& recipe, const LayoutTensor& tensor,
                   const LayoutOptions& options);

} // namespace mp::optim
