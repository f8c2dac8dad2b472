// SPDX-License-Identifier: Apache-2.0
// The judge of products, the simulated cuBLASLt by its tables: that it sees each kind of mistake.
#include <algorithm>
#include <functional>

#include "simulation_lt.hpp"

namespace mp::test {
namespace {

// One product by cuBLASLt's own functions: 32 x 16 = (16 x 32)^T (16 x 16) of fp8 in bf16, with a bias. A test changes
// something of it, and sees what is said.
struct Direct {
    explicit Direct(TestDevice& device)
        : on(device), a(on, make_array(DType::fp8_e4m3, 33 * 16, Content::small_integers, 1)),
          b(on, make_array(DType::fp8_e4m3, 16 * 16, Content::small_integers, 2)),
          d(on, make_array(DType::bf16, 32 * 16, Content::small_integers, 3)),
          bias(on, make_array(DType::bf16, 32, Content::small_integers, 4)), scale(on, 1.0F) {
        on.sync();
        check(on.device().allocate(kWorkspace + kMore, &workspace));
        data = {a.data(), b.data(), d.data(), bias.data(), scale.data(), workspace};
    }
    ~Direct() { on.device().release(workspace, kWorkspace + kMore); }
    Direct(const Direct&) = delete;
    Direct& operator=(const Direct&) = delete;

    // What the heuristics answer, and then cublasLtMatmul, in words too.
    void search();
    void call();

    static constexpr std::size_t kWorkspace = std::size_t{1} << 20;
    static constexpr std::size_t kMore = 256; // to move it by
    struct Data {
        const void *a, *b;
        void* d;
        const void* bias;
        const float* scale;
        void* workspace;
    };

