// SPDX-License-Identifier: Apache-2.0
// Tables for people: columns aligned by their widest cell, no colour, no trailing blanks.
#pragma once

#include <string>
#include <vector>

namespace command {

class Table {
  public:
    // A heading that begins with '>' is of a column of numbers, aligned at the right.
    explicit Table(const std::vector<std::string>& headings);
    void add(std::vector<std::string> cells);
    [[nodiscard]] bool empty() const { return rows_.size() < 2; }
    [[nodiscard]] std::string text() const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> rows_; // the first has the headings
};

// Lines "name   value".
class Pairs {
  public:
    void add(const std::string& name, const std::string& value) { rows_.push_back({name, value}); }
    [[nodiscard]] std::string text() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

} // namespace command
