// SPDX-License-Identifier: Apache-2.0
// The line that shows how training goes, on stderr: redrawn in place on a terminal, a new one every few seconds elsewhere.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "run.hpp"
#include "text.hpp"

namespace train {

Progress::Progress(std::string name, int64_t steps)
    : name_(std::move(name)), steps_(steps), terminal_(isatty(STDERR_FILENO) == 1),
      start_(seconds()) {}

void Progress::update(int64_t done, double loss, const Run& run, double loss_scale,
                      double grad_norm) {
    constexpr int kWidth = 20;
    const double now = seconds();
    if (now - last_ < (terminal_ ? 0.2 : 5.0) && done < steps_ && done > 1) {
        return;
    }
    last_ = now;
    const double part = real(done) / real(steps_);
    const auto left = static_cast<int>((now - start_) / part * (1.0 - part));
    std::string bar(kWidth, '.');
    std::fill_n(bar.begin(), static_cast<int>(part * kWidth), '#');
    const std::string extra =
        loss_scale != 1.0 || run.skipped > 0
            ? format("  scale %.6g", loss_scale) + join("  skipped ", run.skipped)
            : "";
    const std::string line =
        format("%-16s [%s] %lld/%lld  loss %.4f  %.0f tok/s (%.1f %% of peak)  norm %.3g%s  eta "
               "%d:%02d",
               clean(name_).c_str(), bar.c_str(), static_cast<long long>(done),
               static_cast<long long>(steps_), loss, run.tokens_per_second,
               100.0 * run.share_of_peak, grad_norm, extra.c_str(), left / 60, left % 60);
    std::fprintf(stderr, "%s%s%s", terminal_ ? "\r" : "", line.c_str(),
                 terminal_ ? "\033[K" : "\n");
    std::fflush(stderr);
    drawn_ = terminal_;
}

Progress::~Progress() {
    if (drawn_) {
        std::fputc('\n', stderr);
    }
}

} // namespace train
