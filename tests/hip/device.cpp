// SPDX-License-Identifier: Apache-2.0
// The module's host code on a runtime of the tests, whose kernels do nothing: services, refusals, and that each operation
// launches its kernel on the queue's stream. What kernels compute is tested on other Kokkos spaces.
#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "device/backend.hpp"

namespace mp {
namespace {

class Description final : public Properties {
  public:
    void text(const char* name, const char* value) noexcept override { texts[name] = value; }
    void number(const char* /*name*/, int64_t /*value*/) noexcept override {}
    void flag(const char* /*name*/, bool /*value*/) noexcept override {}
    std::map<std::string, std::string> texts;
};

// An environment variable for a scope.
class Setting {
  public:
    Setting(const char* name, const char* value) : name_(name) { (void)setenv(name, value, 1); }
    ~Setting() { (void)unsetenv(name_); }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

  private:
    const char* name_;
};

const Backend& module_backend() {
    void* module = dlopen(std::getenv("MP_HIP_MODULE"), RTLD_NOW | RTLD_LOCAL);
    const auto entry = reinterpret_cast<ModuleEntry>(dlsym(module, kModuleEntryName));
    return *entry(kInterfaceVersion);
}

template <class Function> Function* of_runtime(const char* name) {
    void* runtime = dlopen(std::getenv("MIXEDPREC_HIP_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    return runtime != nullptr ? reinterpret_cast<Function*>(dlsym(runtime, name)) : nullptr;
}

class HipDevice : public ::testing::Test {
  protected:
    void SetUp() override {
        Device* device = nullptr;
        check(module_backend().open(DeviceConfig(), &device));
        device_.reset(device);
        Queue* queue = nullptr;
        check(device_->create_queue(nullptr, &queue));
        queue_.reset(queue);
    }

    // A cast of a few elements by the only candidate.
    Status run_cast() {
        CastDesc op{};
        op.kind = OpKind::cast;
        op.source = {values_.data(), 4, DType::fp32};
        op.destination = {result_.data(), 4, DType::fp32};
        const CandidateList list = device_->candidates(OpKind::cast);
        EXPECT_EQ(list.count, 1);
        Reason reason;
        EXPECT_TRUE(list.items[0].supports(*device_, op, reason)) << reason.c_str();
        return list.items[0].run(*device_, *queue_, op);
    }

    std::unique_ptr<Device> device_;
    std::unique_ptr<Queue> queue_;
    std::array<float, 4> values_ = {1, 2, 3, 4};
    std::array<float, 4> result_ = {};
};

TEST_F(HipDevice, SaysWhatItIs) {
    EXPECT_EQ(device_->kind(), DeviceKind::hip);
    EXPECT_FALSE(device_->is_host());
    EXPECT_FALSE(device_->capability().has_fast_bf16);
    EXPECT_STREQ(device_->capability().name, "gfx90a:sramecc+:xnack-");
    Description description;
    device_->describe(description);
    EXPECT_EQ(description.texts["name"], "A \"fake\" device");
    EXPECT_EQ(description.texts["built_for"], "gfx90a");
    DeviceSummary summary;
    ASSERT_TRUE(module_backend().summarize(0, &summary).ok());
    EXPECT_STREQ(summary.name, "A \"fake\" device");
}

TEST_F(HipDevice, AllocatesCopiesAndZeroes) {
    void* a = nullptr;
    void* b = nullptr;
    ASSERT_TRUE(device_->allocate(16, &a).ok());
    ASSERT_TRUE(device_->allocate(16, &b).ok());
    ASSERT_TRUE(device_->copy(*queue_, a, values_.data(), 16, CopyKind::host_to_device).ok());
    ASSERT_TRUE(device_->copy(*queue_, b, a, 16, CopyKind::device_to_device).ok());
    ASSERT_TRUE(device_->zero(*queue_, a, 8).ok());
    ASSERT_TRUE(device_->copy(*queue_, result_.data(), b, 16, CopyKind::device_to_host).ok());
    ASSERT_TRUE(queue_->sync().ok());
    EXPECT_EQ(result_, values_);
    ASSERT_TRUE(device_->copy(*queue_, result_.data(), a, 16, CopyKind::device_to_host).ok());
    EXPECT_EQ(result_, (std::array<float, 4>{0, 0, 3, 4}));
    device_->release(a, 16);
    device_->release(b, 16);
    const Status status = device_->allocate(std::size_t{1} << 60, &a);
    EXPECT_EQ(status.code(), Code::out_of_memory) << status.text();
    EXPECT_EQ(a, nullptr);
}

TEST_F(HipDevice, WrapsTheCallersStream) {
    int stream = 0;
    Queue* queue = nullptr;
    ASSERT_TRUE(device_->create_queue(&stream, &queue).ok());
    EXPECT_EQ(queue->native(), &stream);
    delete queue; // and not the stream
}

TEST_F(HipDevice, LaunchesTheKernelOfAnOperationOnTheQueuesStream) {
    ASSERT_TRUE(run_cast().ok());
    EXPECT_NE(std::strstr(of_runtime<const char*()>("mp_fake_last_kernel")(), "CastElements"),
              nullptr)
        << of_runtime<const char*()>("mp_fake_last_kernel")();
    EXPECT_EQ(of_runtime<void*()>("mp_fake_last_stream")(), queue_->native());
    EXPECT_GE(of_runtime<int()>("mp_fake_kernel_count")(), 20);
}

TEST_F(HipDevice, ReportsALaunchThatFailed) {
    ASSERT_TRUE(run_cast().ok()); // Kokkos has started
    const Setting error("MP_FAKE_HIP_LAUNCH_ERROR", "719");
    const Status status = run_cast();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(std::strstr(status.text(), "hipErrorFake"), nullptr) << status.text();
}

TEST_F(HipDevice, ReportsWorkThatFailed) {
    const Setting error("MP_FAKE_HIP_STREAM_ERROR", "719");
    const Status synced = queue_->sync();
    EXPECT_EQ(synced.code(), Code::device_error) << synced.text();
    EXPECT_EQ(run_cast().code(), Code::device_error);
}

TEST_F(HipDevice, RefusesACapturedStream) {
    const Setting capture("MP_FAKE_HIP_CAPTURING", "1");
    EXPECT_EQ(run_cast().code(), Code::unsupported);
    EXPECT_EQ(device_->zero(*queue_, result_.data(), 4).code(), Code::unsupported);
    const Status copied =
        device_->copy(*queue_, result_.data(), values_.data(), 4, CopyKind::host_to_device);
    EXPECT_EQ(copied.code(), Code::unsupported);
    EXPECT_NE(std::strstr(copied.text(), "end the capture"), nullptr) << copied.text();
}

// Kokkos would run on the first one.
TEST_F(HipDevice, RefusesASecondDeviceInAProcessWithAnOldRuntime) {
    DeviceConfig config;
    config.device_index = 1;
    Device* device = nullptr;
    const Status status = module_backend().open(config, &device);
#if MP_HIP_BEFORE_5_6
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(std::strstr(status.text(), "has opened device 0"), nullptr) << status.text();
#else
    EXPECT_TRUE(status.ok()) << status.text();
#endif
    delete device;
}

TEST(HipShutdown, EndsKokkosForGood) {
    Device* device = nullptr;
    check(module_backend().open(DeviceConfig(), &device));
    const std::unique_ptr<Device> owned(device);
    module_backend().shutdown();
    Queue* queue = nullptr;
    check(device->create_queue(nullptr, &queue));
    const std::unique_ptr<Queue> owned_queue(queue);
    float value = 1;
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = {&value, 1, DType::fp32};
    op.destination = {&value, 1, DType::fp32};
    const Status status = device->candidates(OpKind::cast).items[0].run(*device, *queue, op);
    EXPECT_EQ(status.code(), Code::bad_state) << status.text();
}

} // namespace
} // namespace mp
