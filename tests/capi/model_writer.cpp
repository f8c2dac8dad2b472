// SPDX-License-Identifier: Apache-2.0
// Files of models written through the C functions: read again, wrong calls in words, and tensors of every kind. What other
// readers find is tests/model/outside_readers.py.
#include "coded.hpp"
#include "fixture_file.hpp"
#include "training.hpp"
#include "written_model.hpp"

using namespace mp_test;
namespace fs = std::filesystem;

namespace {

struct Files : Folder {
    explicit Files(const char* name) : Folder(name) { fs::create_directories(path); }
};

mp_status create(const fs::path& path, int32_t format = 0, int64_t max_file_bytes = 0) {
    mp_model_writer_desc desc = MP_MODEL_WRITER_DESC_INIT;
    desc.format = format;
    desc.max_file_bytes = max_file_bytes;
    mp_model_writer* made = nullptr;
    const mp_status status = mp_model_writer_create(path.c_str(), &desc, &made);
    EXPECT_EQ(made == nullptr, status != MP_STATUS_OK);
    mp_model_writer_destroy(made);
    return status;
}

mp_status add_status(mp_model_writer* writer, const std::string& name, int32_t dtype,
                     const std::vector<int64_t>& shape) {
    int64_t index = -1;
    return mp_model_writer_add_tensor(writer, name.c_str(), dtype,
                                      static_cast<int32_t>(shape.size()), shape.data(), &index);
}

// Key by key, what a file says.
std::vector<std::string> values_of_file(mp_model_file* model) {
    std::vector<std::string> found;
    int64_t count = 0;
    EXPECT_TRUE(succeeded(mp_model_file_get_value_count(model, &count)));
    for (int64_t i = 0; i < count; ++i) {
        mp_file_value value = MP_FILE_VALUE_INIT;
        EXPECT_TRUE(succeeded(mp_model_file_get_value(model, i, &value)));
        std::string text = std::string(value.key) + " " + std::to_string(value.type) + " " +
                           std::to_string(value.is_list);
        for (int64_t item = 0; item < value.count; ++item) {
            text +=
                " " + written_by([&](char* buffer, std::size_t capacity, std::size_t* needed) {
                    return mp_model_file_get_value_item(model, i, item, buffer, capacity, needed);
                });
        }
        found.push_back(text);
    }
    return found;
}

} // namespace

TEST(ModelWriter, ValuesHaveTheirTypes) {
    const Files folder("writer_values");
    const fs::path path = folder.path / "m.gguf";
    const ModelWriter writer = make_writer(path);
    const char* const texts[] = {"a", "", "\xc4\xa0the"};
    const int64_t integers[] = {-2147483647 - 1, 2147483647};
    const float floats[] = {0.5F, -1.5F};
    MP_OK(mp_model_writer_set_text(writer, "general.architecture", "llama"));
    MP_OK(mp_model_writer_set_boolean(writer, "of.boolean", 7));
    MP_OK(mp_model_writer_set_integer(writer, "of.int", 8, -128));
    MP_OK(mp_model_writer_set_integer(writer, "of.long", 64, INT64_MIN));
    MP_OK(mp_model_writer_set_unsigned(writer, "of.unsigned", 16, 65535));
    MP_OK(mp_model_writer_set_unsigned(writer, "of.largest", 64, UINT64_MAX));
    MP_OK(mp_model_writer_set_float(writer, "of.float", 1e-5F));
    MP_OK(mp_model_writer_set_texts(writer, "list.texts", texts, 3));
    MP_OK(mp_model_writer_set_texts(writer, "list.none", nullptr, 0));
    MP_OK(mp_model_writer_set_integers(writer, "list.integers", 32, integers, 2));
    MP_OK(mp_model_writer_set_floats(writer, "list.floats", floats, 2));
    MP_OK(mp_model_writer_finish(writer)); // keys alone, as a vocabulary
    EXPECT_EQ(values_of_file(opened(path)),
              (std::vector<std::string>{
                  "general.architecture 0 0 llama", "of.boolean 1 0 true", "of.int 2 0 -128",
                  "of.long 2 0 -9223372036854775808", "of.unsigned 3 0 65535",
                  "of.largest 3 0 18446744073709551615", "of.float 4 0 1e-05",
                  "list.texts 0 1 a  \xc4\xa0the", "list.none 0 1",
                  "list.integers 2 1 -2147483648 2147483647", "list.floats 4 1 0.5 -1.5"}));
}

