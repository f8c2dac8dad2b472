/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a model that are written: safetensors, one or several with an index, or GGUF. */
#pragma once

#include <type_traits>

#include "model_file.hpp"
#include "tensor.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** First tensors and keys, then their bytes in pieces of any order, then finish(). Without it nothing is left. */
class ModelWriter : public Handle<mp_model_writer, mp_model_writer_destroy> {
  public:
    using Handle::Handle;

    static result<ModelWriter> create(const std::string& path,
                                      const ModelWriterOptions& options = {}) {
        const mp_model_writer_desc& desc = options;
        return detail::make<ModelWriter>(mp_model_writer_create, path, &desc);
    }
    /** Its index. */
    result<std::int64_t> add_tensor(const std::string& name, std::int32_t dtype,
                                    const Shape& shape) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        return value<std::int64_t>(mp_model_writer_add_tensor, name, dtype, desc.ndim, desc.shape);
    }
    /** A key: a text, and of GGUF a bool, an integer of its type's bits, or a number in fp32. */
    result<void> set(const std::string& key, const std::string& text) {
        return call(mp_model_writer_set_text, key, text);
    }
    result<void> set(const std::string& key, const char* text) {
        return call(mp_model_writer_set_text, key, text);
    }
    template <class Number, class = std::enable_if_t<std::is_arithmetic<Number>::value>>
    result<void> set(const std::string& key, Number number) {
        constexpr auto bits = static_cast<std::int32_t>(8 * sizeof number);
        if constexpr (std::is_same_v<Number, bool>) {
            return call(mp_model_writer_set_boolean, key, number ? 1 : 0);
        } else if constexpr (std::is_floating_point_v<Number>) {
            return call(mp_model_writer_set_float, key, static_cast<float>(number));
        } else if constexpr (std::is_signed_v<Number>) {
            return call(mp_model_writer_set_integer, key, bits, static_cast<std::int64_t>(number));
        } else {
            return call(mp_model_writer_set_unsigned, key, bits,
                        static_cast<std::uint64_t>(number));
        }
    }
    /** Lists, of GGUF alone. */
    result<void> set_texts(const std::string& key, const std::vector<std::string>& texts) {
        std::vector<const char*> items;
        for (const std::string& text : texts) {
            items.push_back(text.c_str());
        }
        return call(mp_model_writer_set_texts, key, static_cast<const char* const*>(items.data()),
                    static_cast<std::int64_t>(items.size()));
    }
    result<void> set_integers(const std::string& key, span<const std::int64_t> values,
                              std::int32_t bits = 32) {
        return call(mp_model_writer_set_integers, key, bits, values.data(),
                    static_cast<std::int64_t>(values.size()));
    }
    result<void> set_floats(const std::string& key, span<const float> values) {
        return call(mp_model_writer_set_floats, key, values.data(),
                    static_cast<std::int64_t>(values.size()));
    }
    /** All keys of another model's files that are not set yet. */
    result<void> copy_metadata(const ModelFile& model) {
        return call(mp_model_writer_copy_metadata, model);
    }
    /** Bytes of a tensor from the offset on, as the file has them. */
    result<void> write(std::int64_t index, std::int64_t offset, span<const std::byte> data) {
        return call(mp_model_writer_write, index, offset, static_cast<const void*>(data.data()),
                    data.size());
    }
    /** Its elements from the first on, as the nearest of its type. */
    result<void> write_floats(std::int64_t index, std::int64_t first, span<const float> values) {
        return call(mp_model_writer_write_floats, index, first, values.data(),
                    static_cast<std::int64_t>(values.size()));
    }
    /** All of it. */
    result<void> write_tensor(std::int64_t index, TensorRef tensor, QueueRef queue = {}) {
        return call(mp_model_writer_write_tensor, queue, index, tensor);
    }
    result<void> finish() { return call(mp_model_writer_finish); }
};
using ModelWriterRef = Ref<mp_model_writer>;

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
