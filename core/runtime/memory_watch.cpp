// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_watch.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

namespace mp {

struct MemoryWatch::Entry {
    std::size_t bytes = 0;
    std::atomic<uint64_t> writes{0};
    std::multimap<uintptr_t, Entry*>::iterator place;
};

// Those that exist, by where their memory begins.
struct MemoryWatch::All {
    std::shared_mutex mutex;
    std::multimap<uintptr_t, Entry*> entries;
    std::size_t longest = 0;                  // bytes of the longest one ever
    std::atomic<std::size_t> count{0};        // nobody takes the mutex where nothing is watched
    std::map<uintptr_t, uintptr_t> by_graphs; // begin and end, none meets another
    bool all_by_graphs = false;               // no memory for more of them

    void add_by_graph(uintptr_t begin, uintptr_t end) {
        auto next = by_graphs.upper_bound(begin);
        if (next != by_graphs.begin() && std::prev(next)->second >= begin) {
            --next;
        }
        while (next != by_graphs.end() && next->first <= end) {
            begin = std::min(begin, next->first);
            end = std::max(end, next->second);
            next = by_graphs.erase(next);
        }
        by_graphs.emplace(begin, end);
    }

    static All& instance() {
        static All* const all = new All; // reachable until the end on purpose: exits in any order
        return *all;
    }
};

MemoryWatch::MemoryWatch(const void* data, std::size_t bytes) : data_(data) {
    if (data == nullptr || bytes == 0) {
        return;
    }
    auto entry = std::make_unique<Entry>();
    entry->bytes = bytes;
    All& all = All::instance();
    const std::lock_guard lock(all.mutex);
    entry->place = all.entries.emplace(reinterpret_cast<uintptr_t>(data), entry.get());
    all.longest = std::max(all.longest, bytes);
    ++all.count;
    entry_.reset(entry.release());
}

void MemoryWatch::Remove::operator()(Entry* entry) const noexcept {
    All& all = All::instance();
    {
        const std::lock_guard lock(all.mutex);
        all.entries.erase(entry->place);
        --all.count;
    }
    delete entry;
}

uint64_t MemoryWatch::writes() const noexcept {
    return entry_ == nullptr ? 0 : entry_->writes.load();
}

bool MemoryWatch::has_any() noexcept { return All::instance().count.load() != 0; }

bool MemoryWatch::is_written_by_graphs() const noexcept {
    All& all = All::instance();
    const std::shared_lock lock(all.mutex);
    if (entry_ == nullptr || all.all_by_graphs) {
        return all.all_by_graphs;
    }
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    const auto next = all.by_graphs.upper_bound(begin);
    return (next != all.by_graphs.end() && next->first < begin + entry_->bytes) ||
           (next != all.by_graphs.begin() && std::prev(next)->second > begin);
}

void MemoryWatch::note(const void* data, std::size_t bytes, bool by_graph) noexcept {
    if (data == nullptr || bytes == 0 || (!by_graph && !has_any())) {
        return;
    }
    All& all = All::instance();
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (by_graph) {
        const std::lock_guard lock(all.mutex);
        try {
            all.add_by_graph(begin, begin + bytes);
        } catch (const std::bad_alloc&) {
            all.all_by_graphs = true;
        }
    }
    const std::shared_lock lock(all.mutex);
    const uintptr_t first = begin > all.longest ? begin - all.longest : 0;
    for (auto at = all.entries.lower_bound(first);
         at != all.entries.end() && at->first < begin + bytes; ++at) {
        if (at->first + at->second->bytes > begin) {
            ++at->second->writes;
        }
    }
}

namespace {

// What operations write, each as it is captured or enqueued.
struct Writes {
    bool by_graph;

