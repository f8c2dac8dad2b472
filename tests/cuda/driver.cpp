// SPDX-License-Identifier: Apache-2.0
// What the module says where the driver does not serve it. A CUDA runtime asks its driver once in a
// process, so each case is a child.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "device/backend.hpp"

namespace {

struct Answer {
    mp::Code code = mp::Code::ok;
    std::string text;
};

// The child's part: counts the devices and writes what came.
[[noreturn]] void count_in_child(int out, const char* version, const char* error) {
    (void)setenv("MP_FAKE_DRIVER_VERSION", version, 1);
    (void)setenv("MP_FAKE_DRIVER_ERROR", error, 1);
    void* module = dlopen(std::getenv("MP_CUDA_MODULE"), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        _exit(2);
    }
    const auto entry = reinterpret_cast<mp::ModuleEntry>(dlsym(module, mp::kModuleEntryName));
    int32_t count = 0;
    const mp::Status status = entry(mp::kInterfaceVersion)->device_count(&count);
    const auto code = static_cast<int32_t>(status.code());
    const bool is_written = write(out, &code, sizeof code) == sizeof code &&
                            write(out, status.text(), std::strlen(status.text())) >= 0;
    _exit(is_written && count == 0 ? 0 : 3);
}

Answer count_devices(const char* version, const char* error) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        count_in_child(ends[1], version, error);
    }
    close(ends[1]);
    Answer answer;
    int32_t code = 0;
    EXPECT_EQ(read(ends[0], &code, sizeof code), static_cast<ssize_t>(sizeof code));
    answer.code = static_cast<mp::Code>(code);
    std::array<char, 2048> text{};
    for (ssize_t n = 0; (n = read(ends[0], text.data(), text.size())) > 0;) {
        answer.text.append(text.data(), static_cast<std::size_t>(n));
    }
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return answer;
}

void expect_words(const Answer& answer, const std::initializer_list<const char*>& words) {
    EXPECT_EQ(answer.code, mp::Code::device_unavailable) << answer.text;
    for (const char* word : words) {
        EXPECT_NE(answer.text.find(word), std::string::npos) << word << " in: " << answer.text;
    }
}

TEST(Driver, TooOldSaysBothVersions) {
    expect_words(count_devices("11040", "0"), {"too old", "CUDA 11.4", "built for CUDA 1"});
}

TEST(Driver, WithoutADeviceSaysWhereToLook) {
    expect_words(count_devices("99000", "100"), {"no device", "CUDA_VISIBLE_DEVICES"});
    expect_words(count_devices("99000", "0"), {"no device", "CUDA_VISIBLE_DEVICES"});
}

TEST(Driver, ThatDoesNotStartSaysSo) {
    expect_words(count_devices("99000", "3"), {"does not start", "fork()"});
}

TEST(Driver, WithAnotherErrorIsNamed) {
    expect_words(count_devices("99000", "999"), {"cudaErrorUnknown"});
}

} // namespace
