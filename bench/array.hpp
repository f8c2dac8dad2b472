// SPDX-License-Identifier: Apache-2.0
// Memory that cases work on.
#pragma once

#include <cstddef>
#include <functional>

#include "mixedprec.h"

namespace mp_bench {

// On the host in 2 MiB pages where the system gives them, touched by the threads that will use it. All zero bytes at first.
class Array {
  public:
    explicit Array(std::size_t bytes);             // on the host
    Array(mp_context* context, std::size_t bytes); // on the context's device
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array();
    [[nodiscard]] char* data() const { return data_; }
    // write puts values into memory of the host, which then are the array's.
    void fill(const std::function<void(char*)>& write) const;

  private:
    void allocate_on_host();

    std::size_t bytes_;
    char* data_ = nullptr;
    mp_tensor* tensor_ = nullptr; // that owns the memory, where it is not the host's
};

// Ordinary numbers of both signs over several binades, so that no format meets only zeros.
void fill_numbers(float* values, std::size_t count);

} // namespace mp_bench
