// SPDX-License-Identifier: Apache-2.0
// quantize on every backend against torchao's own code and against numpy with ml_dtypes (make_quantize.py). Where we
// mean to differ from an oracle, the difference is written here and expected.
#include <map>
#include <sstream>

#include "../fixture_file.hpp"
#include "quantize_case.hpp"

namespace mp::test {
namespace {

using numerics::ScaleRule;

struct OracleCase {
    std::string name;
    QuantizeCase c;
    std::vector<unsigned char> codes;
    std::vector<unsigned char> scales;
};

std::vector<OracleCase> read_cases() {
    const mp_test::FixtureFile file("quantize");
    std::vector<OracleCase> cases;
    for (const auto& [place, facts] : file.facts("case")) {
        OracleCase oracle;
        std::string source;
        std::string codes;
        std::string scales;
        int32_t rule = 0;
        int32_t power_of_two = 0;
        QuantizeCase& c = oracle.c;
        std::istringstream(facts) >> oracle.name >> source >> codes >> rule >> scales >>
            c.grid.block_rows >> c.grid.block_columns >> power_of_two;
        const mp_test::FixtureArray& x = file.array("source/" + source);
        c.rows = x.shape.at(0);
        c.columns = x.shape.at(1);
        c.source = HostArray(DType::fp32, x.count());
        c.source.bytes = x.bytes;
        c.grid.dtype = parse_dtype(scales);
        c.to = parse_dtype(codes);
        c.policy = numerics::scale_policy(static_cast<ScaleRule>(rule), c.to);
        c.policy.power_of_two = power_of_two != 0;
        oracle.codes = file.array(place + "/codes").bytes;
        oracle.scales = file.array(place + "/scales").bytes;
        oracle.name += " of " + source;
        cases.push_back(oracle);
    }
    return cases;
}

const std::vector<OracleCase>& oracle_cases() {
    static const std::vector<OracleCase> cases = read_cases();
    return cases;
}

uint32_t code_at(DType dtype, const std::vector<unsigned char>& codes, int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    switch (dtype) {
    case DType::fp16:
        return static_cast<uint32_t>(codes[2 * at] | (codes[2 * at + 1] << 8));
    case DType::fp4_e2m1:
        return (codes[at / 2] >> (at % 2 * 4)) & 0xfU;
    default:
        return codes[at];
    }
}

float value_of(DType dtype, uint32_t code) {
    const uint64_t memory = code;
    return numerics::load_as_float(dtype, &memory, 0);
}

class QuantizeOracle : public BackendTest {
  protected:
    // Of one case: our result beside the oracle's.
    struct Pair {
        const OracleCase& oracle;
        const QuantizeResult& ours;
    };

    [[nodiscard]] static std::vector<int64_t> elements_of(const QuantizeCase& c, int64_t block) {
        std::vector<int64_t> elements;
        for (int64_t i = 0; i < c.source.count; ++i) {
            if (c.grid.index(i / c.columns, i % c.columns, c.columns) == block) {
                elements.push_back(i);
            }
        }
        return elements;
    }

    static void expect_same_code(const Pair& pair, int64_t i) {
        const DType dtype = pair.oracle.c.to;
        EXPECT_EQ(code_at(dtype, pair.ours.codes, i), code_at(dtype, pair.oracle.codes, i))
            << "element " << i << ", " << pair.oracle.c.source.get(i);
    }

    // What is not finite shows in its code, or, where there is no code for it, in its block's scale. The oracles
    // saturate infinity, and their scales of such blocks are 0, infinite, or for MX other than by RCEIL 2^120.
    static void expect_visible(const Pair& pair, int64_t block,
                               const std::vector<int64_t>& elements, float amax) {
        const QuantizeCase& c = pair.oracle.c;
        const float scale = pair.ours.scale(c.grid.dtype, block);
        const bool is_rceil = c.policy.rule == ScaleRule::mx_rceil;
        if (c.grid.dtype == DType::fp32) {
            EXPECT_EQ(scale, 1.0F);
        } else if (is_rceil && !numerics::is_nan(amax)) {
            EXPECT_EQ(scale, 0x1p127F);
        } else {
            EXPECT_TRUE(numerics::is_nan(scale));
            const bool is_floor = !numerics::is_nan(amax);
            EXPECT_EQ(pair.oracle.scales[static_cast<std::size_t>(block)],
                      is_floor ? 254 - (c.to == DType::fp8_e4m3   ? 7
                                        : c.to == DType::fp8_e5m2 ? 14
                                                                  : 1)
                               : 255);
        }
        for (const int64_t i : elements) {
            const float value = value_of(c.to, code_at(c.to, pair.ours.codes, i));
            if (!numerics::is_finite(c.source.get(i))) {
                EXPECT_TRUE(!numerics::is_finite(value) || c.to == DType::fp4_e2m1);
            } else if (c.policy.rule == ScaleRule::current || is_rceil) {
                if (!numerics::is_nan(scale)) {
                    expect_same_code(pair, i);
                }
            }
        }
    }

