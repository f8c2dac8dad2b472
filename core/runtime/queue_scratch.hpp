// SPDX-License-Identifier: Apache-2.0
// QueueScratch: the one owner of scratch memory of a queue, for core's operations and for the products of its backend.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/backend.hpp"
#include "runtime/buffer.hpp"

namespace mp {

// Where scratch memory of one queue would lie in one piece of memory: first fit, so that the same work has the same places.
class ScratchPlaces {
  public:
    // The offset of so many bytes. Memory may run out.
    std::size_t take(std::size_t bytes);
    void give(std::size_t offset) noexcept;
    // The end of the last byte ever taken.
    [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

    static constexpr std::size_t kAlignment = 256;

  private:
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    std::vector<Range> taken_; // in order
    std::size_t peak_ = 0;
};

// Takes memory of the device as it is needed, or from a workspace that the caller lends. What a captured graph has used stays
// until the queue ends, since a replay uses it again. Thread-safe.
class QueueScratch final : public ScratchSource {
  public:
    // Becomes the queue's. The queue lives longer.
    QueueScratch(std::shared_ptr<Device> device, Queue& queue);
    QueueScratch(const QueueScratch&) = delete;
    QueueScratch& operator=(const QueueScratch&) = delete;

    Status take(std::size_t bytes, void** out) noexcept override;
    void give(void* memory) noexcept override;

    // From now on memory comes from there, and fails where it does not suffice; null: from the device. No work on the
    // queue is pending.
    void set_workspace(void* memory, std::size_t bytes) noexcept;
    [[nodiscard]] void* workspace() const noexcept { return workspace_; }
    [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
    // What a workspace needs for all the work so far.
    [[nodiscard]] std::size_t workspace_peak();

  private:
    struct Piece {
        void* data = nullptr;
        std::size_t place = 0;
        Buffer buffer; // none in a workspace
        bool is_captured = false;
    };
    Status find(Piece& piece, std::size_t bytes, bool is_capturing);
    void keep(Piece piece) noexcept;

    std::shared_ptr<Device> device_;
    Queue* queue_;
    std::mutex mutex_; // of what follows
    std::vector<Piece> taken_;
    std::vector<Piece> free_; // smallest first
    ScratchPlaces places_;
    unsigned char* workspace_ = nullptr;
    std::size_t workspace_bytes_ = 0;
};

} // namespace mp
