// SPDX-License-Identifier: Apache-2.0
// Only the optimizer and the loss scaler, on arrays of the program's own. The same as bindings/c/own_arrays.c.
#include <cmath>
#include <cstdio>
#include <limits>
#include <mixedprec.hpp>
#include <vector>

int main() {
    std::vector<float> p(1000), grad(1000), exp_avg(1000), exp_avg_sq(1000);
    auto context = mixedprec::Context::create();
    auto scaler = mixedprec::Scaler::create(context);
    const auto slot = mixedprec::slot(p, grad, exp_avg, exp_avg_sq);
    mixedprec::StepArgs args;
    args.lr = 0.1;
    for (int i = 1; i <= 100; ++i) {
        const auto scale = static_cast<float>(scaler.scale());
        for (int j = 0; j < 1000; ++j)
            grad[j] = (p[j] - static_cast<float>(j % 7 - 3)) * scale;
        if (i == 20)
            grad[5] = std::numeric_limits<float>::infinity();
        args.step += !mixedprec::step(context, args, slot, scaler).found_inf;
        scaler.update();
    }

    double sum = 0.0;
    for (float value : p)
        sum += std::fabs(static_cast<double>(value));
    const int steps = static_cast<int>(args.step) - 1;
    std::printf("steps %d  skipped %d  scale %.0f  sum %.9f  p[1] %.9f\n", steps, 100 - steps,
                scaler.scale(), sum, static_cast<double>(p[1]));
}
