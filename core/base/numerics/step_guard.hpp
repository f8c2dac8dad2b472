// SPDX-License-Identifier: Apache-2.0
// The guard of an optimizer: a step is skipped where its gradient norm, or its loss, lies too many standard deviations above
// the mean of the last steps (the z-scores of llm.c's -sg and -sl). Lives in device memory, so that no step waits for it.
#pragma once

#include <cmath>
#include <cstdint>

#include "dtype/host_device.hpp"

namespace mp::numerics {

inline constexpr int32_t kMostGuardWindow = 1024;

// What is watched, in this order.
enum class Watched : int32_t { grad_norm, loss };
inline constexpr int kWatchedCount = 2;

struct GuardRule {
    double max_z[kWatchedCount] = {}; // 0: not watched
    int32_t window = 128;             // values that a new one is compared with
    int32_t reserved = 0;
    double loss = 0.0; // of the step to come
};

// The last values of one thing, oldest overwritten first.
struct GuardWindow {
    int64_t count = 0; // values seen, not only those that are left
    double values[kMostGuardWindow] = {};
};

struct GuardState {
    GuardWindow windows[kWatchedCount];
};

// The power of two that brings the window's values near 1, so that no sum overflows and no square vanishes; exact.
MP_HD inline double guard_scale(const GuardWindow& window, int32_t length) {
    constexpr int kMost = 1000;
    double largest = 0.0;
    for (int32_t i = 0; i < length; ++i) {
        largest = fmax(largest, fabs(window.values[i]));
    }
    int exponent = 0;
    (void)frexp(largest, &exponent);
    exponent = exponent > kMost ? kMost : exponent < -kMost ? -kMost : exponent;
    return ldexp(1.0, -exponent);
}

// How many standard deviations (of the window itself, divided by its length) the value lies above the mean; 0 before the
// window is full, and where all its values are equal. Then the value is in the window, outlier or not: a lasting change is
// taken for what it is once it fills the window.
MP_HD inline double watch(GuardWindow& window, int32_t length, double value) {
    double z = 0.0;
    if (window.count >= length) {
        const double scale = guard_scale(window, length);
        double sum = 0.0;
        for (int32_t i = 0; i < length; ++i) {
            sum += window.values[i] * scale;
        }
        const double mean = sum / static_cast<double>(length);
        double squares = 0.0;
        for (int32_t i = 0; i < length; ++i) {
            const double apart = window.values[i] * scale - mean;
            squares = fma(apart, apart, squares);
        }
        const double deviation = sqrt(squares / static_cast<double>(length));
        z = deviation > 0.0 ? (value * scale - mean) / deviation : 0.0;
    }
    window.values[window.count % length] = value;
    ++window.count;
    return z;
}

} // namespace mp::numerics
