// SPDX-License-Identifier: Apache-2.0
// fp8 products by cuBLASLt on the simulated device, which refuses what the real one does: other layouts than along
// k, sizes and addresses that are no multiples of 16. Values are those of tests/backends/gemm_scaled.cpp.
#include "device/gemm_scales.hpp"
#include "simulation.hpp"

namespace mp::test {
namespace {

const Candidate& cublaslt_fp8(TestDevice& on) {
    const CandidateList list = on.device().candidates(OpKind::gemm);
    for (int32_t i = 0; i < list.count; ++i) {
        if (std::strcmp(list.items[i].name, "cublaslt_fp8") == 0) {
            return list.items[i];
        }
    }
    ADD_FAILURE() << "no candidate cublaslt_fp8";
    return list.items[0];
}

Options codes_of(const Shape& shape) {
    Options o;
    o.shape = shape;
    o.in = DType::fp8_e4m3;
    o.content = Content::small_integers;
    return o;
}

TEST_F(Simulation, Fp8OfAnyLayoutSizeAndStrideHasTheReferencesBits) {
    TestDevice on(backend(), 1);
    for (const Shape& shape : {Shape{16, 32, 48}, Shape{1, 1, 1}, Shape{7, 16, 32},
                               Shape{5, 20, 32}, Shape{33, 130, 17}, Shape{40, 64, 100}}) {
        for (uint32_t bits = 0; bits < 32; ++bits) {
            Options o = codes_of(shape);
            o.trans_a = (bits & 1U) != 0;
            o.trans_b = (bits & 2U) != 0;
            o.pad = (bits & 4U) != 0 ? 3 : 0;
            o.beta = (bits & 8U) != 0 ? 2.0F : 0.0F;
            o.out = (bits & 16U) != 0 ? DType::bf16 : DType::fp32;
            o.bias = (bits & 1U) != 0 ? DType::bf16 : DType::none;
            const GemmCase c = make_case(o);
            HostArray expected;
            HostArray result;
            ASSERT_TRUE(gemm(reference_device(), reference_candidate(OpKind::gemm), c, expected));
            ASSERT_TRUE(gemm(on, cublaslt_fp8(on), c, result));
            EXPECT_TRUE(same_bits(expected, result, NanRule::same_bits))
                << shape.m << " x " << shape.n << " x " << shape.k << ", " << bits;
        }
    }
}

// One plan, one after the other.
TEST_F(Simulation, AnFp8PlanTakesBuffersOfAnyAlignment) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = cublaslt_fp8(on);
    Options o = codes_of({8, 32, 64});
    o.trans_b = true;
    o.bias = DType::bf16;
    const GemmCase c = make_case(o);
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), c.desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    for (const int64_t offset : {0, 96, 8, 1, 0}) {
        const DeviceArray a(on, c.a, offset);
        const DeviceArray b(on, c.b, offset);
        const DeviceArray bias(on, c.bias, offset);
        DeviceArray d(on, c.c, offset);
        GemmBuffers buffers;
        buffers.a = a.data();
        buffers.b = b.data();
        buffers.bias = bias.data();
        buffers.d = d.data();
        check(candidate.run_plan(on.device(), on.queue(), *plan, buffers));
        EXPECT_TRUE(within_bound(c, d.download())) << offset;
    }
}

