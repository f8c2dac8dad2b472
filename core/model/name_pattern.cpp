// SPDX-License-Identifier: Apache-2.0
#include "model/name_pattern.hpp"

namespace mp::model {

NamePattern::NamePattern(std::string_view text, bool is_literal) : text_(text) {
    std::size_t begin = 0;
    if (!is_literal) {
        for (std::size_t star = text.find('*'); star != std::string_view::npos;
             star = text.find('*', begin)) {
            pieces_.emplace_back(text.substr(begin, star - begin));
            begin = star + 1;
        }
    }
    pieces_.emplace_back(text.substr(begin));
}

// A star that ends as early as it can leaves the most for those behind it, so nothing is ever tried twice.
bool NamePattern::match(std::string_view name, std::vector<std::string_view>& stars) const {
    stars.clear();
    if (this->stars() == 0) {
        return name == text_;
    }
    const std::string& last = pieces_.back();
    if (!name.starts_with(pieces_.front()) || name.size() < pieces_.front().size() + last.size() ||
        !name.ends_with(last)) {
        return false;
    }
    const std::size_t end = name.size() - last.size();
    std::size_t at = pieces_.front().size();
    for (std::size_t i = 1; i + 1 < pieces_.size(); ++i) {
        const std::size_t found = name.substr(0, end).find(pieces_[i], at + 1);
        if (found == std::string_view::npos) {
            return false;
        }
        stars.push_back(name.substr(at, found - at));
        at = found + pieces_[i].size();
    }
    stars.push_back(name.substr(at, end - at));
    return at < end;
}

std::string NamePattern::fill(std::span<const std::string_view> stars) const {
    std::string name = pieces_.front();
    for (std::size_t i = 0; i < stars.size(); ++i) {
        name += stars[i];
        name += pieces_[i + 1];
    }
    return name;
}

} // namespace mp::model
