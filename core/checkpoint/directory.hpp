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

// Newest first. Throws io_error. Of an open directory, or of one by its path.
std::vector<Committed> list_committed(system::FileTable& files, int32_t parent);
std::vector<Committed> list_committed(system::FileTable& files, const std::string& parent);
std::string committed_name(int64_t step, int64_t sequence, const std::string& id);
std::string temporary_name(int64_t sequence, const std::string& id);

// The sequence after which the next save comes; 0 where there is none yet. A number that no run reaches by counting is
// believed only where a manifest stands behind it, or an empty folder with its name would hide every later save. Throws
// bad_state where no number is left.
int64_t newest_sequence(system::FileTable& files, int32_t parent,
                        const std::vector<Committed>& committed);

// Removes what earlier processes left half written or half deleted: all that no living process has marked as its own,
// or, where the file system knows no marks, all that is not newer than `newest`. Never throws: what cannot be
// removed stays.
void clean(system::FileTable& files, int32_t parent, int64_t newest) noexcept;
// A directory of files, by a rename and then file by file. Neither follows a link: what lies elsewhere stays.
void discard(system::FileTable& files, int32_t parent, const std::string& name) noexcept;
// An open directory's files and empty directories, and its name in `parent` where that is still its own.
void remove_directory(system::FileTable& files, int32_t parent, int32_t handle,
                      const std::string& name) noexcept;
// Whether the name still is that of the open directory.
bool is_in_place(system::FileTable& files, int32_t parent, int32_t handle, const std::string& name);

// Opens a directory that may be a link to one. Where it is missing it is made, and its name durable.
system::OpenFile open_parent(system::FileTable& files, const std::string& parent);

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
// Throws the same where nothing there has a checkpoint's name, without reading what has.
void check_any(system::FileTable& files, const std::string& path);

} // namespace mp::checkpoint
