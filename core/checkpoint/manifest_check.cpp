// SPDX-License-Identifier: Apache-2.0
// What must hold between the fields of a manifest: files and their checksums, tensors in order, slices that tile them.
#include <algorithm>
#include <tuple>

#include "checkpoint/manifest.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {
namespace {

[[noreturn]] void refuse(const char* why) { fail(Code::corrupt_data, "manifest: %s", why); }

// Without a sum that could wrap.
int64_t chunks_of(int64_t bytes, int64_t chunk_bytes) {
    return bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
}

void check_files(const Manifest& manifest) {
    std::deque<std::string_view> names;
    for (const StoredFile& file : manifest.files) {
        names.emplace_back(file.name);
        if (static_cast<int64_t>(file.chunks.size()) !=
            chunks_of(file.bytes, manifest.chunk_bytes)) {
            refuse("a file's size and its number of checksums disagree");
        }
    }
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
        refuse("a file is listed twice");
    }
}

void check_order(const Manifest& manifest) {
    const auto is_in_order = [](const StoredTensor& a, const StoredTensor& b) {
        return std::tie(a.name, a.state) < std::tie(b.name, b.state);
    };
    const auto wrong = std::adjacent_find(
        manifest.tensors.begin(), manifest.tensors.end(),
        [&](const StoredTensor& a, const StoredTensor& b) { return !is_in_order(a, b); });
    if (wrong != manifest.tensors.end()) {
        refuse("tensors are not ordered by name, or one appears twice");
    }
}

void check_tiles(const StoredTensor& tensor) {
    int64_t end = 0;
    for (const StoredSlice& slice : tensor.slices) {
        if (slice.start != end) {
            fail(Code::corrupt_data,
                 "manifest: the slices of '%s' (%s) have a hole or an overlap at element %lld",
                 tensor.name.c_str(), tensor.state.c_str(), static_cast<long long>(end));
        }
        end += slice.length;
    }
    if (end != tensor.count()) {
        fail(Code::corrupt_data, "manifest: the slices of '%s' (%s) end at element %lld of %lld",
             tensor.name.c_str(), tensor.state.c_str(), static_cast<long long>(end),
             static_cast<long long>(tensor.count()));
    }
}

// No file has less bytes than what is said to lie in it: who makes memory for all tensors makes no more than there is on the
// disk, once the files' sizes are found to be those of the manifest.
void check_room(const Manifest& manifest) {
    std::deque<int64_t> left;
    for (const StoredFile& file : manifest.files) {
        left.push_back(file.bytes);
    }
    for (const StoredTensor& tensor : manifest.tensors) {
        for (const StoredSlice& slice : tensor.slices) {
            const auto offset = [&](int64_t i) { return code_bytes(tensor.format, i); };
            const int64_t bytes = offset(slice.start + slice.length) - offset(slice.start);
            int64_t& room = left[static_cast<std::size_t>(slice.file)];
            if (bytes > room) {
                fail(Code::corrupt_data,
                     "manifest: '%s' (%s) is larger than what is left of its file",
                     tensor.name.c_str(), tensor.state.c_str());
            }
            room -= bytes;
        }
    }
}

} // namespace

void check_manifest(const Manifest& manifest) {
    check_files(manifest);
    check_order(manifest);
    const auto files = static_cast<int64_t>(manifest.files.size());
    for (const StoredTensor& tensor : manifest.tensors) {
        for (const StoredSlice& slice : tensor.slices) {
            if (slice.file >= files) {
                refuse("a slice is in a file that is not listed");
            }
        }
        check_tiles(tensor);
    }
    check_room(manifest);
    if (static_cast<int64_t>(manifest.files.size()) != manifest.world) {
        refuse("the number of files is not that of the ranks");
    }
}

} // namespace mp::checkpoint
