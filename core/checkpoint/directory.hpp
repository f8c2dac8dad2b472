// SPDX-License-Identifier: Apache-2.0
// The directory that holds checkpoints: "step-<step>-<sequence>-<id>" is a committed one, ".tmp-<sequence>-<id>" one
// that is being written, ".trash-..." one that is being deleted.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "system/file.hpp"

namespace mp::checkpoint {

struct Committed {
    std::string name;
    int64_t step = 0;
    int64_t sequence = 0;
    std::string id;
};

// Newest first. Throws io_error.
std::vector<Committed> list_committed(system::FileTable& files, const std::string& parent);
std::string committed_name(int64_t step, int64_t sequence, const std::string& id);
std::string temporary_name(int64_t sequence, const std::string& id);

// 32 hexadecimal digits of the system's random numbers.
std::string random_id();

// Removes what earlier processes left half written or half deleted: all that no living process has marked as its own,
// or, where the file system knows no marks, all that is older than the newest commit. Never throws: what cannot be
// removed stays.
void clean(system::FileTable& files, const std::string& parent) noexcept;
// A directory of files, by a rename and then file by file. Neither follows a link: what lies elsewhere stays.
void discard(system::FileTable& files, const std::string& parent, const std::string& name) noexcept;

// Where the last name of a path lies.
std::string parent_of(const std::string& path);
// Makes the directory where it is missing, and its name durable.
void make_parent(system::FileTable& files, const std::string& parent);

// Whether a directory is a checkpoint itself, and not one of several.
bool is_checkpoint(system::FileTable& files, const std::string& path);
// The manifest of one of list_committed(). Throws io_error, also for what is a link or no directory; and corrupt_data.
Manifest read_committed(system::FileTable& files, const std::string& parent, const Committed& one);

struct Found {
    std::string directory; // with its path
    Manifest manifest;
    std::string skipped; // why newer ones were passed over; empty where none was
    void exchange(auto& bytes) { bytes(directory, manifest, skipped); }
};
// The manifest of a checkpoint's own directory, or of the newest checkpoint in a directory of them whose manifest is
// intact. Throws io_error where there is none.
Found find_checkpoint(system::FileTable& files, const std::string& path);

} // namespace mp::checkpoint
