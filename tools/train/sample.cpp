// SPDX-License-Identifier: Apache-2.0
// Text from the model: each byte is drawn from the softmax of the logits, with one full forward pass a byte.
#include <algorithm>
#include <array>
#include <cmath>

#include "run.hpp"

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

// The bytes of the UTF-8 character at text[i]; 0 where there is none. (Table 3-7 of the Unicode standard)
static size_t character_length(const std::string& text, size_t i) {
    const auto at = [&](size_t k) {
        return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0U;
    };
    const unsigned first = at(0), second = at(1);
    const size_t length = first < 0x80                     ? 1
                          : first >= 0xC2 && first < 0xE0  ? 2
                          : first >= 0xE0 && first < 0xF0  ? 3
                          : first >= 0xF0 && first <= 0xF4 ? 4
                                                           : 0;
    const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    bool good = length < 2 || (second >= low && second <= high);
    for (size_t k = 2; k < length; k++) {
        good = good && at(k) >= 0x80 && at(k) <= 0xBF;
    }
    return good ? length : 0;
}

// Valid UTF-8, with U+FFFD for each byte of none, and without what steers a terminal (C0, DEL, C1).
static std::string printable(const std::string& bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size();) {
        const size_t length = character_length(bytes, i);
        const auto byte = static_cast<unsigned char>(bytes[i]);
        const bool steers = length == 1
                                ? (byte < 32 && byte != '\n' && byte != '\t') || byte == 127
                                : byte == 0xC2 && static_cast<unsigned char>(bytes[i + 1]) < 0xA0;
        text += length == 0 ? "\xEF\xBF\xBD"
                : byte == 0 ? " "
                : steers    ? "."
                            : bytes.substr(i, length);
        i += std::max<size_t>(length, 1);
    }
    return text;
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
    return printable(bytes);
}

} // namespace train
