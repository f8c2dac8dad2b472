// SPDX-License-Identifier: Apache-2.0
// LentMemory: memory of the caller's in which gathered weights and gradients lie while they are in use. Several may name the
// same bytes; one of them has these at a time.
#pragma once

#include <cstdint>

#include "tensor/disjoint_arrays.hpp"
#include "tensor/tensor.hpp"

namespace mp::shard {

// A gradient in memory that it names alone is there always, as the caller adds to it when he likes; it is zeros between its
// uses.
inline bool stays(const Tensor& gradient) noexcept {
    return gradient.is_lent() && !gradient.is_placed();
}

// Throws bad_state for one that is ready without memory: what was added to it would be lost.
void check_acquired(const Tensor& gradient, int32_t parameter);

class LentMemory {
  public:
    struct Owner {
        const char* what; // "weight", "gradient"
        int32_t parameter;
    };

    // Of one that is there always: nobody else gets its memory.
    void keep(const Tensor& tensor, Owner owner);
    // As Tensor::restore_memory(); throws bad_state where somebody else has some of it now.
    void restore(Stream& stream, Tensor& tensor, Owner owner);
    // As Tensor::drop_memory().
    void drop(Stream& stream, Tensor& tensor);

  private:
    void forget(const Tensor& tensor) noexcept;

    DisjointArrays<Owner> in_use_;
};

} // namespace mp::shard
