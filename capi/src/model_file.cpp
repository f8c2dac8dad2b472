// SPDX-License-Identifier: Apache-2.0
// model_file.h
#include "boundary.hpp"
#include "checkpoint/file_tensor.hpp"
#include "model/mapped_tensors.hpp"
#include "model/model_files.hpp"
#include "objects.hpp"
#include "runtime/memory_watch.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;
using namespace mp::model;

namespace mp::capi {

ModelFileObject::ModelFileObject(std::shared_ptr<const TensorSource> tensors)
    : source(std::move(tensors)) {
    for (std::size_t i = 0; i < source->count(); ++i) {
        names.emplace_back(source->facts(i).name);
    }
    for (const TensorSource::Value& value : source->values()) {
        keys.emplace_back(value.entry->key);
    }
}

} // namespace mp::capi

namespace {

std::size_t checked(int64_t index, std::size_t count, const char* what) {
    if (index < 0 || static_cast<uint64_t>(index) >= count) {
        fail(Code::invalid_argument, "index is %lld; the model file has %zu %s",
             static_cast<long long>(index), count, what);
    }
    return static_cast<std::size_t>(index);
}
std::size_t checked_index(const ModelFileObject& model, int64_t index) {
    return checked(index, model.names.size(), "tensors");
}
std::size_t checked_value(const ModelFileObject& model, int64_t index) {
    return checked(index, model.keys.size(), "keys");
}

mp_file_tensor describe(const ModelFileObject& model, std::size_t index) {
    const TensorFacts tensor = model.source->facts(index);
    mp_file_tensor result = MP_FILE_TENSOR_INIT;
    result.dtype = static_cast<int32_t>(dtype_of(tensor.type));
    result.ndim = static_cast<int32_t>(tensor.shape.size());
    result.count = 1;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        result.shape[i] = tensor.shape[i];
        result.count *= tensor.shape[i]; // whoever made it found that it fits
    }
    result.bytes = tensor.bytes;
    result.name = model.names[index].c_str();
    result.type_name = file_type_name(tensor.type);
    result.path = model.source->path(tensor.file).c_str();
    return result;
}

std::size_t value_of(const ModelFileObject& model, const char* key) {
    const std::size_t found = model.source->find_value(key);
    if (found == model.keys.size()) {
        fail(Code::unknown_name, "the model file has no metadata '%.200s'", key);
    }
    return found;
}

mp_file_value describe_value(const ModelFileObject& model, std::size_t index) {
    const TensorSource::Value& value = model.source->values()[index];
    mp_file_value result = MP_FILE_VALUE_INIT;
    result.type = static_cast<int32_t>(value.entry->type);
    result.is_list = value.entry->is_list ? 1 : 0;
    result.count = value.entry->count;
    result.key = model.keys[index].c_str();
    result.path = model.source->path(value.file).c_str();
    return result;
}

std::string text_of(const ModelFileObject& model, std::size_t index, int64_t item) {
    const TensorSource::Value& value = model.source->values()[index];
    if (item < 0 || item >= value.entry->count) {
        fail(Code::invalid_argument, "item is %lld; '%.200s' has %u", static_cast<long long>(item),
             model.keys[index].c_str(), value.entry->count);
    }
    return model.source->header(value.file).text(*value.entry, static_cast<std::size_t>(item));
}

// The caller's, which may be a layer's weight: written, also where reading has failed half-way.
class WrittenMemory {
  public:
    WrittenMemory(const void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
    WrittenMemory(const WrittenMemory&) = delete;
    WrittenMemory& operator=(const WrittenMemory&) = delete;
    ~WrittenMemory() { note_write(data_, bytes_); }

  private:
    const void* data_;
    std::size_t bytes_;
};

static_assert(MP_FILE_VALUE_TEXT == static_cast<int>(ValueType::text) &&
              MP_FILE_VALUE_BOOLEAN == static_cast<int>(ValueType::boolean) &&
              MP_FILE_VALUE_INTEGER == static_cast<int>(ValueType::integer) &&
              MP_FILE_VALUE_UNSIGNED == static_cast<int>(ValueType::unsigned_integer) &&
              MP_FILE_VALUE_FLOAT == static_cast<int>(ValueType::floating));

} // namespace

mp_status mp_model_file_open(const char* path, uint32_t flags, mp_model_file** out) {
    return boundary([&] {
        output(out);
        check_flags(flags, MP_MODEL_FILE_NO_LINKS, "flags");
        *out = make_handle<mp_model_file>(std::make_shared<ModelFileObject>(
            std::make_shared<ModelFiles>(system::posix_files(), required(path, "path"),
                                         (flags & MP_MODEL_FILE_NO_LINKS) == 0)));
    });
}

