// SPDX-License-Identifier: Apache-2.0
// How the plans deal with the heuristics of cuBLASLt: how often they ask, and what they make of a refusal.
#include "simulation_lt.hpp"

namespace mp::test {
namespace {

Options product(DType in, DType out, const Shape& shape) {
    Options o;
    o.shape = shape;
    o.in = in;
    o.out = out;
    o.content = Content::small_integers;
    return o;
}

GemmCase with_blocks(const Options& options) {
    GemmCase c = make_case(options);
    c.desc.scale_a = kRowBlockScales;
    c.desc.scale_b = kSquareBlockScales;
    return c;
}

// ---- searches ----------------------------------------------------------------------------------

TEST_F(Simulation, APlanIsSearchedForOnce) {
    TestDevice on(backend(), 1);
    Options odd = product(DType::bf16, DType::bf16, {7, 13, 21});
    odd.gelu = true; // no algorithm for the rows as they lie: a second question, for packed ones
    const struct {
        const char* name;
        GemmCase c;
        int64_t searches;
    } rows[] = {{"cublaslt", make_case(product(DType::bf16, DType::bf16, {16, 32, 48})), 1},
                {"cublaslt", make_case(odd), 2},
                {"cublaslt_fp8", make_case(product(DType::fp8_e4m3, DType::bf16, {16, 32, 48})), 1},
                {"cublaslt_fp8", make_case(product(DType::fp8_e4m3, DType::fp32, {7, 13, 21})), 1},
                {"dequantize_cublaslt",
                 with_blocks(product(DType::fp8_e4m3, DType::bf16, {16, 32, 48})), 1}};
    for (const auto& row : rows) {
        const int64_t before = lt().searches;
        const Candidate* candidate = first_candidate(on, row.c.desc);
        ASSERT_STREQ(candidate->name, row.name);
        Plan* plan = nullptr;
        check(candidate->prepare(on.device(), row.c.desc, &plan));
        const std::unique_ptr<Plan> owner(plan);
        EXPECT_EQ(lt().searches - before, row.searches) << row.name;
    }
}

// One lies ready: that of the product asked about last, for one caller.
TEST_F(Simulation, APlanIsHandedOverOnce) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[0];
    const GemmDesc first = make_case(product(DType::bf16, DType::bf16, {16, 32, 48})).desc;
    const GemmDesc second = make_case(product(DType::bf16, DType::bf16, {16, 32, 64})).desc;
    const auto searches = [&](const GemmDesc& desc, bool prepares) {
        const int64_t before = lt().searches;
        Plan* plan = nullptr;
        if (prepares) {
            check(candidate.prepare(on.device(), desc, &plan));
            EXPECT_NE(plan, nullptr);
        } else {
            EXPECT_TRUE(supports(on, candidate, desc));
        }
        delete plan;
        return lt().searches - before;
    };
    EXPECT_EQ(searches(first, false), 1);
    EXPECT_EQ(searches(first, false), 0);
    EXPECT_EQ(searches(second, true), 1);
    EXPECT_EQ(searches(first, true), 0);
    EXPECT_EQ(searches(first, true), 1);
}

// ---- refusals ----------------------------------------------------------------------------------

TEST_F(Simulation, WhateverTheRefusalTheNextFormIsTried) {
    TestDevice on(backend(), 1);
    const GemmCase cases[] = {make_case(product(DType::bf16, DType::bf16, {16, 32, 48})),
                              make_case(product(DType::fp8_e4m3, DType::fp32, {16, 32, 48}))};
    for (const cublasStatus_t answer :
         {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_ARCH_MISMATCH}) {
        for (const GemmCase& c : cases) {
            const int64_t before = lt().searches;
            lt().next_answer = answer;
            const Candidate* candidate = first_candidate(on, c.desc);
            EXPECT_EQ(std::string(candidate->name).find("cublaslt"), 0) << candidate->name;
            EXPECT_EQ(lt().searches - before, 2) << answer;
        }
    }
}

TEST_F(Simulation, AFailureOfTheLibraryIsNoRefusal) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[0];
    const GemmDesc desc = make_case(product(DType::bf16, DType::bf16, {16, 32, 48})).desc;
    const int64_t before = lt().searches;
    lt().next_answer = CUBLAS_STATUS_INTERNAL_ERROR;
    Reason reason;
    EXPECT_FALSE(candidate.supports(on.device(), desc, reason));
    EXPECT_NE(std::string(reason.c_str()).find("CUBLAS_STATUS_INTERNAL_ERROR"), std::string::npos);
    EXPECT_EQ(lt().searches - before, 1);
    EXPECT_TRUE(supports(on, candidate, desc)); // asked again
}

