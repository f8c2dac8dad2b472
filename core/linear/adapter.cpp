// SPDX-License-Identifier: Apache-2.0
#include "linear/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/dropout.hpp"
#include "system/name.hpp"

namespace mp::linear {
namespace {

// What both have of the base, but a name of their own: the recipe's rules may be for them alone.
LinearOptions options_of(const Linear& base, const AdapterOptions& adapter, const char* which) {
    LinearOptions options = base.options();
    options.name += options.name.empty() ? "" : ".";
    options.name += std::string(which) + "." + adapter.name;
    system::check_name("adapter: the name <layer>.lora_A.<adapter>", options.name);
    options.frozen = false;
    return options;
}

} // namespace

double scale_of(const AdapterOptions& adapter) {
    const auto rank = static_cast<double>(adapter.rank);
    const double alpha = adapter.alpha == 0.0 ? rank : adapter.alpha;
    return alpha / (adapter.is_rank_stabilized ? std::sqrt(rank) : rank);
}

uint32_t drop_below(const AdapterOptions& adapter) {
    const double nearest = std::nearbyint(adapter.dropout * numerics::kDropoutUnit);
    return static_cast<uint32_t>(std::clamp(nearest, adapter.dropout > 0.0 ? 1.0 : 0.0,
                                            static_cast<double>(numerics::kDropoutUnit - 1)));
}

LinearOptions options_of_a(const Linear& base, const AdapterOptions& adapter) {
    if (!base.options().frozen && !base.options().inference) {
        fail(Code::invalid_argument,
             "adapter: the layer's own weight is trained; make it with MP_LINEAR_FROZEN, or with "
             "MP_LINEAR_INFERENCE where nothing is trained");
    }
    const double scale = scale_of(adapter);
    constexpr double kMost = std::numeric_limits<float>::max();
    if (!std::isfinite(adapter.alpha) || adapter.alpha < 0.0 || scale > kMost) {
        fail(Code::invalid_argument,
             "adapter: desc.alpha is %g; it must be >= 0, and alpha / rank an fp32 number",
             adapter.alpha);
    }
    if (!(adapter.dropout >= 0.0 && adapter.dropout < 1.0)) {
        fail(Code::invalid_argument, "adapter: desc.dropout is %g; it must be >= 0 and < 1",
             adapter.dropout);
    }
    if (adapter.dropout > 0.0 && base.options().name.empty()) {
        fail(Code::invalid_argument,
             "adapter: what desc.dropout drops follows from the layer's name, but it has none; "
             "set mp_linear_desc.name");
    }
    LinearOptions options = options_of(base, adapter, "lora_A");
    options.out_features = adapter.rank;
    options.drop_below = drop_below(adapter);
    return options;
}

LinearOptions options_of_b(const Linear& base, const AdapterOptions& adapter) {
    LinearOptions options = options_of(base, adapter, "lora_B");
    options.in_features = adapter.rank;
    options.scale = static_cast<float>(scale_of(adapter));
    options.copy_input = true; // what a gives lies in scratch memory
    return options;
}

} // namespace mp::linear