    void array(const void* data, std::size_t bytes) const noexcept {
        note_write(data, bytes, by_graph);
    }
    void array(const TensorRef& target) const noexcept { note_write(target, by_graph); }
    void array(const ArrayRef& target) const noexcept {
        array(target.elements());
        array(target.scale_inv,
              static_cast<std::size_t>(bytes_of(target.format.grid.dtype, target.scale_count())));
        values(target.amax, 1);
    }
    template <typename T> void values(const T* values, int64_t count) const noexcept {
        note_write(values, static_cast<std::size_t>(count) * sizeof(T), by_graph);
    }
    void array(const StepArray& array, int64_t count) const noexcept {
        note_write(array.data,
                   static_cast<std::size_t>(code_bytes(array.coding, array.dtype, count)),
                   by_graph);
        note_write(array.scale_inv, static_cast<std::size_t>(scale_bytes(array.format(), count)),
                   by_graph);
    }

    void of(const OptimizerUpdateDesc& op) const noexcept {
        for (int64_t i = 0; i < op.table.segment_count; ++i) {
            const UpdateSegment& s = op.table.host_segments[i];
            for (const StepArray* each : {&s.param, &s.master, &s.compensation}) {
                array(*each, s.count);
            }
            for (const StepArray& state : s.states) {
                array(state, s.count);
            }
            if (op.zero_grad) {
                array(s.grad, s.count);
            }
        }
    }
    void of(const QuantizeDesc& op) const noexcept {
        array(op.sink.codes);
        array(op.sink.second);
        array(TensorRef{op.sink.transposed, op.source.count(), op.sink.codes.dtype()});
        values(op.sink.tracking.amax, 1);
        values(op.sink.tracking.stats, 1);
    }
    void of(const OptimizerPrepareDesc& op) const noexcept {
        values(op.state, 1);
        values(op.scaler, 1);
        values(op.group_steps, op.group_count);
        values(op.scalars, op.group_count);
    }
    void of(const RowNormDesc& op) const noexcept { values(op.result, op.rows); }
    void of(const SumPartsDesc& op) const noexcept {
        array(op.destination);
        values(op.block_amax, 1); // no array of a caller's
    }
    void of(const DelayedUpdateDesc& op) const noexcept {
        values(op.states, op.state_count);
        values(op.histories, int64_t{op.state_count} * op.rule.history_len);
    }
};

} // namespace

void note_writes(const OpDesc& op, bool by_graph) noexcept {
    if (!by_graph && !MemoryWatch::has_any()) {
        return;
    }
    const Writes writes{by_graph};
    switch (op.kind) {
    case OpKind::cast:
        return writes.array(static_cast<const CastDesc&>(op).destination);
    case OpKind::amax:
        return writes.values(static_cast<const AmaxDesc&>(op).result, 1);
    case OpKind::content_hash:
        return writes.values(static_cast<const ContentHashDesc&>(op).result, 1);
    case OpKind::column_sum:
        return writes.array(static_cast<const ColumnSumDesc&>(op).destination);
    case OpKind::dropout:
        return writes.array(static_cast<const DropoutDesc&>(op).destination);
    case OpKind::row_norm:
        return writes.of(static_cast<const RowNormDesc&>(op));
    case OpKind::scale_columns:
        return writes.array(static_cast<const ScaleColumnsDesc&>(op).destination);
    case OpKind::gemm: // planned: GemmPlan notes what a run writes
        return;
    case OpKind::grad_stats:
        return writes.values(static_cast<const GradStatsDesc&>(op).state, 1);
    case OpKind::optimizer_prepare:
        return writes.of(static_cast<const OptimizerPrepareDesc&>(op));
    case OpKind::optimizer_update:
        return writes.of(static_cast<const OptimizerUpdateDesc&>(op));
    case OpKind::scaler_update:
        return writes.values(static_cast<const ScalerUpdateDesc&>(op).state, 1);
    case OpKind::quantize:
        return writes.of(static_cast<const QuantizeDesc&>(op));
    case OpKind::dequantize:
        return writes.array(static_cast<const DequantizeDesc&>(op).destination);
    case OpKind::delayed_update:
        return writes.of(static_cast<const DelayedUpdateDesc&>(op));
    case OpKind::sum_parts:
        return writes.of(static_cast<const SumPartsDesc&>(op));
    }
}

} // namespace mp
