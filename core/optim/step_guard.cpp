// SPDX-License-Identifier: Apache-2.0
#include "optim/step_guard.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "numerics/bits.hpp"
#include "optim/saved_counts.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

void check_z(const char* name, double value) {
    if (!(value >= 0.0 && value < 1e30)) {
        fail(Code::invalid_argument,
             "guard: %s is %g; it must be 0 (not watched) or a number of standard deviations", name,
             value);
    }
}

void check_guard(const GuardOptions& options) {
    check_z("max_grad_norm_z", options.max_grad_norm_z);
    check_z("max_loss_z", options.max_loss_z);
    if (options.max_grad_norm_z == 0.0 && options.max_loss_z == 0.0) {
        fail(Code::invalid_argument,
             "guard: max_grad_norm_z and max_loss_z are 0, so nothing would be watched; set one, "
             "or give no guard");
    }
    if (options.window < 2 || options.window > numerics::kMostGuardWindow) {
        fail(Code::invalid_argument, "guard: window is %d; it must be from 2 to %d steps",
             options.window, numerics::kMostGuardWindow);
    }
}

} // namespace

void StepGuard::set(Stream& stream, const std::optional<GuardOptions>& options) {
    StepGuard next;
    if (options.has_value()) {
        check_guard(*options);
        next.options_ = *options;
        next.state_ = stream.allocate(sizeof(numerics::GuardState));
        stream.zero(next.state_.data(), next.state_.bytes());
    }
    next.write(stream, read(stream));
    next.loss_ = loss_;
    stream.sync(); // the old one's memory is no longer in use
    *this = std::move(next);
}

void StepGuard::begin(Stream& /*stream*/) {
    if (watches_loss() && !loss_.has_value()) {
        fail(Code::bad_state,
             "optimizer: its guard watches the loss, but nobody gave this step's; call "
             "mp_optimizer_set_loss before each step");
    }
}

uint64_t StepGuard::hash() const noexcept {
    if (!is_on()) {
        return 0;
    }
    system::Fnv64 hash;
    hash.add(options_.window);
    for (const double x : {options_.max_grad_norm_z, options_.max_loss_z}) {
        hash.add(numerics::bits_from_double(x));
    }
    if (watches_loss() && loss_.has_value()) {
        hash.add(numerics::bits_from_double(*loss_));
    }
    return hash.value();
}

void StepGuard::propose(comm::Agreement& agreement) {
    shown_.set("window %d, max_grad_norm_z %g, max_loss_z %g, loss %.17g", options_.window,
               options_.max_grad_norm_z, options_.max_loss_z,
               loss_.value_or(std::numeric_limits<double>::quiet_NaN()));
    agreement.must_equal("the guard, or the loss that it watches", hash(), shown_.c_str());
}

void StepGuard::add_to(StepOptions& options) const noexcept {
    options.guard = state_.as<numerics::GuardState>();
    options.guard_rule = {
        {options_.max_grad_norm_z, options_.max_loss_z}, options_.window, 0, loss_.value_or(0.0)};
}

GuardValues StepGuard::read(Stream& stream) const {
    if (!is_on()) {
        return waiting_;
    }
    GuardValues values;
    const auto state = std::make_unique<numerics::GuardState>(); // too large for some stacks
    stream.copy(state.get(), state_.data(), state_.bytes(), CopyKind::device_to_host);
    stream.sync();
    for (std::size_t i = 0; i < values.last.size(); ++i) {
        const numerics::GuardWindow& window = state->windows[i];
        values.count[i] = window.count;
        for (int64_t n = std::max<int64_t>(window.count - options_.window, 0); n < window.count;
             ++n) {
            values.last[i].push_back(window.values[n % options_.window]);
        }
    }
    return values;
}

void StepGuard::write(Stream& stream, GuardValues values) {
    if (!is_on()) {
        waiting_ = std::move(values);
        return;
    }
    const auto state = std::make_unique<numerics::GuardState>();
    for (std::size_t i = 0; i < values.last.size(); ++i) {
        const std::vector<double>& last = values.last[i];
        const std::size_t kept = std::min(last.size(), static_cast<std::size_t>(options_.window));
        numerics::GuardWindow& window = state->windows[i];
        const auto held = static_cast<int64_t>(kept);
        window.count = held == options_.window ? std::max(values.count[i], held) : held;
        for (std::size_t k = 1; k <= kept; ++k) { // each where it was: sums go around the ring
            const int64_t number = window.count - static_cast<int64_t>(k);
            window.values[number % options_.window] = last[last.size() - k];
        }
    }
    stream.copy(state_.data(), state.get(), state_.bytes(), CopyKind::host_to_device);
    stream.sync();
}

void StepGuard::save(Stream& stream, OptimizerCounts& counts) const { counts.guard = read(stream); }

void StepGuard::prepare_restore(Stream& /*stream*/, RestoredCounts& restored) const {
    const GuardValues& saved = restored.counts.guard;
    if (!std::all_of(saved.count.begin(), saved.count.end(), is_step_count)) {
        fail(Code::corrupt_data, "optimizer: a saved count of the guard cannot be");
    }
    for (const std::vector<double>& seen : saved.last) {
        if (!std::all_of(seen.begin(), seen.end(), [](double x) { return std::isfinite(x); })) {
            fail(Code::corrupt_data,
                 "optimizer: a saved value of the guard is not finite; it keeps no such values");
        }
    }
}

void StepGuard::restore(Stream& stream, RestoredCounts& restored) {
    write(stream, std::move(restored.counts.guard));
}

} // namespace mp::optim
