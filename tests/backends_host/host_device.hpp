// SPDX-License-Identifier: Apache-2.0
// An open host device whose memory hooks check that everything comes back as it was given.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/backend.hpp"
#include "host/device.hpp"
#include "host/gemm/host_gemm.hpp"

namespace mp::test {

class CheckedMemory {
  public:
    CheckedMemory() = default;
    CheckedMemory(const CheckedMemory&) = delete;
    CheckedMemory& operator=(const CheckedMemory&) = delete;
    ~CheckedMemory() {
        EXPECT_TRUE(blocks_.empty()) << blocks_.size() << " blocks were not given back";
    }

    [[nodiscard]] MemoryTable table() { return {allocate, release, this}; }
    [[nodiscard]] std::size_t outstanding() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return blocks_.size();
    }
    [[nodiscard]] int64_t allocations() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return allocations_;
    }
    // From now on nothing is given.
    void exhaust() { is_exhausted_ = true; }

  private:
    using Key = std::pair<std::size_t, std::size_t>; // size, alignment

    static void* allocate(std::size_t size, std::size_t alignment, void* payload) {
        auto& self = *static_cast<CheckedMemory*>(payload);
        const std::lock_guard<std::mutex> lock(self.mutex_);
        void* pointer = nullptr;
        if (self.is_exhausted_ || posix_memalign(&pointer, alignment, size) != 0) {
            return nullptr;
        }
        self.blocks_[pointer] = {size, alignment};
        ++self.allocations_;
        return pointer;
    }
    static void release(void* pointer, std::size_t size, std::size_t alignment, void* payload) {
        auto& self = *static_cast<CheckedMemory*>(payload);
        const std::lock_guard<std::mutex> lock(self.mutex_);
        const auto found = self.blocks_.find(pointer);
        if (found == self.blocks_.end()) {
            ADD_FAILURE() << "released what was never allocated";
            return;
        }
        EXPECT_EQ(found->second, Key(size, alignment));
        self.blocks_.erase(found);
        std::free(pointer);
    }

    mutable std::mutex mutex_;
    std::map<void*, Key> blocks_;
    int64_t allocations_ = 0;
    bool is_exhausted_ = false;
};

// What products work with, on any number of threads.
class Workshop {
  public:
    [[nodiscard]] backends::host::Resources on(int32_t threads) {
        auto& pool = pools_[threads];
        if (pool == nullptr) {
            pool = std::make_unique<backends::host::ThreadPool>(threads);
        }
        return {scratch_, *pool};
    }
    [[nodiscard]] CheckedMemory& memory() { return memory_; }

  private:
    CheckedMemory memory_;
    backends::host::ScratchPool scratch_{memory_.table()};
    std::map<int32_t, std::unique_ptr<backends::host::ThreadPool>> pools_;
};

struct Log {
    static void write(int32_t level, const char* message, void* payload) {
        static_cast<Log*>(payload)->lines.emplace_back(level, message);
    }
    std::vector<std::pair<int32_t, std::string>> lines;
};

class OpenHost {
  public:
    explicit OpenHost(int32_t threads, bool bind = false) {
        config_.memory = memory_.table();
        config_.log = {Log::write, &log_};
        config_.num_threads = threads;
        config_.bind_threads = bind;
        Device* device = nullptr;
        check(backends::host::backend()->open(config_, &device));
        device_.reset(static_cast<backends::host::HostDevice*>(device));
    }

    [[nodiscard]] backends::host::HostDevice& device() const { return *device_; }
    [[nodiscard]] CheckedMemory& memory() { return memory_; }
    [[nodiscard]] const Log& log() const { return log_; }
    [[nodiscard]] Queue& queue() { return queue_; }

  private:
    CheckedMemory memory_; // before the device, which gives memory back while it ends
    Log log_;
    DeviceConfig config_;
    backends::host::HostQueue queue_;
    std::unique_ptr<backends::host::HostDevice> device_;
};

} // namespace mp::test
