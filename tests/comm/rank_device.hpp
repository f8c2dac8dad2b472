// SPDX-License-Identifier: Apache-2.0
// A host device with a stream for each rank of a test, and arrays to reduce.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/reduce.hpp"
#include "enabled.hpp"
#include "numerics/codec.hpp"
#include "numerics/philox.hpp"

namespace mp::test {

inline DeviceConfig host_config(int32_t threads) {
    DeviceConfig config;
    config.memory = {
        [](std::size_t size, std::size_t alignment, void*) {
            return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        },
        [](void* pointer, std::size_t, std::size_t, void*) { std::free(pointer); }, nullptr};
    config.log = {[](int32_t, const char*, void*) {}, nullptr};
    config.num_threads = threads;
    return config;
}

// "host" or "reference".
inline std::shared_ptr<Stream> make_stream(int32_t threads = 1, const std::string& name = "host") {
    const BackendList list = enabled_backends();
    for (int32_t i = 0; i < list.count; ++i) {
        if (name == list.items[i]->name) {
            Device* device = nullptr;
            check(list.items[i]->open(host_config(threads), &device));
            return std::make_shared<Stream>(std::shared_ptr<Device>(device), nullptr);
        }
    }
    throw std::runtime_error("no backend " + name);
}

// Elements of a type in memory of the test.
struct Values {
    Values() = default;
    Values(DType type, int64_t size)
        : dtype(type), count(size), bytes(static_cast<std::size_t>(bytes_of(type, size))) {}

    [[nodiscard]] float get(int64_t i) const {
        return numerics::load_as_float(dtype, bytes.data(), i);
    }
    void set(int64_t i, float x) { numerics::store_from_float(dtype, bytes.data(), i, x, false); }
    [[nodiscard]] TensorRef ref() { return {bytes.data(), count, dtype}; }
    bool operator==(const Values&) const = default;

    DType dtype = DType::none;
    int64_t count = 0;
    std::vector<unsigned char> bytes;
};

// Gradients of very different size, both signs, by (slot, logical element).
inline float gradient_at(int32_t slot, int64_t i) {
    const uint64_t h =
        numerics::splitmix64((static_cast<uint64_t>(slot) << 40) + static_cast<uint64_t>(i));
    const auto mantissa = static_cast<float>(static_cast<int64_t>(h >> 40) - (int64_t{1} << 23));
    return mantissa * numerics::exp2_int(-23 - static_cast<int32_t>((h >> 35) & 15U));
}

inline Values gradients(DType dtype, int32_t slot, int64_t first, int64_t count) {
    Values values(dtype, count);
    for (int64_t i = 0; i < count; ++i) {
        values.set(i, gradient_at(slot, first + i));
    }
    return values;
}

} // namespace mp::test
