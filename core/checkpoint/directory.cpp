// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <tuple>

#include "checkpoint/manifest_fields.hpp"
#include "status/status.hpp"
#include "system/place.hpp"

namespace mp::checkpoint {

using system::OpenFile;
using system::OpenMode;

namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";
constexpr int64_t kMostCounted = kMaxSequence / 2; // no run saves so often

// A decimal number and the '-' after it, taken off the front.
bool take_number(std::string_view& text, int64_t& value) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || end == text.data() + text.size() || *end != '-') {
        return false;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return true;
}

// What may be wrong with one checkpoint, while others are whole.
bool is_damage(Code code) noexcept { return code == Code::corrupt_data || code == Code::io_error; }

bool is_id(std::string_view text) noexcept {
    return text.size() == 32 &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool parse_committed(const std::string& name, Committed& out) {
    std::string_view rest = name;
    if (!rest.starts_with(kStep)) {
        return false;
    }
    rest.remove_prefix(kStep.size());
    if (!take_number(rest, out.step) || !take_number(rest, out.sequence) || !is_id(rest)) {
        return false;
    }
    if (out.step > kMaxSequence || out.sequence >= kMaxSequence) { // no manifest has such numbers
        return false;
    }
    out.name = name;
    out.id = rest;
    return true;
}

// Of a temporary or discarded directory; false for anything else.
bool parse_leftover(std::string_view name, int64_t& sequence) noexcept {
    for (const std::string_view prefix : {kTemporary, kTrash}) {
        if (name.starts_with(prefix)) {
            name.remove_prefix(prefix.size());
            return take_number(name, sequence) && is_id(name);
        }
    }
    return false;
}

void clean_one(system::FileTable& files, int32_t parent, const std::string& name, bool is_old) {
    int32_t handle = -1;
    if (!files.open(parent, name.c_str(), OpenMode::plain_directory, &handle).ok()) {
        return; // a link or a file: nothing that we have made
    }
    bool taken = false;
    const Status marked = files.lock(handle, &taken);
    if (taken || (!marked.ok() && is_old)) {
        remove_directory(files, parent, handle, name);
    }
    (void)files.close(handle);
}

Manifest manifest_of(system::FileTable& files, int32_t directory) {
    return read_manifest(system::read_text(files, directory, kManifestName, kMaxManifestBytes,
                                           OpenMode::read_plain));
}

// Of a committed checkpoint in an open directory. A link may lead anywhere; nothing that we have made is one. A copy under
// another name would have a place in the order that it does not have.
Manifest manifest_in(system::FileTable& files, int32_t parent, const Committed& one) {
    const OpenFile directory(files, parent, one.name, OpenMode::plain_directory);
    Manifest manifest = manifest_of(files, directory.handle());
    if (committed_name(manifest.step, manifest.sequence, manifest.id) != one.name) {
        fail(Code::corrupt_data, "its manifest is that of '%s'",
             committed_name(manifest.step, manifest.sequence, manifest.id).c_str());
    }
    return manifest;
}

bool has_name(system::FileTable& files, int32_t directory, const char* name) {
    system::FileIdentity found;
    check(files.look(directory, name, &found));
    return found.kind != system::FileKind::none;
}

bool has_manifest(system::FileTable& files, int32_t parent, const Committed& one) {
    try {
        (void)manifest_in(files, parent, one);
        return true;
    } catch (const Error& error) {
        if (!is_damage(error.status().code())) {
            throw;
        }
        return false;
    }
}

} // namespace

std::vector<Committed> list_committed(system::FileTable& files, const std::string& parent) {
    const OpenFile open(files, system::kCurrentDirectory, parent, OpenMode::directory);
    return list_committed(files, open.handle());
}

std::vector<Committed> list_committed(system::FileTable& files, int32_t parent) {
    std::vector<std::string> names;
    check(files.list(parent, &names));
    std::vector<Committed> found;
    for (const std::string& name : names) {
        Committed one;
        if (parse_committed(name, one)) {
            found.push_back(std::move(one));
        }
    }
    std::sort(found.begin(), found.end(), [](const Committed& a, const Committed& b) {
        return std::tie(a.sequence, a.step, a.id) > std::tie(b.sequence, b.step, b.id);
    });
    return found;
}

std::string committed_name(int64_t step, int64_t sequence, const std::string& id) {
    return std::string(kStep) + std::to_string(step) + "-" + std::to_string(sequence) + "-" + id;
}

std::string temporary_name(int64_t sequence, const std::string& id) {
    return std::string(kTemporary) + std::to_string(sequence) + "-" + id;
}

int64_t newest_sequence(system::FileTable& files, int32_t parent,
                        const std::vector<Committed>& committed) {
    for (const Committed& one : committed) {
        if (one.sequence > kMostCounted && !has_manifest(files, parent, one)) {
            continue;
        }
        if (one.sequence >= kMaxSequence - 1) {
            fail(Code::bad_state,
                 "checkpoint: '%s' has the largest sequence that there is, so a save beside it "
                 "would not be the newest: remove it, or save into another folder",
                 one.name.c_str());
        }
        return one.sequence;
    }
    return 0;
}

