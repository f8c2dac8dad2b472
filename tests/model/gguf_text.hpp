// SPDX-License-Identifier: Apache-2.0
// A GGUF file, put together byte by byte.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace mp::test {

class GgufText {
  public:
    GgufText(uint64_t tensors, uint64_t values, uint32_t version = 3) {
        text_ = "GGUF";
        add(version);
        add(tensors);
        add(values);
    }

    template <class Number> GgufText& add(Number number) {
        text_.append(reinterpret_cast<const char*>(&number), sizeof number);
        return *this;
    }
    GgufText& add_text(const std::string& text) {
        add(uint64_t{text.size()});
        text_ += text;
        return *this;
    }
    // A key with a value of this type, which follows.
    GgufText& key(const std::string& name, uint32_t type) { return add_text(name).add(type); }
    // Sizes from the fastest on; ggml's number of the type.
    GgufText& tensor(const std::string& name, std::initializer_list<uint64_t> sizes, uint32_t type,
                     uint64_t offset) {
        add_text(name).add(static_cast<uint32_t>(sizes.size()));
        for (const uint64_t size : sizes) {
            add(size);
        }
        return add(type).add(offset);
    }
    // With padding to the data, and so many bytes of it.
    [[nodiscard]] std::string file(std::size_t data, std::size_t alignment = 32) const {
        std::string whole = text_;
        whole.resize((whole.size() + alignment - 1) / alignment * alignment, '\0');
        return whole + std::string(data, 'x');
    }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string text_;
};

} // namespace mp::test