TEST(ModelWriter, KeysOfAnotherFileAreTakenOver) {
    const Files folder("writer_copied");
    const FixtureFile fixture("gguf");
    const FixtureArray& bytes = fixture.array("file/all.gguf");
    std::ofstream(folder.path / "all.gguf", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.count());
    const ModelFile model = opened(folder.path / "all.gguf");
    const fs::path path = folder.path / "copied";
    mp_model_writer_desc desc = MP_MODEL_WRITER_DESC_INIT;
    desc.format = MP_MODEL_GGUF;
    mp_model_writer* made = nullptr;
    MP_OK(mp_model_writer_create(path.c_str(), &desc, &made));
    const ModelWriter writer(made);
    MP_OK(mp_model_writer_set_text(writer, "of.string", "mine"));
    MP_OK(mp_model_writer_copy_metadata(writer, model));
    MP_OK(mp_model_writer_finish(writer));
    std::vector<std::string> wanted = {"of.string 0 0 mine"};
    for (const std::string& value : values_of_file(model)) {
        if (!value.starts_with("of.string ") && !value.starts_with("general.alignment ")) {
            wanted.push_back(value);
        }
    }
    EXPECT_EQ(values_of_file(opened(path)), wanted);

    const ModelWriter texts = make_writer(folder.path / "m.safetensors");
    MP_FAILS(mp_model_writer_copy_metadata(texts, model), MP_STATUS_INVALID_ARGUMENT,
             "single texts alone");
    MP_OK(mp_model_writer_set_text(texts, "general.architecture", "none was set"));
}

TEST(ModelWriter, WrongNamesOfFilesAreRefused) {
    const Files folder("writer_names");
    const fs::path& path = folder.path;
    MP_FAILS(create(path / "m.bin"), MP_STATUS_INVALID_ARGUMENT, ".safetensors nor .gguf");
    MP_OK(create(path / "m.bin", MP_MODEL_SAFETENSORS));
    MP_FAILS(create(path / "m.bin", 3), MP_STATUS_INVALID_ARGUMENT, "MP_MODEL_*");
    MP_FAILS(create(path / "m.bin", MP_MODEL_SAFETENSORS, 10), MP_STATUS_INVALID_ARGUMENT,
             "must end in .safetensors");
    MP_FAILS(create(path / "m.gguf", 0, 10), MP_STATUS_INVALID_ARGUMENT, "GGUF is one file");
    MP_FAILS(create(path / "m.safetensors", 0, -1), MP_STATUS_INVALID_ARGUMENT, "-1");
    MP_FAILS(create(path / "none" / "m.gguf"), MP_STATUS_IO_ERROR, "none");
    MP_FAILS(create(path / "m.gguf" / "", MP_MODEL_GGUF), MP_STATUS_INVALID_ARGUMENT, "m.gguf/");
    fs::create_symlink("elsewhere", path / "m.gguf");
    MP_FAILS(create(path / "m.gguf"), MP_STATUS_INVALID_ARGUMENT, "m.gguf",
             "nothing is overwritten");
    std::ofstream(path / "m.safetensors.index.json") << "{}";
    MP_FAILS(create(path / "m.safetensors", 0, 10), MP_STATUS_INVALID_ARGUMENT, "index.json");
    MP_OK(create(path / "m.safetensors"));
}