    // Where torchao takes a logarithm in fp32 (RCEIL, and scales rounded to powers of two) it goes wrong just beside a
    // power of two: its scale is half of what it must be, and the block's largest element does not fit.
    static void expect_same_scale(const Pair& pair, int64_t block, float amax) {
        const QuantizeCase& c = pair.oracle.c;
        const HostArray theirs = [&] {
            HostArray array(c.grid.dtype, c.grid.count(c.rows, c.columns));
            array.bytes = pair.oracle.scales;
            return array;
        }();
        const float ours = pair.ours.scale(c.grid.dtype, block);
        const bool by_logarithm = c.policy.rule == ScaleRule::mx_rceil ||
                                  (c.policy.rule == ScaleRule::float64 && c.policy.power_of_two);
        if (by_logarithm && ours != theirs.get(block)) {
            EXPECT_EQ(ours, 2.0F * theirs.get(block));
            EXPECT_LT(static_cast<double>(theirs.get(block)) *
                          static_cast<double>(max_finite(c.to)),
                      static_cast<double>(amax));
            return;
        }
        EXPECT_EQ(numerics::bits_from_float(ours), numerics::bits_from_float(theirs.get(block)))
            << "block " << block << " of amax " << amax << ": " << ours << " and not "
            << theirs.get(block);
    }

    // Those whose scales differ, and MX blocks of the smallest scale, 2^-127, which torchao divides by another number
    // than that.
    [[nodiscard]] static bool is_other_factor(const Pair& pair, int64_t block) {
        const DType scales = pair.oracle.c.grid.dtype;
        const auto size = static_cast<std::size_t>(dtype_size(scales));
        const auto at = static_cast<std::size_t>(block) * size;
        return (scales == DType::e8m0 && pair.ours.scales[at] == 0) ||
               std::memcmp(&pair.ours.scales[at], &pair.oracle.scales[at], size) != 0;
    }

    static void compare(const Pair& pair) {
        const QuantizeCase& c = pair.oracle.c;
        for (int64_t block = 0; block < c.grid.count(c.rows, c.columns); ++block) {
            const std::vector<int64_t> elements = elements_of(c, block);
            uint32_t largest = 0;
            for (const int64_t i : elements) {
                largest =
                    std::max(largest, numerics::bits_from_float(c.source.get(i)) & 0x7fffffffU);
            }
            const float amax = numerics::float_from_bits(largest);
            if (!numerics::is_finite(amax)) {
                expect_visible(pair, block, elements, amax);
                continue;
            }
            expect_same_scale(pair, block, amax);
            for (const int64_t i : elements) {
                if (!is_other_factor(pair, block)) {
                    expect_same_code(pair, i);
                }
            }
        }
    }
};

TEST_P(QuantizeOracle, GivesTheOraclesCodesAndScales) {
    ASSERT_GT(oracle_cases().size(), 100U);
    for (const OracleCase& oracle : oracle_cases()) {
        SCOPED_TRACE(oracle.name + ": " + oracle.c.text());
        ASSERT_EQ(oracle.codes.size(),
                  static_cast<std::size_t>(bytes_of(oracle.c.to, oracle.c.source.count)));
        for_each_candidate(device(), OpKind::quantize, [&](const Candidate& candidate) {
            QuantizeResult ours;
            if (!quantize(device(), candidate, oracle.c, ours)) {
                return false;
            }
            EXPECT_EQ(ours.scales.size(), oracle.scales.size());
            compare({oracle, ours});
            return true;
        });
        if (HasFailure()) {
            break; // one case is enough to read
        }
    }
}

MP_ALL_BACKENDS(QuantizeOracle);

} // namespace
} // namespace mp::test
