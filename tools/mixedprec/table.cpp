// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <algorithm>

#include "support.hpp"

namespace command {
namespace {

using Rows = std::vector<std::vector<std::string>>;

size_t width_of(const std::string& text) { // code points, not bytes
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

std::string aligned(const Rows& rows, const std::vector<bool>& right) {
    std::vector<size_t> widths(right.size());
    for (const auto& row : rows) {
        for (size_t i = 0; i < row.size(); i++) {
            widths[i] = std::max(widths[i], width_of(row[i]));
        }
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); i++) {
            const std::string blanks(widths[i] - width_of(row[i]), ' ');
            line += (i > 0 ? "  " : "") + (right[i] ? blanks + row[i] : row[i] + blanks);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

} // namespace

Table::Table(const std::vector<std::string>& headings) {
    rows_.emplace_back();
    for (const std::string& heading : headings) {
        right_.push_back(heading.starts_with('>'));
        rows_[0].push_back(right_.back() ? heading.substr(1) : heading);
    }
}

void Table::add(std::vector<std::string> cells) {
    cells.resize(right_.size());
    for (std::string& cell : cells) {
        cell = clean(cell);
    }
    rows_.push_back(std::move(cells));
}

std::string Table::text() const { return aligned(rows_, right_); }

std::string Pairs::text() const {
    Rows rows = rows_;
    for (auto& row : rows) {
        row[1] = clean(row[1]);
    }
    return aligned(rows, {false, false});
}

} // namespace command
