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
    /** Bytes of a tensor from the offset on, as many as data has. */
    result<void> read(std::int64_t index, std::int64_t offset, span<std::byte> data) const {
        return call(mp_model_file_read, index, offset, static_cast<void*>(data.data()),
                    data.size());
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
