// SPDX-License-Identifier: Apache-2.0
// Two calls timed in turns, and the median of the ratio with its interval. What the machine's other guests take, which
// changes within seconds, then falls upon both.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mp_bench {

// What a call is compared with.
struct Baseline {
    std::string name;
    std::function<void()> run; // empty: there is nothing to compare with
};

// Seconds of one turn.
struct Pair {
    double baseline;
    double ours;
};

struct Comparison {
    std::string baseline;
    double seconds = 0;          // median of ours
    double baseline_seconds = 0; // its median; 0: there is none
    double ratio = 0;            // baseline / ours, the median over the pairs
    double ratio_low = 0;        // and its distribution-free 95 % interval, by order statistics
    double ratio_high = 0;
};

Comparison summarize(const std::string& baseline, const std::vector<Pair>& pairs);

// How turns are taken.
struct Turns {
    int pairs = 15;
    double seconds =
        5e-3; // of a turn at least: beside it waking threads and reading clocks are short
    // The last thing in every turn, and counted: waits for what a device still does. Empty: nothing.
    std::function<void()> finish;
};

// Baseline, ours, baseline, ours, after a call of each that does not count. Each turn of a short call is as many calls
// as fill it.
Comparison compare(const Baseline& baseline, const std::function<void()>& ours, const Turns& turns);

// The one with the shortest of a few turns, which preemption disturbs less than their median.
Baseline fastest(const std::vector<Baseline>& candidates);

// The shortest of many calls after one that does not count: what instructions take when nobody disturbs them.
double shortest_seconds(const std::function<void()>& run, int calls);

double seconds_of(const std::function<void()>& run, int calls = 1,
                  const std::function<void()>& finish = {});

} // namespace mp_bench
