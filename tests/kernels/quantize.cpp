// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize by the bodies of every instruction set, against the reference backend, bit for bit.
#include <cstdlib>

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
                c.with_slot = true;
                c.slot.multiply = multiply;
                compare_quantize(device(), c);
            }
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