void clean(system::FileTable& files, int32_t parent, int64_t newest) noexcept {
    try {
        std::vector<std::string> names;
        check(files.list(parent, &names));
        for (const std::string& name : names) {
            int64_t sequence = 0;
            if (parse_leftover(name, sequence)) {
                clean_one(files, parent, name, sequence <= newest);
            }
        }
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): what stays is tried again
    }
}

bool is_in_place(system::FileTable& files, int32_t parent, int32_t handle,
                 const std::string& name) {
    system::FileIdentity own;
    system::FileIdentity named;
    check(files.look(handle, &own));
    check(files.look(parent, name.c_str(), &named));
    return own == named;
}

// Whoever may write here may have put a link in place of a file or of the directory: links go, what they point to stays.
void remove_directory(system::FileTable& files, int32_t parent, int32_t handle,
                      const std::string& name) noexcept {
    try {
        std::vector<std::string> names;
        check(files.list(handle, &names));
        for (const std::string& file : names) {
            (void)files.remove(handle, file.c_str());
        }
        if (is_in_place(files, parent, handle, name)) {
            (void)files.remove(parent, name.c_str());
        }
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): what stays is tried again
    }
}

void discard(system::FileTable& files, int32_t parent, const std::string& name) noexcept {
    try {
        Committed one;
        const OpenFile directory(files, parent, name, OpenMode::plain_directory);
        std::string trash = name;
        if (parse_committed(name, one)) {
            trash = std::string(kTrash) + std::to_string(one.sequence) + "-" + one.id;
            check(files.rename(parent, name.c_str(), trash.c_str()));
        }
        remove_directory(files, parent, directory.handle(), trash);
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): what stays is tried again
    }
}

system::OpenFile open_parent(system::FileTable& files, const std::string& parent) {
    system::FileIdentity found;
    check(files.look(system::kCurrentDirectory, parent.c_str(), &found));
    Status made;
    if (found.kind == system::FileKind::none) {
        made = files.make_directory(system::kCurrentDirectory, parent.c_str());
        if (made.ok()) {
            OpenFile above(files, system::kCurrentDirectory, system::parent_of(parent),
                           OpenMode::directory);
            check(files.sync(above.handle()));
        }
    }
    int32_t handle = -1;
    const Status opened =
        files.open(system::kCurrentDirectory, parent.c_str(), OpenMode::directory, &handle);
    check(made.ok() || opened.ok() ? opened : made); // another process may have made it meanwhile
    OpenFile folder(files, handle);
    // A load there would take it, and nothing below it.
    if (has_name(files, handle, kManifestName)) {
        fail(Code::invalid_argument,
             "checkpoint: '%s' is a checkpoint itself, with a %s; name the folder it lies in, or "
             "another",
             parent.c_str(), kManifestName);
    }
    return folder;
}

Manifest read_committed(system::FileTable& files, const std::string& parent, const Committed& one) {
    const OpenFile open(files, system::kCurrentDirectory, parent, OpenMode::directory);
    return manifest_in(files, open.handle(), one);
}

bool is_checkpoint(system::FileTable& files, const std::string& path) {
    const OpenFile open(files, system::kCurrentDirectory, path, OpenMode::directory);
    return has_name(files, open.handle(), kManifestName);
}

namespace {

[[noreturn]] void fail_without_any(const std::string& path, const std::string& skipped) {
    fail(Code::io_error, "checkpoint: '%s' has no checkpoint that can be read%s%s", path.c_str(),
         skipped.empty() ? "" : ": ", skipped.c_str());
}

} // namespace

void check_any(system::FileTable& files, const std::string& path) {
    const OpenFile parent(files, system::kCurrentDirectory, path, OpenMode::directory);
    if (!has_name(files, parent.handle(), kManifestName) &&
        list_committed(files, parent.handle()).empty()) {
        fail_without_any(path, "");
    }
}

Found find_checkpoint(system::FileTable& files, const std::string& path) {
    const OpenFile parent(files, system::kCurrentDirectory, path, OpenMode::directory);
    if (has_name(files, parent.handle(), kManifestName)) {
        return {path, manifest_of(files, parent.handle()), {}};
    }
    std::string skipped;
    for (const Committed& one : list_committed(files, parent.handle())) {
        try {
            return {path + "/" + one.name, manifest_in(files, parent.handle(), one), skipped};
        } catch (const Error& error) {
            if (!is_damage(error.status().code())) {
                throw;
            }
            skipped += (skipped.empty() ? "" : "; ") + one.name + ": " + error.status().text();
        }
    }
    fail_without_any(path, skipped);
}

} // namespace mp::checkpoint
