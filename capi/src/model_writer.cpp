// SPDX-License-Identifier: Apache-2.0
// model_writer.h
#include <cinttypes>
#include <limits>
#include <string_view>

#include "boundary.hpp"
#include "checkpoint/tensor_to_file.hpp"
#include "objects.hpp"
#include "system/json_writer.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;
using namespace mp::model;

static_assert(MP_MODEL_SAFETENSORS == static_cast<int>(FileFormat::safetensors));
static_assert(MP_MODEL_GGUF == static_cast<int>(FileFormat::gguf));

namespace {

FileFormat format_of(int32_t format, std::string_view path) {
    if (format < MP_MODEL_DEFAULT || format > MP_MODEL_GGUF) {
        fail(Code::invalid_argument, "desc.format is %d; it must be one of MP_MODEL_* (0..2)",
             static_cast<int>(format));
    }
    if (format != MP_MODEL_DEFAULT) {
        return static_cast<FileFormat>(format);
    }
    const bool is_gguf = path.ends_with(".gguf");
    if (!is_gguf && !path.ends_with(".safetensors")) {
        fail(Code::invalid_argument,
             "'%.300s' ends in neither .safetensors nor .gguf: set desc.format, or give it another "
             "name",
             path.data());
    }
    return is_gguf ? FileFormat::gguf : FileFormat::safetensors;
}

std::size_t checked(int64_t index) {
    if (index < 0) {
        fail(Code::invalid_argument, "index is %" PRId64 "; it must be >= 0", index);
    }
    return static_cast<std::size_t>(index);
}

std::string utf8(const char* text, const char* name) {
    const std::string value = required(text, name);
    if (!system::is_utf8(value)) {
        fail(Code::invalid_argument, "%s, of %zu bytes, is not UTF-8", name, value.size());
    }
    return value;
}

NewValue value_of(const char* key, ValueType type, bool is_list = false) {
    NewValue value;
    value.key = required(key, "key");
    value.type = type;
    value.is_list = is_list;
    return value;
}

// Little-endian, in so many bits: a number's low bytes.
void append(NewValue& value, int32_t bits, const void* number) {
    value.width = static_cast<uint8_t>(bits / 8);
    value.data.append(static_cast<const char*>(number), value.width);
}

void check_bits(const char* key, int32_t bits) {
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) {
        fail(Code::invalid_argument, "bits of '%.200s' are %d; they must be 8, 16, 32 or 64", key,
             static_cast<int>(bits));
    }
}
void check_fits(const char* key, int32_t bits, uint64_t number) {
    if (number > std::numeric_limits<uint64_t>::max() >> (64 - bits)) {
        fail(Code::invalid_argument, "'%.200s' is %" PRIu64 ", which does not fit %d bits", key,
             number, static_cast<int>(bits));
    }
}
void check_fits(const char* key, int32_t bits, int64_t number) {
    const int64_t most = std::numeric_limits<int64_t>::max() >> (64 - bits);
    if (number > most || number < -most - 1) {
        fail(Code::invalid_argument, "'%.200s' is %" PRId64 ", which does not fit %d bits", key,
             number, static_cast<int>(bits));
    }
}

// Calls `fill`, which makes the value, and sets it.
template <class Fill> mp_status set_value(mp_model_writer* writer, const Fill& fill) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        object.set(fill());
    });
}

// int64_t or uint64_t.
template <class Number>
mp_status set_number(mp_model_writer* writer, const char* key, ValueType type, int32_t bits,
                     Number number) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, type);
        check_bits(key, bits);
        check_fits(key, bits, number);
        append(value, bits, &number);
        return value;
    });
}

} // namespace

mp_status mp_model_writer_create(const char* path, const mp_model_writer_desc* desc,
                                 mp_model_writer** out) {
    return boundary([&] {
        output(out);
        const std::string name = required(path, "path");
        const auto options = read_optional_struct(desc, "desc");
        *out = make_handle<mp_model_writer>(std::make_shared<ModelWriter>(
            system::posix_files(), name, format_of(options.format, name), options.max_file_bytes));
    });
}

