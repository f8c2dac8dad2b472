// SPDX-License-Identifier: Apache-2.0
// ManifestReader: the little that a manifest's JSON consists of, in the one order in which it is written, each thing
// within its bounds. Every member throws corrupt_data.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"
#include "system/json_reader.hpp"

namespace mp::checkpoint {

inline constexpr int64_t kMaxSequence = int64_t{1} << 53;

class ManifestReader : public system::JsonReader {
  public:
    explicit ManifestReader(std::string_view text) : JsonReader(text, {"manifest"}) {}

    // "wanted": where no other key can stand.
    void expect_key(std::string_view wanted);
    std::string text(std::size_t most, std::size_t least);
    int64_t bounded(int64_t least, int64_t most, const char* what);
    uint64_t hexadecimal(int digits) { return parse_hex(string(), digits); }
    template <typename Element> void list(Element&& element) {
        expect('[');
        if (take(']')) {
            return;
        }
        do {
            element();
        } while (another(']'));
    }

    StoredFile file();
    StoredTensor tensor();
    Scalar scalar();

  private:
    void shape(StoredTensor& tensor);
    StoredSlice slice(const StoredTensor& tensor);
};

} // namespace mp::checkpoint
