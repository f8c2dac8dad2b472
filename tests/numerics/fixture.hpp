// SPDX-License-Identifier: Apache-2.0
// Reads the files of tests/fixtures/numerics and lists the inputs whose codes they hold.
// The rule of the list is in tests/fixtures/README.md.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "../fixture_path.hpp"

namespace mp::test {

static_assert(std::endian::native == std::endian::little, "the fixtures are little-endian");

inline std::string fixture_path(const std::string& name) {
    return mp_test::fixture_path(std::string("numerics/") + name);
}

template <class T> std::vector<T> read_fixture(const std::string& name) {
    std::ifstream file(fixture_path(name), std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot open fixture " + fixture_path(name));
    }
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<T> values(bytes.size() / sizeof(T));
    if (values.empty() || values.size() * sizeof(T) != bytes.size()) {
        throw std::runtime_error("fixture of wrong size: " + name);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        __builtin_memcpy(&values[i], bytes.data() + i * sizeof(T), sizeof(T));
    }
    return values;
}

// The finite values of a decode table, in order of their codes.
inline std::vector<double> finite_values(const std::vector<uint32_t>& table) {
    std::vector<double> values;
    for (const uint32_t u : table) {
        if ((u & 0x7fffffffu) < 0x7f800000u) {
            values.push_back(static_cast<double>(std::bit_cast<float>(u)));
        }
    }
    return values;
}

// fp32 patterns without sign, in the order of the encode fixtures.
inline std::vector<uint32_t> encode_inputs(const std::vector<uint32_t>& table) {
    std::vector<double> values = finite_values(table);
    const double last = values.back();
    const bool powers_only = values[1] == 2.0 * values[0];
    values.push_back(powers_only ? 2.0 * last : last + (last - values[values.size() - 2]));
    std::vector<uint32_t> inputs;
    const auto add_around = [&inputs](uint32_t u) {
        inputs.push_back(u - 1);
        inputs.push_back(u);
        inputs.push_back(u + 1);
    };
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
        const double middle = values[i] + (values[i + 1] - values[i]) / 2.0;
        add_around(std::bit_cast<uint32_t>(static_cast<float>(middle)));
    }
    for (uint32_t bit = 1; bit < 23; ++bit) {
        add_around(1u << bit);
    }
    for (uint32_t exponent = 1; exponent < 255; ++exponent) {
        add_around(exponent << 23);
    }
    for (uint32_t i = 0; i < 4096; ++i) {
        inputs.push_back((i * 0x9E3779B1u) & 0x7fffffffu);
    }
    for (const uint32_t u : {0x00000000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fa00000u,
                             0x7fc00000u, 0x7fffffffu}) {
        inputs.push_back(u);
    }
    return inputs;
}

} // namespace mp::test
