// SPDX-License-Identifier: Apache-2.0
// Text from the model: each byte is drawn from the softmax of the logits, with one full forward pass a byte.
#include <algorithm>
#include <array>
#include <cmath>

#include "run.hpp"
#include "text.hpp"

namespace train {

constexpr int64_t kPrompt = 32;

static char draw_byte(const float* logits, double temperature, double uniform) {
    std::array<double, 256> weights{};
    const double top = *std::max_element(logits, logits + weights.size());
    double sum = 0.0;
    for (size_t i = 0; i < weights.size(); i++) {
        weights[i] = std::exp((real(logits[i]) - top) / temperature);
        sum += weights[i];
    }
    double left = uniform * sum;
    size_t byte = 0;
    while (byte < 255 && (left -= weights[byte]) >= 0.0) {
        byte++;
    }
    return static_cast<char>(byte);
}

std::string sample_text(Params& params, const Network& trained, const Text& text) {
    const Options& o = params.options;
    Network network(params, 1, true);
    network.set_scaling(trained.scaling());
    // The first bytes of the validation text start it off.
    std::string bytes =
        text.bytes.substr(size(text.train_count), size(std::min(o.context, kPrompt)));
    const size_t total = bytes.size() + size(o.sample);
    std::vector<uint8_t> window(size(o.context));
    // Ranks that gather weights together do not stop one by one.
    while (bytes.size() < total && (interrupted == 0 || params.come_and_go())) {
        const size_t seen = std::min(bytes.size(), window.size());
        std::fill(window.begin(), window.end(), uint8_t{0});
        std::copy(bytes.end() - static_cast<ptrdiff_t>(seen), bytes.end(), window.begin());
        network.forward(window.data(), nullptr, 0.0F);
        const double uniform =
            random_uniform(static_cast<uint64_t>(o.seed), STREAM_SAMPLE, bytes.size());
        bytes += draw_byte(network.logits() + (seen - 1) * 256, o.temperature, uniform);
    }
    return clean_lines(bytes);
}

} // namespace train
