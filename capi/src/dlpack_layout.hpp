// SPDX-License-Identifier: Apache-2.0
// The memory layout of DLPack 1.1 (dmlc/dlpack), which no Debian package ships yet. A test compares it with a
// real producer and consumer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp::capi::dlpack {

inline constexpr uint32_t kMajor = 1;
inline constexpr uint32_t kMinor = 1;
inline constexpr uint64_t kReadOnly = 1;

struct Version {
    uint32_t major;
    uint32_t minor;
};

struct Device {
    int32_t device_type;
    int32_t device_id;
};

struct DataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
};

struct ManagedTensorVersioned {
    Version version;
    void* manager_context;
    void (*deleter)(ManagedTensorVersioned* self);
    uint64_t flags;
    Tensor tensor;
};

static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && sizeof(ManagedTensorVersioned) == 80));
static_assert(sizeof(void*) != 8 || offsetof(ManagedTensorVersioned, tensor) == 32);

} // namespace mp::capi::dlpack
