// SPDX-License-Identifier: Apache-2.0
// NameIndex: which of many names is this one, and is one there twice. Rows are ordered by hash and then by name, so
// that sorting compares numbers: a long common beginning of all names costs nothing, and names made up to have one hash cost
// a sort by name, not a walk over all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string_view>

#include "system/fnv.hpp"

namespace mp::model {

class NameIndex {
  public:
    static constexpr uint32_t kNone = UINT32_MAX;

    // `name_of(i)` gives the name of i < count, here and in the calls below.
    template <typename NameOf> void build(std::size_t count, const NameOf& name_of) {
        rows_.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            rows_[i] = {hash_of(name_of(i)), static_cast<uint32_t>(i)};
        }
        const auto is_before = [&](const Row& a, const Row& b) {
            return a.hash != b.hash ? a.hash < b.hash : name_of(a.index) < name_of(b.index);
        };
        if (!std::is_sorted(rows_.begin(), rows_.end(), is_before)) { // not all one name
            std::sort(rows_.begin(), rows_.end(), is_before);
        }
    }
    // One of the names that are there twice, or kNone.
    template <typename NameOf> [[nodiscard]] uint32_t duplicate(const NameOf& name_of) const {
        const auto same = std::adjacent_find(rows_.begin(), rows_.end(), [&](Row a, Row b) {
            return a.hash == b.hash && name_of(a.index) == name_of(b.index);
        });
        return same == rows_.end() ? kNone : same->index;
    }
    // kNone where there is no such name.
    template <typename NameOf>
    [[nodiscard]] uint32_t find(std::string_view name, const NameOf& name_of) const {
        const uint64_t hash = hash_of(name);
        const auto row = std::partition_point(rows_.begin(), rows_.end(), [&](const Row& r) {
            return r.hash != hash ? r.hash < hash : name_of(r.index) < name;
        });
        const bool found = row != rows_.end() && row->hash == hash && name_of(row->index) == name;
        return found ? row->index : kNone;
    }

  private:
    struct Row {
        uint64_t hash = 0;
        uint32_t index = 0;
    };
    static uint64_t hash_of(std::string_view name) {
        system::Fnv64 hash;
        hash.add_words(name.data(), name.size());
        return hash.value();
    }

    std::deque<Row> rows_; // not one block: a row is longer than the shortest text of a name
};

} // namespace mp::model
