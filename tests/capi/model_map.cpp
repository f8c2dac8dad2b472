// SPDX-License-Identifier: Apache-2.0
// Maps of a model's files through the C functions: a layer's weights under a trainer's names, read, loaded and written again.
#include <cstring>
#include <filesystem>

#include "model_parts.hpp"
#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

struct Files : Folder {
    explicit Files(const char* name) : Folder(name) { fs::create_directories(path); }
};

std::string bytes_of(const std::vector<float>& values) {
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::vector<float> counted(std::size_t count, float first) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = first + static_cast<float>(i);
    }
    return values;
}

constexpr const char* kRules = "q = rows(h.0.qkv, 0/3)\n"
                               "k = rows(h.0.qkv, 1/3)\n"
                               "v = rows(h.0.qkv, 2/3)\n"
                               "up = transpose(h.0.up) # of Conv1D\n";

// qkv [6, 2] from 0 on, up [2, 3] from 100 on; in two files.
void write_model(const fs::path& folder) {
    write_parts(folder / "1.safetensors", {{"h.0.qkv", "F32", {6, 2}, bytes_of(counted(12, 0))}},
                R"("format":"pt","tokens":"64")");
    write_parts(folder / "2.safetensors", {{"h.0.up", "F32", {2, 3}, bytes_of(counted(6, 100))}});
}

ModelFile mapped(mp_model_file* model, const char* rules) {
    mp_model_file* made = nullptr;
    EXPECT_TRUE(succeeded(mp_model_file_map(model, rules, &made)));
    return ModelFile(made);
}

std::vector<float> floats(mp_model_file* model, const char* name) {
    int64_t index = -1;
    mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
    EXPECT_TRUE(succeeded(mp_model_file_get_index(model, name, &index)));
    EXPECT_TRUE(succeeded(mp_model_file_get_tensor(model, index, &tensor)));
    EXPECT_STREQ(tensor.name, name);
    std::vector<float> values(static_cast<std::size_t>(tensor.count));
    EXPECT_TRUE(succeeded(mp_model_file_read_floats(model, index, 0, values.data(), tensor.count)));
    return values;
}

} // namespace

TEST(ModelMap, IsAModelFileThatKeepsItsOrigin) {
    const Files folder("map");
    write_model(folder.path);
    ModelFile map(nullptr);
    {
        const ModelFile model = opened(folder.path);
        map = mapped(model, kRules);
    }
    int64_t count = 0;
    MP_OK(mp_model_file_get_count(map, &count));
    EXPECT_EQ(count, 4);
    EXPECT_EQ(floats(map, "k"), counted(4, 4));
    EXPECT_EQ(floats(map, "up"), (std::vector<float>{100, 103, 101, 104, 102, 105}));
    mp_file_tensor up = MP_FILE_TENSOR_INIT;
    MP_OK(mp_model_file_get_tensor(map, 3, &up));
    EXPECT_EQ(up.ndim, 2);
    EXPECT_EQ(up.shape[0], 3);
    EXPECT_EQ(up.shape[1], 2);
    EXPECT_EQ(up.bytes, 24);
    EXPECT_EQ(up.dtype, MP_DTYPE_FP32);
    EXPECT_STREQ(up.type_name, "F32");
    EXPECT_EQ(up.path, (folder.path / "2.safetensors").string());
    char text[8] = {};
    MP_OK(mp_model_file_get_metadata(map, "tokens", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "64");
    MP_OK(mp_model_file_get_value_count(map, &count));
    EXPECT_EQ(count, 3);
    float one = 0;
    MP_OK(mp_model_file_read(map, 1, 12, &one, sizeof one));
    EXPECT_EQ(one, 7);
    MP_FAILS(mp_model_file_read(map, 1, 13, &one, sizeof one), MP_STATUS_INVALID_ARGUMENT,
             "'k' has 16");
    int64_t index = 0;
    MP_FAILS(mp_model_file_get_index(map, "h.0.up", &index), MP_STATUS_UNKNOWN_NAME, "'h.0.up'");
    EXPECT_EQ(floats(mapped(map, "w = join(k, q)"), "w"),
              (std::vector<float>{4, 5, 6, 7, 0, 1, 2, 3}));
}

TEST(ModelMap, ParametersAndWritersTakeIt) {
    const Files folder("map_taken");
    write_model(folder.path);
    const ModelFile map = mapped(opened(folder.path), kRules);
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    const int32_t group = add_group(optimizer);
    const Tensor v = make_tensor(context, MP_DTYPE_FP32, {2, 2});
    const Tensor up = make_tensor(context, MP_DTYPE_FP32, {3, 2});
    MP_OK(add_param(optimizer, group, "v", v));
    MP_OK(add_param(optimizer, group, "up", up));
    MP_OK(mp_optimizer_load_params(optimizer, nullptr, map, nullptr, nullptr, 0));
    EXPECT_EQ(values_of(context, v), counted(4, 8));
    EXPECT_EQ(values_of(context, up), floats(map, "up"));
    mp_model_writer* writer = nullptr;
    const std::string path = (folder.path / "new.safetensors").string();
    MP_OK(mp_model_writer_create(path.c_str(), nullptr, &writer));
    MP_OK(mp_model_writer_copy_metadata(writer, map));
    MP_OK(mp_model_writer_finish(writer));
    mp_model_writer_destroy(writer);
    char text[8] = {};
    MP_OK(mp_model_file_get_metadata(opened(path), "tokens", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "64");
}

TEST(ModelMap, WhatIsWrongIsRefusedWithItsLine) {
    const Files folder("map_refused");
    write_model(folder.path);
    const ModelFile model = opened(folder.path);
    mp_model_file* const before = model;
    for (const auto& [rules, status, words] :
         {std::tuple{"x = h.0.qkv\ny : z", MP_STATUS_INVALID_ARGUMENT,
                     "line 2: ': z' stands where"},
          {"x = h.1.qkv", MP_STATUS_UNKNOWN_NAME, "line 1: there is no tensor 'h.1.qkv'"},
          {"x = rows(h.0.qkv, 0/4)", MP_STATUS_INVALID_SHAPE, "line 1: 6 rows"},
          {"", MP_STATUS_INVALID_ARGUMENT, "no rule"}}) {
        mp_model_file* made = before;
        MP_FAILS(mp_model_file_map(model, rules, &made), status, words);
        EXPECT_EQ(made, nullptr);
    }
    mp_model_file* made = nullptr;
    MP_FAILS(mp_model_file_map(model, nullptr, &made), MP_STATUS_NULL_ARGUMENT, "rules");
    MP_FAILS(mp_model_file_map(nullptr, kRules, &made), MP_STATUS_NULL_ARGUMENT, "model");
    MP_FAILS(mp_model_file_map(model, kRules, nullptr), MP_STATUS_NULL_ARGUMENT, "out");
}

// Maps of maps have an end, as each read goes through all of them.
TEST(ModelMap, OverEachOtherAreNoMoreThanSixtyFour) {
    const Files folder("model_map_depth");
    write_model(folder.path);
    ModelFile model = opened(folder.path);
    for (int i = 0; i < 64; ++i) {
        model = mapped(model, "* = *");
    }
    float value = 0;
    MP_OK(mp_model_file_read_floats(model, 0, 5, &value, 1));
    EXPECT_EQ(value, 5.0F);
    mp_model_file* made = nullptr;
    MP_FAILS(mp_model_file_map(model, "* = *", &made), MP_STATUS_INVALID_ARGUMENT, "64");
}