TEST(ModelWriter, WrongTensorsAreRefused) {
    const Files folder("writer_tensors");
    const ModelWriter gguf = make_writer(folder.path / "m.gguf");
    const ModelWriter safe = make_writer(folder.path / "m.safetensors");
    for (mp_model_writer* writer : {gguf.owned.get(), safe.owned.get()}) {
        (void)add_to(writer, "w", MP_DTYPE_FP32, {2});
        MP_FAILS(add_status(writer, "w", MP_DTYPE_FP16, {3}), MP_STATUS_INVALID_ARGUMENT,
                 "'w' already");
        MP_FAILS(add_status(writer, "", MP_DTYPE_FP32, {1}), MP_STATUS_INVALID_ARGUMENT, "0 bytes");
        MP_FAILS(add_status(writer, "\xff", MP_DTYPE_FP32, {1}), MP_STATUS_INVALID_ARGUMENT,
                 "UTF-8");
        MP_FAILS(add_status(writer, "n", MP_DTYPE_FP32, {2, -1}), MP_STATUS_INVALID_SHAPE, "-1");
        MP_FAILS(add_status(writer, "n", MP_DTYPE_FP32, {INT64_MAX, 4, 0}), MP_STATUS_INVALID_SHAPE,
                 "overflow");
        MP_FAILS(add_status(writer, "n", MP_DTYPE_FP4_E2M1, {2}), MP_STATUS_INVALID_DTYPE,
                 "fp4_e2m1");
        MP_FAILS(add_status(writer, "n", 999, {2}), MP_STATUS_INVALID_DTYPE, "999");
        (void)add_to(writer, "half", MP_DTYPE_INT8, {int64_t{1} << 58});
        for (int i = 0; i < 14; ++i) {
            (void)add_to(writer, "half" + std::to_string(i), MP_DTYPE_INT8, {int64_t{1} << 58});
        }
        MP_FAILS(add_status(writer, "n", MP_DTYPE_INT8, {int64_t{1} << 58}),
                 MP_STATUS_INVALID_SHAPE, "2^62");
    }
    MP_OK(add_status(safe, std::string(64, 'n'), MP_DTYPE_FP8_E4M3, {1, 1, 1, 1, 1, 1, 1, 1}));
    MP_FAILS(add_status(safe, "n", MP_DTYPE_FP32, std::vector<int64_t>(9, 1)),
             MP_STATUS_INVALID_SHAPE, "at most 8");
    MP_FAILS(add_status(safe, "__metadata__", MP_DTYPE_FP32, {1}), MP_STATUS_INVALID_ARGUMENT,
             "another name");
    MP_FAILS(add_status(safe, "n", MP_DTYPE_Q8_0, {32}), MP_STATUS_INVALID_DTYPE, "q8_0", "GGUF's");
    MP_OK(add_status(gguf, std::string(63, 'n'), MP_DTYPE_Q8_0, {1, 1, 1, 32}));
    MP_OK(add_status(gguf, "__metadata__", MP_DTYPE_FP32, {}));
    MP_FAILS(add_status(gguf, std::string(64, 'm'), MP_DTYPE_FP32, {1}), MP_STATUS_INVALID_ARGUMENT,
             "64 bytes", "at most 63");
    MP_FAILS(add_status(gguf, "n", MP_DTYPE_FP32, {1, 1, 1, 1, 1}), MP_STATUS_INVALID_SHAPE,
             "at most 4");
    MP_FAILS(add_status(gguf, "n", MP_DTYPE_Q4_K, {256, 32}), MP_STATUS_INVALID_SHAPE,
             "blocks of 256", "multiple");
    MP_FAILS(add_status(gguf, "n", MP_DTYPE_FP8_E4M3, {1}), MP_STATUS_INVALID_DTYPE, "fp8_e4m3",
             "GGUF");
    MP_FAILS(add_status(gguf, "n", MP_DTYPE_UINT8, {1}), MP_STATUS_INVALID_DTYPE, "uint8");
}

