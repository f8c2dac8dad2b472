// SPDX-License-Identifier: Apache-2.0
// The module as a file: what it exports, what it needs, and what it says where there is no HIP, or no device.
// Arguments: the module, the readelf to ask, the runtime of the tests.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "module_file.hpp"

namespace {

mp::test::ModuleFile module_file;
std::string fake_runtime;

using Settings = std::initializer_list<std::pair<const char*, const char*>>;

struct Answer {
    mp::Code code = mp::Code::ok;
    std::string text;
};

// The child's part: opens a device and writes what came.
[[noreturn]] void open_in_child(int out, int32_t index) {
    const mp::Backend* backend = module_file.backend();
    mp::DeviceConfig config;
    config.device_index = index;
    mp::Device* device = nullptr;
    const mp::Status status = backend->open(config, &device);
    const auto code = static_cast<int32_t>(status.code());
    const bool is_written = write(out, &code, sizeof code) == sizeof code &&
                            write(out, status.text(), std::strlen(status.text())) >= 0;
    _exit(is_written && status.ok() == (device != nullptr) ? 0 : 3);
}

// In a child, because a process looks for its runtime once; so nothing here opens one in this process.
Answer open_with(const Settings& settings, int32_t index = 0) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        for (const auto& [name, value] : settings) {
            (void)setenv(name, value, 1);
        }
        open_in_child(ends[1], index);
    }
    close(ends[1]);
    Answer answer;
    int32_t code = 0;
    EXPECT_EQ(read(ends[0], &code, sizeof code), static_cast<ssize_t>(sizeof code));
    answer.code = static_cast<mp::Code>(code);
    std::array<char, 2048> buffer{};
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
        answer.text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << answer.text;
    return answer;
}

void expect_refusal(const Answer& answer, const std::initializer_list<const char*>& words) {
    EXPECT_EQ(answer.code, mp::Code::device_unavailable);
    for (const char* word : words) {
        EXPECT_NE(answer.text.find(word), std::string::npos) << word << " in: " << answer.text;
    }
}

TEST(Module, ExportsItsEntryAlone) {
    EXPECT_EQ(module_file.exported(), std::vector<std::string>{mp::kModuleEntryName});
}

TEST(Module, NeedsOnlyTheCLibrary) { module_file.expect_to_need_only_the_c_library(); }

TEST(Module, IsTheHipBackend) { module_file.expect_to_be(mp::DeviceKind::hip); }

// The runtime of this machine, if it has one.
TEST(Refusal, OnThisMachineSaysWhy) {
    const Answer answer = open_with({});
    if (answer.code == mp::Code::ok) {
        GTEST_SKIP() << "skipped: there is a HIP device";
    }
    std::printf("%s\n", answer.text.c_str());
    expect_refusal(answer, {"hip: ", "use the host device"});
}

TEST(Refusal, NamesARuntimeThatCannotBeOpened) {
    expect_refusal(open_with({{"MIXEDPREC_HIP_LIBRARY", "/nowhere/libamdhip64.so"}}),
                   {"MIXEDPREC_HIP_LIBRARY names /nowhere/libamdhip64.so", "cannot be opened",
                    "use the host device"});
}

TEST(Refusal, SaysWhatTheRuntimeLacks) {
    expect_refusal(open_with({{"MIXEDPREC_HIP_LIBRARY", "libm.so.6"}}),
                   {"has no function", "install ROCm's HIP runtime"});
}

TEST(Refusal, NamesAnotherVersion) {
    expect_refusal(open_with({{"MIXEDPREC_HIP_LIBRARY", fake_runtime.c_str()},
                              {"MP_FAKE_HIP_VERSION", "40200000"}}),
                   {"version 4.2", "install ROCm's HIP runtime"});
}

TEST(Refusal, WithoutADeviceSaysWhereToLook) {
    expect_refusal(
        open_with({{"MIXEDPREC_HIP_LIBRARY", fake_runtime.c_str()}, {"MP_FAKE_HIP_DEVICES", "0"}}),
        {"no AMD GPU", "hipErrorNoDevice", "/dev/kfd", "use the host device"});
}

TEST(Refusal, OfADeviceThatIsNotThereSaysHowManyThereAre) {
    const Settings fake = {{"MIXEDPREC_HIP_LIBRARY", fake_runtime.c_str()}};
    EXPECT_EQ(open_with(fake).code, mp::Code::ok);
    expect_refusal(open_with(fake, 2), {"device 2 was asked for", "there are 2"});
    expect_refusal(open_with(fake, -1), {"device -1 was asked for"});
}

TEST(Refusal, OfAnotherArchitectureSaysWhatToBuild) {
    expect_refusal(open_with({{"MIXEDPREC_HIP_LIBRARY", fake_runtime.c_str()},
                              {"MP_FAKE_HIP_ARCHITECTURE", "gfx1030"}}),
                   {"gfx1030", "built for gfx90a", "MIXEDPREC_HIP_ARCHITECTURE=gfx1030"});
}

} // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s <module> <readelf> <runtime>\n", argv[0]);
        return 2;
    }
    module_file = {argv[1], argv[2]};
    fake_runtime = argv[3];
    return RUN_ALL_TESTS();
}
