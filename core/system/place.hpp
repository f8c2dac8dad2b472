// SPDX-License-Identifier: Apache-2.0
// Where a file goes: the directory that it will be in, open, and its name there. And whole files that take an earlier one's
// place in one step.
#pragma once

#include <string>

#include "system/file.hpp"

namespace mp::system {

// Where the last name of a path lies.
std::string parent_of(const std::string& path);
// From the root, as of now. Throws io_error.
std::string absolute_path(const std::string& path);
// 32 hexadecimal digits of the system's random numbers.
std::string random_id();

struct Place {
    // Opens the directory, which may be a link to one.
    Place(FileTable& files, const std::string& path);
    // A name beside it that nobody else has.
    [[nodiscard]] std::string temporary() const {
        return name.substr(0, 200) + ".tmp-" + random_id();
    }

    OpenFile directory;
    std::string name;
};

// Throws invalid_argument where something other than a regular file has the name: a link, a device, a folder.
void check_replaceable(FileTable& files, int32_t directory, const std::string& path);
// Beside it first, so that no reader sees half of it. Replaces a regular file or nothing.
void replace_text(FileTable& files, const std::string& path, const std::string& text);

} // namespace mp::system
