// SPDX-License-Identifier: Apache-2.0
#include "linear/gradient_notes.hpp"

#include <cstring>
#include <utility>

#include "system/fnv.hpp"

namespace mp::linear {
namespace {

// Of some elements of the weight, so that it costs nothing: an optimizer's step changes nearly all. 0 where the host cannot look.
uint64_t weight_sample(const Tensor& weight) {
    constexpr int64_t kSamples = 64;
    system::Fnv64 hash;
    if (!weight.device().is_host() || !weight.has_memory() || weight.count() == 0) {
        return 0;
    }
    const auto size = static_cast<std::size_t>(dtype_size(weight.dtype()));
    const int64_t apart = weight.count() / kSamples | 1; // odd, so that not all lie in one column
    for (int64_t i = 0; i < weight.count(); i += apart) {
        uint64_t bits = 0;
        std::memcpy(&bits,
                    static_cast<const unsigned char*>(weight.data()) + bytes_of(weight.dtype(), i),
                    size);
        hash.add(static_cast<int64_t>(bits));
    }
    return hash.value();
}

} // namespace

// A micro-batch may be added to what this layer left in codes.
void GradientNotes::begin(const Tensor& dw, bool accumulates) noexcept {
    adds_to_codes_ = accumulates && dw.scales() != nullptr && dw.version() == left_version_;
}

void GradientNotes::end(const Tensor& weight, const Tensor& dw, bool accumulates) {
    left_version_ = dw.version();
    begun_ += accumulates ? 0 : 1;
    if (!weight_at_first_.has_value() && !has_warned_) {
        weight_at_first_ = weight_sample(weight);
    }
}

void GradientNotes::start_over() noexcept {
    begun_ = 0;
    weight_at_first_.reset();
}

// Micro-batches that add their gradients all meet the weight of the first. After an optimizer's step it is another.
const char* GradientNotes::forgotten_end_step(const Tensor& weight) {
    if (!watches_ || has_warned_) {
        return nullptr;
    }
    const char* what = nullptr;
    if (begun_ > 1) {
        what = "a second gradient begins (without MP_BACKWARD_ACCUMULATE)";
    } else if (weight_at_first_.has_value() && *weight_at_first_ != weight_sample(weight)) {
        what = "a gradient is added to that of another weight (an optimizer's step was between)";
    }
    has_warned_ = what != nullptr;
    return what;
}

std::string GradientNotes::accumulation() {
    if (!adds_to_codes_ || std::exchange(has_noted_, true)) {
        return {};
    }
    return "linear: micro-batches are added into fp8 codes, and each sum is rounded to 3 bits: "
           "after about 16 equal ones it stops growing. Set grad.dtype to fp32 or bf16 where "
           "gradients are sums of micro-batches";
}

} // namespace mp::linear
