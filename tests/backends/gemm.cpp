// SPDX-License-Identifier: Apache-2.0
// gemm on every backend. The order of the sums is free, so results are compared in two ways: with
// operands whose sums are exact in any order, bit for bit; otherwise within the bound of an fp32 sum,
// |error| <= k u sum |a| |b| with u = 2^-24 (Higham, "Accuracy and stability of numerical algorithms",
// section 3.1), plus one u for each later operation.
#include <memory>
#include <string_view>

#include "gemm_case.hpp"

namespace mp::test {
namespace {

class Gemm : public BackendTest {
  protected:
    // Checks the result of every candidate that takes the case, which are so many.
    template <typename Check> int32_t with_each_candidate(const GemmCase& c, Check&& check) {
        return for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            HostArray result;
            const bool is_taken = gemm(device(), candidate, c, result);
            if (is_taken) {
                check(result, allowance_of(device(), candidate, c.desc));
            }
            return is_taken;
        });
    }

    // With every candidate; `exact` compares with the reference bit for bit.
    void check_case(const Options& o, bool exact = false, bool c_is_d = false, int64_t offset = 0) {
        SCOPED_TRACE(describe(o));
        GemmCase c = make_case(o);
        c.c_is_d = c_is_d;
        c.offset = offset;
        HostArray expected;
        if (exact) {
            ASSERT_TRUE(gemm(reference_device(), reference_candidate(OpKind::gemm), c, expected));
        }
        const auto each = [&](const HostArray& result, const Allowance& allowance) {
            if (exact) {
                EXPECT_TRUE(same_bits(expected, result, NanRule::any_nan));
            } else {
                EXPECT_TRUE(within_bound(c, result, allowance));
            }
            EXPECT_TRUE(padding_untouched(c, result));
        };
        EXPECT_GT(with_each_candidate(c, each), 0);
    }
};

constexpr std::array<Shape, 16> kShapes = {{{1, 1, 1},
                                            {1, 7, 4097},
                                            {7, 1, 255},
                                            {5, 3, 2},
                                            {16, 16, 16},
                                            {17, 31, 33},
                                            {64, 64, 64},
                                            {65, 33, 129},
                                            {128, 96, 257},
                                            {4, 255, 7},
                                            {257, 4, 64},
                                            {3, 5, 0},
                                            {0, 5, 3},
                                            {5, 0, 3},
                                            {0, 0, 0},
                                            {1, 300, 1}}};

TEST_P(Gemm, IsExactWhereSumsAre) {
    for (const Shape& shape : kShapes) {
        for (const DType in : kWideTypes) {
            for (uint32_t bits = 0; bits < 4; ++bits) {
                Options o;
                o.shape = shape;
                o.in = in;
                o.trans_a = (bits & 1U) != 0;
                o.trans_b = (bits & 2U) != 0;
                o.content = Content::small_integers;
                check_case(o, true);
                o.pad = 3;
                o.alpha = -2.0F;
                o.beta = 0.5F;
                o.bias = DType::fp32;
                check_case(o, true);
            }
        }
    }
}

TEST_P(Gemm, IsWithinTheBoundOfAnFp32Sum) {
    for (const Shape& shape : kShapes) {
        for (const DType in : kWideTypes) {
            for (const DType out : kWideTypes) {
                Options o;
                o.shape = shape;
                o.in = in;
                o.out = out;
                check_case(o);
                o.trans_b = true;
                o.alpha = 1.5F;
                o.beta = -0.75F;
                o.bias = out;
                check_case(o);
                o.trans_a = true;
                o.trans_b = false;
                o.pad = 5;
                o.bias = DType::fp32;
                o.gelu = true;
                check_case(o);
            }
        }
    }
}

TEST_P(Gemm, TakesEveryCombinationOfTheEpilogue) {
    for (const DType type : kWideTypes) {
        for (const DType bias : {DType::none, DType::fp32, DType::fp16, DType::bf16}) {
            for (uint32_t bits = 0; bits < 16; ++bits) {
                Options o;
                o.shape = {19, 23, 29};
                o.in = o.out = type;
                o.bias = bias;
                o.gelu = (bits & 1U) != 0;
                o.alpha = (bits & 2U) != 0 ? 0.3F : 1.0F;
                o.beta = (bits & 4U) != 0 ? 1.0F : 0.0F;
                check_case(o, false, (bits & 8U) != 0);
            }
        }
    }
}

TEST_P(Gemm, TakesBatchesAndUnalignedArrays) {
    for (const DType type : kWideTypes) {
        for (uint32_t bits = 0; bits < 4; ++bits) {
            Options o;
            o.shape = {9, 14, 35};
            o.in = o.out = type;
            o.batch = 5;
            o.pad = (bits & 1U) != 0 ? 2 : 0;
            o.trans_a = (bits & 1U) != 0;
            o.trans_b = (bits & 2U) != 0;
            o.beta = (bits & 2U) != 0 ? 1.0F : 0.0F;
            check_case(o);
            check_case(o, false, true, 1);
        }
    }
}

