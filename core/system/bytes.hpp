// SPDX-License-Identifier: Apache-2.0
// Values as bytes, as ranks of one build exchange them: plain ones as they lie in memory, texts and lists behind their
// length. A struct names its fields once for both directions, in a member `void exchange(auto& bytes) { bytes(a, b); }`.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "status/status.hpp"

namespace mp::system {

template <typename T> inline constexpr bool kIsPlain = std::is_trivially_copyable_v<T>;
template <typename T> inline constexpr bool kIsArray = requires(T list) {
    list.data();
    requires kIsPlain<typename T::value_type>;
};

class ByteWriter {
  public:
    template <typename... Values> void operator()(Values&... values) { (write(values), ...); }
    [[nodiscard]] std::string take() noexcept { return std::move(out_); }

  private:
    template <typename T> void write(T& value) {
        if constexpr (kIsPlain<T>) {
            out_.append(reinterpret_cast<const char*>(&value), sizeof value);
        } else if constexpr (requires { value.exchange(*this); }) {
            value.exchange(*this);
        } else {
            const uint64_t count = value.size();
            write(count);
            if constexpr (kIsArray<T>) {
                out_.append(reinterpret_cast<const char*>(value.data()), count * sizeof value[0]);
            } else {
                for (auto& element : value) {
                    write(element);
                }
            }
        }
    }
    std::string out_;
};

// Throws corrupt_data where the bytes end too early, or too late for done().
class ByteReader {
  public:
    explicit ByteReader(std::string_view bytes) : left_(bytes) {}
    template <typename... Values> void operator()(Values&... values) { (read(values), ...); }
    void done() const { require(left_.empty()); }

  private:
    static void require(bool fits) {
        if (!fits) {
            fail(Code::corrupt_data, "a rank sent what cannot be read; do all run one build?");
        }
    }
    template <typename T> void read(T& value) {
        if constexpr (kIsPlain<T>) {
            require(left_.size() >= sizeof value);
            take(&value, sizeof value);
        } else if constexpr (requires { value.exchange(*this); }) {
            value.exchange(*this);
        } else {
            uint64_t count = 0;
            read(count);
            value.clear();
            if constexpr (kIsArray<T>) {
                require(count <= left_.size() / sizeof value[0]);
                value.resize(count);
                take(value.data(), count * sizeof value[0]);
            } else {
                require(count <= left_.size()); // an element has a byte at least
                for (; count > 0; --count) {
                    read(value.emplace_back());
                }
            }
        }
    }
    void take(void* to, std::size_t bytes) {
        if (bytes > 0) {
            std::memcpy(to, left_.data(), bytes);
            left_.remove_prefix(bytes);
        }
    }
    std::string_view left_;
};

template <typename T> std::string to_bytes(T& value) {
    ByteWriter writer;
    writer(value);
    return writer.take();
}
template <typename T> T from_bytes(std::string_view bytes) {
    T value{};
    ByteReader reader(bytes);
    reader(value);
    reader.done();
    return value;
}

} // namespace mp::system
