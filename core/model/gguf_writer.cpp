// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_writer.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "dtype/divide.hpp"
#include "model/gguf.hpp"
#include "status/status.hpp"

namespace mp::model {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 3;

class Out {
  public:
    template <class Number> void number(Number value) {
        text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void bytes(std::string_view bytes) { text_ += bytes; }
    void text(std::string_view text) {
        number(static_cast<uint64_t>(text.size()));
        bytes(text);
    }
    void pad() { text_.resize(static_cast<std::size_t>(round_up(size(), kGgufAlignment))); }
    [[nodiscard]] int64_t size() const { return static_cast<int64_t>(text_.size()); }
    [[nodiscard]] std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

uint32_t value_number(const NewValue& value) {
    const auto* const row =
        std::find_if(std::begin(kGgufValues), std::end(kGgufValues), [&](const GgufValue& r) {
            return r.type == value.type && r.width == value.width;
        });
    return static_cast<uint32_t>(row - std::begin(kGgufValues));
}

void write_value(Out& out, const NewValue& value) {
    const bool is_text = value.type == ValueType::text;
    out.text(value.key);
    if (value.is_list) {
        out.number(kGgufList);
        out.number(value_number(value));
        out.number(
            static_cast<uint64_t>(is_text ? value.texts.size() : value.data.size() / value.width));
    } else {
        out.number(value_number(value));
    }
    out.bytes(value.data);
    for (const std::string& text : value.texts) {
        out.text(text);
    }
}

} // namespace

std::string write_gguf_header(std::span<const NewTensor> tensors,
                              std::span<const NewValue> values) {
    Out out;
    out.bytes(kGgufMagic);
    out.number(kVersion);
    out.number(static_cast<uint64_t>(tensors.size()));
    out.number(static_cast<uint64_t>(values.size()));
    for (const NewValue& value : values) {
        write_value(out, value);
    }
    int64_t begin = 0;
    for (const NewTensor& tensor : tensors) {
        out.text(tensor.name);
        out.number(static_cast<uint32_t>(tensor.shape.size()));
        for (std::size_t i = tensor.shape.size(); i-- > 0;) { // the fastest first
            out.number(tensor.shape[i]);
        }
        out.number(gguf_number(tensor.type));
        out.number(begin);
        begin += round_up(tensor.bytes, kGgufAlignment);
    }
    out.pad();
    if (out.size() > kMaxHeaderBytes) {
        fail(Code::invalid_argument,
             "model writer: the keys and tensors need a header of %lld bytes; readers take at most "
             "%lld",
             static_cast<long long>(out.size()), static_cast<long long>(kMaxHeaderBytes));
    }
    return out.take();
}

} // namespace mp::model