struct Outcome {
    int64_t computed = 0, refused = 0;
};

// Runs one plan with buffers at several addresses, each of which may want another algorithm.
void run_refused(TestDevice& on, const Candidate& candidate, const GemmCase& c, Outcome& outcome) {
    if (!supports(on, candidate, c.desc)) {
        ++outcome.refused;
        return;
    }
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), c.desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    for (const int64_t offset : {0, 96, 3, 0}) {
        const DeviceArray a(on, c.a, offset);
        const DeviceArray b(on, c.b, offset);
        const DeviceArray bias(on, c.bias, offset);
        DeviceArray d(on, c.c, offset);
        GemmBuffers buffers;
        buffers.a = a.data();
        buffers.b = b.data();
        buffers.bias = c.desc.dtype_bias == DType::none ? nullptr : bias.data();
        buffers.d = d.data();
        const Status status = candidate.run_plan(on.device(), on.queue(), *plan, buffers);
        if (status.ok()) {
            ++outcome.computed;
            EXPECT_TRUE(within_bound(c, d.download()));
            continue;
        }
        ++outcome.refused;
        EXPECT_EQ(status.code(), Code::cublas_error);
        EXPECT_NE(std::string(status.text()).find("cuBLASLt has no algorithm"), std::string::npos);
        EXPECT_TRUE(same_bits(c.c, d.download(), NanRule::same_bits)); // nothing was written
    }
}

// Four of ten questions are refused, in five ways: each plan still computes the product, or says why not.
TEST_F(Simulation, RefusalsAtRandomAreSurvived) {
    TestDevice on(backend(), 1);
    Options gelu = product(DType::bf16, DType::bf16, {7, 12, 9});
    gelu.gelu = true;
    gelu.bias = DType::bf16;
    Options wide = product(DType::fp8_e4m3, DType::fp32, {8, 32, 64});
    wide.trans_b = true;
    wide.bias = DType::fp32;
    const GemmCase cases[] = {make_case(gelu), make_case(wide),
                              make_case(product(DType::fp32, DType::fp32, {5, 6, 7})),
                              make_case(product(DType::fp8_e4m3, DType::bf16, {7, 16, 32}))};
    const Refusing some(40);
    Outcome outcome;
    const int64_t refusals = lt().refusals;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        lt().seed = seed << 32;
        for (const GemmCase& c : cases) {
            for (int32_t i = 0; i < 3; ++i) {
                const Candidate& candidate = on.device().candidates(OpKind::gemm).items[i];
                if (is_fp8(c.desc.dtype_a) == (i != 0)) {
                    run_refused(on, candidate, c, outcome);
                }
            }
        }
    }
    EXPECT_GT(outcome.computed, 500);
    EXPECT_GT(outcome.refused, 50);
    EXPECT_GT(lt().refusals - refusals, outcome.refused); // the others found another form
}

// ---- GELU --------------------------------------------------------------------------------------

// The allowance is what an instruction of that error needs, and the host, or a device that computes as it does, has none.
TEST_F(Simulation, GeluIsAllowedTheTanhOfAGpu) {
    TestDevice on(backend(), 1);
    GemmDesc desc = make_case(product(DType::bf16, DType::fp32, {1, 1, 1})).desc;
    desc.gelu = true;
    const CandidateList list = on.device().candidates(OpKind::gemm);
    for (int32_t i = 0; i < list.count; ++i) {
        EXPECT_EQ(allowance_of(on, list.items[i], desc).gelu, 0.0) << list.items[i].name;
    }
    Allowance of_gpu;
    of_gpu.gelu = kGeluOfGpu;
    int32_t outside = 0;
    for (int32_t i = -1000; i <= 1000; ++i) {
        const double z = 0.01 * i;
        Sum sum;
        sum.add(z);
        const Expected e = expect_element(desc, sum, 1, 0.0F, 0.0F);
        for (const double error : {-0x1p-16, 0x1p-16}) { // of which GELU takes half
            const double t =
                std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (z + 0.044715 * z * z * z));
            const double got = 0.5 * z * (1.0 + t * (1.0 + error));
            const double distance = std::abs(got - e.value);
            EXPECT_LE(distance, e.allowing(of_gpu, DType::fp32).rounded_bound(DType::fp32)) << z;
            outside += distance > e.rounded_bound(DType::fp32) ? 1 : 0;
        }
    }
    EXPECT_GT(outside, 1900);
}

} // namespace
} // namespace mp::test
