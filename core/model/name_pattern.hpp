// SPDX-License-Identifier: Apache-2.0
// NamePattern: a name in which each `*` stands for one or more characters, the first for as few as can be, then the next.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mp::model {

class NamePattern {
  public:
    NamePattern() = default;
    // With `is_literal` a star is a star.
    NamePattern(std::string_view text, bool is_literal);

    [[nodiscard]] std::size_t stars() const noexcept {
        return pieces_.empty() ? 0 : pieces_.size() - 1;
    }
    [[nodiscard]] bool is_empty() const noexcept { return text_.empty(); }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }
    // What the stars stand for in a name that has this form; they point into it. Each piece is looked for
    // once, in what is left of the name.
    [[nodiscard]] bool match(std::string_view name, std::vector<std::string_view>& stars) const;
    // The name in which they stand for these.
    [[nodiscard]] std::string fill(std::span<const std::string_view> stars) const;

  private:
    std::string text_;
    std::vector<std::string> pieces_; // between the stars
};

} // namespace mp::model
