// SPDX-License-Identifier: Apache-2.0
// The module as a file: what it exports, what it needs, and what it says where there is no driver.
// Arguments: the module, and the readelf to ask.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "interface/backend.hpp"
#include "interface/transport_module.hpp"

namespace {

std::string module_path;
std::string readelf_path;

std::string output_of(const std::string& command) {
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

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        lines.push_back(text.substr(begin, end - begin));
        begin = end == std::string::npos ? text.size() : end + 1;
    }
    return lines;
}

std::vector<std::string> words_of(const std::string& line) {
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

mp::ModuleEntry entry() {
    void* module = dlopen(module_path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        ADD_FAILURE() << dlerror();
        return nullptr;
    }
    return reinterpret_cast<mp::ModuleEntry>(dlsym(module, mp::kModuleEntryName));
}

TEST(Module, ExportsItsTwoEntriesAlone) {
    std::vector<std::string> exported;
    for (const std::string& line :
         lines_of(output_of(readelf_path + " --dyn-syms --wide '" + module_path + "'"))) {
        // Num: Value Size Type Bind Vis Ndx Name
        const std::vector<std::string> words = words_of(line);
        if (words.size() < 8 || words[6] == "UND" || words[6] == "Ndx" ||
            (words[4] != "GLOBAL" && words[4] != "WEAK" && words[4] != "UNIQUE")) {
            continue;
        }
        exported.push_back(words[7]);
    }
    std::sort(exported.begin(), exported.end());
    EXPECT_EQ(exported, (std::vector<std::string>{mp::kModuleEntryName, mp::kTransportEntryName}));
}

// Above all nothing of CUDA's: the module has to load where none of it is installed.
TEST(Module, NeedsOnlyTheCLibrary) {
    const std::vector<std::string> allowed = {"libc.so.",       "libm.so.",  "libdl.so.",
                                              "libpthread.so.", "librt.so.", "ld-linux"};
    int32_t needed = 0;
    for (const std::string& line :
         lines_of(output_of(readelf_path + " --dynamic --wide '" + module_path + "'"))) {
        const std::size_t open = line.find('[');
        if (line.find("(RUNPATH)") != std::string::npos ||
            line.find("(RPATH)") != std::string::npos) {
            ADD_FAILURE() << "a search path of the build machine: " << line;
        }
        if (line.find("(NEEDED)") == std::string::npos || open == std::string::npos) {
            continue;
        }
        ++needed;
        const std::string name = line.substr(open + 1, line.find(']') - open - 1);
        bool is_allowed = false;
        for (const std::string& prefix : allowed) {
            is_allowed = is_allowed || name.rfind(prefix, 0) == 0;
        }
        EXPECT_TRUE(is_allowed) << "needs " << name;
    }
    EXPECT_GT(needed, 0) << "readelf's output was not understood";
}

TEST(Module, RefusesOtherInterfaceVersions) {
    const mp::ModuleEntry get = entry();
    ASSERT_NE(get, nullptr);
    EXPECT_EQ(get(0), nullptr);
    EXPECT_EQ(get(mp::kInterfaceVersion + 1), nullptr);
    ASSERT_NE(get(mp::kInterfaceVersion), nullptr);
    EXPECT_EQ(get(mp::kInterfaceVersion), get(mp::kInterfaceVersion));
}

TEST(Module, IsTheCudaBackend) {
    const mp::ModuleEntry get = entry();
    ASSERT_NE(get, nullptr);
    const mp::Backend* backend = get(mp::kInterfaceVersion);
    ASSERT_NE(backend, nullptr);
    EXPECT_EQ(backend->version, mp::kInterfaceVersion);
    EXPECT_STREQ(backend->name, "cuda");
    EXPECT_EQ(backend->kind, mp::DeviceKind::cuda);
    EXPECT_NE(backend->open, nullptr);
    EXPECT_NE(backend->shutdown, nullptr);
}

// With a driver, a number; without, a reason that says what to do. The same again the second time.
TEST(Module, CountsDevicesOrSaysWhyThereAreNone) {
    const mp::ModuleEntry get = entry();
    ASSERT_NE(get, nullptr);
    const mp::Backend* backend = get(mp::kInterfaceVersion);
    ASSERT_NE(backend, nullptr);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (int32_t attempt = 0; attempt < 2; ++attempt) {
        int32_t count = -1;
        const mp::Status status = backend->device_count(&count);
        if (status.ok()) {
            EXPECT_GT(count, 0);
            EXPECT_NE(driver, nullptr) << "a device without a driver";
            continue;
        }
        EXPECT_EQ(count, 0);
        EXPECT_EQ(status.code(), mp::Code::device_unavailable);
        const std::string text = status.text();
        EXPECT_NE(text.find("use the host device"), std::string::npos) << text;
        if (driver == nullptr) {
            EXPECT_NE(text.find("no NVIDIA driver"), std::string::npos) << text;
            EXPECT_NE(text.find("install one"), std::string::npos) << text;
        }
    }
}

// A device cannot be had that is not there; nothing is written over the pointer but null.
TEST(Module, OpensNoDeviceThatIsNotThere) {
    const mp::ModuleEntry get = entry();
    ASSERT_NE(get, nullptr);
    const mp::Backend* backend = get(mp::kInterfaceVersion);
    ASSERT_NE(backend, nullptr);
    mp::DeviceConfig config;
    config.device_index = 1 << 20;
    auto* device = reinterpret_cast<mp::Device*>(&config);
    const mp::Status status = backend->open(config, &device);
    EXPECT_EQ(status.code(), mp::Code::device_unavailable) << status.text();
    EXPECT_EQ(device, nullptr);
}

} // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s <module> <readelf>\n", argv[0]);
        return 2;
    }
    module_path = argv[1];
    readelf_path = argv[2];
    return RUN_ALL_TESTS();
}
