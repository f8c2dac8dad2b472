// SPDX-License-Identifier: Apache-2.0
// Writers of model files, and what they left, read again.
#pragma once

#include "model_parts.hpp"

namespace mp_test {

using ModelWriter = Handle<mp_model_writer, mp_model_writer_destroy>;

inline ModelWriter make_writer(const std::filesystem::path& path, int64_t max_file_bytes = 0) {
    mp_model_writer_desc desc = MP_MODEL_WRITER_DESC_INIT;
    desc.max_file_bytes = max_file_bytes;
    mp_model_writer* made = nullptr;
    EXPECT_TRUE(succeeded(mp_model_writer_create(path.c_str(), &desc, &made)));
    return ModelWriter(made);
}

inline int64_t add_to(mp_model_writer* writer, const std::string& name, int32_t dtype,
                      const std::vector<int64_t>& shape) {
    int64_t index = -1;
    EXPECT_TRUE(succeeded(mp_model_writer_add_tensor(
        writer, name.c_str(), dtype, static_cast<int32_t>(shape.size()), shape.data(), &index)));
    return index;
}

inline mp_file_tensor tensor_in(mp_model_file* model, const std::string& name, int64_t* index) {
    mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
    EXPECT_TRUE(succeeded(mp_model_file_get_index(model, name.c_str(), index)));
    EXPECT_TRUE(succeeded(mp_model_file_get_tensor(model, *index, &tensor)));
    return tensor;
}

inline std::vector<unsigned char> bytes_in(mp_model_file* model, const std::string& name) {
    int64_t index = -1;
    std::vector<unsigned char> bytes(
        static_cast<std::size_t>(tensor_in(model, name, &index).bytes));
    EXPECT_TRUE(succeeded(mp_model_file_read(model, index, 0, bytes.data(), bytes.size())));
    return bytes;
}

inline std::vector<float> floats_in(mp_model_file* model, const std::string& name) {
    int64_t index = -1;
    const int64_t count = tensor_in(model, name, &index).count;
    std::vector<float> values(static_cast<std::size_t>(count));
    EXPECT_TRUE(succeeded(mp_model_file_read_floats(model, index, 0, values.data(), count)));
    return values;
}

} // namespace mp_test
