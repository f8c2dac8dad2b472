// SPDX-License-Identifier: Apache-2.0
// The services of every backend's device: memory, queues, copies, its description of itself.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "harness.hpp"

namespace mp::test {
namespace {

class DeviceServices : public BackendTest {};

TEST_P(DeviceServices, AllocatesAlignedMemoryAndGivesItBack) {
    const int64_t before = device().outstanding();
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (const std::size_t bytes : {1U, 63U, 64U, 65U, 4097U, 1000003U}) {
        void* pointer = nullptr;
        ASSERT_TRUE(device().device().allocate(bytes, &pointer).ok());
        ASSERT_NE(pointer, nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 64, 0U);
        blocks.emplace_back(pointer, bytes);
    }
    for (const auto& [pointer, bytes] : blocks) {
        device().device().release(pointer, bytes);
    }
    EXPECT_EQ(device().outstanding(), before);
}

TEST_P(DeviceServices, SaysWhenThereIsNoMemory) {
    void* pointer = nullptr;
    const Status status = device().device().allocate(std::size_t{1} << 60, &pointer);
    EXPECT_EQ(status.code(), Code::out_of_memory);
    EXPECT_STRNE(status.text(), "");
    EXPECT_EQ(pointer, nullptr);
}

TEST_P(DeviceServices, CopiesAndZeroes) {
    std::vector<int64_t> counts(std::begin(kSizes), std::end(kSizes));
    counts.push_back((int64_t{4} << 20) + 77); // the host copies it around its caches
    for (const int64_t count : counts) {
        const HostArray array = make_array(DType::fp8_e4m3, count, Content::patterns, 1);
        DeviceArray source(device(), array, 3);
        DeviceArray destination(device(), HostArray(DType::fp8_e4m3, count), 5);
        ASSERT_TRUE(device()
                        .device()
                        .copy(device().queue(), destination.data(), source.data(),
                              array.bytes.size(), CopyKind::device_to_device)
                        .ok());
        EXPECT_TRUE(same_bits(array, destination.download(), NanRule::same_bits)) << count;
        ASSERT_TRUE(
            device().device().zero(device().queue(), source.data(), array.bytes.size()).ok());
        EXPECT_TRUE(
            same_bits(HostArray(DType::fp8_e4m3, count), source.download(), NanRule::same_bits))
            << count;
    }
}

TEST_P(DeviceServices, LetsTheSourceOfAnUploadBeReused) {
    HostArray array = make_array(DType::fp32, 65537, Content::normal, 2);
    const HostArray copy = array;
    DeviceArray uploaded(device(), HostArray(DType::fp32, array.count));
    ASSERT_TRUE(device()
                    .device()
                    .copy(device().queue(), uploaded.data(), array.bytes.data(), array.bytes.size(),
                          CopyKind::host_to_device)
                    .ok());
    std::fill(array.bytes.begin(), array.bytes.end(), static_cast<unsigned char>(0xff));
    EXPECT_TRUE(same_bits(copy, uploaded.download(), NanRule::same_bits));
}

TEST_P(DeviceServices, DescribesItself) {
    const nlohmann::json description = nlohmann::json::parse(describe(device().device()));
    EXPECT_EQ(description.at("backend"), GetParam().backend->name);
    EXPECT_EQ(description.at("index"), device().device().index());
    EXPECT_EQ(description.at("threads"), device().device().num_threads());
    EXPECT_FALSE(description.at("instruction_set").get<std::string>().empty());
    EXPECT_EQ(description.at("candidates").size(), static_cast<std::size_t>(kOpKindCount));
}

TEST_P(DeviceServices, WorksWithTheThreadsAskedFor) {
    if (GetParam().backend->kind == DeviceKind::host) {
        EXPECT_EQ(device().device().num_threads(), GetParam().threads);
    }
    EXPECT_EQ(device().device().kind(), GetParam().backend->kind);
    EXPECT_EQ(device().device().index(), 0);
}

TEST_P(DeviceServices, RefusesADeviceThatIsNotThere) {
    DeviceConfig config;
    CountingMemory memory;
    config.memory = {CountingMemory::allocate, CountingMemory::release, &memory};
    config.log = {ignore_log, nullptr};
    config.device_index = 1000;
    Device* opened = nullptr;
    const Status status = GetParam().backend->open(config, &opened);
    EXPECT_EQ(status.code(), Code::device_unavailable);
    EXPECT_EQ(opened, nullptr);
}

TEST_P(DeviceServices, HasACandidateForEveryOperation) {
    for (int32_t kind = 0; kind < kOpKindCount; ++kind) {
        const CandidateList list = device().device().candidates(static_cast<OpKind>(kind));
        ASSERT_GT(list.count, 0) << kind;
        for (int32_t i = 0; i < list.count; ++i) {
            EXPECT_NE(list.items[i].name, nullptr);
            EXPECT_NE(list.items[i].supports, nullptr);
            const bool is_planned = static_cast<OpKind>(kind) == OpKind::gemm;
            EXPECT_EQ(list.items[i].run == nullptr, is_planned);
            EXPECT_EQ(list.items[i].prepare != nullptr, is_planned);
            EXPECT_EQ(list.items[i].run_plan != nullptr, is_planned);
        }
    }
}

MP_ALL_BACKENDS(DeviceServices);

} // namespace
} // namespace mp::test
