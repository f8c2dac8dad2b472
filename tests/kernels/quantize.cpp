// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize by the bodies of every instruction set, against the reference backend, bit for bit.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "../backends/dequantize_case.hpp"
#include "tables.hpp"

namespace mp::test {
namespace {

// The host backend with this instruction set in use, on two threads.
class QuantizeChunk : public TableTest {
  protected:
    void SetUp() override {
        ::setenv("MIXEDPREC_ISA", GetParam()->name, 1);
        device_ = std::make_unique<TestDevice>(*find_backend("host"), 2);
        ASSERT_EQ(&backends::host::active_isa(), GetParam());
    }
    void TearDown() override {
        ::unsetenv("MIXEDPREC_ISA");
        EXPECT_TRUE(backends::host::select_isa_from_environment().ok());
    }
    [[nodiscard]] TestDevice& device() const { return *device_; }

    QuantizeCase make(const GridRule& kind, DType to, const HostArray& source, int64_t rows,
                      int64_t columns) {
        QuantizeCase c;
        c.source = source;
        c.rows = rows;
        c.columns = columns;
        c.to = to;
        c.grid = kind.grid;
        c.policy = kind.policy(to);
        return c;
    }

  private:
    std::unique_ptr<TestDevice> device_;
};

TEST_P(QuantizeChunk, EqualsTheReference) {
    for (const GridRule& kind : kGridRules) {
        for (const DType to : kind.codes) {
            for (const DType from : kWideTypes) {
                for (const auto& [rows, columns] : {Extent{1, 300}, {67, 129}, {130, 272}}) {
                    QuantizeCase c =
                        make(kind, to, make_array(from, rows * columns, Content::normal, 3), rows,
                             columns);
                    compare_quantize(device(), c);
                    c.stochastic = true;
                    c.offset = 1;
                    c.with_transposed = to != DType::fp4_e2m1;
                    compare_quantize(device(), c);
                }
                for (const HostArray& source : adversarial_arrays(from, 66 * 70)) {
                    QuantizeCase c = make(kind, to, source, 66, 70);
                    compare_quantize(device(), c);
                    c.with_stats = false;
                    compare_quantize(device(), c);
                }
            }
        }
    }
}

// All codes of fp16 and bf16 by one scale: powers of two, also beyond what the smallest codes can be moved by, and
// others.
TEST_P(QuantizeChunk, EqualsTheReferenceForEveryCode) {
    for (const DType from : {DType::fp16, DType::bf16}) {
        HostArray source(from, 65536);
        for (int64_t i = 0; i < source.count; ++i) {
            source.set_code(i, static_cast<uint32_t>(i));
        }
        for (const DType to : kCodeTypes) {
            for (const float multiply : {1.0F, 0.7F, 1e6F, 1e-6F, 0.25F, 0x1p+108F, 0x1p+110F,
                                         0x1p+118F, 0x1p+126F, 0x1p-120F, 0x1p-126F}) {
                QuantizeCase c;
                c.source = source;
                c.rows = 256;
                c.columns = 256;
                c.to = to;
                c.grid = kTensorScale;
                c.policy = numerics::scale_policy(numerics::ScaleRule::current, to);
                c.with_delayed = true;
                c.delayed.multiply = multiply;
                compare_quantize(device(), c);
            }
        }
    }
}

// Every finite code of a type of 16 bits; larger ones than `largest` become 0.
HostArray finite_codes(DType from, float largest) {
    HostArray source(from, 65536);
    for (int64_t i = 0; i < source.count; ++i) {
        source.set_code(i, static_cast<uint32_t>(i));
        if (!(std::abs(source.get(i)) <= largest)) {
            source.set_code(i, 0);
        }
    }
    return source;
}

// Factors with all their bits: mostly such that products have codes, and some far off.
std::vector<float> many_factors() {
    std::vector<float> factors = {0x1p-149F, 0x1.8p-127F, 0x1p-126F, 0x1.fffffep+127F};
    for (uint64_t i = 0; i < 64; ++i) {
        const uint64_t h = numerics::splitmix64(i);
        const auto exponent = static_cast<uint32_t>(i % 5 == 0 ? 1 + h % 254 : 97 + h % 60);
        const auto fraction = static_cast<uint32_t>(h >> 41);
        factors.push_back(numerics::float_from_bits((exponent << 23) | fraction));
    }
    return factors;
}

// Without statistics: by a given factor, whose amax is gathered on the way, ...
TEST_P(QuantizeChunk, EqualsTheReferenceForEveryFiniteCodeAndManyFactors) {
    for (const DType from : {DType::fp16, DType::bf16}) {
        const HostArray source = finite_codes(from, max_finite(from));
        for (const DType to : {DType::fp8_e4m3, DType::fp8_e5m2}) {
            for (const float factor : many_factors()) {
                SCOPED_TRACE(factor);
                QuantizeCase c = make({kTensorScale, numerics::ScaleRule::current, false, {}}, to,
                                      source, 1, 65536);
                c.with_delayed = true;
                c.delayed.multiply = factor;
                c.with_stats = false;
                compare_quantize(device(), c);
            }
        }
    }
}

// ... and by the factor that the amax gives, of long rows, of short blocks and of blocks that rows share.
TEST_P(QuantizeChunk, EqualsTheReferenceForEveryCodeBelowManyMaxima) {
    for (const float largest : many_factors()) {
        const HostArray source = finite_codes(DType::bf16, largest);
        for (const GridRule& kind :
             {GridRule{kRowScales, numerics::ScaleRule::float64, false, {}},
              GridRule{kRowBlockScales, numerics::ScaleRule::current, false, {}},
              GridRule{kSquareBlockScales, numerics::ScaleRule::current, false, {}}}) {
            SCOPED_TRACE(largest);
            const int64_t rows = kind.grid.block_rows == 1 ? 1 : 64;
            QuantizeCase c = make(kind, DType::fp8_e4m3, source, rows, 65536 / rows);
            c.with_stats = false;
            c.with_transposed = rows > 1;
            compare_quantize(device(), c);
        }
    }
}

// Blocks whose largest element has each exponent there is, and others down to 40 binades below it.
TEST_P(QuantizeChunk, EqualsTheReferenceForEveryPowerOfTwo) {
    for (const DType from : {DType::bf16, DType::fp32}) {
        HostArray source(from, 255 * 64);
        for (int64_t i = 0; i < source.count; ++i) {
            const uint64_t h = numerics::splitmix64(static_cast<uint64_t>(i));
            const auto top = static_cast<uint32_t>(i / 64);
            const auto below = static_cast<uint32_t>((h >> 32) % 40U);
            const uint32_t exponent = i % 32 == 0 ? top : (below > top ? 0 : top - below);
            const auto pattern = static_cast<uint32_t>((h & 0x80000000U) | (exponent << 23) |
                                                       (static_cast<uint32_t>(h) & 0x007fffffU));
            source.set_code(i, from == DType::bf16 ? pattern >> 16 : pattern);
        }
        for (const GridRule& kind : kGridRules) {
            for (const DType to : {DType::fp8_e4m3, DType::fp8_e5m2}) {
                if (kind.rule == numerics::ScaleRule::nvfp4) {
                    continue;
                }
                for (const bool with_stats : {false, true}) {
                    QuantizeCase c = make(kind, to, source, 255, 64);
                    c.with_stats = with_stats;
                    compare_quantize(device(), c);
                }
            }
        }
    }
}

TEST_P(QuantizeChunk, EqualsTheReferenceForLargeTensors) {
    const HostArray source = make_array(DType::fp32, 2112 * 4096, Content::normal, 7);
    for (const ScaleGrid& grid : {kTensorScale, kRowScales, kSquareBlockScales}) {
        QuantizeCase c;
        c.source = source;
        c.rows = 2112;
        c.columns = 4096;
        c.to = DType::fp8_e4m3;
        c.grid = grid;
        c.policy = numerics::scale_policy(numerics::ScaleRule::current, c.to);
        c.with_transposed = true;
        compare_quantize(device(), c);
    }
}

TEST_P(QuantizeChunk, CountsInBlocksOfAnyWidth) {
    for (const int32_t width : {1, 2, 3, 7, 33}) {
        QuantizeCase c;
        c.rows = 3;
        c.columns = 1100;
        c.source = make_array(DType::fp32, c.rows * c.columns, Content::normal, 5);
        c.to = DType::fp8_e4m3;
        c.grid = {DType::fp32, 1, width};
        c.policy = numerics::scale_policy(numerics::ScaleRule::current, c.to);
        compare_quantize(device(), c);
    }
}

TEST_P(QuantizeChunk, DequantizesAsTheReference) {
    for (const ScaleGrid& grid : dequantize_grids()) {
        for (const DType from : kCodeTypes) {
            for (const DType to : kWideTypes) {
                compare_dequantize(device(), make_case(from, to, grid, {3, 5}));
                compare_dequantize(device(), make_case(from, to, grid, {70, 257}));
            }
        }
    }
}

MP_FOR_EVERY_TABLE(QuantizeChunk);

} // namespace
} // namespace mp::test
