// SPDX-License-Identifier: Apache-2.0
// A tensor of a model's files straight into one of the library's: every format against what is made of the numbers at once,
// slices for 1 to 8 ranks against the whole, and all that is refused.
#include <cstring>
#include <filesystem>

#include "fixture_file.hpp"
#include "model_parts.hpp"
#include "training.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRows = 2064; // for 8 ranks; more than the 2^18 elements that are read at a time
constexpr int64_t kColumns = 256;

std::string text_of(const void* data, std::size_t bytes) {
    return {static_cast<const char*>(data), bytes};
}

// A folder with one file: "w" in F32, the largest element behind the first piece, "b" the same in BF16, and others.
struct Model : Folder {
    explicit Model(const char* name, const char* backend = nullptr)
        : Folder(name), context(make_context(2, backend)) {
        fs::create_directories(path);
        values = numbers(static_cast<std::size_t>(kRows * kColumns), 5, 3.0F);
        values[static_cast<std::size_t>(kRows * kColumns) - 700] = 77.0F;
        const Tensor half = make_tensor(context, MP_DTYPE_BF16, {kRows, kColumns}, values);
        const std::vector<unsigned char> bytes = bytes_of(half);
        write_parts(path / "m.safetensors",
                    {{"w", "F32", {kRows, kColumns}, text_of(values.data(), values.size() * 4)},
                     {"b", "BF16", {kRows, kColumns}, text_of(bytes.data(), bytes.size())},
                     {"i", "I32", {4, 1}, "0123456789abcdef"},
                     {"one", "F32", {}, text_of(values.data(), 4)},
                     {"cut", "F32", {16, 6}, text_of(values.data(), 4 * 96)},
                     {"nan", "F32", {1, 32}, std::string(128, '\xff')}});
        model = opened(path);
    }
    [[nodiscard]] int64_t index(const char* name) const {
        int64_t found = -1;
        EXPECT_TRUE(succeeded(mp_model_file_get_index(model, name, &found)));
        return found;
    }
    mp_status load(const char* name, int64_t first_row, mp_tensor* tensor) const {
        return mp_model_file_load(model, nullptr, index(name), first_row, tensor);
    }

    Context context;
    std::vector<float> values;
    ModelFile model{nullptr};
};

struct Codes {
    int32_t dtype, scaling, rule;
};
const Codes kCodes[] = {{MP_DTYPE_FP8_E4M3, MP_SCALING_TENSOR, 0},
                        {MP_DTYPE_FP8_E5M2, MP_SCALING_TENSOR, MP_SCALE_RULE_FLOAT64},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_TENSOR, MP_SCALE_RULE_MSAMP},
                        {MP_DTYPE_FP16, MP_SCALING_TENSOR, MP_SCALE_RULE_MSAMP},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_ROW, 0},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_COLUMN, 0},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_1X128, 0},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X1, 0},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_128X128, MP_SCALE_RULE_DEEPSEEK},
                        {MP_DTYPE_FP8_E4M3, MP_SCALING_MX_1X32, 0},
                        {MP_DTYPE_FP8_E5M2, MP_SCALING_MX_32X1, 0},
                        {MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4, 0},
                        {MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32, 0}};

Tensor codes_of(mp_context* context, const Codes& c, int64_t rows) {
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    quant.scaling = c.scaling;
    quant.rule = c.rule;
    return make_quantized(context, c.dtype, {rows, kColumns}, &quant);
}

// Codes, scales and amax.
std::vector<unsigned char> everything(mp_tensor* tensor) {
    std::vector<unsigned char> all = bytes_of(tensor);
    mp_tensor *scales = nullptr, *amax = nullptr;
    EXPECT_TRUE(succeeded(mp_tensor_get_scales(tensor, &scales)));
    EXPECT_TRUE(succeeded(mp_tensor_get_quantized_amax(tensor, &amax)));
    for (mp_tensor* part : {scales, amax}) {
        const std::vector<unsigned char> bytes = bytes_of(part);
        all.insert(all.end(), bytes.begin(), bytes.end());
        mp_tensor_destroy(part);
    }
    return all;
}

} // namespace

class ModelLoadOn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, ModelLoadOn, ::testing::ValuesIn(kHostBackends));

TEST_P(ModelLoadOn, CodesAreThoseOfAllNumbersAtOnce) {
    const Model m("load_codes", GetParam());
    const Tensor numbers = make_tensor(m.context, MP_DTYPE_FP32, {kRows, kColumns}, m.values);
    const Tensor part = view_of(numbers, 258 * kColumns, {258, kColumns});
    for (const Codes& c : kCodes) {
        for (const auto& [source, rows, first] :
             {std::tuple{numbers.operator mp_tensor*(), kRows, int64_t{0}},
              {part.operator mp_tensor*(), int64_t{258}, int64_t{258}}}) {
            const Tensor wanted = codes_of(m.context, c, rows), got = codes_of(m.context, c, rows);
            MP_OK(mp_tensor_quantize(source, nullptr, wanted, nullptr, nullptr, nullptr));
            MP_OK(m.load("w", first, got));
            EXPECT_EQ(everything(got), everything(wanted)) << c.dtype << " " << c.scaling;
            MP_OK(m.load("w", first, got)); // over what is there
            EXPECT_EQ(everything(got), everything(wanted)) << c.dtype << " " << c.scaling;
        }
    }
}