TEST_F(Simulation, CublasLtSaysWhatItDoesNotTakeOfFp8) {
    TestDevice on(backend(), 1);
    const auto reason = [&](auto change) {
        GemmDesc desc = make_case(codes_of({4, 5, 64})).desc;
        change(desc);
        Reason text;
        const bool is_supported = cublaslt_fp8(on).supports(on.device(), desc, text);
        EXPECT_EQ(is_supported, text.empty());
        return std::string(text.c_str());
    };
    EXPECT_EQ(reason([](GemmDesc&) {}), "");
    EXPECT_EQ(reason([](GemmDesc& d) { d.scale_a = d.scale_b = kTensorScale; }), "");
    EXPECT_EQ(reason([](GemmDesc& d) {
                  d.scale_a = kRowScales;
                  d.scale_b = kColumnScales;
              }),
              "");
    EXPECT_EQ(reason([](GemmDesc& d) { d.dtype_a = d.dtype_b = DType::fp8_e5m2; }),
              "no fp8_e5m2 x fp8_e5m2");
    EXPECT_EQ(reason([](GemmDesc& d) { d.dtype_d = DType::fp8_e5m2; }),
              "no fp8_e4m3 x fp8_e4m3 into fp8_e5m2");
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        EXPECT_EQ(reason([dtype](GemmDesc& d) {
                      d.dtype_d = dtype;
                      d.dtype_bias = DType::fp32;
                  }),
                  "");
    }
    EXPECT_EQ(reason([](GemmDesc& d) { d.scale_a = kMxRowScales; }),
              "scales of fp32 only, not e8m0");
    for (const ScaleGrid& grid : {kRowScales, kRowBlockScales, kSquareBlockScales}) {
        EXPECT_EQ(reason([&](GemmDesc& d) {
                      d.scale_a = grid;
                      d.scale_b = kTensorScale;
                  }),
                  "scales of both tensors, or of the rows of A and the columns of B, but not of "
                  "blocks or of one kind each");
    }
    EXPECT_EQ(reason([](GemmDesc& d) { d.batch_count = 3; }),
              "one product of fp8 at a time, not 3");
    EXPECT_EQ(reason([](GemmDesc& d) { d.k = 0; }), "no empty products");
}

// An fp32 result is asked for its bits, so its bias keeps its own: these are no numbers of bf16.
TEST_F(Simulation, AnFp8ProductIntoFp32AddsItsBiasUnrounded) {
    TestDevice on(backend(), 1);
    for (const Shape& shape : {Shape{16, 32, 48}, Shape{7, 17, 33}}) {
        for (uint32_t bits = 0; bits < 64; ++bits) {
            Options o = codes_of(shape);
            o.trans_b = (bits & 1U) != 0;
            o.pad = (bits & 2U) != 0 ? 3 : 0;
            o.beta = (bits & 4U) != 0 ? 2.0F : 0.0F;
            o.bias = (bits & 8U) != 0 ? DType::fp16 : DType::fp32;
            o.gelu = (bits & 16U) != 0;
            GemmCase c = make_case(o);
            c.c_is_d = (bits & 32U) != 0;
            for (int64_t i = 0; i < c.bias.count; ++i) {
                c.bias.set(i, 1.0F + static_cast<float>(2 * i + 1) * 0x1p-10F);
            }
            ASSERT_STREQ(first_candidate(on, c.desc)->name, "cublaslt_fp8");
            HostArray expected;
            HostArray result;
            ASSERT_TRUE(gemm(reference_device(), reference_candidate(OpKind::gemm), c, expected));
            ASSERT_TRUE(gemm(on, cublaslt_fp8(on), c, result));
            const auto verdict =
                o.gelu ? within_bound(c, result) : same_bits(expected, result, NanRule::same_bits);
            EXPECT_TRUE(verdict) << shape.m << " x " << shape.n << " x " << shape.k << ", " << bits;
            EXPECT_TRUE(padding_untouched(c, result)) << bits;
        }
    }
}

// What cuBLASLt has no kernel for is dequantized before a naive kernel is asked.
TEST_F(Simulation, ScalesOfBlocksAreDequantized) {
    TestDevice on(backend(), 1);
    const auto first = [&](const ScaleGrid& a, const ScaleGrid& b, DType codes) {
        Options o = codes_of({4, 64, 64});
        o.in = codes;
        GemmDesc desc = make_case(o).desc;
        desc.scale_a = a;
        desc.scale_b = b;
        return std::string(first_candidate(on, desc)->name);
    };
    const DType e4m3 = DType::fp8_e4m3;
    EXPECT_EQ(first(kTensorScale, kTensorScale, e4m3), "cublaslt_fp8");
    EXPECT_EQ(first(kTensorScale, kTensorScale, DType::fp8_e5m2), "dequantize_cublaslt");
    EXPECT_EQ(first(kRowBlockScales, kSquareBlockScales, e4m3), "dequantize_cublaslt");
    EXPECT_EQ(first(kMxRowScales, kMxColumnScales, e4m3), "dequantize_cublaslt");
    EXPECT_EQ(first(kRowScales, kTensorScale, e4m3), "dequantize_cublaslt");
    EXPECT_EQ(first(kTensorScale, kTensorScale, DType::fp16), "dequantize_cublaslt");
}

} // namespace
} // namespace mp::test
