// SPDX-License-Identifier: Apache-2.0
// What a program may set before a checkpoint, and choices of it of which every two meet.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mp_test {

enum Factor {
    kRecipe,
    kGuard,
    kWhen,
    kOrder,
    kSecond,
    kSwitch,
    kLate,
    kLayer,
    kWay,
    kExtras,
    kFactors
};
using Choice = std::array<int, kFactors>;

inline constexpr const char* kInt8Blocks =
    R"({"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int8_block256", )"
    R"("optimizer.exp_avg_sq.dtype": "int8_block256"})";

inline const std::vector<std::string>& levels(int factor) {
    static const std::vector<std::string> all[kFactors] = {
        {"fp32", "bf16_mixed", "fp16_mixed", "bf16_pure_kahan", "bf16_pure_remainder", kInt8Blocks},
        {"no guard", "of the norm", "of the loss", "of both"},
        {"set before the load", "set after the load"},
        {"same order of groups", "reversed", "one without parameters"},
        {"AdamW", "Lion", "formats of its own"},
        {"on", "off", "off for two steps"},
        {"no late parameter", "in the first group", "in the second group", "in a group of its own"},
        {"no layer", "a layer", "a layer, evaluated, in a step that has begun"},
        {"straight", "by two ranks", "without a guard in between", "reshard 1", "reshard 3"},
        {"alone", "scaler", "history and norm group"}};
    return all[factor];
}

// A few more than a table of all pairs would need, without a table: of 40 random choices that with most new pairs.
inline std::vector<Choice> pairwise() {
    std::map<std::array<int, 4>, bool> open; // pairs of (factor, level)
    for (int a = 0; a < kFactors; ++a) {
        for (int b = a + 1; b < kFactors; ++b) {
            for (int i = 0; i < static_cast<int>(levels(a).size()); ++i) {
                for (int k = 0; k < static_cast<int>(levels(b).size()); ++k) {
                    open[{a, i, b, k}] = true;
                }
            }
        }
    }
    const auto pairs_of = [&](const Choice& c, bool close) {
        int found = 0;
        for (int a = 0; a < kFactors; ++a) {
            for (int b = a + 1; b < kFactors; ++b) {
                const auto pair = open.find({a, c[a], b, c[b]});
                found += pair != open.end() ? 1 : 0;
                if (close && pair != open.end()) {
                    open.erase(pair);
                }
            }
        }
        return found;
    };
    uint64_t random = 1;
    std::vector<Choice> chosen;
    while (!open.empty()) {
        Choice best{};
        int most = -1;
        for (int attempt = 0; attempt < 40; ++attempt) {
            Choice c{};
            for (int f = 0; f < kFactors; ++f) {
                random = random * 6364136223846793005ULL + 1442695040888963407ULL;
                c[f] = static_cast<int>((random >> 33) % levels(f).size());
            }
            const auto& pair = open.begin()->first; // so that each choice closes one at least
            c[pair[0]] = pair[1];
            c[pair[2]] = pair[3];
            if (const int found = pairs_of(c, false); found > most) {
                most = found;
                best = c;
            }
        }
        (void)pairs_of(best, true);
        chosen.push_back(best);
    }
    return chosen;
}

inline std::string text_of(const Choice& c) {
    std::string text;
    for (int f = 0; f < kFactors; ++f) {
        text += (f > 0 ? ", " : "") + levels(f)[c[f]];
    }
    return text;
}

} // namespace mp_test
