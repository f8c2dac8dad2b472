// SPDX-License-Identifier: Apache-2.0
// bindings/cpp/README.md: a hundred steps towards 1.
#include <cmath>
#include <cstdio>
#include <mixedprec.hpp>
#include <vector>

static void backward(const std::vector<float>& p, std::vector<float>& grad, double scale) {
    for (std::size_t i = 0; i < p.size(); ++i) {
        grad[i] = (p[i] - 1.0f) * static_cast<float>(scale);
    }
}

int main() {
    // snippet: step
    for (const float x : p) {
        if (!(std::fabs(x - 1.0f) < 0.2f)) {
            std::printf("%f is far from 1\n", static_cast<double>(x));
            return 1;
        }
    }
    return args.step == 101 ? 0 : 1;
}