mp_status mp_model_file_map(const mp_model_file* model, const char* rules, mp_model_file** out) {
    return boundary([&] {
        output(out);
        const ModelFileObject& object = *object_of(model, "model");
        *out = make_handle<mp_model_file>(std::make_shared<ModelFileObject>(
            std::make_shared<MappedTensors>(object.source, required(rules, "rules"))));
    });
}

void mp_model_file_destroy(mp_model_file* model) { destroy_handle(model); }

mp_status mp_model_file_get_count(const mp_model_file* model, int64_t* count) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        *required(count, "count") = static_cast<int64_t>(object.names.size());
    });
}

mp_status mp_model_file_get_tensor(const mp_model_file* model, int64_t index,
                                   mp_file_tensor* tensor) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        write_struct(tensor, describe(object, checked_index(object, index)), "tensor");
    });
}

mp_status mp_model_file_get_index(const mp_model_file* model, const char* name, int64_t* index) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        const std::size_t found = object.source->find(required(name, "name"));
        int64_t& result = *required(index, "index");
        if (found == object.names.size()) {
            fail(Code::unknown_name, "the model file has no tensor '%.200s'", name);
        }
        result = static_cast<int64_t>(found);
    });
}

mp_status mp_model_file_get_metadata(const mp_model_file* model, const char* key, char* buffer,
                                     size_t capacity, size_t* needed) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        (void)required(key, "key");
        const std::size_t found = value_of(object, key);
        const FileValue& value = *object.source->values()[found].entry;
        if (value.is_list) {
            fail(Code::invalid_argument,
                 "'%.200s' is a list of %u; see mp_model_file_get_value_item", key, value.count);
        }
        copy_text(text_of(object, found, 0), buffer, capacity, needed);
    });
}

mp_status mp_model_file_get_value_count(const mp_model_file* model, int64_t* count) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        *required(count, "count") = static_cast<int64_t>(object.keys.size());
    });
}

mp_status mp_model_file_get_value(const mp_model_file* model, int64_t index, mp_file_value* value) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        write_struct(value, describe_value(object, checked_value(object, index)), "value");
    });
}

mp_status mp_model_file_get_value_index(const mp_model_file* model, const char* key,
                                        int64_t* index) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        const std::size_t found = value_of(object, required(key, "key"));
        *required(index, "index") = static_cast<int64_t>(found);
    });
}

mp_status mp_model_file_get_value_item(const mp_model_file* model, int64_t index, int64_t item,
                                       char* buffer, size_t capacity, size_t* needed) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        copy_text(text_of(object, checked_value(object, index), item), buffer, capacity, needed);
    });
}

mp_status mp_model_file_read_floats(const mp_model_file* model, int64_t index, int64_t first,
                                    float* values, int64_t count) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        const std::size_t tensor = checked_index(object, index);
        const int64_t has = describe(object, tensor).count;
        if (first < 0 || count < 0 || first > has || count > has - first) {
            fail(Code::invalid_argument,
                 "%lld elements from element %lld on were asked for; tensor '%.200s' has %lld",
                 static_cast<long long>(count), static_cast<long long>(first),
                 object.names[tensor].c_str(), static_cast<long long>(has));
        }
        float* to = count == 0 ? values : required(values, "values");
        const WrittenMemory written(to, static_cast<std::size_t>(count) * sizeof(float));
        object.source->read_floats(tensor, first, {to, static_cast<std::size_t>(count)});
    });
}

mp_status mp_model_file_read(const mp_model_file* model, int64_t index, int64_t offset, void* data,
                             size_t bytes) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        const std::size_t tensor = checked_index(object, index);
        void* const to = bytes == 0 ? data : required(data, "data");
        const WrittenMemory written(to, bytes);
        object.source->read(tensor, offset, to, bytes);
    });
}

mp_status mp_model_file_load(const mp_model_file* model, mp_queue* queue, int64_t index,
                             int64_t first_row, mp_tensor* tensor) {
    return boundary([&] {
        const ModelFileObject& object = *object_of(model, "model");
        Tensor& target = *object_of(tensor, "tensor");
        target.require_memory("tensor");
        checkpoint::load_tensor(stream_of(queue, target), *object.source,
                                checked_index(object, index), first_row, target);
    });
}