TEST(ModelWriter, WrongKeysAreRefused) {
    const Files folder("writer_keys");
    const ModelWriter gguf = make_writer(folder.path / "m.gguf");
    const ModelWriter safe = make_writer(folder.path / "m.safetensors");
    const auto refused = MP_STATUS_INVALID_ARGUMENT;
    const char* const bad[] = {"a", "\xc0"};
    const char* const null[] = {"a", nullptr};
    const int64_t wide[] = {1, int64_t{1} << 31};
    MP_OK(mp_model_writer_set_text(gguf, "k", "v"));
    MP_FAILS(mp_model_writer_set_float(gguf, "k", 1.0F), refused, "'k' is set already");
    MP_FAILS(mp_model_writer_set_text(gguf, "", "v"), refused, "0 bytes");
    MP_FAILS(mp_model_writer_set_text(gguf, std::string(65536, 'k').c_str(), "v"), refused,
             "65536");
    MP_FAILS(mp_model_writer_set_text(gguf, "\xff", "v"), refused, "UTF-8");
    MP_FAILS(mp_model_writer_set_text(gguf, "t", "\xff"), refused, "UTF-8");
    MP_FAILS(mp_model_writer_set_texts(gguf, "t", bad, 2), refused, "UTF-8");
    MP_FAILS(mp_model_writer_set_texts(gguf, "t", null, 2), MP_STATUS_NULL_ARGUMENT, "texts");
    MP_FAILS(mp_model_writer_set_unsigned(gguf, "general.alignment", 32, 64), refused, "own");
    MP_FAILS(mp_model_writer_set_unsigned(gguf, "split.count", 16, 2), refused, "own");
    MP_FAILS(mp_model_writer_set_integer(gguf, "t", 8, 128), refused, "does not fit 8");
    MP_FAILS(mp_model_writer_set_integer(gguf, "t", 16, -32769), refused, "does not fit 16");
    MP_FAILS(mp_model_writer_set_unsigned(gguf, "t", 32, uint64_t{1} << 32), refused, "fit 32");
    MP_FAILS(mp_model_writer_set_integers(gguf, "t", 32, wide, 2), refused, "2147483648");
    MP_FAILS(mp_model_writer_set_integer(gguf, "t", 24, 1), refused, "8, 16, 32 or 64");
    MP_FAILS(mp_model_writer_set_floats(gguf, "t", nullptr, 1), MP_STATUS_NULL_ARGUMENT, "values");
    MP_FAILS(mp_model_writer_set_boolean(safe, "t", 1), refused, "safetensors", "texts");
    MP_FAILS(mp_model_writer_set_texts(safe, "t", nullptr, 0), refused, "a list");
    MP_OK(mp_model_writer_set_text(safe, "general.alignment", "is a text here"));
    (void)add_to(gguf, "w", MP_DTYPE_FP32, {1});
    MP_OK(mp_model_writer_write(gguf, 0, 0, "1234", 4));
    MP_FAILS(mp_model_writer_set_text(gguf, "t", "v"), MP_STATUS_BAD_STATE, "before the first");
    MP_FAILS(add_status(gguf, "n", MP_DTYPE_FP32, {1}), MP_STATUS_BAD_STATE, "before the first");
    MP_FAILS(mp_model_writer_copy_metadata(gguf, nullptr), MP_STATUS_NULL_ARGUMENT, "model");
}

