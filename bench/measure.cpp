// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

namespace mp_bench {
namespace {

double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The k for which the k-th lowest and the k-th highest of `count` values enclose the median of their distribution, any
// distribution, with a probability of 95 % or just above: the number of values below it is binomial.
std::size_t order_of_interval(std::size_t count) {
    std::size_t k = 0;
    double exactly = std::pow(0.5, static_cast<double>(count)); // k of them
    for (double at_most = exactly; at_most <= 0.025; at_most += exactly) {
        ++k;
        exactly *= static_cast<double>(count - k + 1) / static_cast<double>(k);
    }
    return std::max<std::size_t>(k, 1);
}

int calls_of_turn(const std::function<void()>& run, const Turns& turns) {
    (void)seconds_of(run, 1, turns.finish); // touches the memory and makes what is made once
    const double seconds = seconds_of(run, 1, turns.finish);
    return static_cast<int>(std::clamp(std::ceil(turns.seconds / seconds), 1.0, 1000.0));
}

} // namespace

double seconds_of(const std::function<void()>& run, int calls,
                  const std::function<void()>& finish) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) {
        run();
    }
    if (finish) {
        finish();
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

double shortest_seconds(const std::function<void()>& run, int calls) {
    run();
    double shortest = seconds_of(run);
    for (int i = 1; i < calls; ++i) {
        shortest = std::min(shortest, seconds_of(run));
    }
    return shortest;
}

Comparison summarize(const std::string& baseline, const std::vector<Pair>& pairs) {
    std::vector<double> theirs, ours, ratios;
    for (const Pair& pair : pairs) {
        theirs.push_back(pair.baseline);
        ours.push_back(pair.ours);
        ratios.push_back(pair.baseline / pair.ours);
    }
    std::sort(ratios.begin(), ratios.end());
    const std::size_t order = order_of_interval(ratios.size());
    return {baseline,          median_of(ours),   median_of(theirs),
            median_of(ratios), ratios[order - 1], ratios[ratios.size() - order]};
}

Comparison compare(const Baseline& baseline, const std::function<void()>& ours,
                   const Turns& turns) {
    const int calls = calls_of_turn(ours, turns);
    const int baseline_calls = baseline.run ? calls_of_turn(baseline.run, turns) : 0;
    std::vector<Pair> measured;
    for (int i = 0; i < turns.pairs; ++i) {
        const double theirs =
            baseline.run ? seconds_of(baseline.run, baseline_calls, turns.finish) : 0;
        measured.push_back({theirs, seconds_of(ours, calls, turns.finish)});
    }
    Comparison result = summarize(baseline.name, measured);
    (void)std::fprintf(stderr, "    %.4f ms, %.3f of %s\n", result.seconds * 1e3, result.ratio,
                       baseline.run ? baseline.name.c_str() : "nothing");
    return result;
}

Baseline fastest(const std::vector<Baseline>& candidates) {
    constexpr int kTurns = 5;
    std::vector<double> shortest(candidates.size(), std::numeric_limits<double>::infinity());
    for (int turn = 0; turn < kTurns; ++turn) {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            shortest[i] = std::min(shortest[i], seconds_of(candidates[i].run));
        }
    }
    const auto best = std::min_element(shortest.begin(), shortest.end());
    return candidates[static_cast<std::size_t>(best - shortest.begin())];
}

} // namespace mp_bench
