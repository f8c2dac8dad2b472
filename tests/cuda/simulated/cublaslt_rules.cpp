// SPDX-License-Identifier: Apache-2.0
// What the simulated cuBLASLt takes and refuses: cublaslt_tables.def, and where buffers may lie.
#include <array>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../hash.hpp"
#include "cublaslt.hpp"

namespace mp::simulated {

namespace {

// Of the table's columns.
constexpr std::array<int, 7> kGenerations = {75, 80, 89, 90, 100, 103, 120};
using Generations = std::array<int, kGenerations.size()>;

struct Types {
    int a, b, c, d, bias;
    Generations on;
};
constexpr Types kTypes[] = {
#define LT_TYPES(a, b, c, d, bias, sm75, sm80, sm89, sm90, sm100, sm103, sm120, source)            \
    {CUDA_##a, CUDA_##b,    CUDA_##c,                                                              \
     CUDA_##d, CUDA_##bias, {sm75, sm80, sm89, sm90, sm100, sm103, sm120}},
#include "cublaslt_tables.def"
};

// A line of two properties.
struct Line {
    int first, second;
    Generations on;
};
struct Turned {
    int narrow, trans_a, trans_b;
    Generations on;
};
constexpr Turned kLayouts[] = {
#define LT_LAYOUT(narrow, trans_a, trans_b, sm75, sm80, sm89, sm90, sm100, sm103, sm120, source)   \
    {narrow,                                                                                       \
     CUBLAS_OP_##trans_a,                                                                          \
     CUBLAS_OP_##trans_b,                                                                          \
     {sm75, sm80, sm89, sm90, sm100, sm103, sm120}},
#include "cublaslt_tables.def"
};
constexpr Line kScales[] = {
#define LT_SCALES(mode, narrow_d, sm75, sm80, sm89, sm90, sm100, sm103, sm120, source)             \
    {CUBLASLT_MATMUL_MATRIX_SCALE_##mode, narrow_d, {sm75, sm80, sm89, sm90, sm100, sm103, sm120}},
#include "cublaslt_tables.def"
};
constexpr Line kEpilogues[] = {
#define LT_EPILOGUE(epilogue, narrow, sm75, sm80, sm89, sm90, sm100, sm103, sm120, source)         \
    {CUBLASLT_EPILOGUE_##epilogue, narrow, {sm75, sm80, sm89, sm90, sm100, sm103, sm120}},
#include "cublaslt_tables.def"
};
#define LT_MULTIPLE(name, multiple, source) constexpr int64_t k##name = multiple;
#include "cublaslt_tables.def"

bool is_on(const Generations& on) noexcept {
    std::size_t column = 0;
    while (column + 1 < kGenerations.size() && kGenerations[column + 1] <= control().capability) {
        ++column;
    }
    return on[column] != 0;
}

// What a table says of something: no line has it, a line of another generation, or one of this.
enum class Found { nowhere, elsewhere, here };
template <typename Lines, typename Match> Found find(const Lines& lines, Match matches) noexcept {
    for (const auto& line : lines) {
        if (matches(line)) {
            return is_on(line.on) ? Found::here : Found::elsewhere;
        }
    }
    return Found::nowhere;
}

template <std::size_t kCount>
Found find_line(const Line (&lines)[kCount], int first, bool second) noexcept {
    return find(lines, [=](const Line& line) {
        return line.first == first && (line.second != 0) == second;
    });
}

bool shapes_fit(const Problem& x) noexcept {
    const bool ta = x.p.trans_a != CUBLAS_OP_N;
    const bool tb = x.p.trans_b != CUBLAS_OP_N;
    const int64_t m = ta ? x.a.columns : x.a.rows;
    const int64_t k = ta ? x.a.rows : x.a.columns;
    for (const Layout* l : {&x.a, &x.b, &x.c, &x.d}) {
        if (l->rows < 1 || l->columns < 1 || l->leading < l->rows || l->batch_count < 1 ||
            l->batch_count != x.d.batch_count) {
            return false;
        }
    }
    return (tb ? x.b.columns : x.b.rows) == k && x.d.rows == m &&
           x.d.columns == (tb ? x.b.rows : x.b.columns) && x.c.rows == x.d.rows &&
           x.c.columns == x.d.columns;
}

// Of rows and their distances, as cuBLAS's "Tensor Core Usage" has them.
bool sizes_are_multiples(const Problem& x) noexcept {
    const auto bytes = [](const Layout& l) { return dtype_size(dtype_of(l.type)); };
    if (!is_fp8(x.a.type)) {
        return !has_gelu(x.p) || x.d.leading * bytes(x.d) % kGeluResult == 0;
    }
    for (const Layout* l : {&x.a, &x.b, &x.c, &x.d}) {
        if (l->rows * bytes(*l) % kFp8Matrix != 0 || l->leading * bytes(*l) % kFp8Matrix != 0) {
            return false;
        }
    }
    return x.d.rows % kFp8ResultRows == 0;
}

// A scale, or a place for a maximum, for what has none (cublasLt.h, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER and others).
bool has_odd_scales(const Problem& x) noexcept {
    const bool of_operands = x.p.scale_a != nullptr || x.p.scale_b != nullptr;
    const bool of_result = x.p.scale_d != nullptr || x.p.amax_d != nullptr;
    return (of_operands && !is_fp8(x.a.type)) || (of_result && !is_fp8(x.d.type));
}

Found find_problem(const Problem& x) noexcept {
    const bool narrow = is_fp8(x.a.type);
    const std::initializer_list<Found> answers = {
        find(kTypes,
             [&](const Types& t) {
                 return t.a == x.a.type && t.b == x.b.type && t.c == x.c.type && t.d == x.d.type &&
                        (!has_bias(x.p) || t.bias == type_of_bias(x));
             }),
        find(kLayouts,
             [&](const Turned& t) {
                 return (t.narrow != 0) == narrow && t.trans_a == x.p.trans_a &&
                        t.trans_b == x.p.trans_b;
             }),
        find_line(kEpilogues, static_cast<int>(x.p.epilogue), narrow),
        narrow ? find_line(kScales, x.p.mode_a, is_fp8(x.d.type)) : Found::here,
        x.p.mode_a == x.p.mode_b && sizes_are_multiples(x) ? Found::here : Found::nowhere};
    Found least = Found::here;
    for (const Found answer : answers) {
        least = answer < least ? answer : least;
    }
    return least;
}

// ---- memory ------------------------------------------------------------------------------------

// Runs of bytes at one distance, in batches at another.
struct Region {
    const char* name;
    const char* begin;
    int64_t run, distance, runs;
    int64_t batch_distance = 0, batches = 1;

    [[nodiscard]] const char* end() const {
        return begin + (batches - 1) * batch_distance + (runs - 1) * distance + run;
    }
    [[nodiscard]] const char* at(int64_t index) const {
        return begin + index / runs * batch_distance + index % runs * distance;
    }
    [[nodiscard]] bool meets(const Region& other) const {
        if (end() <= other.begin || other.end() <= begin) {
            return false;
        }
        for (int64_t i = 0; i < runs * batches; ++i) {
            for (int64_t j = 0; j < other.runs * other.batches; ++j) {
                if (at(i) < other.at(j) + other.run && other.at(j) < at(i) + run) {
                    return true;
                }
            }
        }
        return false;
    }
};

Region matrix(const char* name, const void* data, const Layout& x) {
    const int64_t size = dtype_size(dtype_of(x.type));
    return {name,      static_cast<const char*>(data), x.rows * size, x.leading * size,
            x.columns, x.batch_stride * size,          x.batch_count};
}
Region vector(const char* name, const void* data, int64_t bytes) {
    return {name, static_cast<const char*>(data), bytes, bytes, 1};
}

void expect(bool is_kept, const char* subject, const char* what, const char* object = "") {
    if (!is_kept) {
        complain((std::string(subject) + what + object).c_str());
    }
}

void expect_aligned(const void* pointer, int64_t alignment, const char* name) {
    expect(reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) == 0, name,
           " is not aligned as was promised, or must be");
}

void check_places(const std::vector<Region>& read, const std::vector<Region>& written) {
    for (const auto* regions : {&read, &written}) {
        for (const Region& region : *regions) {
            const auto bytes = static_cast<std::size_t>(region.end() - region.begin);
            expect(is_on_device(region.begin, bytes), region.name,
                   " is not all in one piece of device memory");
        }
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
        for (const Region& region : read) {
            expect(!written[i].meets(region), written[i].name, " lies over ", region.name);
        }
        for (std::size_t j = 0; j < i; ++j) {
            expect(!written[i].meets(written[j]), written[i].name, " lies over ", written[j].name);
        }
    }
}

} // namespace

cublasStatus_t check_problem(const Problem& x, bool at_call) noexcept {
    if (!shapes_fit(x) || has_odd_scales(x)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (x.p.compute != CUBLAS_COMPUTE_32F || x.p.scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    switch (find_problem(x)) {
    case Found::here:
        return CUBLAS_STATUS_SUCCESS;
    case Found::elsewhere:
        return at_call ? CUBLAS_STATUS_ARCH_MISMATCH : CUBLAS_STATUS_NOT_SUPPORTED;
    case Found::nowhere:
        break;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

bool check_alignments(const Problem& x, const uint32_t (&alignments)[4]) noexcept {
    if (is_fp8(x.a.type)) {
        return ((alignments[0] | alignments[1] | alignments[2] | alignments[3]) % kFp8Matrix) == 0;
    }
    return !has_gelu(x.p) || alignments[3] % kGeluResult == 0;
}

bool check_memory(const Call& call, const Algorithm& algorithm, const void* workspace) noexcept {
    const int64_t before = control().misuse;
    const Problem& x = call.problem;
    const Product& p = x.p;
    std::vector<Region> read = {matrix("A", call.a, x.a), matrix("B", call.b, x.b)};
    std::vector<Region> written = {matrix("D", call.d, x.d)};
    expect_aligned(call.a, algorithm.alignments[0], "A");
    expect_aligned(call.b, algorithm.alignments[1], "B");
    expect_aligned(call.c, algorithm.alignments[2], "C");
    expect_aligned(call.d, algorithm.alignments[3], "D");
    if (call.beta != 0.0F && call.c != call.d) {
        read.push_back(matrix("C", call.c, x.c));
    }
    if (has_bias(p)) {
        expect_aligned(p.bias, static_cast<int64_t>(algorithm.bias_alignment), "the bias");
        read.push_back(
            vector("the bias", p.bias, x.d.rows * dtype_size(dtype_of(type_of_bias(x)))));
    }
    const int64_t alignment = has_vectors(p) ? kOuterVector : kScalar;
    const auto add_scales = [&](const char* name, const float* scales, int64_t count) {
        if (scales != nullptr) {
            expect_aligned(scales, alignment, name);
            read.push_back(vector(name, scales, count * static_cast<int64_t>(sizeof(float))));
        }
    };
    add_scales("A's scale", p.scale_a, has_vectors(p) ? x.d.rows : 1);
    add_scales("B's scale", p.scale_b, has_vectors(p) ? x.d.columns : 1);
    add_scales("D's scale", p.scale_d, 1);
    if (p.amax_d != nullptr) {
        expect_aligned(p.amax_d, kScalar, "D's maximum");
        written.push_back(vector("D's maximum", p.amax_d, sizeof(float)));
    }
    if (algorithm.workspace != 0) {
        expect_aligned(workspace, kWorkspace, "the workspace");
        written.push_back(
            vector("the workspace", workspace, static_cast<int64_t>(algorithm.workspace)));
    }
    check_places(read, written);
    return control().misuse == before;
}

uint64_t hash_of(const Problem& x) noexcept {
    test::Fnv1a hash;
    const auto add = [&hash](auto... values) { (hash.add(static_cast<uint64_t>(values)), ...); };
    const Product& p = x.p;
    add(p.compute, p.scale, p.trans_a, p.trans_b, p.epilogue, p.bias_type, p.mode_a, p.mode_b,
        p.fast);
    for (const Layout* l : {&x.a, &x.b, &x.c, &x.d}) {
        add(l->type, l->rows, l->columns, l->leading, l->batch_count, l->batch_stride);
    }
    return hash.value();
}

uint64_t pointers_of(const Product& p) noexcept {
    return (p.scale_a != nullptr ? 1U : 0U) | (p.scale_b != nullptr ? 2U : 0U) |
           (p.scale_d != nullptr ? 4U : 0U) | (p.amax_d != nullptr ? 8U : 0U);
}

void complain(const char* what) noexcept {
    ++control().misuse;
    (void)std::snprintf(lt_control().complaint, sizeof lt_control().complaint, "%s", what);
    if (!lt_control().is_quiet) {
        (void)std::fprintf(stderr, "simulated cuBLASLt: %s\n", what);
    }
}

} // namespace mp::simulated
