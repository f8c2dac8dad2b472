// SPDX-License-Identifier: Apache-2.0
#include "system/descriptor.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace mp::system {
namespace {

constexpr int kFirst = 3; // after the standard streams

// Holds the standard streams' numbers that are closed, by descriptors that can neither be read nor written, so that a file
// does not have one of them even for a moment.
class HeldNumbers {
  public:
    HeldNumbers() noexcept {
        for (int number = 0; number < kFirst; ++number) {
            if (::fcntl(number, F_GETFD) < 0 && !hold()) {
                return;
            }
        }
    }
    HeldNumbers(const HeldNumbers&) = delete;
    HeldNumbers& operator=(const HeldNumbers&) = delete;
    ~HeldNumbers() {
        const int code = errno;
        for (std::size_t i = 0; i < count_; ++i) {
            (void)::close(held_[i]);
        }
        errno = code;
    }

  private:
    bool hold() noexcept {
        const int held = ::open("/", O_PATH | O_CLOEXEC);
        if (held >= kFirst) {
            (void)::close(held);
        } else if (held >= 0) {
            held_[count_++] = held;
        }
        return held >= 0 && held < kFirst;
    }

    std::array<int, kFirst> held_{};
    std::size_t count_ = 0;
};

} // namespace

int duplicate_descriptor(int descriptor) noexcept {
    return ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFirst);
}

int open_descriptor(int directory, const char* path, int flags, mode_t mode) noexcept {
    int opened = -1;
    {
        const HeldNumbers held;
        opened = ::openat(directory, path, flags | O_CLOEXEC, mode);
    }
    if (opened < 0 || opened >= kFirst) {
        return opened;
    }
    // Another thread has closed a standard stream in between.
    const int high = duplicate_descriptor(opened);
    const int code = errno;
    (void)::close(opened);
    errno = code;
    return high;
}

} // namespace mp::system
