// SPDX-License-Identifier: Apache-2.0
// DLPack in and out: ownership, layouts that are and are not row-major, versions. tests/bindings exchanges
// tensors with numpy.
#include <cmath>
#include <string>
#include <utility>

#include "../../capi/src/dlpack_layout.hpp"
#include "support.hpp"

using namespace mp_test;
namespace dlpack = mp::capi::dlpack;

namespace {

// DLPack's numbers (DLDeviceType).
constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;
constexpr int32_t kCudaHost = 3;
constexpr int32_t kRocm = 10;
constexpr int32_t kRocmHost = 11;
constexpr int32_t kCudaManaged = 13;

DLManagedTensorVersioned* as_public(dlpack::ManagedTensorVersioned* managed) {
    return reinterpret_cast<DLManagedTensorVersioned*>(managed);
}

// A producer that counts how often it was released.
struct Producer {
    float memory[24] = {};
    int64_t shape[3] = {2, 3, 4};
    int64_t strides[3] = {12, 4, 1};
    int released = 0;
    dlpack::ManagedTensorVersioned managed{};

    Producer() {
        for (int i = 0; i < 24; ++i) {
            memory[i] = static_cast<float>(i);
        }
        managed.version = {1, 0};
        managed.manager_context = this;
        managed.deleter = [](dlpack::ManagedTensorVersioned* self) {
            ++static_cast<Producer*>(self->manager_context)->released;
        };
        managed.tensor = {memory, {kCpu, 0}, 3, {2, 32, 1}, shape, strides, 0};
    }
};

} // namespace

TEST(Dlpack, ImportSharesMemoryAndReleasesOnce) {
    const Context context = make_context(1);
    Producer producer;
    mp_tensor* tensor = nullptr;
    MP_OK(mp_dlpack_import(context, as_public(&producer.managed), &tensor));
    void* data = nullptr;
    MP_OK(mp_tensor_get_data(tensor, &data));
    EXPECT_EQ(data, producer.memory);
    EXPECT_EQ(values_of(context, tensor)[23], 23.0F);
    EXPECT_EQ(producer.released, 0);
    mp_tensor_destroy(tensor);
    EXPECT_EQ(producer.released, 1);
}

TEST(Dlpack, ImportUnderstandsOffsetsMissingStridesAndUnitDimensions) {
    const Context context = make_context(1);
    Producer producer;
    producer.managed.tensor.strides = nullptr;
    producer.managed.tensor.ndim = 1;
    producer.shape[0] = 4;
    producer.managed.tensor.byte_offset = 8 * sizeof(float);
    mp_tensor* raw = nullptr;
    MP_OK(mp_dlpack_import(context, as_public(&producer.managed), &raw));
    const Tensor tensor(raw);
    EXPECT_EQ(values_of(context, tensor), (std::vector<float>{8, 9, 10, 11}));

    Producer unit;
    unit.shape[0] = 1;
    unit.strides[0] = 12345;
    MP_OK(mp_dlpack_import(context, as_public(&unit.managed), &raw));
    mp_tensor_destroy(raw);
    EXPECT_EQ(unit.released, 1);
}

TEST(Dlpack, PinnedHostMemoryIsTheHosts) {
    const Context context = make_context(1);
    for (const int32_t type : {kCudaHost, kRocmHost}) {
        Producer producer;
        producer.managed.tensor.device = {type, 0};
        mp_tensor* raw = nullptr;
        MP_OK(mp_dlpack_import(context, as_public(&producer.managed), &raw));
        const Tensor tensor(raw);
        DLManagedTensorVersioned* exported = nullptr;
        MP_OK(mp_dlpack_export(tensor, &exported));
        auto* managed = reinterpret_cast<dlpack::ManagedTensorVersioned*>(exported);
        EXPECT_EQ(managed->tensor.device.device_type, kCpu);
        EXPECT_EQ(managed->tensor.device.device_id, 0);
        managed->deleter(managed);
    }
}

