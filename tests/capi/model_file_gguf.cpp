// SPDX-License-Identifier: Apache-2.0
// GGUF files through the C functions: what the format's own reader says of the files of its own writer, whole and in pieces, and
// as first values of parameters.
#include <cmath>
#include <cstring>
#include <filesystem>

#include "fixture_file.hpp"
#include "model_parts.hpp"
#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

// The files of the fixture in a folder.
struct GgufFiles : Folder {
    explicit GgufFiles(const char* name) : Folder(name), fixture("gguf") {
        fs::create_directories(path);
        for (const char* file : {"all.gguf", "split-00001-of-00003.gguf",
                                 "split-00002-of-00003.gguf", "split-00003-of-00003.gguf"}) {
            const FixtureArray& bytes = fixture.array(std::string("file/") + file);
            std::ofstream(path / file, std::ios::binary)
                .write(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.count());
        }
    }
    // Of a tensor of "all.gguf".
    [[nodiscard]] std::vector<float> numbers(const std::string& tensor) const {
        const FixtureArray& array = fixture.array("numbers/all.gguf/" + tensor);
        std::vector<float> result(static_cast<std::size_t>(array.count()));
        std::memcpy(result.data(), array.bytes.data(), array.bytes.size());
        return result;
    }

    FixtureFile fixture;
};

bool same_number(float a, float b) {
    return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof a) == 0;
}

std::string item_of(mp_model_file* model, int64_t index, int64_t item) {
    std::size_t needed = 0;
    EXPECT_TRUE(succeeded(mp_model_file_get_value_item(model, index, item, nullptr, 0, &needed)));
    std::string text(needed, '\0');
    EXPECT_TRUE(succeeded(
        mp_model_file_get_value_item(model, index, item, text.data(), text.size(), nullptr)));
    text.pop_back();
    return text;
}

// All that the fixture knows of "all.gguf" is there, and nothing else.
void expect_values(mp_model_file* model, const FixtureFile& fixture) {
    std::map<std::string, int64_t> items;
    for (const auto& [key_and_item, wanted] : fixture.facts("value all.gguf")) {
        const std::size_t space = key_and_item.rfind(' ');
        const std::string key = key_and_item.substr(0, space);
        int64_t index = -1;
        MP_OK(mp_model_file_get_value_index(model, key.c_str(), &index));
        mp_file_value value = MP_FILE_VALUE_INIT;
        MP_OK(mp_model_file_get_value(model, index, &value));
        EXPECT_EQ(key, value.key);
        EXPECT_EQ(value.is_list != 0, key.starts_with("list."));
        const std::string got = item_of(model, index, std::stoll(key_and_item.substr(space)));
        if (value.type == MP_FILE_VALUE_FLOAT && key != "of.float64") {
            EXPECT_EQ(std::stof(got), std::stof(wanted)) << key;
        } else {
            EXPECT_EQ(got, wanted) << key;
        }
        EXPECT_EQ(std::max(++items[key], value.count), value.count);
    }
    int64_t count = 0;
    MP_OK(mp_model_file_get_value_count(model, &count));
    EXPECT_EQ(count, static_cast<int64_t>(items.size()));
}

} // namespace

TEST(ModelFileGguf, ValuesAreThoseOfItsOwnReader) {
    const GgufFiles files("gguf_values");
    const ModelFile model = opened(files.path / "all.gguf");
    expect_values(model, files.fixture);
    char text[8] = {};
    MP_OK(mp_model_file_get_metadata(model, "general.architecture", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "llama");
    MP_OK(mp_model_file_get_metadata(model, "of.bool", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "true");
    MP_FAILS(mp_model_file_get_metadata(model, "list.ints", text, sizeof text, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "a list of 3");
    int64_t index = 0;
    MP_FAILS(mp_model_file_get_value_index(model, "none", &index), MP_STATUS_UNKNOWN_NAME,
             "'none'");
    MP_OK(mp_model_file_get_value_index(model, "list.ints", &index));
    for (const int64_t item : {int64_t{-1}, int64_t{3}, INT64_MAX}) {
        MP_FAILS(mp_model_file_get_value_item(model, index, item, nullptr, 0, nullptr),
                 MP_STATUS_INVALID_ARGUMENT, "has 3");
    }
    mp_file_value value = MP_FILE_VALUE_INIT;
    MP_FAILS(mp_model_file_get_value(model, 1000, &value), MP_STATUS_INVALID_ARGUMENT, "keys");
}

TEST(ModelFileGguf, NumbersAreThoseOfItsOwnReaderWholeAndInPieces) {
    const GgufFiles files("gguf_numbers");
    // Split over files it is the same model, whichever part is named.
    for (const char* name :
         {"all.gguf", "split-00001-of-00003.gguf", "split-00003-of-00003.gguf"}) {
        const ModelFile model = opened(files.path / name);
        int64_t count = 0;
        MP_OK(mp_model_file_get_count(model, &count));
        ASSERT_EQ(count, static_cast<int64_t>(files.fixture.facts("tensor all.gguf").size()));
        for (int64_t i = 0; i < count; ++i) {
            mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
            MP_OK(mp_model_file_get_tensor(model, i, &tensor));
            EXPECT_NE(tensor.dtype, MP_DTYPE_NONE) << tensor.name;
            const std::vector<float> wanted = files.numbers(tensor.name);
            ASSERT_EQ(tensor.count, static_cast<int64_t>(wanted.size()));
            for (const int64_t piece : {tensor.count, int64_t{7}}) {
                std::vector<float> got(wanted.size());
                for (int64_t first = 0; first < tensor.count; first += piece) {
                    MP_OK(mp_model_file_read_floats(model, i, first, got.data() + first,
                                                    std::min(piece, tensor.count - first)));
                }
                EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), same_number))
                    << tensor.name;
            }
            float one = 0;
            MP_FAILS(mp_model_file_read_floats(model, i, tensor.count, &one, 1),
                     MP_STATUS_INVALID_ARGUMENT, tensor.name);
            MP_FAILS(mp_model_file_read_floats(model, i, -1, &one, 1), MP_STATUS_INVALID_ARGUMENT);
            MP_FAILS(mp_model_file_read_floats(model, i, 1, &one, INT64_MAX),
                     MP_STATUS_INVALID_ARGUMENT);
            MP_FAILS(mp_model_file_read_floats(model, i, 0, nullptr, 1), MP_STATUS_NULL_ARGUMENT);
        }
    }
}

