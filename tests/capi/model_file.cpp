// SPDX-License-Identifier: Apache-2.0
// A model's files: what they are, what is refused and in which words; and every byte of a checkpoint compared.
#include <filesystem>
#include <fstream>

#include "model_parts.hpp"
#include "training.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

struct Files : Folder {
    explicit Files(const char* name) : Folder(name) { fs::create_directories(path); }
};

void write_text(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

mp_file_tensor tensor_of(mp_model_file* model, const char* name) {
    mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
    int64_t index = -1;
    EXPECT_TRUE(succeeded(mp_model_file_get_index(model, name, &index)));
    EXPECT_TRUE(succeeded(mp_model_file_get_tensor(model, index, &tensor)));
    return tensor;
}

int64_t count_of(mp_model_file* model) {
    int64_t count = -1;
    EXPECT_TRUE(succeeded(mp_model_file_get_count(model, &count)));
    return count;
}

mp_status open_status(const fs::path& path, uint32_t flags = 0) {
    mp_model_file* made = nullptr;
    const mp_status status = mp_model_file_open(path.c_str(), flags, &made);
    mp_model_file_destroy(made);
    return status;
}

const std::vector<Part> kTwo = {{"w", "BF16", {2, 3}, "abcdefghijkl"},
                                {"n", "I64", {}, "12345678"}};

} // namespace

TEST(ModelFile, SaysWhatOneFileHas) {
    const Files folder("one");
    write_parts(folder.path / "m.safetensors", kTwo);
    const ModelFile model = opened(folder.path / "m.safetensors");
    EXPECT_EQ(count_of(model), 2);
    const mp_file_tensor w = tensor_of(model, "w"), n = tensor_of(model, "n");
    EXPECT_EQ(w.dtype, MP_DTYPE_BF16);
    EXPECT_EQ(w.ndim, 2);
    EXPECT_EQ(w.shape[0], 2);
    EXPECT_EQ(w.shape[1], 3);
    EXPECT_EQ(w.count, 6);
    EXPECT_EQ(w.bytes, 12);
    EXPECT_STREQ(w.name, "w");
    EXPECT_STREQ(w.type_name, "BF16");
    EXPECT_EQ(w.path, (folder.path / "m.safetensors").string());
    EXPECT_EQ(n.dtype, MP_DTYPE_INT64);
    EXPECT_EQ(n.ndim, 0);
    EXPECT_EQ(n.count, 1);
    char text[8] = {};
    MP_OK(mp_model_file_get_metadata(model, "format", text, sizeof text, nullptr));
    EXPECT_STREQ(text, "pt");
    MP_FAILS(mp_model_file_get_metadata(model, "other", text, sizeof text, nullptr),
             MP_STATUS_UNKNOWN_NAME, "other");
}

TEST(ModelFile, GivesItsBytesAndNoOthers) {
    const Files folder("bytes");
    write_parts(folder.path / "m.safetensors", kTwo);
    const ModelFile model = opened(folder.path / "m.safetensors");
    char bytes[13] = {};
    MP_OK(mp_model_file_read(model, 0, 0, bytes, 12));
    EXPECT_STREQ(bytes, "abcdefghijkl");
    MP_OK(mp_model_file_read(model, 1, 2, bytes, 6));
    EXPECT_EQ(std::string(bytes, 6), "345678");
    MP_OK(mp_model_file_read(model, 1, 8, nullptr, 0));
    MP_FAILS(mp_model_file_read(model, 1, 3, bytes, 6), MP_STATUS_INVALID_ARGUMENT, "'n' has 8");
    MP_FAILS(mp_model_file_read(model, 1, -1, bytes, 1), MP_STATUS_INVALID_ARGUMENT);
    MP_FAILS(mp_model_file_read(model, 1, 0, bytes, SIZE_MAX), MP_STATUS_INVALID_ARGUMENT);
    MP_FAILS(mp_model_file_read(model, 0, 0, nullptr, 1), MP_STATUS_NULL_ARGUMENT);
    mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
    int64_t index = 0;
    for (const int64_t none : {int64_t{-1}, int64_t{2}, INT64_MAX}) {
        MP_FAILS(mp_model_file_get_tensor(model, none, &tensor), MP_STATUS_INVALID_ARGUMENT, "2");
        MP_FAILS(mp_model_file_read(model, none, 0, bytes, 1), MP_STATUS_INVALID_ARGUMENT);
    }
    MP_FAILS(mp_model_file_get_index(model, "W", &index), MP_STATUS_UNKNOWN_NAME, "'W'");
}

