// SPDX-License-Identifier: Apache-2.0
// A module as a file, for the tests of each module: its symbols, what it needs, its entry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <dlfcn.h>
#include <string>
#include <vector>

#include "device/backend.hpp"

namespace mp::test {

inline std::string output_of(const std::string& command) {
    std::string text;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) {
        return text;
    }
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
        text.append(buffer, n);
    }
    EXPECT_EQ(pclose(pipe), 0) << command;
    return text;
}

inline std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        lines.push_back(text.substr(begin, end - begin));
        begin = end == std::string::npos ? text.size() : end + 1;
    }
    return lines;
}

inline std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : line + ' ') {
        if (c != ' ') {
            word += c;
        } else if (!word.empty()) {
            words.push_back(word);
            word.clear();
        }
    }
    return words;
}

struct ModuleFile {
    std::string path;
    std::string readelf; // the program to ask

    // The symbols that it exports, sorted.
    [[nodiscard]] std::vector<std::string> exported() const {
        std::vector<std::string> names;
        for (const std::string& line :
             lines_of(output_of(readelf + " --dyn-syms --wide '" + path + "'"))) {
            // Num: Value Size Type Bind Vis Ndx Name
            const std::vector<std::string> words = words_of(line);
            if (words.size() >= 8 && words[6] != "UND" && words[6] != "Ndx" &&
                (words[4] == "GLOBAL" || words[4] == "WEAK" || words[4] == "UNIQUE")) {
                names.push_back(words[7]);
            }
        }
        std::sort(names.begin(), names.end());
        return names;
    }

    // Above all nothing of the device's: the module has to load where none of it is installed.
    void expect_to_need_only_the_c_library() const {
        const std::vector<std::string> allowed = {"libc.so.",       "libm.so.",  "libdl.so.",
                                                  "libpthread.so.", "librt.so.", "ld-linux"};
        int32_t needed = 0;
        for (const std::string& line :
             lines_of(output_of(readelf + " --dynamic --wide '" + path + "'"))) {
            const std::size_t open = line.find('[');
            EXPECT_EQ(line.find("(RUNPATH)"), std::string::npos)
                << "a search path of the build machine: " << line;
            EXPECT_EQ(line.find("(RPATH)"), std::string::npos)
                << "a search path of the build machine: " << line;
            if (line.find("(NEEDED)") == std::string::npos || open == std::string::npos) {
                continue;
            }
            ++needed;
            const std::string name = line.substr(open + 1, line.find(']') - open - 1);
            const bool is_allowed =
                std::any_of(allowed.begin(), allowed.end(),
                            [&](const std::string& prefix) { return name.rfind(prefix, 0) == 0; });
            EXPECT_TRUE(is_allowed) << "needs " << name;
        }
        EXPECT_GT(needed, 0) << "readelf's output was not understood";
    }

    // Null, with a failure of the test, where it cannot be loaded.
    [[nodiscard]] ModuleEntry entry() const {
        void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (module == nullptr) {
            ADD_FAILURE() << dlerror();
            return nullptr;
        }
        return reinterpret_cast<ModuleEntry>(dlsym(module, kModuleEntryName));
    }

    // Its backend, for our version of the interface alone.
    [[nodiscard]] const Backend* backend() const {
        const ModuleEntry get = entry();
        if (get == nullptr) {
            return nullptr;
        }
        EXPECT_EQ(get(0), nullptr);
        EXPECT_EQ(get(kInterfaceVersion + 1), nullptr);
        EXPECT_EQ(get(kInterfaceVersion), get(kInterfaceVersion));
        return get(kInterfaceVersion);
    }

    void expect_to_be(DeviceKind kind) const {
        const Backend* found = backend();
        ASSERT_NE(found, nullptr);
        EXPECT_EQ(found->version, kInterfaceVersion);
        EXPECT_STREQ(found->name, row_of(kind).name);
        EXPECT_EQ(found->kind, kind);
        EXPECT_NE(found->open, nullptr);
        EXPECT_NE(found->shutdown, nullptr);
    }
};

} // namespace mp::test
