/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a model that comes as files: safetensors, an index of them, or their folder. */
#pragma once

#include "handle.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

class ModelFile : public Handle<mp_model_file, mp_model_file_destroy> {
  public:
    using Handle::Handle;

    static result<ModelFile> open(const std::string& path, std::uint32_t flags = 0) {
        return detail::make<ModelFile>(mp_model_file_open, path, flags);
    }
    /** Its tensors under other names, split, joined or transposed: lines "NAME = EXPR". This one may end before. */
    result<ModelFile> map(const std::string& rules) const {
        return make<ModelFile>(mp_model_file_map, rules);
    }
    result<std::int64_t> count() const { return value<std::int64_t>(mp_model_file_get_count); }
    /** Its texts live as long as this object. */
    result<FileTensor> tensor(std::int64_t index) const {
        return value<FileTensor>(mp_model_file_get_tensor, index);
    }
    result<std::int64_t> index(const std::string& name) const {
        return value<std::int64_t>(mp_model_file_get_index, name);
    }
    result<std::string> metadata(const std::string& key) const {
        return text(mp_model_file_get_metadata, key);
    }
    /** What the files say of themselves by keys. */
    result<std::int64_t> value_count() const {
        return value<std::int64_t>(mp_model_file_get_value_count);
    }
    /** Its texts live as long as this object. */
    result<FileValue> value_at(std::int64_t index) const {
        return value<FileValue>(mp_model_file_get_value, index);
    }
    result<std::int64_t> value_index(const std::string& key) const {
        return value<std::int64_t>(mp_model_file_get_value_index, key);
    }
    result<std::string> value_item(std::int64_t index, std::int64_t item) const {
        return text(mp_model_file_get_value_item, index, item);
    }
    /** Elements of a tensor from the first on as numbers, as many as values has. */
    result<void> read_floats(std::int64_t index, std::int64_t first, span<float> values) const {
        return call(mp_model_file_read_floats, index, first, values.data(),
                    static_cast<std::int64_t>(values.size()));
    }
    /** Bytes of a tensor from the offset on, as many as data has. */
    result<void> read(std::int64_t index, std::int64_t offset, span<std::byte> data) const {
        return call(mp_model_file_read, index, offset, static_cast<void*>(data.data()),
                    data.size());
    }
    /** Rows of a tensor from the first on, as many as the other one has, in whatever format that keeps. */
    result<void> load(std::int64_t index, std::int64_t first_row, TensorRef tensor,
                      QueueRef queue = {}) const {
        return call(mp_model_file_load, queue, index, first_row, tensor);
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
