// SPDX-License-Identifier: Apache-2.0
// The host's own matrix product. What it computes is one chain of fused multiply-adds for each element, so
// most of this is exact: against a scalar chain, between numbers of threads, between instruction sets.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "blocked_gemm.hpp"
#include "host/kernels/isa.hpp"

namespace mp::test {
namespace {

using namespace backends::host;

constexpr int64_t kDepthStep = 256; // words of k that are packed at once

// One instruction set for the life of this object.
class WithIsa {
  public:
    explicit WithIsa(const char* name) {
        setenv("MIXEDPREC_ISA", name, 1);
        EXPECT_TRUE(select_isa_from_environment().ok());
    }
    WithIsa(const WithIsa&) = delete;
    WithIsa& operator=(const WithIsa&) = delete;
    ~WithIsa() {
        unsetenv("MIXEDPREC_ISA");
        EXPECT_TRUE(select_isa_from_environment().ok());
    }
};

std::vector<const char*> isas() {
    std::vector<const char*> names;
    const IsaList list = runnable_isas();
    for (int32_t i = 0; i < list.count; ++i) {
        names.push_back(list.items[i]->name);
    }
    return names;
}

bool has_fused_multiply_add(const char* isa) { return std::string(isa) != "baseline"; }

const GemmImplementation& for_type(DType dtype) {
    return dtype == DType::fp32 ? kBlockedFp32 : kWidenFp32;
}

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

// Sizes around those of a vector, a group of rows, a panel of columns, a block, and a step along k.
constexpr Shape kShapes[] = {{1, 1, 1},      {1, 33, 7},    {13, 1, 5},    {5, 17, 3},
                             {12, 32, 16},   {11, 31, 15},  {13, 33, 17},  {4, 16, 255},
                             {8, 48, 256},   {25, 65, 257}, {145, 40, 31}, {300, 20, 9},
                             {20, 600, 11},  {30, 1100, 5}, {29, 70, 513}, {3, 5, 1030},
                             {150, 100, 40}, {16, 24, 2},   {2, 2, 300}};

TEST_F(BlockedGemmTest, IsAChainOfFusedMultiplyAdds) {
    for (const char* isa : isas()) {
        if (!has_fused_multiply_add(isa)) {
            continue;
        }
        const WithIsa scope(isa);
        for (const Shape& shape : kShapes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                GemmOptions o;
                o.shape = shape;
                o.in = kTypes[(bits + static_cast<uint32_t>(shape.m)) % 3];
                o.trans_a = (bits & 1U) != 0;
                o.trans_b = (bits & 2U) != 0;
                o.pad = bits;
                o.alpha = bits == 1 ? 1.0F : 0.37F;
                o.bias = bits == 2 ? DType::none : kTypes[bits % 3];
                SCOPED_TRACE(std::string(isa) + ": " + describe(o));
                GemmCase x(o);
                ASSERT_TRUE(run(for_type(o.in), x, 2));
                for (int64_t row = 0; row < shape.m; ++row) {
                    for (int64_t column = 0; column < shape.n; ++column) {
                        float sum = 0.0F;
                        for (int64_t k = 0; k < shape.k; ++k) {
                            sum = std::fma(x.a(0, row, k), x.b(0, k, column), sum);
                        }
                        ASSERT_EQ(x.d(0, row, column), o.alpha * sum + x.bias(column))
                            << row << ", " << column;
                    }
                }
                EXPECT_TRUE(x.padding_untouched());
            }
        }
    }
}

TEST_F(BlockedGemmTest, HasTheSameBitsForEveryNumberOfThreads) {
    constexpr Shape kLarge[] = {
        {300, 700, 300}, {64, 64, 2000}, {17, 1300, 70}, {700, 30, 600}, {100, 200, 1}};
    for (const char* isa : isas()) {
        const WithIsa scope(isa);
        for (const Shape& shape : kLarge) {
            for (const DType in : kTypes) {
                for (const bool is_finished : {false, true}) {
                    GemmOptions o;
                    o.shape = shape;
                    o.in = in;
                    o.out = is_finished ? in : DType::fp32;
                    o.trans_a = is_finished;
                    o.trans_b = !is_finished;
                    o.gelu = is_finished;
                    o.bias = DType::bf16;
                    SCOPED_TRACE(std::string(isa) + ": " + describe(o));
                    GemmCase x(o);
                    for (const GemmImplementation* implementation :
                         {&kBlockedFp32, &kWidenFp32, &kBlockedBf16}) {
                        if (!run(*implementation, x, 1)) {
                            continue;
                        }
                        const auto expected = x.result();
                        for (const int32_t threads : {2, 3, 5, 8}) {
                            ASSERT_TRUE(run(*implementation, x, threads));
                            EXPECT_EQ(x.result(), expected)
                                << implementation->name << ", " << threads << " threads";
                        }
                    }
                }
            }
        }
    }
}

TEST_F(BlockedGemmTest, HasTheSameBitsForEveryInstructionSetThatFuses) {
    for (const DType in : kTypes) {
        for (const DType out : kTypes) {
            GemmOptions o;
            o.shape = {50, 90, 300};
            o.in = in;
            o.out = out;
            o.gelu = true;
            o.alpha = 0.1F;
            o.beta = 0.7F;
            o.bias = in;
            SCOPED_TRACE(describe(o));
            GemmCase x(o);
            std::vector<unsigned char> expected;
            for (const char* isa : isas()) {
                const WithIsa scope(isa);
                if (!has_fused_multiply_add(isa)) {
                    continue;
                }
                ASSERT_TRUE(run(for_type(in), x, 2));
                if (expected.empty()) {
                    expected = x.result();
                }
                EXPECT_EQ(x.result(), expected) << isa;
            }
        }
    }
}

TEST_F(BlockedGemmTest, IsWithinTheBoundOfAnFp32Sum) {
    for (const char* isa : isas()) {
        const WithIsa scope(isa);
        SCOPED_TRACE(isa);
        for (const Shape& shape : kShapes) {
            for (uint32_t bits = 0; bits < 9; ++bits) {
                GemmOptions o;
                o.shape = shape;
                o.in = kTypes[bits % 3];
                o.out = kTypes[bits / 3];
                o.bias = bits % 4 == 3 ? DType::none : kTypes[(bits + 1) % 3];
                o.trans_a = bits % 2 == 1;
                o.trans_b = bits % 3 == 1;
                o.gelu = bits % 2 == 0;
                o.beta = bits % 4 == 0 ? 0.0F : 0.75F;
                o.alpha = bits % 3 == 0 ? 1.0F : -1.5F;
                o.pad = bits % 5;
                o.c_is_d = bits % 2 == 0;
                expect_within_bound(o);
            }
        }
    }
}

TEST_F(BlockedGemmTest, TakesBatches) {
    for (const int64_t batch : {2, 5, 40}) {
        for (const DType type : kTypes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                GemmOptions o;
                o.shape = {27, 35, 19};
                o.in = o.out = type;
                o.batch = batch;
                o.pad = bits;
                o.trans_a = (bits & 1U) != 0;
                o.trans_b = (bits & 2U) != 0;
                o.beta = bits == 1 ? 1.0F : 0.0F;
                expect_within_bound(o, 3);
            }
        }
    }
}

