// SPDX-License-Identifier: Apache-2.0
// The kind "hip" through the C ABI, as a program meets it: opened by its number from its module, on the runtime of the tests.
#include <array>
#include <cstdlib>
#include <string>

#include "../../capi/src/dlpack_layout.hpp"
#include "../capi/support.hpp"

using namespace mp_test;
namespace dlpack = mp::capi::dlpack;

namespace {

constexpr int32_t kRocm = 10; // DLPack's number

Context open_hip() {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = MP_DEVICE_HIP;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

TEST(HipLibrary, WithoutADeviceIsRefusedAndSaysWhatToDo) {
    (void)setenv("MP_FAKE_HIP_DEVICES", "0", 1);
    MP_FAILS(mp_device_available(MP_DEVICE_HIP, 0), MP_STATUS_DEVICE_UNAVAILABLE,
             "hip: ", "/dev/kfd", "use the host device");
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = MP_DEVICE_HIP;
    mp_context* context = nullptr;
    MP_FAILS(mp_context_create(&desc, &context), MP_STATUS_DEVICE_UNAVAILABLE, "/dev/kfd");
    EXPECT_EQ(context, nullptr);
    (void)unsetenv("MP_FAKE_HIP_DEVICES");
}

TEST(HipLibrary, IsOpenedByItsNumberAndCopies) {
    MP_OK(mp_device_available(MP_DEVICE_HIP, 1));
    int32_t count = 0;
    MP_OK(mp_device_get_count(MP_DEVICE_HIP, &count));
    EXPECT_EQ(count, 2);
    char name[32] = "";
    MP_OK(mp_device_get_name(MP_DEVICE_HIP, 1, name, sizeof name, nullptr));
    EXPECT_STREQ(name, "A \"fake\" device");
    const Context context = open_hip();
    mp_queue* raw_queue = nullptr;
    MP_OK(mp_queue_create(context, &raw_queue));
    const Queue queue(raw_queue);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {3});
    const std::array<float, 3> sent = {1, 2, 3};
    std::array<float, 3> received = {};
    MP_OK(mp_tensor_write(tensor, queue, sent.data(), sizeof sent));
    MP_OK(mp_tensor_read(tensor, queue, received.data(), sizeof received));
    EXPECT_EQ(received, sent);
    mp_event* raw_event = nullptr;
    MP_OK(mp_event_create(context, &raw_event));
    const Event event(raw_event);
    MP_OK(mp_event_record(event, queue));
    MP_OK(mp_queue_wait_event(queue, event));
    MP_OK(mp_event_sync(event));
    MP_OK(mp_event_test(event));

    DLManagedTensorVersioned* exported = nullptr;
    MP_OK(mp_dlpack_export(tensor, &exported));
    EXPECT_EQ(
        reinterpret_cast<dlpack::ManagedTensorVersioned*>(exported)->tensor.device.device_type,
        kRocm);
    mp_tensor* back = nullptr;
    MP_OK(mp_dlpack_import(context, exported, &back));
    void* data = nullptr;
    void* data_back = nullptr;
    MP_OK(mp_tensor_get_data(tensor, &data));
    MP_OK(mp_tensor_get_data(back, &data_back));
    EXPECT_EQ(data_back, data);
    mp_tensor_destroy(back);
}

// What it lacks is said, not left out.
TEST(HipLibrary, HasNoTransport) {
    const Context context = open_hip();
    const std::array<unsigned char, MP_COMM_UNIQUE_ID_BYTES> id = {};
    mp_comm* comm = nullptr;
    MP_FAILS(mp_comm_create_nccl(context, nullptr, id.data(), 0, 1, &comm),
             MP_STATUS_INVALID_ARGUMENT, "its device is hip", "MP_DEVICE_CUDA");
    EXPECT_EQ(comm, nullptr);
}

} // namespace