TEST(ModelWriter, WrongPiecesAreRefusedAndChangeNothing) {
    const Files folder("writer_pieces");
    const ModelWriter writer = make_writer(folder.path / "m.gguf");
    const int64_t w = add_to(writer, "w", MP_DTYPE_FP16, {3});
    const int64_t q = add_to(writer, "q", MP_DTYPE_Q8_0, {2, 64});
    const int64_t k = add_to(writer, "k", MP_DTYPE_Q4_K, {256});
    std::vector<float> values(128, 1.0F);
    const float* v = values.data();
    const auto refused = MP_STATUS_INVALID_ARGUMENT;
    MP_FAILS(mp_model_writer_write(writer, w, 4, v, 3), refused, "'w' has 6");
    MP_FAILS(mp_model_writer_write(writer, w, -1, v, 1), refused, "-1");
    MP_FAILS(mp_model_writer_write(writer, w, 1, v, SIZE_MAX), refused, "'w'");
    MP_FAILS(mp_model_writer_write(writer, 3, 0, v, 1), refused, "3 tensors");
    MP_FAILS(mp_model_writer_write(writer, -1, 0, v, 1), refused, "-1");
    MP_FAILS(mp_model_writer_write(writer, w, 0, nullptr, 1), MP_STATUS_NULL_ARGUMENT, "data");
    MP_FAILS(mp_model_writer_write_floats(writer, w, 1, v, 3), refused, "'w' has 3");
    MP_FAILS(mp_model_writer_write_floats(writer, w, 0, v, -1), refused, "-1");
    MP_FAILS(mp_model_writer_write_floats(writer, q, 16, v, 32), refused, "whole blocks of 32");
    MP_FAILS(mp_model_writer_write_floats(writer, q, 32, v, 16), refused, "whole blocks of 32");
    MP_FAILS(mp_model_writer_write_floats(writer, q, 0, v, INT64_MAX), refused, "'q' has 128");
    MP_FAILS(mp_model_writer_write_floats(writer, k, 0, v, 128), MP_STATUS_INVALID_DTYPE, "Q4_K",
             "bytes as they are");
    EXPECT_TRUE(fs::is_empty(folder.path)) << "refused, but it has begun";
    values[100] = INFINITY;
    MP_FAILS(mp_model_writer_write_floats(writer, q, 0, v, 128), refused, "element 96", "finite");
    EXPECT_TRUE(fs::is_empty(folder.path));
    values[100] = 1e20F;
    MP_FAILS(mp_model_writer_write_floats(writer, q, 32, v + 32, 96), refused, "element 96",
             "fp16");
    values[100] = 2.0F;
    MP_OK(mp_model_writer_write_floats(writer, q, 0, v, 128));
    MP_OK(mp_model_writer_write_floats(writer, w, 0, v + 99, 3));
    MP_FAILS(mp_model_writer_finish(writer), MP_STATUS_BAD_STATE, "1 of 3 tensors", "'k'");
    MP_OK(mp_model_writer_write(writer, k, 0, std::string(144, '\0').data(), 144));
    MP_OK(mp_model_writer_finish(writer));
    EXPECT_EQ(floats_in(opened(folder.path / "m.gguf"), "w"), (std::vector<float>{1, 2, 1}));
}

// Matrices of odd sizes, one of them longer than a piece.
TEST(ModelWriter, TensorsOfEveryKindBecomeTheirNumbers) {
    for (const char* backend : kHostBackends) {
        SCOPED_TRACE(backend);
        const Context context = make_context(2, backend);
        const Files folder("writer_quantized");
        const ModelWriter writer = make_writer(folder.path / "m.safetensors");
        std::vector<Tensor> sources;
        std::vector<std::vector<float>> wanted;
        for (int32_t scaling = MP_SCALING_TENSOR; scaling <= MP_SCALING_NVFP4; ++scaling) {
            const bool is_long = scaling == MP_SCALING_ROW || scaling == MP_SCALING_MX_32X1;
            const std::vector<int64_t> shape =
                is_long ? std::vector<int64_t>{3 * 32, 4800} : std::vector<int64_t>{256, 384};
            const auto count = static_cast<std::size_t>(shape[0] * shape[1]);
            mp_quant_desc quant = MP_QUANT_DESC_INIT;
            quant.scaling = scaling;
            const int32_t dtype =
                scaling == MP_SCALING_NVFP4 ? MP_DTYPE_FP4_E2M1 : MP_DTYPE_FP8_E4M3;
            Tensor codes = make_quantized(context, dtype, shape, &quant);
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, shape,
                                             numbers(count, static_cast<uint64_t>(scaling)));
            MP_OK(mp_tensor_quantize(exact, nullptr, codes, nullptr, nullptr, nullptr));
            const Tensor plain = make_tensor(context, MP_DTYPE_FP32, shape);
            MP_OK(mp_tensor_dequantize(codes, nullptr, plain));
            wanted.push_back(values_of(context, plain));
            (void)add_to(writer, std::to_string(scaling), MP_DTYPE_FP32, shape);
            sources.push_back(std::move(codes));
        }
        const Tensor one = make_tensor(context, MP_DTYPE_FP8_E4M3, {}, {1.5F});
        const Tensor none = make_tensor(context, MP_DTYPE_BF16, {0, 3});
        const int64_t last = add_to(writer, "one", MP_DTYPE_BF16, {});
        (void)add_to(writer, "none", MP_DTYPE_FP32, {0, 3});
        for (std::size_t i = 0; i < sources.size(); ++i) {
            MP_OK(
                mp_model_writer_write_tensor(writer, nullptr, static_cast<int64_t>(i), sources[i]));
        }
        MP_OK(mp_model_writer_write_tensor(writer, nullptr, last, one));
        MP_OK(mp_model_writer_write_tensor(writer, nullptr, last + 1, none));
        MP_OK(mp_model_writer_finish(writer));
        const ModelFile model = opened(folder.path / "m.safetensors");
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_EQ(floats_in(model, std::to_string(i + 1)), wanted[i]) << "scaling " << i + 1;
        }
        EXPECT_EQ(floats_in(model, "one"), std::vector<float>{1.5F});
    }
}

