// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.hpp"

#include <algorithm>
#include <charconv>
#include <new>
#include <random>
#include <tuple>

#include "checkpoint/manifest_fields.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";

// A decimal number and the '-' after it, taken off the front.
bool take_number(std::string_view& text, int64_t& value) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || end == text.data() + text.size() || *end != '-') {
        return false;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    return true;
}

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

// An open directory's files and empty directories, and then itself. Whoever may write here may have put a link in place
// of a file or of the directory: links go, what they point to stays.
void remove_directory(system::FileTable& files, int32_t handle, const std::string& path) {
    std::vector<std::string> names;
    if (files.list_open(handle, &names).ok()) {
        for (const std::string& name : names) {
            (void)files.remove_from(handle, name.c_str());
        }
        (void)files.remove(path.c_str());
    }
}

void clean_one(system::FileTable& files, const std::string& path, bool is_old) {
    int32_t handle = -1;
    if (!files.open_directory(path.c_str(), &handle).ok()) {
        return; // a link or a file: nothing that we have made
    }
    bool taken = false;
    const Status marked = files.lock(handle, &taken);
    if (taken || (!marked.ok() && is_old)) {
        remove_directory(files, handle, path);
    }
    (void)files.close(handle);
}

// A link may lead anywhere; nothing that we have made is one.
void require_directory(system::FileTable& files, const std::string& path) {
    int32_t handle = -1;
    check(files.open_directory(path.c_str(), &handle));
    (void)files.close(handle);
}

Manifest manifest_of(system::FileTable& files, const std::string& directory) {
    return read_manifest(system::read_text(files, directory + "/" + kManifestName,
                                           kMaxManifestBytes, system::OpenMode::read_plain));
}

} // namespace

std::vector<Committed> list_committed(system::FileTable& files, const std::string& parent) {
    std::vector<std::string> names;
    check(files.list(parent.c_str(), &names));
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

std::string random_id() {
    std::random_device device;
    std::string id;
    for (int i = 0; i < 4; ++i) {
        id += hex(device(), 8);
    }
    return id;
}

void clean(system::FileTable& files, const std::string& parent) noexcept {
    try {
        const std::vector<Committed> committed = list_committed(files, parent);
        const int64_t newest = committed.empty() ? -1 : committed.front().sequence;
        std::vector<std::string> names;
        check(files.list(parent.c_str(), &names));
        for (const std::string& name : names) {
            int64_t sequence = 0;
            if (parse_leftover(name, sequence)) {
                clean_one(files, parent + "/" + name, sequence <= newest);
            }
        }
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): what stays is tried again
    }
}

void discard(system::FileTable& files, const std::string& parent,
             const std::string& name) noexcept {
    try {
        Committed one;
        std::string path = parent + "/" + name;
        int32_t handle = -1;
        if (!files.open_directory(path.c_str(), &handle).ok()) {
            return;
        }
        bool is_ours = true;
        if (parse_committed(name, one)) {
            const std::string trash =
                parent + "/" + std::string(kTrash) + std::to_string(one.sequence) + "-" + one.id;
            is_ours = files.rename(path.c_str(), trash.c_str()).ok();
            path = trash;
        }
        if (is_ours) {
            remove_directory(files, handle, path);
        }
        (void)files.close(handle);
    } catch (const std::exception&) { // NOLINT(bugprone-empty-catch): what stays is tried again
    }
}

std::string parent_of(const std::string& path) {
    const std::size_t last = path.find_last_not_of('/');
    const std::size_t slash = last == std::string::npos ? last : path.find_last_of('/', last);
    if (slash == std::string::npos) {
        return ".";
    }
    return slash == 0 ? "/" : path.substr(0, slash);
}

void make_parent(system::FileTable& files, const std::string& parent) {
    std::vector<std::string> names;
    const Status listed = files.list(parent.c_str(), &names);
    if (listed.ok()) {
        return;
    }
    if (listed.code() == Code::out_of_memory) { // that says nothing of the folder
        check(listed);
    }
    check(files.make_directory(parent.c_str()));
    check(files.sync_directory(parent_of(parent).c_str()));
}

Manifest read_committed(system::FileTable& files, const std::string& parent, const Committed& one) {
    const std::string directory = parent + "/" + one.name;
    require_directory(files, directory);
    return manifest_of(files, directory);
}

bool is_checkpoint(system::FileTable& files, const std::string& path) {
    std::vector<std::string> names;
    check(files.list(path.c_str(), &names));
    return std::find(names.begin(), names.end(), kManifestName) != names.end();
}

Found find_checkpoint(system::FileTable& files, const std::string& path) {
    if (is_checkpoint(files, path)) {
        return {path, manifest_of(files, path), {}};
    }
    std::string skipped;
    for (const Committed& one : list_committed(files, path)) {
        const std::string directory = path + "/" + one.name;
        try {
            return {directory, read_committed(files, path, one), skipped};
        } catch (const Error& error) {
            const Code code = error.status().code();
            if (code != Code::corrupt_data && code != Code::io_error) {
                throw;
            }
            skipped += (skipped.empty() ? "" : "; ") + one.name + ": " + error.status().text();
        }
    }
    fail(Code::io_error, "checkpoint: '%s' has no checkpoint that can be read%s%s", path.c_str(),
         skipped.empty() ? "" : ": ", skipped.c_str());
}

} // namespace mp::checkpoint