TEST(ModelFileGguf, AFolderHasOneModel) {
    const GgufFiles files("gguf_folder");
    mp_model_file* none = nullptr;
    MP_FAILS(mp_model_file_open(files.c_str(), 0, &none), MP_STATUS_INVALID_ARGUMENT,
             "several GGUF");
    fs::remove(files.path / "all.gguf");
    int64_t count = 0;
    MP_OK(mp_model_file_get_count(opened(files.path), &count));
    EXPECT_EQ(count, static_cast<int64_t>(files.fixture.facts("tensor all.gguf").size()));
    fs::create_directory(files.path / "other");
    fs::rename(files.path / "split-00003-of-00003.gguf", files.path / "other" / "x.gguf");
    fs::create_directory_symlink(files.path / "other", files.path / "inner");
    fs::rename(files.path / "split-00001-of-00003.gguf", files.path / "other" / "first");
    fs::rename(files.path / "split-00002-of-00003.gguf", files.path / "other" / "second");
    fs::rename(files.path / "inner", files.path / "m.gguf");
    MP_FAILS(mp_model_file_open(files.c_str(), 0, &none), MP_STATUS_IO_ERROR, "ordinary file");
    MP_FAILS(mp_model_file_open(files.c_str(), MP_MODEL_FILE_NO_LINKS, &none), MP_STATUS_IO_ERROR);
    fs::remove(files.path / "m.gguf");
    fs::rename(files.path / "other" / "first", files.path / "split-00001-of-00003.gguf");
    fs::rename(files.path / "other" / "second", files.path / "split-00002-of-00003.gguf");
    MP_FAILS(mp_model_file_open(files.c_str(), 0, &none), MP_STATUS_IO_ERROR,
             "split-00003-of-00003.gguf");
    fs::copy(files.path / "split-00002-of-00003.gguf", files.path / "split-00003-of-00003.gguf");
    MP_FAILS(mp_model_file_open(files.c_str(), 0, &none), MP_STATUS_CORRUPT_DATA,
             "is not part 3 of 3");
    fs::rename(files.path / "split-00001-of-00003.gguf", files.path / "first.gguf");
    MP_FAILS(mp_model_file_open((files.path / "first.gguf").c_str(), 0, &none),
             MP_STATUS_CORRUPT_DATA, "-00001-of-00003.gguf");
}

TEST(ModelFileGguf, ParametersTakeItsNumbers) {
    const GgufFiles files("gguf_parameters");
    const ModelFile model = opened(files.path / "all.gguf");
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    const int32_t group = add_group(optimizer);
    std::vector<Tensor> weights;
    const std::pair<const char*, std::vector<int64_t>> tensors[] = {{"plain.F16", {3, 5}},
                                                                    {"plain.BF16", {3, 5}},
                                                                    {"coded.Q4_1", {2, 3, 64}},
                                                                    {"coded.Q6_K", {2, 3, 512}}};
    for (const auto& [name, shape] : tensors) {
        weights.push_back(make_tensor(context, MP_DTYPE_FP32, shape));
        MP_OK(add_param(optimizer, group, name, weights.back()));
    }
    MP_OK(mp_optimizer_load_params(optimizer, nullptr, model, nullptr, nullptr, 0));
    for (std::size_t i = 0; i < weights.size(); ++i) {
        EXPECT_EQ(values_of(context, weights[i]), files.numbers(tensors[i].first));
    }
}
