// SPDX-License-Identifier: Apache-2.0
#include "linear/scaling_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "runtime/select.hpp"

namespace mp::linear {
namespace {

using numerics::DelayedState;
using numerics::QuantStats;

constexpr std::size_t kDelayedBytes = kOperands * sizeof(DelayedState);
constexpr std::size_t kStatsBytes = 2 * kOperands * sizeof(QuantStats);

// What begins a saved state.
constexpr uint32_t kPlain = 1;      // delayed scales and histories
constexpr uint32_t kWithPasses = 2; // the same, then Passes::Counts
struct SavedHeader {
    char magic[4] = {'m', 'p', 's', 's'};
    uint32_t version = kPlain;
    int32_t history_len = 0;
    uint32_t operands = kOperands;
};
static_assert(sizeof(SavedHeader) == 16);
static_assert(sizeof(Passes::Counts) == 16);

SavedHeader header_of(const recipe::Fp8Policy& policy, std::size_t pass_bytes) {
    SavedHeader header;
    header.version = pass_bytes > 0 ? kWithPasses : kPlain;
    header.history_len =
        policy.scaling == recipe::Fp8Scaling::delayed ? policy.amax_history_len : 0;
    return header;
}

} // namespace

ScalingState::ScalingState(Stream& stream, const recipe::Fp8Policy& policy, bool weight_is_frozen)
    : policy_(policy), weight_is_frozen_(weight_is_frozen) {
    if (!policy_.is_used()) {
        return;
    }
    begin_counts(stream);
    if (is_delayed()) {
        delayed_ = stream.allocate(kDelayedBytes);
        histories_ = stream.allocate(kOperands * history_bytes());
        const std::array<DelayedState, kOperands> fresh{};
        stream.copy(delayed_.data(), fresh.data(), kDelayedBytes, CopyKind::host_to_device);
        stream.zero(histories_.data(), histories_.bytes());
    }
}

std::size_t ScalingState::history_bytes() const noexcept {
    return static_cast<std::size_t>(policy_.amax_history_len) * sizeof(float);
}

Tracking ScalingState::tracking(recipe::Operand operand, bool with_stats) const noexcept {
    const auto index = static_cast<std::size_t>(operand);
    Tracking tracking{};
    // MS-AMP's window of a weight is 1: it is always scaled by its own amax.
    const bool own_amax = operand == recipe::Operand::weight &&
                          (weight_is_frozen_ || policy_.rule == numerics::ScaleRule::msamp);
    if (delayed_.data() != nullptr && !own_amax) {
        tracking.delayed = delayed_.as<DelayedState>() + index;
        tracking.warm_up = policy_.warm_up;
        tracking.amax = &tracking.delayed->amax;
    }
    if (with_stats) {
        tracking.stats = stats_of(operand);
    }
    return tracking;
}

Tracking ScalingState::tracking_apart(recipe::Operand operand) const noexcept {
    Tracking tracking{};
    tracking.stats = stats_.data() == nullptr ? nullptr : stats_of(operand) + kOperands;
    return tracking;
}

std::size_t ScalingState::pass_bytes() const noexcept {
    const bool any = std::any_of(
        std::begin(policy_.rounding), std::end(policy_.rounding),
        [](recipe::RoundingMode mode) { return mode == recipe::RoundingMode::stochastic; });
    return any || keeps_passes_ ? sizeof(Passes::Counts) : 0;
}

void ScalingState::end_step(Stream& stream) {
    passes_.end_step();
    if (delayed_.data() == nullptr) {
        return;
    }
    for (std::size_t i = 0; i < kOperands; ++i) { // each operand has a largest code of its own
        DelayedUpdateDesc op{};
        op.kind = OpKind::delayed_update;
        op.states = delayed_.as<DelayedState>() + i;
        op.histories = histories_.as<float>() + i * history_bytes() / sizeof(float);
        op.state_count = 1;
        op.rule = recipe::delayed_rule(policy_, static_cast<recipe::Operand>(i));
        run_op(stream, op);
    }
}

OperandState ScalingState::read(Stream& stream, recipe::Operand operand) const {
    const auto index = static_cast<std::size_t>(operand);
    OperandState state;
    QuantStats apart;
    if (stats_.data() != nullptr) {
        stream.copy(&state.stats, stats_of(operand), sizeof(QuantStats), CopyKind::device_to_host);
        stream.copy(&apart, tracking_apart(operand).stats, sizeof(QuantStats),
                    CopyKind::device_to_host);
    }
    if (tracking(operand, false).delayed != nullptr) {
        state.history.resize(static_cast<std::size_t>(policy_.amax_history_len));
        stream.copy(&state.delayed, delayed_.as<DelayedState>() + index, sizeof(DelayedState),
                    CopyKind::device_to_host);
        stream.copy(state.history.data(), histories_.as<float>() + index * state.history.size(),
                    history_bytes(), CopyKind::device_to_host);
    }
    stream.sync();
    // Of elements that nothing rounded none saturates and none becomes zero.
    state.stats.elements += apart.elements;
    state.stats.non_finite += apart.non_finite;
    state.stats.amax_bits = std::max(state.stats.amax_bits, apart.amax_bits);
    return state;
}

void ScalingState::begin_counts(Stream& stream) {
    if (stats_.data() == nullptr) {
        stats_ = stream.allocate(kStatsBytes);
        clear_stats(stream);
    }
}

void ScalingState::clear_stats(Stream& stream) const {
    if (stats_.data() != nullptr) {
        stream.zero(stats_.data(), kStatsBytes);
    }
}

std::vector<unsigned char> ScalingState::save(Stream& stream) const {
    const SavedHeader header = header_of(policy_, pass_bytes());
    const std::size_t state_bytes = delayed_.bytes() + histories_.bytes();
    std::vector<unsigned char> saved(sizeof(header) + state_bytes + pass_bytes());
    std::memcpy(saved.data(), &header, sizeof(header));
    std::memcpy(saved.data() + sizeof(header) + state_bytes, &passes_.counts(), pass_bytes());
    if (state_bytes > 0) {
        unsigned char* to = saved.data() + sizeof(header);
        stream.copy(to, delayed_.data(), delayed_.bytes(), CopyKind::device_to_host);
        stream.copy(to + delayed_.bytes(), histories_.data(), histories_.bytes(),
                    CopyKind::device_to_host);
        stream.sync();
    }
    return saved;
}

namespace {

std::size_t place_of_amax(std::size_t operand) {
    return sizeof(SavedHeader) + operand * sizeof(DelayedState) + offsetof(DelayedState, amax);
}

} // namespace

bool ScalingState::has_amaxes(std::span<const unsigned char> saved) {
    if (saved.size() < sizeof(SavedHeader) + kDelayedBytes) {
        return false;
    }
    const auto amaxes = saved_amaxes(saved);
    return std::any_of(amaxes.begin(), amaxes.end(), [](uint32_t bits) { return bits != 0; });
}

std::array<uint32_t, kOperands> ScalingState::saved_amaxes(std::span<const unsigned char> saved) {
    std::array<uint32_t, kOperands> amaxes{};
    for (std::size_t i = 0; i < kOperands; ++i) {
        std::memcpy(&amaxes[i], saved.data() + place_of_amax(i), sizeof amaxes[i]);
    }
    return amaxes;
}

void ScalingState::set_saved_amaxes(std::vector<unsigned char>& saved,
                                    std::span<const uint32_t> amaxes) {
    for (std::size_t i = 0; i < amaxes.size(); ++i) {
        std::memcpy(saved.data() + place_of_amax(i), &amaxes[i], sizeof amaxes[i]);
    }
}

void ScalingState::check_saved(const unsigned char* data, std::size_t size) const {
    const SavedHeader expected = header_of(policy_, pass_bytes());
    const std::size_t wanted =
        sizeof(expected) + delayed_.bytes() + histories_.bytes() + pass_bytes();
    SavedHeader header;
    if (size < sizeof(header)) {
        fail(Code::parse_error, "scaling state: %zu bytes are too few for one", size);
    }
    std::memcpy(&header, data, sizeof(header));
    if (std::memcmp(header.magic, expected.magic, sizeof(header.magic)) != 0 ||
        (header.version != kPlain && header.version != kWithPasses) ||
        header.operands != expected.operands) {
        fail(Code::parse_error, "scaling state: these bytes are none, or of another version");
    }
    if (header.version != expected.version) {
        fail(Code::invalid_argument,
             "scaling state: saved where operands are rounded %s (gemm.*.rounding, an adapter's "
             "dropout), but the layer's recipe rounds them %s",
             header.version == kWithPasses ? "stochastically" : "to nearest",
             expected.version == kWithPasses ? "stochastically" : "to nearest");
    }
    if (header.history_len != expected.history_len || size != wanted) {
        fail(Code::invalid_argument,
             "scaling state: saved with an amax history of %d (%zu bytes), but the layer's recipe "
             "has %d (%zu bytes)",
             header.history_len, size, expected.history_len, wanted);
    }
}

void ScalingState::load(Stream& stream, const unsigned char* data, std::size_t size) {
    check_saved(data, size);
    Passes::Counts counts;
    std::memcpy(&counts, data + size - pass_bytes(), pass_bytes());
    passes_.load(counts);
    if (is_delayed()) {
        const unsigned char* from = data + sizeof(SavedHeader);
        stream.copy(delayed_.data(), from, delayed_.bytes(), CopyKind::host_to_device);
        stream.copy(histories_.data(), from + delayed_.bytes(), histories_.bytes(),
                    CopyKind::host_to_device);
        stream.sync();
    }
}

} // namespace mp::linear
