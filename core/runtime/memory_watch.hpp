// SPDX-License-Identifier: Apache-2.0
// What is made of memory (codes of a weight) must not outlive what is there. Whoever keeps such a copy watches the memory; every
// operation, copy and message says what it has written, whether a tensor, another tensor over the same memory or a pointer led
// there. What a captured graph writes again is not seen, but that it may is known. Writes of the caller's own are not seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/ops.hpp"

namespace mp {

class MemoryWatch {
  public:
    MemoryWatch() = default;
    // Memory for the watch itself may run out.
    MemoryWatch(const void* data, std::size_t bytes);

    [[nodiscard]] const void* data() const noexcept { return data_; }
    // Writes noted since it was made.
    [[nodiscard]] uint64_t writes() const noexcept;
    // Some of it is written by work that was captured, so at any time that the caller likes. Known for as long as the process
    // lives, also of memory that has other uses since: then a copy is made once more than is needed.
    [[nodiscard]] bool is_written_by_graphs() const noexcept;
    static void note(const void* data, std::size_t bytes, bool by_graph) noexcept;
    [[nodiscard]] static bool has_any() noexcept;

  private:
    struct Entry;
    struct All;
    struct Remove {
        void operator()(Entry* entry) const noexcept;
    };
    const void* data_ = nullptr;
    std::unique_ptr<Entry, Remove> entry_; // null: nothing to watch
};

// These bytes are written, or the work that writes them is enqueued. `by_graph`: captured, not enqueued.
inline void note_write(const void* data, std::size_t bytes, bool by_graph = false) noexcept {
    MemoryWatch::note(data, bytes, by_graph);
}
inline void note_write(const TensorRef& target, bool by_graph = false) noexcept {
    note_write(target.data, static_cast<std::size_t>(bytes_of(target.dtype, target.count)),
               by_graph);
}
// All that the operation has written. A product's operands are not in it: gemm::GemmPlan says them.
void note_writes(const OpDesc& op, bool by_graph) noexcept;

} // namespace mp