TEST(ModelWriter, TensorsOfBlocksStayWhatTheyAre) {
    const Context context = make_context();
    const Files folder("writer_blocks");
    const ModelWriter writer = make_writer(folder.path / "m.gguf");
    const std::vector<coded::Blocks>& types = coded::block_types();
    constexpr int64_t kRows = 600, kColumns = 512; // more than a piece
    for (const coded::Blocks& type : types) {
        const std::string name = mp_dtype_name(type.dtype);
        (void)add_to(writer, name, type.dtype, {kRows, kColumns});
        (void)add_to(writer, name + ".F32", MP_DTYPE_FP32, {kRows, kColumns});
    }
    const int64_t other = add_to(writer, "other", MP_DTYPE_Q5_0, {kRows, kColumns});
    for (std::size_t i = 0; i < types.size(); ++i) {
        const Tensor blocks = coded::make_blocks(context, types[i], kRows, kColumns, i);
        const auto index = static_cast<int64_t>(2 * i);
        MP_OK(mp_model_writer_write_tensor(writer, nullptr, index, blocks));
        MP_OK(mp_model_writer_write_tensor(writer, nullptr, index + 1, blocks));
        if (types[i].dtype == MP_DTYPE_Q5_0) {
            MP_OK(mp_model_writer_write_tensor(writer, nullptr, other, blocks));
        } else {
            MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, other, blocks),
                     MP_STATUS_INVALID_DTYPE, "Q5_0");
        }
    }
    MP_OK(mp_model_writer_finish(writer));
    const ModelFile model = opened(folder.path / "m.gguf");
    for (std::size_t i = 0; i < types.size(); ++i) {
        const std::string name = mp_dtype_name(types[i].dtype);
        EXPECT_EQ(bytes_in(model, name), coded::codes_of(types[i], kRows, kColumns, i)) << name;
        EXPECT_EQ(floats_in(model, name + ".F32"), floats_in(model, name)) << name;
    }
}

TEST(ModelWriter, TensorsThatDoNotFitAreRefused) {
    const Context context = make_context();
    const Files folder("writer_fit");
    const ModelWriter writer = make_writer(folder.path / "m.safetensors");
    const int64_t w = add_to(writer, "w", MP_DTYPE_BF16, {2, 3});
    const int64_t c = add_to(writer, "c", MP_DTYPE_FP8_E4M3, {2, 3});
    const Tensor turned = make_tensor(context, MP_DTYPE_BF16, {3, 2});
    const Tensor whole = make_tensor(context, MP_DTYPE_INT32, {2, 3});
    const Tensor codes = make_quantized(context, MP_DTYPE_FP8_E4M3, {2, 3}, nullptr);
    const Tensor later = make_deferred(context, MP_DTYPE_BF16, {2, 3});
    MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, w, turned), MP_STATUS_INVALID_SHAPE,
             "[2, 3]", "[3, 2]");
    MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, w, whole), MP_STATUS_INVALID_DTYPE,
             "int32", "BF16");
    MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, c, codes), MP_STATUS_INVALID_DTYPE,
             "F8_E4M3");
    MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, w, later), MP_STATUS_BAD_STATE,
             "memory");
    MP_FAILS(mp_model_writer_write_tensor(writer, nullptr, 2, turned), MP_STATUS_INVALID_ARGUMENT,
             "2 tensors");
    EXPECT_TRUE(fs::is_empty(folder.path));
}
