// SPDX-License-Identifier: Apache-2.0
// What every test of an operation needs: the backends there are, their devices, arrays in their
// memory, and the reference backend to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "context/module_loader.hpp"
#include "device/backend.hpp"
#include "enabled.hpp"
#include "runtime/describe.hpp"
#include "runtime/queue_scratch.hpp"

namespace mp::test {

// ---- backends ----------------------------------------------------------------------------------

// One device to run on, or the reason why there is none.
struct DeviceChoice {
    std::string label;
    const Backend* backend = nullptr;
    int32_t threads = 1;
    std::string missing;
};

inline void PrintTo(const DeviceChoice& choice, std::ostream* out) { *out << choice.label; }

inline const Backend* find_backend(const char* name) {
    const BackendList list = enabled_backends();
    for (int32_t i = 0; i < list.count; ++i) {
        if (std::strcmp(list.items[i]->name, name) == 0) {
            return list.items[i];
        }
    }
    return nullptr;
}

// The backend of the module `name` if it has a device; otherwise null, and why.
inline const Backend* open_module(const char* name, std::string& missing) {
    try {
        const Backend& backend = load_module(name);
        int32_t count = 0;
        check(backend.device_count(&count));
        if (count > 0) {
            return &backend;
        }
    } catch (const Error& error) {
        const std::string reason = error.what();
        missing = " (" + reason.substr(0, reason.find_first_of(":;")) + ")";
    }
    return nullptr;
}

// Every backend built in (the host with 1, 2 and 3 threads), then the modules: the kernels of accelerators in teams of 2 and
// 4 threads (of 1 in "kokkos"), and each kind of accelerator. A module whose device is not there is listed too, so that what
// was not tested is seen.
inline std::vector<DeviceChoice> open_devices() {
    std::vector<DeviceChoice> choices;
    const BackendList list = enabled_backends();
    for (int32_t i = 0; i < list.count; ++i) {
        const Backend* backend = list.items[i];
        if (std::strcmp(backend->name, "host") != 0) {
            choices.push_back({backend->name, backend, 1, ""});
            continue;
        }
        for (int32_t threads = 1; threads <= 3; ++threads) {
            choices.push_back({"host_threads_" + std::to_string(threads), backend, threads, ""});
        }
    }
    std::string missing;
    const Backend* const teams = open_module("kokkos_openmp", missing);
    for (const int32_t threads : {2, 4}) {
        choices.push_back({"kokkos_teams_" + std::to_string(threads), teams, threads,
                           "no Kokkos with OpenMP" + missing});
    }
    for (const DeviceKindRow& row : kDeviceKinds) {
        if (row.kind != DeviceKind::host) {
            DeviceChoice choice{row.name, nullptr, 1, ""};
            choice.backend = open_module(row.name, choice.missing);
            choice.missing = std::string("no ") + row.label + " device" + choice.missing;
            choices.push_back(choice);
        }
    }
    return choices;
}

// Those that are compared with the reference: all but itself.
inline std::vector<DeviceChoice> compared_devices() {
    std::vector<DeviceChoice> choices;
    for (DeviceChoice& choice : open_devices()) {
        if (choice.label != "reference") {
            choices.push_back(std::move(choice));
        }
    }
    return choices;
}

// ---- one device --------------------------------------------------------------------------------

// Counts what is outstanding, so that a leak shows.
struct CountingMemory {
    static void* allocate(std::size_t size, std::size_t alignment, void* payload) {
        void* pointer = nullptr;
        // More than any machine has; a sanitizer would end the test instead of returning null.
        if (size > (std::size_t{1} << 40)) {
            return nullptr;
        }
        if (posix_memalign(&pointer, alignment, size) != 0) {
            return nullptr;
        }
        static_cast<CountingMemory*>(payload)->outstanding += static_cast<int64_t>(size);
        return pointer;
    }
    static void release(void* pointer, std::size_t size, std::size_t /*alignment*/, void* payload) {
        static_cast<CountingMemory*>(payload)->outstanding -= static_cast<int64_t>(size);
        std::free(pointer);
    }
    int64_t outstanding = 0;
};

inline void ignore_log(int32_t /*level*/, const char* /*message*/, void* /*payload*/) {}

// An open device with one queue.
class TestDevice {
  public:
    TestDevice(const Backend& backend, int32_t threads) {
        DeviceConfig config;
        config.memory = {CountingMemory::allocate, CountingMemory::release, &memory_};
        config.log = {ignore_log, nullptr};
        config.num_threads = threads;
        Device* device = nullptr;
        check(backend.open(config, &device));
        device_.reset(device);
        Queue* queue = nullptr;
        check(device_->create_queue(nullptr, &queue));
        queue_.reset(queue);
        scratch_ = std::make_unique<QueueScratch>(device_, *queue_);
    }

