// SPDX-License-Identifier: Apache-2.0
// Reads tests/fixtures/adamw and .../states, and generates the parameters and gradients that their
// trajectories start from: the same integers as tests/fixtures/generate.py.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "../fixture_path.hpp"
#include "arrays.hpp"
#include "numerics/rules.hpp"

namespace mp::test {

static_assert(std::endian::native == std::endian::little, "the fixtures are little-endian");

// Streams of generated numbers.
inline constexpr uint64_t kStreamParam = 1;
inline constexpr uint64_t kStreamGrad = 2;

inline HostArray generate(uint64_t stream, uint64_t step, int64_t count, int32_t exponent = 0,
                          DType dtype = DType::fp32) {
    HostArray array(dtype, count);
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t h =
            numerics::splitmix64((stream << 48) + (step << 32) + static_cast<uint64_t>(i));
        const auto mantissa = static_cast<float>(static_cast<int64_t>(h >> 40) - (1 << 23));
        array.set(i, mantissa *
                         numerics::exp2_int(exponent - 23 - static_cast<int32_t>((h >> 37) & 7U)));
    }
    return array;
}

struct FixtureCase {
    int64_t count = 0;
    int32_t exponent = 0;
    DType param = DType::none;
    DType grad = DType::none;
    DType exp_avg = DType::none;
    DType exp_avg_sq = DType::none;
    DType compensation = DType::none;
    numerics::GroupHyper hyper;
};

class AdamwFixture {
  public:
    explicit AdamwFixture(const std::string& name) {
        const std::string folder = mp_test::fixture_path(std::string(name) + "/");
        std::ifstream data(folder + name + ".bin", std::ios::binary);
        std::ifstream index(folder + "index.txt");
        if (!data || !index) {
            throw std::runtime_error("cannot open the fixture in " + folder);
        }
        data_.assign(std::istreambuf_iterator<char>(data), {});
        for (std::string line; std::getline(index, line);) {
            read_line(line);
        }
    }

    [[nodiscard]] const std::map<std::string, FixtureCase>& cases() const { return cases_; }
    [[nodiscard]] const FixtureCase& at(const std::string& name) const { return cases_.at(name); }
    [[nodiscard]] double number(const std::string& name) const { return numbers_.at(name); }

    // kind: p, m, v, c, w (master weight) or g.
    [[nodiscard]] bool has(const std::string& name, int64_t step, char kind) const {
        return arrays_.count({name, step, kind}) != 0;
    }
    [[nodiscard]] HostArray array(const std::string& name, int64_t step, char kind) const {
        const Entry& entry = arrays_.at({name, step, kind});
        HostArray array(parse_dtype(entry.dtype), entry.count);
        if (array.dtype == DType::none) {
            throw std::runtime_error("fixture array of type " + entry.dtype);
        }
        read(entry, array.bytes.data(), array.bytes.size());
        return array;
    }
    [[nodiscard]] std::vector<double> doubles(const std::string& name, int64_t step,
                                              char kind) const {
        const Entry& entry = arrays_.at({name, step, kind});
        if (entry.dtype != "fp64") {
            throw std::runtime_error("fixture array of type " + entry.dtype);
        }
        std::vector<double> values(static_cast<std::size_t>(entry.count));
        read(entry, values.data(), values.size() * sizeof(double));
        return values;
    }

  private:
    struct Entry {
        std::string dtype;
        int64_t count = 0;
        std::size_t offset = 0;
    };

    void read(const Entry& entry, void* destination, std::size_t bytes) const {
        if (entry.offset + bytes > data_.size()) {
            throw std::runtime_error("the fixture is cut short");
        }
        std::memcpy(destination, data_.data() + entry.offset, bytes);
    }

    void read_line(const std::string& line) {
        std::istringstream in(line);
        std::string kind;
        std::string name;
        in >> kind;
        if (kind == "case") {
            std::array<std::string, 5> types;
            FixtureCase c;
            in >> name >> c.count >> c.exponent;
            for (std::string& type : types) {
                in >> type;
            }
            in >> c.hyper.lr >> c.hyper.beta1 >> c.hyper.beta2 >> c.hyper.eps >>
                c.hyper.weight_decay;
            c.param = parse_dtype(types[0]);
            c.grad = parse_dtype(types[1]);
            c.exp_avg = parse_dtype(types[2]);
            c.exp_avg_sq = parse_dtype(types[3]);
            c.compensation = parse_dtype(types[4]);
            cases_[name] = c;
        } else if (kind == "array") {
            int64_t step = 0;
            char what = 0;
            Entry entry;
            in >> name >> step >> what >> entry.dtype >> entry.count >> entry.offset;
            arrays_[{name, step, what}] = entry;
        } else if (kind == "number") {
            double value = 0.0;
            in >> name >> value;
            numbers_[name] = value;
        } else if (kind != "#") {
            throw std::runtime_error("fixture line not understood: " + line);
        }
        if (kind != "#" && !in) {
            throw std::runtime_error("fixture line cut short: " + line);
        }
    }

    std::vector<char> data_;
    std::map<std::string, FixtureCase> cases_;
    std::map<std::tuple<std::string, int64_t, char>, Entry> arrays_;
    std::map<std::string, double> numbers_;
};

inline const AdamwFixture& adamw_fixture() {
    static const AdamwFixture fixture("adamw");
    return fixture;
}

inline const AdamwFixture& states_fixture() {
    static const AdamwFixture fixture("states");
    return fixture;
}

} // namespace mp::test
