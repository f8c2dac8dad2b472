// SPDX-License-Identifier: Apache-2.0
#include "device/memory_watch.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
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
    std::size_t longest = 0;           // bytes of the longest one ever
    std::atomic<std::size_t> count{0}; // nobody takes the mutex where nothing is watched

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

void MemoryWatch::note(const void* data, std::size_t bytes) noexcept {
    if (data == nullptr || bytes == 0 || !has_any()) {
        return;
    }
    All& all = All::instance();
    const std::shared_lock lock(all.mutex);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const uintptr_t first = begin > all.longest ? begin - all.longest : 0;
    for (auto at = all.entries.lower_bound(first);
         at != all.entries.end() && at->first < begin + bytes; ++at) {
        if (at->first + at->second->bytes > begin) {
            ++at->second->writes;
        }
    }
}

namespace {

template <typename T> void note_values(const T* values, int64_t count) noexcept {
    note_write(values, static_cast<std::size_t>(count) * sizeof(T));
}

void note_array(const StepArray& array, int64_t count) noexcept {
    const StateFormat format = array.format();
    note_write(array.data, static_cast<std::size_t>(code_bytes(array.coding, array.dtype, count)));
    note_write(array.scale_inv,
               static_cast<std::size_t>(bytes_of(scale_dtype(format), scale_count(format, count))));
}

void note_update(const OptimizerUpdateDesc& op) noexcept {
    for (int64_t i = 0; i < op.table.segment_count; ++i) {
        const UpdateSegment& s = op.table.host_segments[i];
        for (const StepArray* array :
             {&s.param, &s.master, &s.compensation, &s.states[0], &s.states[1]}) {
            note_array(*array, s.count);
        }
        if (op.zero_grad) {
            note_array(s.grad, s.count);
        }
    }
}

void note_quantize(const QuantizeDesc& op) noexcept {
    const auto codes = static_cast<std::size_t>(bytes_of(op.dtype, op.rows * op.columns));
    note_write(op.codes, codes);
    note_write(op.codes_transposed, codes);
    note_write(op.scale_inv, static_cast<std::size_t>(
                                 bytes_of(op.grid.dtype, op.grid.count(op.rows, op.columns))));
    note_values(op.slot_amax, 1);
    note_values(op.amax, 1);
    note_values(op.stats, 1);
}

void note_prepare(const OptimizerPrepareDesc& op) noexcept {
    note_values(op.state, 1);
    note_values(op.scaler, 1);
    note_values(op.group_steps, op.group_count);
    note_values(op.scalars, op.group_count);
}

void note_sum(const SumPartsDesc& op) noexcept {
    note_write(op.destination);
    note_values(op.block_amax, 1); // no array of a caller's
}

void note_delayed(const DelayedUpdateDesc& op) noexcept {
    note_values(op.slots, op.slot_count);
    note_values(op.histories, int64_t{op.slot_count} * op.rule.history_len);
}

} // namespace

void note_writes(const OpDesc& op) noexcept {
    if (!MemoryWatch::has_any()) {
        return;
    }
    switch (op.kind) {
    case OpKind::cast:
        return note_write(static_cast<const CastDesc&>(op).destination);
    case OpKind::amax:
        return note_values(static_cast<const AmaxDesc&>(op).result, 1);
    case OpKind::column_sum:
        return note_write(static_cast<const ColumnSumDesc&>(op).destination);
    case OpKind::gemm: // planned: GemmPlan notes what a run writes
        return;
    case OpKind::grad_stats:
        return note_values(static_cast<const GradStatsDesc&>(op).state, 1);
    case OpKind::optimizer_prepare:
        return note_prepare(static_cast<const OptimizerPrepareDesc&>(op));
    case OpKind::optimizer_update:
        return note_update(static_cast<const OptimizerUpdateDesc&>(op));
    case OpKind::scaler_update:
        return note_values(static_cast<const ScalerUpdateDesc&>(op).state, 1);
    case OpKind::quantize:
        return note_quantize(static_cast<const QuantizeDesc&>(op));
    case OpKind::dequantize:
        return note_write(static_cast<const DequantizeDesc&>(op).destination);
    case OpKind::delayed_update:
        return note_delayed(static_cast<const DelayedUpdateDesc&>(op));
    case OpKind::sum_parts:
        return note_sum(static_cast<const SumPartsDesc&>(op));
    }
}

} // namespace mp
