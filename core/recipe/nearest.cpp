// SPDX-License-Identifier: Apache-2.0
#include "recipe/nearest.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace mp::recipe {
namespace {

// Levenshtein distance; names are short, and a hostile long one is compared by its first 64 bytes.
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
        }
    }
    return row[b.size()];
}

} // namespace

// Whoever writes "bf16" means one that begins with it.
std::string nearest_names(const std::string& wrong, std::vector<std::string> names) {
    std::string start = wrong.substr(0, 64);
    for (char& c : start) {
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    const auto key = [&start](const std::string& name) {
        return !start.empty() && name.starts_with(start) ? 0 : distance(start, name) + 1;
    };
    std::stable_sort(names.begin(), names.end(),
                     [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
    names.resize(std::min<std::size_t>(names.size(), 3));
    std::string text;
    for (const std::string& name : names) {
        text += (text.empty() ? "" : ", ") + name;
    }
    return text;
}

} // namespace mp::recipe
