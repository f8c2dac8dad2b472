// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp: files of a model, written and read.
#include <cstdio>
#include <unistd.h>

#include "cpp.hpp"

namespace {

// A name that is free, and is again at the end.
struct Path {
    std::string name;
    explicit Path(const char* end)
        : name(::testing::TempDir() + "cpp_files_" + std::to_string(::getpid()) + end) {
        std::remove(name.c_str());
    }
    Path(const Path&) = delete;
    Path& operator=(const Path&) = delete;
    ~Path() { std::remove(name.c_str()); }
};

} // namespace

TEST(Cpp, NumbersAreWrittenAndReadAgain) {
    const auto context = mp::Context::create();
    auto recipe = mp::Recipe::create(context, "fp32");
    auto optimizer = optimizer_of(context, recipe);
    const std::vector<float> values = ramp(64);
    optimizer.add_param("w", mp::Tensor::from(context, values, {2, 32}));
    for (const char* const end : {".gguf", ".safetensors"}) {
        const Path path(end);
        auto writer = mp::ModelWriter::create(path.name);
        EXPECT_EQ(writer.add_tensor("m.w", MP_DTYPE_FP32, {2, 32}), 0);
        EXPECT_EQ(writer.add_tensor("copy", MP_DTYPE_BF16, {2, 32}), 1);
        EXPECT_EQ(writer.add_tensor("floats", MP_DTYPE_FP16, {64}), 2);
        EXPECT_EQ(writer.add_tensor("bytes", MP_DTYPE_INT8, {3}), 3);
        optimizer.write_params(writer, "m.", {}); // none of them
        optimizer.write_params(writer, "m.");
        writer.write_tensor(1, mp::Tensor::from(context, values, {2, 32}));
        writer.write_floats(2, 0, values);
        EXPECT_EQ(status_of([&] { writer.finish(); }), MP_STATUS_BAD_STATE);
        const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
        writer.write(3, 0, bytes);
        writer.finish();
        const auto model = mp::ModelFile::open(path.name);
        for (const char* const name : {"m.w", "copy", "floats"}) {
            std::vector<float> got(64);
            model.read_floats(model.index(name), 0, got);
            EXPECT_EQ(got, values) << name;
        }
        EXPECT_EQ(model.tensor(model.index("bytes")).dtype, MP_DTYPE_INT8);
        EXPECT_EQ(status_of([&] { return mp::ModelWriter::create(path.name); }),
                  MP_STATUS_INVALID_ARGUMENT);
    }
}

TEST(Cpp, KeysAreWrittenAndReadAgain) {
    const Path first(".gguf"), second(".other");
    auto writer = mp::ModelWriter::create(first.name);
    writer.set("general.architecture", "llama");
    EXPECT_EQ(status_of([&] { writer.set("general.architecture", std::string("b")); }),
              MP_STATUS_INVALID_ARGUMENT);
    writer.set("a", true);
    writer.set("b", 30U);
    writer.set("c", std::int64_t{-5});
    writer.set("d", 0.5);
    writer.set_texts("e", {"x", "y"});
    writer.set_integers("f", std::vector<std::int64_t>{1, -2});
    writer.set_floats("g", std::vector<float>{0.25f});
    writer.finish();
    mp::ModelWriterOptions options;
    options.format = MP_MODEL_GGUF;
    auto other = mp::ModelWriter::create(second.name, options);
    other.copy_metadata(mp::ModelFile::open(first.name));
    other.finish();
    for (const Path* const path : {&first, &second}) {
        const auto model = mp::ModelFile::open(path->name);
        for (const auto& [key, text] : {std::pair{"general.architecture", "llama"},
                                        {"a", "true"},
                                        {"b", "30"},
                                        {"c", "-5"},
                                        {"d", "0.5"}}) {
            EXPECT_EQ(model.metadata(key), text);
        }
        EXPECT_EQ(model.value_item(model.value_index("e"), 1), "y");
        EXPECT_EQ(model.value_item(model.value_index("f"), 1), "-2");
        EXPECT_EQ(model.value_item(model.value_index("g"), 0), "0.25");
    }
}

TEST(Cpp, TensorsAreReadUnderOtherNames) {
    const Path path(".safetensors");
    auto writer = mp::ModelWriter::create(path.name);
    (void)writer.add_tensor("h.0.qkv", MP_DTYPE_FP32, {6, 2});
    writer.write_floats(0, 0, ramp(12));
    writer.finish();
    const auto model = mp::ModelFile::open(path.name).map("k.* = rows(h.*.qkv, 1/3)\n* = *");
    EXPECT_EQ(model.count(), 1);
    std::vector<float> values(4);
    model.read_floats(model.index("k.0"), 0, values);
    const std::vector<float> all = ramp(12);
    EXPECT_EQ(values, std::vector<float>(all.begin() + 4, all.begin() + 8));
    const auto context = mp::Context::create();
    const std::vector<float> none(2);
    auto row = mp::Tensor::from(context, none, {1, 2});
    model.load(0, 1, row);
    EXPECT_EQ(row.to_vector<float>(), std::vector<float>(all.begin() + 6, all.begin() + 8));
    EXPECT_EQ(status_of([&] { model.load(0, 2, row); }), MP_STATUS_INVALID_ARGUMENT);
    EXPECT_EQ(status_of([&] { return model.map("x"); }), MP_STATUS_INVALID_ARGUMENT);
}