void mp_model_writer_destroy(mp_model_writer* writer) { destroy_handle(writer); }

mp_status mp_model_writer_add_tensor(mp_model_writer* writer, const char* name, int32_t dtype,
                                     int32_t ndim, const int64_t* shape, int64_t* index) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        (void)required(name, "name");
        int64_t& result = *required(index, "index");
        const auto sizes = list_of(shape, ndim, "shape", "ndim");
        result = static_cast<int64_t>(object.add(name, any_dtype_of(dtype, "dtype"), sizes));
    });
}

mp_status mp_model_writer_set_text(mp_model_writer* writer, const char* key, const char* text) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::text);
        value.texts.push_back(utf8(text, "text"));
        return value;
    });
}

mp_status mp_model_writer_set_boolean(mp_model_writer* writer, const char* key, int32_t number) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::boolean);
        const char is_set = number != 0 ? 1 : 0;
        append(value, 8, &is_set);
        return value;
    });
}

mp_status mp_model_writer_set_integer(mp_model_writer* writer, const char* key, int32_t bits,
                                      int64_t number) {
    return set_number(writer, key, ValueType::integer, bits, number);
}

mp_status mp_model_writer_set_unsigned(mp_model_writer* writer, const char* key, int32_t bits,
                                       uint64_t number) {
    return set_number(writer, key, ValueType::unsigned_integer, bits, number);
}

mp_status mp_model_writer_set_float(mp_model_writer* writer, const char* key, float number) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::floating);
        append(value, 32, &number);
        return value;
    });
}

mp_status mp_model_writer_set_texts(mp_model_writer* writer, const char* key,
                                    const char* const* texts, int64_t count) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::text, true);
        for (const char* text : list_of(texts, count, "texts", "count")) {
            value.texts.push_back(utf8(text, "an item of texts"));
        }
        return value;
    });
}

mp_status mp_model_writer_set_integers(mp_model_writer* writer, const char* key, int32_t bits,
                                       const int64_t* values, int64_t count) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::integer, true);
        check_bits(key, bits);
        value.width = static_cast<uint8_t>(bits / 8);
        for (const int64_t number : list_of(values, count, "values", "count")) {
            check_fits(key, bits, number);
            append(value, bits, &number);
        }
        return value;
    });
}

mp_status mp_model_writer_set_floats(mp_model_writer* writer, const char* key, const float* values,
                                     int64_t count) {
    return set_value(writer, [&] {
        NewValue value = value_of(key, ValueType::floating, true);
        value.width = sizeof(float);
        for (const float number : list_of(values, count, "values", "count")) {
            append(value, 32, &number);
        }
        return value;
    });
}

mp_status mp_model_writer_copy_metadata(mp_model_writer* writer, const mp_model_file* model) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        object.copy_values(*object_of(model, "model")->source);
    });
}

mp_status mp_model_writer_write(mp_model_writer* writer, int64_t index, int64_t offset,
                                const void* data, size_t bytes) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        object.write(checked(index), offset, bytes == 0 ? data : required(data, "data"), bytes);
    });
}

mp_status mp_model_writer_write_floats(mp_model_writer* writer, int64_t index, int64_t first,
                                       const float* values, int64_t count) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        object.write_floats(checked(index), first, list_of(values, count, "values", "count"));
    });
}

mp_status mp_model_writer_write_tensor(mp_model_writer* writer, mp_queue* queue, int64_t index,
                                       const mp_tensor* tensor) {
    return boundary([&] {
        ModelWriter& object = *object_of(writer, "writer");
        const Tensor& source = *object_of(tensor, "tensor");
        source.require_memory("tensor");
        checkpoint::write_tensor(stream_of(queue, source), source, object, checked(index));
    });
}

mp_status mp_model_writer_finish(mp_model_writer* writer) {
    return boundary([&] { object_of(writer, "writer")->finish(); });
}