    [[nodiscard]] Device& device() const { return *device_; }
    [[nodiscard]] Queue& queue() const { return *queue_; }
    [[nodiscard]] int64_t outstanding() const { return memory_.outstanding; }
    void sync() const { check(queue_->sync()); }

  private:
    CountingMemory memory_; // first, so that the device may give memory back while it ends
    std::shared_ptr<Device> device_;
    std::unique_ptr<QueueScratch> scratch_; // outlives the queue, which waits for work that uses it
    std::unique_ptr<Queue> queue_;
};

inline TestDevice& reference_device() {
    static TestDevice device(*find_backend("reference"), 1);
    return device;
}

// Bytes in a device's memory between two guards that nobody may touch. `offset` bytes past an aligned
// address: arrays need only be aligned to their elements.
class DeviceBytes {
  public:
    DeviceBytes(TestDevice& device, const void* source, std::size_t bytes, std::size_t offset = 0)
        : device_(device), bytes_(bytes), offset_(kGuard + offset),
          image_(offset_ + bytes + kGuard, kGuardByte) {
        check(device.device().allocate(image_.size(), &base_));
        if (bytes != 0) {
            std::memcpy(image_.data() + offset_, source, bytes);
        }
        check(device.device().copy(device.queue(), base_, image_.data(), image_.size(),
                                   CopyKind::host_to_device));
    }
    ~DeviceBytes() { device_.device().release(base_, image_.size()); }
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;

    [[nodiscard]] void* data() const { return static_cast<unsigned char*>(base_) + offset_; }
    template <typename T> [[nodiscard]] T* as() const { return static_cast<T*>(data()); }

    // Waits for the queue. Fails the test if something was written outside.
    void download(void* destination) {
        check(device_.device().copy(device_.queue(), image_.data(), base_, image_.size(),
                                    CopyKind::device_to_host));
        device_.sync();
        bool untouched = true;
        for (std::size_t i = 0; i < image_.size(); ++i) {
            const bool inside = i >= offset_ && i < offset_ + bytes_;
            untouched = untouched && (inside || image_[i] == kGuardByte);
        }
        EXPECT_TRUE(untouched) << "memory beside an array was written";
        if (bytes_ != 0) {
            std::memcpy(destination, image_.data() + offset_, bytes_);
        }
    }

  private:
    static constexpr std::size_t kGuard = 64;
    static constexpr unsigned char kGuardByte = 0xa5;

    TestDevice& device_;
    std::size_t bytes_;
    std::size_t offset_;
    std::vector<unsigned char> image_;
    void* base_ = nullptr;
};

// An array in a device's memory, `offset` elements past an aligned address.
class DeviceArray {
  public:
    DeviceArray(TestDevice& device, const HostArray& array, int64_t offset = 0)
        : bytes_(device, array.bytes.data(), array.bytes.size(),
                 static_cast<std::size_t>(offset * dtype_size(array.dtype))),
          dtype_(array.dtype), count_(array.count) {}

