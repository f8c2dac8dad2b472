// SPDX-License-Identifier: Apache-2.0
#include "array.hpp"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <vector>

#include "report.hpp"

namespace mp_bench {

constexpr std::size_t kPage = std::size_t{2} << 20;

Array::Array(std::size_t bytes) : bytes_(bytes) { allocate_on_host(); }

Array::Array(mp_context* context, std::size_t bytes) : bytes_(bytes) {
    if (is_on_host(context)) {
        allocate_on_host();
        return;
    }
    tensor_ = make_tensor(context, MP_DTYPE_UINT8, {static_cast<int64_t>(bytes)});
    void* data = nullptr;
    check(mp_tensor_get_data(tensor_, &data));
    data_ = static_cast<char*>(data);
}

void Array::allocate_on_host() {
    const std::size_t bytes = (bytes_ + kPage - 1) / kPage * kPage;
    data_ = static_cast<char*>(std::aligned_alloc(kPage, bytes));
    if (data_ == nullptr) {
        throw std::bad_alloc();
    }
    (void)madvise(data_, bytes, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static)
    for (std::size_t page = 0; page < bytes; page += kPage) {
        std::memset(data_ + page, 0, kPage);
    }
}

Array::~Array() {
    if (tensor_ == nullptr) {
        std::free(data_);
    }
    mp_tensor_destroy(tensor_);
}

void Array::fill(const std::function<void(char*)>& write) const {
    if (tensor_ == nullptr) {
        write(data_);
        return;
    }
    std::vector<char> values(bytes_);
    write(values.data());
    check(mp_tensor_write(tensor_, nullptr, values.data(), bytes_));
}

void fill_numbers(float* values, std::size_t count) {
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 2001u) - 1000) * 0.0101F;
    }
}

} // namespace mp_bench
