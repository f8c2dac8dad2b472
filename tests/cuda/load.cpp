// SPDX-License-Identifier: Apache-2.0
// The module as a file: what it exports, what it needs, and what it says where there is no driver.
// Arguments: the module, and the readelf to ask.
#include <cstdio>
#include <dlfcn.h>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "module_file.hpp"
#include "transport/transport_module.hpp"

namespace {

mp::test::ModuleFile module_file;

TEST(Module, ExportsItsTwoEntriesAlone) {
    EXPECT_EQ(module_file.exported(),
              (std::vector<std::string>{mp::kModuleEntryName, mp::kTransportEntryName}));
}

TEST(Module, NeedsOnlyTheCLibrary) { module_file.expect_to_need_only_the_c_library(); }

TEST(Module, IsTheCudaBackend) { module_file.expect_to_be(mp::DeviceKind::cuda); }

// With a driver, a number; without, a reason that says what to do. The same again the second time.
TEST(Module, CountsDevicesOrSaysWhyThereAreNone) {
    const mp::Backend* backend = module_file.backend();
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
    const mp::Backend* backend = module_file.backend();
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
    module_file = {argv[1], argv[2]};
    return RUN_ALL_TESTS();
}