    [[nodiscard]] void* data() const { return bytes_.data(); }
    [[nodiscard]] TensorRef ref() const { return {bytes_.data(), count_, dtype_}; }
    [[nodiscard]] HostArray download() {
        HostArray array(dtype_, count_);
        bytes_.download(array.bytes.data());
        return array;
    }

  private:
    DeviceBytes bytes_;
    DType dtype_;
    int64_t count_;
};

// One plain struct in a device's memory.
template <typename T> class DeviceValue {
  public:
    DeviceValue(TestDevice& device, const T& value) : bytes_(device, &value, sizeof value) {}
    [[nodiscard]] T* data() const { return bytes_.as<T>(); }
    [[nodiscard]] T download() {
        T value;
        bytes_.download(&value);
        return value;
    }

  private:
    DeviceBytes bytes_;
};

// ---- tests -------------------------------------------------------------------------------------

class BackendTest : public ::testing::TestWithParam<DeviceChoice> {
  protected:
    // Teams of threads that wait for each other, perhaps on fewer cores than there are of them.
    [[nodiscard]] static bool has_teams_of(int32_t threads) {
        return GetParam().label == "kokkos_teams_" + std::to_string(threads);
    }
    static constexpr const char* kManyTeams = "so many teams of this size take minutes here";
    void SetUp() override {
        if (GetParam().backend == nullptr) {
            GTEST_SKIP() << "skipped: " << GetParam().missing;
        }
        device_ = std::make_unique<TestDevice>(*GetParam().backend, GetParam().threads);
    }
    [[nodiscard]] TestDevice& device() const { return *device_; }

  private:
    std::unique_ptr<TestDevice> device_;
};

inline std::string device_label(const ::testing::TestParamInfo<DeviceChoice>& info) {
    return info.param.label;
}

// Every backend but the reference, which they are compared with.
#define MP_COMPARE_BACKENDS(fixture)                                                               \
    INSTANTIATE_TEST_SUITE_P(Backends, fixture, ::testing::ValuesIn(compared_devices()),           \
                             device_label)
// Every backend, the reference too: for tests that know the values.
#define MP_ALL_BACKENDS(fixture)                                                                   \
    INSTANTIATE_TEST_SUITE_P(Backends, fixture, ::testing::ValuesIn(open_devices()), device_label)

inline void run(TestDevice& on, const Candidate& candidate, const OpDesc& op) {
    check(candidate.run(on.device(), on.queue(), op));
}

// The reference's only candidate of a kind.
inline const Candidate& reference_candidate(OpKind kind) {
    return reference_device().device().candidates(kind).items[0];
}

// Calls `visit` with every candidate; it says whether the candidate supports its case. Returns how
// many did. A candidate that does not must give a reason.
inline int32_t for_each_candidate(TestDevice& on, OpKind kind,
                                  const std::function<bool(const Candidate&)>& visit) {
    const CandidateList list = on.device().candidates(kind);
    int32_t supporting = 0;
    for (int32_t i = 0; i < list.count; ++i) {
        SCOPED_TRACE(std::string("candidate ") + list.items[i].name);
        supporting += visit(list.items[i]) ? 1 : 0;
    }
    return supporting;
}

inline bool supports(TestDevice& on, const Candidate& candidate, const OpDesc& op) {
    Reason reason;
    const bool is_supported = candidate.supports(on.device(), op, reason);
    EXPECT_TRUE(is_supported || !reason.empty()) << "refused without a reason";
    return is_supported;
}

// The first candidate that supports the operation, as core chooses; null if none does.
inline const Candidate* first_candidate(TestDevice& on, const OpDesc& op) {
    const CandidateList list = on.device().candidates(op.kind);
    for (int32_t i = 0; i < list.count; ++i) {
        if (supports(on, list.items[i], op)) {
            return &list.items[i];
        }
    }
    return nullptr;
}

} // namespace mp::test
