// SPDX-License-Identifier: Apache-2.0
#include "system/place.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <unistd.h>

namespace mp::system {
namespace {

std::string last_name(const std::string& path) {
    const std::size_t last = path.find_last_not_of('/');
    const std::size_t slash = path.rfind('/', last);
    std::string name = last == std::string::npos ? "" : path.substr(slash + 1, last - slash);
    if (name.empty() || name == "." || name == ".." || last + 1 != path.size()) {
        fail(Code::invalid_argument, "'%s' is no name of a file", path.c_str());
    }
    return name;
}

} // namespace

std::string parent_of(const std::string& path) {
    const std::size_t last = path.find_last_not_of('/');
    const std::size_t slash = last == std::string::npos ? last : path.find_last_of('/', last);
    if (slash == std::string::npos) {
        return ".";
    }
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string absolute_path(const std::string& path) {
    if (!path.empty() && path.front() == '/') {
        return path;
    }
    std::array<char, PATH_MAX> current{};
    if (::getcwd(current.data(), current.size()) == nullptr) {
        fail(Code::io_error, "the folder that '%s' is looked up from has no name: %s", path.c_str(),
             std::strerror(errno));
    }
    return std::string(current.data()) + "/" + path;
}

std::string random_id() {
    constexpr const char* kDigits = "0123456789abcdef";
    std::random_device device;
    std::string id;
    for (int i = 0; i < 4; ++i) {
        const uint32_t bits = device();
        for (int digit = 28; digit >= 0; digit -= 4) {
            id += kDigits[(bits >> digit) & 15];
        }
    }
    return id;
}

Place::Place(FileTable& files, const std::string& path)
    : directory(files, kCurrentDirectory, parent_of(path), OpenMode::directory),
      name(last_name(path)) {}

void check_replaceable(FileTable& files, int32_t directory, const std::string& path) {
    FileIdentity found;
    check(files.look(directory, path.c_str(), &found));
    if (found.kind != FileKind::none && found.kind != FileKind::regular) {
        fail(Code::invalid_argument,
             "'%s' is %s, and only a regular file is replaced: give another name", path.c_str(),
             found.kind == FileKind::directory ? "a directory"
             : found.kind == FileKind::link    ? "a link"
                                               : "a device, a pipe or a socket");
    }
}

void replace_text(FileTable& files, const std::string& path, const std::string& text) {
    const Place place(files, path);
    const int32_t directory = place.directory.handle();
    check_replaceable(files, directory, place.name);
    const std::string temporary = place.temporary();
    OpenFile file(files, directory, temporary, OpenMode::create_new);
    try {
        check(files.write(file.handle(), 0, text.data(), text.size()));
        file.finish();
        check_replaceable(files, directory, place.name);
        check(files.replace(directory, temporary.c_str(), place.name.c_str()));
    } catch (const std::exception&) {
        (void)files.remove(directory, temporary.c_str());
        throw;
    }
}

} // namespace mp::system
