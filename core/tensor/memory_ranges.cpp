// SPDX-License-Identifier: Apache-2.0
#include "tensor/memory_ranges.hpp"

#include <algorithm>
#include <string>

namespace mp {

void MemoryRanges::begin(const char* name, Use use, const char* suffix) {
    constexpr std::size_t kFew = 16; // sorted all at once in less time
    if (ranges_.size() - sorted_ > kFew) {
        merge();
    }
    names_.push_back({name, suffix});
    are_written_ = use == Use::written;
}

void MemoryRanges::add(const void* data, int64_t bytes, std::size_t item) {
    if (data != nullptr && bytes > 0) {
        const auto begin = reinterpret_cast<uintptr_t>(data);
        ranges_.push_back({begin, begin + static_cast<uintptr_t>(bytes),
                           static_cast<uint32_t>(item), static_cast<uint16_t>(names_.size() - 1),
                           are_written_});
    }
}

void MemoryRanges::add(const char* name, Use use, const void* data, int64_t bytes) {
    begin(name, use);
    add(data, bytes);
}

void MemoryRanges::add(const char* name, Use use, const Tensor* tensor) {
    if (tensor == nullptr) {
        return;
    }
    add(name, use, tensor->data(), static_cast<int64_t>(tensor->bytes()));
    if (const TensorScales* scales = tensor->scales(); scales != nullptr) {
        begin(name, use, "'s scale_inv");
        add(scales->scale_inv->data(), static_cast<int64_t>(scales->scale_inv->bytes()));
        begin(name, use, "'s amax");
        add(scales->amax->data(), static_cast<int64_t>(scales->amax->bytes()));
    }
}

void MemoryRanges::add_workspace(const Stream& stream) {
    add("the queue's workspace", Use::written, stream.workspace(),
        static_cast<int64_t>(stream.workspace_bytes()));
}

// Callers mostly have the ranges of one name behind one another, so those of each name are merged to the others.
void MemoryRanges::merge() {
    const auto begins_before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
    const auto added = ranges_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    if (!std::is_sorted(added, ranges_.end(), begins_before)) {
        std::sort(added, ranges_.end(), begins_before);
    }
    if (sorted_ > 0 && added != ranges_.end() && begins_before(*added, *(added - 1))) {
        std::inplace_merge(ranges_.begin(), added, ranges_.end(), begins_before);
    }
    sorted_ = ranges_.size();
}

// A range meets an earlier one exactly where one of those ends behind its beginning.
void MemoryRanges::check(const char* call, const char* item_name) {
    merge();
    const Range* longest = nullptr;
    const Range* longest_written = nullptr;
    for (const Range& range : ranges_) {
        const Range* other = range.is_written ? longest : longest_written;
        if (other != nullptr && other->end > range.begin) {
            refuse(call, item_name, *other, range);
        }
        const auto extend = [&range](const Range*& to) {
            to = to == nullptr || range.end > to->end ? &range : to;
        };
        extend(longest);
        if (range.is_written) {
            extend(longest_written);
        }
    }
}

void MemoryRanges::refuse(const char* call, const char* item_name, const Range& a,
                          const Range& b) const {
    // What is written comes first.
    const Range& first = b.is_written ? b : a;
    const Range& second = b.is_written ? a : b;
    const auto name_of = [&](const Range& range) {
        return std::string(names_[range.name].text) + names_[range.name].suffix;
    };
    const auto item_of = [&](const Range& range) {
        return range.item == kNoItem ? std::string()
                                     : std::string(item_name) + " " + std::to_string(range.item);
    };
    const std::string where = item_of(first);
    const std::string other = item_of(second);
    fail(Code::invalid_argument,
         "%s: %s overlaps %s%s%s in memory; what the call writes needs memory of its own",
         where.empty() ? call : where.c_str(), name_of(first).c_str(), name_of(second).c_str(),
         other.empty() ? "" : " of ", other.c_str());
}

} // namespace mp