TEST(Dlpack, RefusedTensorsAreReleasedAtOnce) {
    const Context context = make_context(1);
    const auto refuse = [&](auto change, mp_status status, const char* word) {
        Producer producer;
        change(producer);
        mp_tensor* tensor = nullptr;
        MP_FAILS(mp_dlpack_import(context, as_public(&producer.managed), &tensor), status, word);
        EXPECT_EQ(producer.released, 1) << word;
        EXPECT_EQ(tensor, nullptr);
    };
    refuse([](Producer& p) { p.managed.version.major = 2; }, MP_STATUS_VERSION_MISMATCH, "2.0");
    refuse([](Producer& p) { p.managed.flags = dlpack::kReadOnly; }, MP_STATUS_UNSUPPORTED,
           "read-only");
    refuse([](Producer& p) { p.strides[1] = 5; }, MP_STATUS_INVALID_SHAPE, "contiguous");
    // Backwards, the same element again and again, rows over each other.
    refuse([](Producer& p) { p.strides[2] = -1; }, MP_STATUS_INVALID_SHAPE,
           "stride of dimension 2");
    refuse([](Producer& p) { p.strides[0] = 0; }, MP_STATUS_INVALID_SHAPE, "stride of dimension 0");
    refuse([](Producer& p) { p.strides[0] = 11; }, MP_STATUS_INVALID_SHAPE, "contiguous");
    refuse([](Producer& p) { p.strides[1] = INT64_MIN; }, MP_STATUS_INVALID_SHAPE, "contiguous");
    refuse([](Producer& p) { p.shape[0] = p.shape[1] = p.shape[2] = INT64_MAX; },
           MP_STATUS_INVALID_SHAPE, "shape");
    refuse([](Producer& p) { p.managed.tensor.byte_offset = UINT64_MAX - 3; },
           MP_STATUS_INVALID_ARGUMENT, "beyond the end of memory");
    refuse([](Producer& p) { p.managed.tensor.ndim = -1; }, MP_STATUS_INVALID_SHAPE, "ndim");
    refuse([](Producer& p) { p.managed.tensor.device.device_type = -5; }, MP_STATUS_UNSUPPORTED,
           "device type -5");
    refuse([](Producer& p) { p.managed.tensor.ndim = 99; }, MP_STATUS_INVALID_SHAPE, "ndim");
    refuse([](Producer& p) { p.shape[0] = -2; }, MP_STATUS_INVALID_SHAPE, "shape[0]");
    refuse([](Producer& p) { p.managed.tensor.dtype = {2, 64, 1}; }, MP_STATUS_INVALID_DTYPE, "64");
    refuse([](Producer& p) { p.managed.tensor.dtype.lanes = 4; }, MP_STATUS_INVALID_DTYPE, "lanes");
    refuse([](Producer& p) { p.managed.tensor.device.device_type = 7; }, MP_STATUS_UNSUPPORTED,
           "device type 7 is none of host (1), cuda (2), hip (10)");
    refuse([](Producer& p) { p.managed.tensor.device.device_type = 0; }, MP_STATUS_UNSUPPORTED,
           "device type 0");
    for (const auto& [type, name] :
         {std::pair(kCuda, "CUDA"), std::pair(kCudaManaged, "CUDA"), std::pair(kRocm, "HIP")}) {
        refuse(
            [device = type](Producer& p) {
                p.managed.tensor.device = {device, 3};
            },
            MP_STATUS_INVALID_ARGUMENT, (std::string(name) + " device 3 is not open").c_str());
    }
    refuse([](Producer& p) { p.managed.tensor.data = nullptr; }, MP_STATUS_NULL_ARGUMENT, "data");
    refuse([](Producer& p) { p.managed.tensor.shape = nullptr; }, MP_STATUS_NULL_ARGUMENT, "shape");
    refuse([](Producer& p) { p.managed.tensor.byte_offset = 1; }, MP_STATUS_INVALID_ARGUMENT,
           "aligned");
    refuse(
        [](Producer& p) {
            p.managed.tensor.dtype = {17, 4, 1};
        },
        MP_STATUS_UNSUPPORTED, "fp4_e2m1");
    Producer producer;
    mp_tensor* tensor = nullptr;
    MP_FAILS(mp_dlpack_import(nullptr, as_public(&producer.managed), &tensor),
             MP_STATUS_NULL_ARGUMENT, "context");
    EXPECT_EQ(producer.released, 1);
}

TEST(Dlpack, ExportKeepsTheMemoryAliveAndComesBack) {
    Context context = make_context(1);
    for (const int32_t dtype :
         {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2,
          MP_DTYPE_E8M0, MP_DTYPE_INT8, MP_DTYPE_INT64, MP_DTYPE_UINT8}) {
        Tensor tensor = make_tensor(context, dtype, {5, 2});
        DLManagedTensorVersioned* raw = nullptr;
        MP_OK(mp_dlpack_export(tensor, &raw));
        tensor = Tensor();
        auto* managed = reinterpret_cast<dlpack::ManagedTensorVersioned*>(raw);
        EXPECT_EQ(managed->version.major, 1U);
        EXPECT_EQ(managed->tensor.strides[0], 2);
        EXPECT_EQ(managed->tensor.dtype.bits, mp_dtype_size(dtype) * 8);
        mp_tensor* back = nullptr;
        MP_OK(mp_dlpack_import(context, raw, &back)); // takes the export over
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_OK(mp_tensor_get_desc(back, &desc));
        EXPECT_EQ(desc.dtype, dtype);
        EXPECT_EQ(desc.shape[0], 5);
        EXPECT_EQ(bytes_of(back), std::vector<unsigned char>(10 * mp_dtype_size(dtype)));
        mp_tensor_destroy(back);
    }
}