TEST(ModelFile, AnIndexAFolderAndItsFilesAreOneModel) {
    const Files folder("several");
    write_parts(folder.path / "1.safetensors", {kTwo[0]});
    write_parts(folder.path / "2.safetensors", {kTwo[1]});
    EXPECT_EQ(count_of(opened(folder.path)), 2);
    write_parts(folder.path / "consolidated.safetensors", kTwo); // another form of it
    MP_FAILS(open_status(folder.path), MP_STATUS_CORRUPT_DATA, "is in both");
    const fs::path index = folder.path / "model.safetensors.index.json";
    write_text(
        index,
        R"({"metadata":{"x":[1,{}]},"weight_map":{"w":"1.safetensors","n":"2.safetensors"}})");
    for (const fs::path& path : {folder.path, index}) {
        const ModelFile model = opened(path);
        EXPECT_EQ(count_of(model), 2);
        EXPECT_EQ(tensor_of(model, "n").path, (folder.path / "2.safetensors").string());
    }
    const struct {
        const char *text, *words;
    } wrong[] = {{R"({"weight_map":{"w":"2.safetensors"}})", "does not have it"},
                 {R"({"weight_map":{"other":"2.safetensors"}})", "does not have it"},
                 {R"({"weight_map":{"w":"../1.safetensors"}})", "beside the index"},
                 {R"({"weight_map":{"w":"/etc/passwd"}})", "beside the index"},
                 {R"({"weight_map":{"w":"1.safetensors\u0000"}})", "beside the index"},
                 {R"({"weight_map":{"w":"1.safetensors","w":"2.safetensors"}})", "twice"},
                 {R"({"weight_map":{}})", "weight_map"},
                 {R"({"weight_map":[]})", "index"},
                 {"[]", "index"},
                 {"", "index"}};
    for (const auto& row : wrong) {
        write_text(index, row.text);
        MP_FAILS(open_status(folder.path), MP_STATUS_CORRUPT_DATA, row.words);
    }
    write_text(index, R"({"weight_map":{"w":"none.safetensors"}})");
    MP_FAILS(open_status(index), MP_STATUS_IO_ERROR, "none.safetensors");
}

TEST(ModelFile, WhatIsNoneIsCalledWhatItIs) {
    const Files folder("none");
    const fs::path path = folder.path / "m.safetensors";
    const std::pair<std::string, const char*> cases[] = {
        {"version https://git-lfs.github.com/spec/v1\n", "git-lfs"},
        {"\n <html>", "web page"},
        {R"({"weight_map": 1})", "JSON"},
        {std::string("PK\x03\x04", 4) + std::string(60, '\0'), "zip"},
        {"\x80\x02}q", "pickle"},
        {std::string("tjgg\x03", 5) + std::string(60, '\0'), "before GGUF"},
        {"", "too few bytes"},
        {"1234567", "too few bytes"},
        {std::string(64, '\xff'), "header"},
        {std::string("\x04\0\0\0\0\0\0\0[]  ", 12), "does not begin with {"}};
    for (const auto& [bytes, words] : cases) {
        write_text(path, bytes);
        MP_FAILS(open_status(path), MP_STATUS_CORRUPT_DATA, "neither safetensors nor GGUF", words);
    }
    write_parts(path, {{"x", "F33", {1}, "1234"}});
    MP_FAILS(open_status(path), MP_STATUS_CORRUPT_DATA, "'F33' is not supported");
    write_parts(path, {{"x\\u0000", "F32", {1}, "1234"}});
    MP_FAILS(open_status(path), MP_STATUS_CORRUPT_DATA, "zero byte");
    fs::create_symlink(path, folder.path / "link.safetensors");
    write_parts(path, kTwo);
    EXPECT_EQ(count_of(opened(folder.path / "link.safetensors")), 2);
    MP_FAILS(open_status(folder.path / "link.safetensors", MP_MODEL_FILE_NO_LINKS),
             MP_STATUS_IO_ERROR);
    MP_FAILS(open_status(path, 8), MP_STATUS_INVALID_ARGUMENT, "flags");
    MP_FAILS(open_status(folder.path / "none"), MP_STATUS_IO_ERROR);
    fs::create_directory(folder.path / "empty");
    MP_FAILS(open_status(folder.path / "empty"), MP_STATUS_IO_ERROR, "no safetensors files");
}

// A bit of any file of a checkpoint, wherever it is, is found, and the file named.
TEST(ModelFile, EveryBitOfACheckpointIsCompared) {
    const Folder folder("verified");
    Training training("bf16_pure");
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
    const fs::path step = fs::directory_iterator(folder.path)->path();
    int64_t told[2] = {0, 0};
    const auto progress = [](int64_t done, int64_t total, void* payload) {
        static_cast<int64_t*>(payload)[0] = done;
        static_cast<int64_t*>(payload)[1] = total;
    };
    MP_OK(mp_checkpoint_verify(folder.c_str(), 0, progress, told));
    MP_OK(mp_checkpoint_verify(step.c_str(), -1, nullptr, nullptr));
    fs::path shard;
    for (const auto& entry : fs::directory_iterator(step)) {
        shard = entry.path().extension() == ".safetensors" ? entry.path() : shard;
    }
    const auto size = static_cast<int64_t>(fs::file_size(shard));
    EXPECT_EQ(told[0], size);
    EXPECT_EQ(told[1], size);
    MP_FAILS(mp_checkpoint_verify(folder.c_str(), 1, nullptr, nullptr), MP_STATUS_INVALID_ARGUMENT,
             "there are 1");
    MP_FAILS(mp_checkpoint_verify(folder.c_str(), -2, nullptr, nullptr),
             MP_STATUS_INVALID_ARGUMENT);
    for (const int64_t place : {int64_t{3}, size / 3, size - 1}) {
        std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
        const auto flip = [&] {
            file.seekg(place);
            const int byte = file.get();
            file.seekp(place);
            file.put(static_cast<char>(byte ^ 4)).flush();
        };
        flip();
        MP_FAILS(mp_checkpoint_verify(folder.c_str(), -1, nullptr, nullptr), MP_STATUS_CORRUPT_DATA,
                 shard.filename().string());
        flip();
    }
    MP_FAILS(open_status(step), MP_STATUS_INVALID_ARGUMENT, "checkpoint");
}