    TestDevice& on;
    DeviceArray a, b, d, bias;
    DeviceValue<float> scale;
    void* workspace = nullptr;
    Data data = {};
    simulated::Product p = {CUBLAS_COMPUTE_32F,     CUDA_R_32F, CUBLAS_OP_T, CUBLAS_OP_N,
                            CUBLASLT_EPILOGUE_BIAS, nullptr,    CUDA_R_16BF};
    simulated::Layout layout_a = {CUDA_R_8F_E4M3, 16, 32, 16};
    simulated::Layout layout_b = {CUDA_R_8F_E4M3, 16, 16, 16};
    simulated::Layout layout_d = {CUDA_R_16BF, 32, 16, 32};
    std::size_t workspace_bytes = kWorkspace;
    uint32_t alignment = 16;
    float beta = 0.0F;
    int32_t handle = 0;
    cublasLtMatmulHeuristicResult_t best = {};
    cublasStatus_t found = CUBLAS_STATUS_SUCCESS;
    cublasStatus_t called = CUBLAS_STATUS_SUCCESS;
    std::string complaint;
};

// The handles of the simulated library are pointers to these very structs.
void Direct::search() {
    const auto layout = [](simulated::Layout& x) {
        return reinterpret_cast<cublasLtMatrixLayout_t>(&x);
    };
    simulated::Preference preference = {kWorkspace,
                                        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                        {alignment, alignment, alignment, alignment}};
    p.bias = data.bias;
    p.scale_a = p.scale_b = data.scale;
    int count = 0;
    found = symbol<decltype(cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic")(
        reinterpret_cast<cublasLtHandle_t>(&handle), reinterpret_cast<cublasLtMatmulDesc_t>(&p),
        layout(layout_a), layout(layout_b), layout(layout_d), layout(layout_d),
        reinterpret_cast<cublasLtMatmulPreference_t>(&preference), 1, &best, &count);
    EXPECT_EQ(count, found == CUBLAS_STATUS_SUCCESS ? 1 : 0);
}

void Direct::call() {
    const auto layout = [](simulated::Layout& x) {
        return reinterpret_cast<cublasLtMatrixLayout_t>(&x);
    };
    const int64_t misuse = control().misuse;
    const int64_t wrong_context = control().wrong_context;
    lt().complaint[0] = '\0';
    lt().is_quiet = true;
    const float alpha = 1.0F;
    p.bias = data.bias;
    p.scale_a = p.scale_b = data.scale;
    called = symbol<decltype(cublasLtMatmul)>("cublasLtMatmul")(
        reinterpret_cast<cublasLtHandle_t>(&handle), reinterpret_cast<cublasLtMatmulDesc_t>(&p),
        &alpha, data.a, layout(layout_a), data.b, layout(layout_b), &beta, data.d, layout(layout_d),
        data.d, layout(layout_d), &best.algo, data.workspace, workspace_bytes,
        static_cast<cudaStream_t>(on.queue().native()));
    lt().is_quiet = false;
    complaint = lt().complaint;
    EXPECT_EQ(control().misuse > misuse, !complaint.empty());
    control().misuse = misuse;
    control().wrong_context = wrong_context; // it is called from outside the module
    on.sync();
}

TEST_F(Simulation, TheJudgeTakesWhatIsRight) {
    TestDevice on(backend(), 1);
    Direct x(on);
    x.search();
    x.call();
    EXPECT_EQ(x.found, CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(x.called, CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(x.complaint, "");
}

TEST_F(Simulation, TheJudgeSeesWhereBuffersLie) {
    TestDevice on(backend(), 1);
    alignas(256) static char on_host[4096] = {};
    const auto offset = [](const void* pointer, int64_t bytes) {
        return static_cast<char*>(const_cast<void*>(pointer)) + bytes;
    };
    const struct {
        const char* complaint;
        std::function<void(Direct&)> change;
    } rows[] = {
        {"A is not all in one piece of device memory", [](Direct& x) { x.data.a = on_host; }},
        {"B is not all in one piece of device memory", [](Direct& x) { x.data.b = on_host; }},
        {"D is not all in one piece of device memory", [](Direct& x) { x.data.d = on_host; }},
        {"the bias is not all in one piece of device memory",
         [](Direct& x) { x.data.bias = on_host; }},
        {"B's scale is not all in one piece of device memory",
         [](Direct& x) {
             x.data.scale = reinterpret_cast<const float*>(static_cast<char*>(on_host));
         }},
        {"the workspace is not all in one piece of device memory",
         [](Direct& x) { x.data.workspace = on_host; }},
        {"B is not all in one piece of device memory", // its end is not
         [&](Direct& x) { x.data.b = offset(x.data.b, 192); }},
        {"D lies over A", [](Direct& x) { x.data.a = x.data.d; }},
        {"D lies over B", [&](Direct& x) { x.data.b = offset(x.data.d, 1008 - 240); }},
        {"D lies over the bias", [&](Direct& x) { x.data.bias = offset(x.data.d, 512); }},
        {"the workspace lies over A", [](Direct& x) { x.data.a = x.data.workspace; }},
        {"A is not aligned as was promised, or must be",
         [&](Direct& x) { x.data.a = offset(x.data.a, 8); }},
        {"the bias is not aligned as was promised, or must be",
         [&](Direct& x) { x.data.bias = offset(x.data.bias, 2); }},
        {"the workspace is not aligned as was promised, or must be",
         [&](Direct& x) { x.data.workspace = offset(x.data.workspace, 128); }},
    };
    for (const auto& row : rows) {
        Direct x(on);
        x.search();
        row.change(x);
        x.call();
        EXPECT_EQ(x.found, CUBLAS_STATUS_SUCCESS) << row.complaint;
        EXPECT_EQ(x.called, CUBLAS_STATUS_EXECUTION_FAILED) << row.complaint;
        EXPECT_EQ(x.complaint, row.complaint);
    }
}

// What the documentation answers with INVALID_VALUE, or by the GPU.
TEST_F(Simulation, TheJudgeSeesWhatTheHeuristicsDidNot) {
    TestDevice on(backend(), 1);
    const struct {
        const char* what;
        cublasStatus_t answer;
        std::function<void(Direct&)> change;
    } rows[] = {
        {"another matrix", CUBLAS_STATUS_INVALID_VALUE, [](Direct& x) { x.layout_b.leading = 32; }},
        {"another way to sum", CUBLAS_STATUS_INVALID_VALUE, [](Direct& x) { x.p.fast = 1; }},
        {"another epilogue", CUBLAS_STATUS_INVALID_VALUE,
         [](Direct& x) { x.p.epilogue = CUBLASLT_EPILOGUE_GELU_BIAS; }},
        {"no bias", CUBLAS_STATUS_INVALID_VALUE, [](Direct& x) { x.data.bias = nullptr; }},
        {"a maximum of a wide result", CUBLAS_STATUS_INVALID_VALUE,
         [](Direct& x) { x.p.amax_d = x.scale.data(); }},
        {"too small a workspace", CUBLAS_STATUS_INVALID_VALUE,
         [](Direct& x) { x.workspace_bytes = 512; }},
        {"another transposition", CUBLAS_STATUS_INVALID_VALUE,
         [](Direct& x) { x.p.trans_a = CUBLAS_OP_N; }},
        {"a bias of another type", CUBLAS_STATUS_NOT_SUPPORTED,
         [](Direct& x) { x.p.bias_type = CUDA_R_32F; }},
        {"another GPU", CUBLAS_STATUS_ARCH_MISMATCH, [](Direct&) { control().capability = 80; }},
    };
    for (const auto& row : rows) {
        const On restore(90);
        Direct x(on);
        x.search();
        row.change(x);
        x.call();
        EXPECT_EQ(x.found, CUBLAS_STATUS_SUCCESS) << row.what;
        EXPECT_EQ(x.called, row.answer) << row.what;
        EXPECT_EQ(x.complaint, "a product that the heuristics did not take") << row.what;
    }
}

// A line of each table, on every generation.
TEST_F(Simulation, TheJudgeKnowsTheGenerations) {
    TestDevice on(backend(), 1);
    const auto square = [](Direct& x) { // so that any transposition fits
        x.layout_a = x.layout_b = {CUDA_R_8F_E4M3, 16, 16, 16};
        x.layout_d = {CUDA_R_16BF, 16, 16, 16};
    };
    const struct {
        const char* what;
        std::function<void(Direct&)> change;
        std::vector<int> takes;
    } rows[] = {
        {"fp8", [](Direct&) {}, {89, 90, 100, 103, 120}},
        {"fp8, A as it is",
         [&](Direct& x) {
             square(x);
             x.p.trans_a = CUBLAS_OP_N;
         },
         {100, 103}},
        {"scales of rows and columns",
         [](Direct& x) { x.p.mode_a = x.p.mode_b = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F; },
         {90}},
        {"E5M2 twice", [](Direct& x) { x.layout_a.type = x.layout_b.type = CUDA_R_8F_E5M2; }, {}},
        {"fp32 beside an fp32 bias",
         [](Direct& x) {
             x.layout_d.type = CUDA_R_32F;
             x.p.bias_type = CUDA_R_32F;
         },
         {}},
        {"rows of 24", [](Direct& x) { x.layout_b.leading = 24; }, {}},
        {"addresses of 8", [](Direct& x) { x.alignment = 8; }, {}},
    };
    for (const auto& row : rows) {
        for (const int capability : {80, 86, 89, 90, 100, 103, 120, 121}) {
            const On generation(capability);
            Direct x(on);
            row.change(x);
            x.search();
            const int column = capability == 86 ? 80 : capability == 121 ? 120 : capability;
            const bool takes =
                std::find(row.takes.begin(), row.takes.end(), column) != row.takes.end();
            EXPECT_EQ(x.found, takes ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED)
                << row.what << " on " << capability;
        }
    }
}

} // namespace
} // namespace mp::test
