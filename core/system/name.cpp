// SPDX-License-Identifier: Apache-2.0
#include "system/name.hpp"

#include "status/status.hpp"
#include "system/json_writer.hpp"

namespace mp::system {

void check_name(const char* what, std::string_view name) {
    if (name.empty() || name.size() > kMostNameBytes) {
        fail(Code::invalid_argument, "%s has %zu bytes; it must have 1 to %zu", what, name.size(),
             kMostNameBytes);
    }
    if (!is_utf8(name)) {
        fail(Code::invalid_argument, "%s, of %zu bytes, is not UTF-8; files and messages need it",
             what, name.size());
    }
    if (name == "__metadata__") {
        fail(Code::invalid_argument,
             "%s is '__metadata__', a key that safetensors files keep for themselves; give another",
             what);
    }
}

} // namespace mp::system
