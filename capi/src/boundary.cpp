// SPDX-License-Identifier: Apache-2.0
#include "boundary.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace mp::capi {
namespace {

thread_local char last_message[Status::kCapacity] = "";

} // namespace

void clear_message() noexcept { last_message[0] = '\0'; }

void set_message(const char* text) noexcept {
    (void)std::snprintf(last_message, sizeof last_message, "%s", text);
}

const char* message() noexcept { return last_message; }

mp_status report(const Status& status) noexcept {
    set_message(status.text());
    return static_cast<mp_status>(status.code());
}

void copy_text(const std::string& text, char* buffer, std::size_t capacity, std::size_t* needed) {
    if (needed != nullptr) {
        *needed = text.size() + 1;
    }
    if (capacity == 0) {
        return;
    }
    (void)required(buffer, "buffer");
    const std::size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = '\0';
}

} // namespace mp::capi
