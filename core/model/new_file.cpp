// SPDX-License-Identifier: Apache-2.0
#include "model/new_file.hpp"

#include "system/place.hpp"

namespace mp::model {

using system::FileIdentity;
using system::FileKind;

void check_free(system::FileTable& files, int32_t directory, const std::string& name) {
    FileIdentity found;
    check(files.look(directory, name.c_str(), &found));
    if (found.kind != FileKind::none) {
        fail(Code::invalid_argument,
             "model writer: there is a '%.300s' already, and nothing is overwritten: remove it, or "
             "write under another name",
             name.c_str());
    }
}

NewFiles::~NewFiles() {
    if (!is_committed_) {
        discard();
    }
}

std::size_t NewFiles::add(const std::string& final_name) {
    check_free(files_, directory_, final_name);
    File file;
    file.name = final_name;
    file.temporary = final_name.substr(0, 200) + ".tmp-" + system::random_id();
    list_.push_back(std::move(file)); // before there is something to remove
    File& added = list_.back();
    added.open =
        system::OpenFile(files_, directory_, added.temporary, system::OpenMode::create_new);
    check(files_.look(added.open.handle(), &added.identity));
    return list_.size() - 1;
}

void NewFiles::reserve(std::size_t file, int64_t bytes) {
    check(files_.reserve(list_.at(file).open.handle(), bytes));
}

void NewFiles::write(std::size_t file, int64_t offset, const void* data, std::size_t bytes) {
    check(files_.write(list_.at(file).open.handle(), offset, data, bytes));
}

// By handles and identities: whatever takes the place of a name meanwhile is neither renamed for long nor removed.
void NewFiles::rename(const File& file) {
    check(files_.rename(directory_, file.temporary.c_str(), file.name.c_str()));
    FileIdentity found;
    check(files_.look(directory_, file.name.c_str(), &found));
    if (found != file.identity) {
        fail(
            Code::io_error,
            "model writer: '%.300s' is not the file that was written: something else has taken its "
            "place",
            file.temporary.c_str());
    }
}

void NewFiles::commit() {
    try {
        for (File& file : list_) {
            file.open.finish();
        }
        for (std::size_t i = 0; i < list_.size(); ++i) {
            rename(list_[i]);
            if (i == 0 || i + 1 == list_.size()) { // see add()
                check(files_.sync(directory_));
            }
        }
    } catch (const std::exception&) {
        discard();
        throw;
    }
    is_committed_ = true;
}

// Also where a rename has failed: it may have happened.
void NewFiles::discard() noexcept {
    for (auto file = list_.rbegin(); file != list_.rend(); ++file) {
        const auto remove_own = [&](const std::string& name) {
            FileIdentity found;
            if (files_.look(directory_, name.c_str(), &found).ok() && found == file->identity) {
                (void)files_.remove(directory_, name.c_str());
            }
        };
        (void)file->open.close();
        if (file->identity.kind == FileKind::none) { // it failed as it was made
            (void)files_.remove(directory_, file->temporary.c_str());
            continue;
        }
        remove_own(file->temporary);
        remove_own(file->name);
    }
    list_.clear();
}

} // namespace mp::model