TEST_F(BlockedGemmTest, TakesEmptyProducts) {
    for (const Shape& shape :
         {Shape{0, 5, 3}, Shape{5, 0, 3}, Shape{0, 0, 0}, Shape{5, 70, 0}, Shape{200, 3, 0}}) {
        for (const DType type : kTypes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                GemmOptions o;
                o.shape = shape;
                o.in = type;
                o.out = bits == 3 ? DType::fp32 : type;
                o.bias = (bits & 1U) != 0 ? type : DType::none;
                o.beta = (bits & 2U) != 0 ? 0.5F : 0.0F;
                expect_within_bound(o);
            }
        }
    }
}

TEST_F(BlockedGemmTest, SumsInFp32) {
    for (const DType type : kTypes) {
        GemmOptions o;
        o.shape = {3, 4, 2 * kDepthStep + 4097};
        o.in = type;
        expect_within_bound(o);
    }
}

TEST_F(BlockedGemmTest, PassesNanAndInfinity) {
    GemmOptions o;
    o.shape = {14, 40, 300};
    o.bias = DType::fp32;
    for (const bool is_finished : {false, true}) {
        o.gelu = is_finished;
        GemmCase x(o);
        auto* a = static_cast<float*>(const_cast<void*>(x.buffers().a));
        a[0 * 300 + 299] = NAN;
        a[13 * 300 + 2] = INFINITY;
        ASSERT_TRUE(run(kBlockedFp32, x, 2));
        for (int64_t column = 0; column < 40; ++column) {
            EXPECT_TRUE(std::isnan(x.d(0, 0, column)));
            const float expected = x.b(0, 2, column) > 0.0F ? INFINITY : -INFINITY;
            // -infinity * 0 is what GELU's tanh form gives.
            if (is_finished && expected < 0.0F) {
                EXPECT_TRUE(std::isnan(x.d(0, 13, column)));
            } else {
                EXPECT_EQ(x.d(0, 13, column), expected);
            }
            EXPECT_TRUE(std::isfinite(x.d(0, 5, column)));
        }
    }
}

// beta 0: what D holds does not come through, NaN included.
TEST_F(BlockedGemmTest, DoesNotReadDWhereBetaIsZero) {
    for (const DType type : kTypes) {
        GemmOptions o;
        o.shape = {30, 50, 20};
        o.in = o.out = type;
        GemmCase x(o);
        for (int64_t i = 0; i < 30 * 50; ++i) {
            numerics::store_from_float(type, x.buffers().d, i, NAN, false);
        }
        std::unique_ptr<HostGemm> plan;
        check(for_type(type).make(x.desc, 2, plan));
        check(plan->run(workshop_.on(2), x.buffers()));
        EXPECT_TRUE(within_bound(x));
    }
}

TEST_F(BlockedGemmTest, ComputesGeluToFourUnits) {
    constexpr double kU = 0x1p-24;
    GemmOptions o;
    o.shape = {1, 1000, 0};
    o.gelu = true;
    o.bias = DType::fp32;
    for (const char* isa : isas()) {
        const WithIsa scope(isa);
        for (int32_t step = -40; step < 40; ++step) {
            GemmCase x(o);
            auto* z = static_cast<float*>(const_cast<void*>(x.buffers().bias));
            for (int64_t i = 0; i < 1000; ++i) {
                z[i] = 0.5F * (static_cast<float>(step) + static_cast<float>(i) / 1000.0F);
            }
            ASSERT_TRUE(run(kBlockedFp32, x, 1));
            for (int64_t i = 0; i < 1000; ++i) {
                const auto value = static_cast<double>(z[i]);
                ASSERT_NEAR(static_cast<double>(x.d(0, 0, i)), gelu(value),
                            4.0 * kU * std::abs(value) + kU * std::abs(gelu(value)))
                    << isa << ": " << value;
            }
        }
    }
}

} // namespace
} // namespace mp::test