TEST(ModelLoad, NumbersAreRoundedToTheTensorsType) {
    const Model m("load_rounded");
    const Tensor exact = make_tensor(m.context, MP_DTYPE_FP32, {kRows, kColumns}, m.values);
    for (const int32_t dtype : {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16}) {
        const Tensor got = make_tensor(m.context, dtype, {kRows, kColumns});
        MP_OK(m.load("w", 0, got));
        EXPECT_EQ(bytes_of(got),
                  bytes_of(make_tensor(m.context, dtype, {kRows, kColumns}, m.values)));
    }
    const Tensor wide = make_tensor(m.context, MP_DTYPE_FP32, {kRows, kColumns});
    MP_OK(m.load("b", 0, wide));
    const Tensor rounded = make_tensor(m.context, MP_DTYPE_BF16, {kRows, kColumns}, m.values);
    EXPECT_EQ(values_of(m.context, wide), values_of(m.context, rounded));
    const Tensor one = make_tensor(m.context, MP_DTYPE_FP32, {});
    MP_OK(m.load("one", 0, one));
    EXPECT_EQ(values_of(m.context, one)[0], m.values[0]);
    const Tensor integers = make_tensor(m.context, MP_DTYPE_INT32, {2, 1});
    MP_OK(m.load("i", 1, integers));
    const std::vector<unsigned char> bytes = bytes_of(integers);
    EXPECT_EQ(text_of(bytes.data(), bytes.size()), "456789ab");
    MP_OK(m.load("w", kRows, make_tensor(m.context, MP_DTYPE_BF16, {0, kColumns})));
}

TEST(ModelLoad, SlicesOfAnyRanksAreTheWhole) {
    const Model m("load_slices");
    for (const auto& [name, dtype] : {std::pair{"w", MP_DTYPE_FP32},
                                      {"w", MP_DTYPE_BF16},
                                      {"b", MP_DTYPE_BF16},
                                      {"b", MP_DTYPE_FP32}}) {
        const Tensor whole = make_tensor(m.context, dtype, {kRows, kColumns});
        MP_OK(m.load(name, 0, whole));
        const std::vector<unsigned char> wanted = bytes_of(whole);
        for (int64_t ranks = 1; ranks <= 8; ++ranks) {
            std::vector<unsigned char> got;
            for (int64_t rank = 0; rank < ranks; ++rank) {
                const int64_t first = kRows * rank / ranks;
                const Tensor own =
                    make_tensor(m.context, dtype, {kRows * (rank + 1) / ranks - first, kColumns});
                MP_OK(m.load(name, first, own));
                const std::vector<unsigned char> bytes = bytes_of(own);
                got.insert(got.end(), bytes.begin(), bytes.end());
            }
            EXPECT_EQ(got, wanted) << name << " " << dtype << " " << ranks;
        }
    }
}

TEST(ModelLoad, BlocksStayWhatTheyAreOrBecomeNumbers) {
    const Folder folder("load_blocks");
    fs::create_directories(folder.path);
    const FixtureFile fixture("gguf");
    const FixtureArray& bytes = fixture.array("file/all.gguf");
    std::ofstream(folder.path / "all.gguf", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.count());
    const ModelFile model = opened(folder.path / "all.gguf");
    const Context context = make_context();
    for (const auto& [name, dtype, columns] : {std::tuple{"coded.Q4_1", MP_DTYPE_Q4_1, int64_t{64}},
                                               {"coded.Q8_0", MP_DTYPE_Q8_0, 64},
                                               {"coded.Q6_K", MP_DTYPE_Q6_K, 512}}) {
        int64_t index = -1;
        MP_OK(mp_model_file_get_index(model, name, &index));
        const std::size_t row = mp_dtype_bytes(dtype, 3 * columns);
        std::vector<unsigned char> wanted(row);
        MP_OK(mp_model_file_read(model, index, static_cast<int64_t>(row), wanted.data(), row));
        const Tensor got = make_tensor(context, dtype, {1, 3, columns});
        MP_OK(mp_model_file_load(model, nullptr, index, 1, got));
        EXPECT_EQ(bytes_of(got), wanted) << name;
        std::vector<float> values(static_cast<std::size_t>(3 * columns));
        MP_OK(mp_model_file_read_floats(model, index, 3 * columns, values.data(), 3 * columns));
        const Tensor plain = make_tensor(context, MP_DTYPE_FP32, {1, 3, columns});
        MP_OK(mp_model_file_load(model, nullptr, index, 1, plain));
        EXPECT_EQ(values_of(context, plain), values) << name;
        const Tensor other = make_tensor(context, MP_DTYPE_Q5_0, {2, 3, columns});
        MP_FAILS(mp_model_file_load(model, nullptr, index, 0, other), MP_STATUS_INVALID_DTYPE,
                 "but the tensor is q5_0");
    }
}

