// SPDX-License-Identifier: Apache-2.0
#include "shard/lent_memory.hpp"

#include "status/status.hpp"

namespace mp::shard {
namespace {

// What comes and goes of a tensor: its elements, and the scales that belong to some of them.
template <typename Body> void for_each_part(const Tensor& tensor, const Body& body) {
    body(tensor);
    if (has_blocks(tensor.format().grid)) {
        body(*tensor.scales()->scale_inv);
    }
}

} // namespace

void LentMemory::keep(const Tensor& tensor, Owner owner) {
    for_each_part(tensor, [&](const Tensor& part) {
        if (const Owner* const other = in_use_.find(part.place(), part.bytes()); other != nullptr) {
            fail(Code::bad_state,
                 "optimizer: the %s of parameter %d is to lie in memory that the %s of parameter "
                 "%d has now; that must be given back first (a weight by mp_optimizer_gather_free, "
                 "a gradient by leaving with its bucket), or one of them needs other memory",
                 owner.what, owner.parameter, other->what, other->parameter);
        }
    });
    for_each_part(tensor,
                  [&](const Tensor& part) { in_use_.add(part.place(), part.bytes(), owner); });
}

void LentMemory::restore(Stream& stream, Tensor& tensor, Owner owner) {
    if (tensor.has_memory() || !tensor.is_lent()) {
        tensor.restore_memory(stream);
        return;
    }
    stream.refuse_capture("memory of the caller's comes into use");
    keep(tensor, owner);
    try {
        tensor.restore_memory(stream);
    } catch (...) {
        forget(tensor);
        throw;
    }
}

void check_acquired(const Tensor& gradient, int32_t parameter) {
    if (gradient.is_placed() && !gradient.has_memory()) {
        fail(Code::bad_state,
             "optimizer: the gradient of parameter %d is ready, but has no memory now; call "
             "mp_optimizer_acquire_grad before anything is added to it",
             parameter);
    }
}

void LentMemory::drop(Stream& stream, Tensor& tensor) {
    const bool is_in_use = tensor.is_lent() && tensor.has_memory();
    tensor.drop_memory(stream);
    if (is_in_use) {
        forget(tensor);
    }
}

void LentMemory::forget(const Tensor& tensor) noexcept {
    for_each_part(tensor, [&](const Tensor& part) { in_use_.remove(part.place(), part.bytes()); });
}

} // namespace mp::shard
