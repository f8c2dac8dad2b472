// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/temporary_directory.hpp"

#include "checkpoint/directory.hpp"
#include "system/place.hpp"

namespace mp::checkpoint {

TemporaryDirectory::TemporaryDirectory(system::FileTable& files, int32_t parent, int64_t sequence)
    : files_(files), parent_(parent), sequence_(sequence) {
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (make()) {
            return;
        }
    }
    fail(Code::io_error,
         "checkpoint: another process removes the folders '.tmp-...' of a save as soon as they are "
         "made");
}

// False where another process that cleans up has taken it for a leftover, before it was marked.
bool TemporaryDirectory::make() {
    id_ = system::random_id();
    name_ = temporary_name(sequence_, id_);
    check(files_.make_directory(parent_, name_.c_str()));
    int32_t handle = -1;
    const Status opened =
        files_.open(parent_, name_.c_str(), system::OpenMode::plain_directory, &handle);
    if (!opened.ok()) {
        system::FileIdentity found;
        check(files_.look(parent_, name_.c_str(), &found));
        if (found.kind == system::FileKind::none) {
            return false;
        }
        (void)files_.remove(parent_, name_.c_str());
        check(opened);
    }
    open_ = system::OpenFile(files_, handle);
    bool taken = false;
    const bool is_marked = !files_.lock(handle, &taken).ok() || taken; // no marks: see clean()
    return is_marked && is_in_place(files_, parent_, handle, name_);
}

TemporaryDirectory::~TemporaryDirectory() {
    if (!committed_ && open_.handle() >= 0) {
        remove_directory(files_, parent_, open_.handle(), name_);
    }
}

void TemporaryDirectory::commit(const std::string& final_name) {
    const auto require = [&](const std::string& name) {
        if (!is_in_place(files_, parent_, handle(), name)) {
            fail(Code::io_error,
                 "checkpoint: '%s' is not the folder that this save has written: something else "
                 "has taken its place",
                 name.c_str());
        }
    };
    require(name_);
    check(files_.rename(parent_, name_.c_str(), final_name.c_str()));
    try {
        require(final_name);
    } catch (const Error&) {
        (void)files_.remove(parent_, final_name.c_str()); // a link, perhaps
        throw;
    }
    committed_ = true;
    check(files_.sync(parent_));
}

} // namespace mp::checkpoint