TEST(ModelLoad, NumbersBecomeBlocks) {
    const Model m("load_to_blocks");
    for (const int32_t dtype : {MP_DTYPE_Q8_0, MP_DTYPE_Q4_0}) {
        const std::string path = (m.path / "blocks.gguf").string();
        fs::remove(path);
        mp_model_writer* writer = nullptr;
        MP_OK(mp_model_writer_create(path.c_str(), nullptr, &writer));
        const int64_t shape[] = {kRows, kColumns};
        int64_t index = 0;
        MP_OK(mp_model_writer_add_tensor(writer, "w", dtype, 2, shape, &index));
        MP_OK(mp_model_writer_write_floats(writer, 0, 0, m.values.data(), kRows * kColumns));
        MP_OK(mp_model_writer_finish(writer));
        mp_model_writer_destroy(writer);
        const Tensor got = make_tensor(m.context, dtype, {kRows, kColumns});
        const Tensor wanted = make_tensor(m.context, dtype, {kRows, kColumns});
        MP_OK(m.load("w", 0, got));
        MP_OK(mp_model_file_load(opened(path), nullptr, 0, 0, wanted));
        EXPECT_EQ(bytes_of(got), bytes_of(wanted));
        MP_FAILS(m.load("nan", 0, make_tensor(m.context, dtype, {1, 32})),
                 MP_STATUS_INVALID_ARGUMENT, "begins at element 0 cannot be");
    }
}

TEST(ModelLoad, WhatDoesNotFitChangesNothing) {
    const Model m("load_refused");
    const std::vector<float> before(static_cast<std::size_t>(2 * kColumns), 7.0F);
    const Tensor two = make_tensor(m.context, MP_DTYPE_FP32, {2, kColumns}, before);
    MP_FAILS(m.load("w", kRows - 1, two), MP_STATUS_INVALID_ARGUMENT, "2 rows from row 2063 on");
    MP_FAILS(m.load("w", -1, two), MP_STATUS_INVALID_ARGUMENT, "'w' has 2064");
    MP_FAILS(m.load("w", INT64_MAX, two), MP_STATUS_INVALID_ARGUMENT);
    MP_FAILS(m.load("cut", 0, two), MP_STATUS_INVALID_SHAPE, "all dimensions but the first");
    MP_FAILS(m.load("one", 0, two), MP_STATUS_INVALID_SHAPE);
    MP_FAILS(mp_model_file_load(m.model, nullptr, 6, 0, two), MP_STATUS_INVALID_ARGUMENT, "6");
    MP_FAILS(mp_model_file_load(m.model, nullptr, -1, 0, two), MP_STATUS_INVALID_ARGUMENT);
    MP_FAILS(mp_model_file_load(nullptr, nullptr, 0, 0, two), MP_STATUS_NULL_ARGUMENT, "model");
    MP_FAILS(mp_model_file_load(m.model, nullptr, 0, 0, nullptr), MP_STATUS_NULL_ARGUMENT);
    MP_FAILS(m.load("i", 0, make_tensor(m.context, MP_DTYPE_FP32, {4, 1})), MP_STATUS_INVALID_DTYPE,
             "'i' is I32");
    MP_FAILS(m.load("w", 0, make_tensor(m.context, MP_DTYPE_FP8_E4M3, {2, kColumns})),
             MP_STATUS_INVALID_DTYPE, "mp_tensor_create_quantized");
    MP_FAILS(m.load("w", 0, make_tensor(m.context, MP_DTYPE_INT32, {2, kColumns})),
             MP_STATUS_INVALID_DTYPE);
    MP_FAILS(m.load("w", 0, make_deferred(m.context, MP_DTYPE_FP32, {2, kColumns})),
             MP_STATUS_BAD_STATE);
    EXPECT_EQ(values_of(m.context, two), before);
}

// A file that became shorter: the failure is said, and a later load is whole.
TEST(ModelLoad, AFileThatEndsIsAnErrorAndTheNextLoadIsWhole) {
    const Model m("load_error");
    const fs::path file = m.path / "m.safetensors";
    const std::string whole = [&] {
        std::ifstream in(file, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    fs::resize_file(file, whole.size() / 4);
    const Tensor wanted = codes_of(m.context, kCodes[0], kRows);
    const Tensor got = codes_of(m.context, kCodes[0], kRows);
    MP_FAILS(m.load("w", 0, got), MP_STATUS_IO_ERROR);
    MP_FAILS(m.load("w", 0, make_tensor(m.context, MP_DTYPE_FP32, {kRows, kColumns})),
             MP_STATUS_IO_ERROR);
    std::ofstream(file, std::ios::binary) << whole;
    MP_OK(m.load("w", 0, got));
    const Tensor numbers = make_tensor(m.context, MP_DTYPE_FP32, {kRows, kColumns}, m.values);
    MP_OK(mp_tensor_quantize(numbers, nullptr, wanted, nullptr, nullptr, nullptr));
    EXPECT_EQ(everything(got), everything(wanted));
}