// One matrix for the whole batch: a stride of 0.
TEST_P(Gemm, TakesABatchThatSharesAnOperand) {
    Options o;
    o.shape = {9, 14, 35};
    o.batch = 3;
    GemmCase c = make_case(o);
    c.desc.batch_stride_b = 0;
    const auto each = [&](const HostArray& result, const Allowance& allowance) {
        EXPECT_TRUE(within_bound(c, result, allowance));
    };
    EXPECT_GT(with_each_candidate(c, each), 0);
}

// 16-bit sums or 16-bit partial results would lose the ones.
TEST_P(Gemm, AccumulatesInFp32) {
    for (const DType type : kWideTypes) {
        GemmCase c = make_case([&] {
            Options o;
            o.shape = {3, 4, 4097};
            o.in = type;
            return o;
        }());
        for (int64_t i = 0; i < c.a.count; ++i) {
            c.a.set(i, 1.0F);
        }
        for (int64_t i = 0; i < c.b.count; ++i) {
            c.b.set(i, 1.0F);
        }
        with_each_candidate(c, [&](const HostArray& result, const Allowance&) {
            for (int64_t i = 0; i < result.count; ++i) {
                EXPECT_EQ(result.get(i), 4097.0F);
            }
        });
    }
}

TEST_P(Gemm, KeepsSubnormalsNanAndInfinity) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    constexpr int64_t kN = 40;
    constexpr int64_t kK = 20;
    for (const DType type : kWideTypes) {
        Options o;
        o.shape = {4, kN, kK};
        o.in = type;
        o.content = Content::zeros;
        GemmCase c = make_case(o);
        const float tiny = type == DType::fp16 ? 0x1p-24F : 0x1p-130F;
        c.a.set(3, tiny);          // row 0: a subnormal times one
        c.a.set(kK + 3, infinity); // row 1: infinity times one
        c.a.set(2 * kK + 3, nan);
        for (int64_t n = 0; n < kN; ++n) {
            c.b.set(3 * kN + n, 1.0F);
        }
        for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
            HostArray result;
            if (!gemm(device(), candidate, c, result)) {
                return false;
            }
            // The processor's bf16 dot instruction takes subnormals as zero, and gemm.h says so.
            const bool flushes = std::string_view(candidate.name) == "onednn_bf16" ||
                                 std::string_view(candidate.name) == "blocked_bf16";
            for (int64_t n = 0; n < kN; ++n) {
                EXPECT_EQ(result.get(n), flushes ? 0.0F : tiny) << dtype_name(type);
                EXPECT_EQ(result.get(kN + n), infinity);
                EXPECT_TRUE(numerics::is_nan(result.get(2 * kN + n)));
                EXPECT_EQ(result.get(3 * kN + n), 0.0F);
            }
            return true;
        });
    }
}

// beta 0 means that C is not read: garbage in D does not come through.
TEST_P(Gemm, DoesNotReadDWhereBetaIsZero) {
    Options o;
    o.shape = {7, 9, 11};
    GemmCase c = make_case(o);
    for (int64_t i = 0; i < c.c.count; ++i) {
        c.c.set(i, numerics::float_from_bits(numerics::kFloatQuietNan));
    }
    const auto each = [&](const HostArray& result, const Allowance& allowance) {
        EXPECT_TRUE(within_bound(c, result, allowance));
    };
    EXPECT_GT(with_each_candidate(c, each), 0);
}

// A plan keeps its description: it can be run again, on other arrays.
TEST_P(Gemm, RunsAPlanManyTimesWithTheSameBits) {
    Options o;
    o.shape = {33, 65, 130};
    o.in = DType::bf16;
    const GemmCase c = make_case(o);
    for_each_candidate(device(), OpKind::gemm, [&](const Candidate& candidate) {
        HostArray first;
        if (!gemm(device(), candidate, c, first)) {
            return false;
        }
        const DeviceArray a(device(), c.a);
        const DeviceArray b(device(), c.b);
        Plan* plan = nullptr;
        auto desc = std::make_unique<GemmDesc>(c.desc);
        check(candidate.prepare(device().device(), *desc, &plan));
        desc.reset();
        const std::unique_ptr<Plan> owner(plan);
        for (int32_t repeat = 0; repeat < 3; ++repeat) {
            DeviceArray d(device(), c.c);
            GemmBuffers buffers;
            buffers.a = a.data();
            buffers.b = b.data();
            buffers.d = d.data();
            check(candidate.run_plan(device().device(), device().queue(), *plan, buffers));
            EXPECT_TRUE(same_bits(first, d.download(), NanRule::same_bits));
        }
        return true;
    });
}

MP_ALL_BACKENDS(Gemm);

} // namespace
} // namespace mp::test
