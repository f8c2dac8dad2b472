// SPDX-License-Identifier: Apache-2.0
// Files of tests/fixtures/fixture_file.py: safetensors, read with a parser that is not ours.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mp_test {

struct FixtureArray {
    std::string dtype; // the library's word, or "fp64"
    std::vector<int64_t> shape;
    std::vector<unsigned char> bytes;

    [[nodiscard]] int64_t count() const;
};

class FixtureFile {
  public:
    // `name`: without folder and ending. Throws std::runtime_error where it cannot be read.
    explicit FixtureFile(const std::string& name);

    // Throw std::out_of_range, with the name, where there is none.
    [[nodiscard]] const FixtureArray& array(const std::string& name) const;
    [[nodiscard]] bool has(const std::string& name) const { return arrays_.count(name) != 0; }
    // What is no array, by its name, and in the order of the file: those whose names begin with `kind` and a space, without it.
    [[nodiscard]] const std::string& fact(const std::string& name) const;
    [[nodiscard]] std::vector<std::pair<std::string, std::string>>
    facts(const std::string& kind) const;

  private:
    std::map<std::string, FixtureArray> arrays_;
    std::vector<std::pair<std::string, std::string>> in_order_;
    std::map<std::string, std::string> facts_;
};

} // namespace mp_test
