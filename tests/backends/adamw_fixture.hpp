// SPDX-License-Identifier: Apache-2.0
// Reads the trajectories of tests/fixtures (adamw, lion, states), and generates the parameters and gradients that their
// trajectories start from: the same integers as tests/fixtures/generate.py.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../fixture_file.hpp"
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
    explicit AdamwFixture(const std::string& name) : file_(name) {
        for (const auto& [of, words] : file_.facts("case")) {
            std::istringstream in(words);
            std::array<std::string, 5> types;
            FixtureCase& c = cases_[of];
            in >> c.count >> c.exponent;
            for (std::string& type : types) {
                in >> type;
            }
            in >> c.hyper.lr >> c.hyper.beta1 >> c.hyper.beta2 >> c.hyper.eps >>
                c.hyper.weight_decay;
            if (!in) {
                throw std::runtime_error("fixture case cut short: " + words);
            }
            c.param = parse_dtype(types[0]);
            c.grad = parse_dtype(types[1]);
            c.exp_avg = parse_dtype(types[2]);
            c.exp_avg_sq = parse_dtype(types[3]);
            c.compensation = parse_dtype(types[4]);
        }
    }

    [[nodiscard]] const std::map<std::string, FixtureCase>& cases() const { return cases_; }
    [[nodiscard]] const FixtureCase& at(const std::string& name) const { return cases_.at(name); }
    [[nodiscard]] double number(const std::string& name) const {
        return std::stod(file_.fact("number " + name));
    }

    // kind: p, m, v, c, w (master weight) or g.
    [[nodiscard]] bool has(const std::string& name, int64_t step, char kind) const {
        return file_.has(place(name, step, kind));
    }
    [[nodiscard]] HostArray array(const std::string& name, int64_t step, char kind) const {
        const mp_test::FixtureArray& stored = file_.array(place(name, step, kind));
        HostArray array(parse_dtype(stored.dtype), stored.count());
        if (array.dtype == DType::none) {
            throw std::runtime_error("fixture array of type " + stored.dtype);
        }
        array.bytes = stored.bytes;
        return array;
    }
    [[nodiscard]] std::vector<double> doubles(const std::string& name, int64_t step,
                                              char kind) const {
        const mp_test::FixtureArray& stored = file_.array(place(name, step, kind));
        if (stored.dtype != "fp64") {
            throw std::runtime_error("fixture array of type " + stored.dtype);
        }
        std::vector<double> values(static_cast<std::size_t>(stored.count()));
        std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
        return values;
    }

  private:
    static std::string place(const std::string& name, int64_t step, char kind) {
        return name + "/" + std::to_string(step) + "/" + kind;
    }

    mp_test::FixtureFile file_;
    std::map<std::string, FixtureCase> cases_;
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
