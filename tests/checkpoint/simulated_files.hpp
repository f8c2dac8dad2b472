// SPDX-License-Identifier: Apache-2.0
// A file table in memory that remembers which operations were synced, so that every state a power failure may leave can
// be built: any subset of what was not synced, writes also torn. (The idea is SQLite's crash tests'.)
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "system/file.hpp"

namespace mp::test {

struct Node {
    bool is_directory = false;
    std::string content;
    std::map<std::string, std::size_t> children;
};

enum class JournalKind { create, write, sync, sync_directory, rename, remove };

struct Op {
    JournalKind kind = JournalKind::create;
    std::size_t node = 0;   // the file, or the directory of the name
    std::string name;       // create, remove, rename: in directory `node`
    std::string other_name; // rename: the new name, in directory `other`
    std::size_t other = 0;  // rename: a directory; create: the new node
    bool is_directory = false;
    int64_t offset = 0;
    std::string data;
};

enum class Fault { none, error, no_space, torn };

class SimulatedFiles final : public system::FileTable {
  public:
    SimulatedFiles();                                 // an empty root "/"
    explicit SimulatedFiles(std::vector<Node> nodes); // all durable

    using FileTable::list;
    using FileTable::make_directory;
    using FileTable::open;
    using FileTable::remove;
    using FileTable::rename;
    Status open(int32_t directory, const char* path, system::OpenMode mode,
                int32_t* handle) noexcept override;
    Status size(int32_t handle, int64_t* bytes) noexcept override;
    Status read(int32_t handle, int64_t offset, void* data, std::size_t bytes) noexcept override;
    Status write(int32_t handle, int64_t offset, const void* data,
                 std::size_t bytes) noexcept override;
    Status sync(int32_t handle) noexcept override;
    Status close(int32_t handle) noexcept override;
    Status make_directory(int32_t directory, const char* path) noexcept override;
    Status rename(int32_t directory, const char* from, const char* to) noexcept override;
    Status replace(int32_t directory, const char* from, const char* to) noexcept override;
    Status remove(int32_t directory, const char* path) noexcept override;
    Status reserve(int32_t handle, int64_t bytes) noexcept override;
    Status list(int32_t directory, std::vector<std::string>* names) noexcept override;
    Status look(int32_t directory, const char* path, system::FileIdentity* found) noexcept override;
    Status look(int32_t handle, system::FileIdentity* found) noexcept override;
    Status lock(int32_t directory, bool* taken) noexcept override;

    // The call with this number (from 1) fails, and with `for_ever` all after it.
    void fail_at(int64_t call, Fault fault, bool for_ever = false);
    [[nodiscard]] int64_t calls() const noexcept { return calls_; }
    [[nodiscard]] int32_t open_handles() const noexcept {
        return static_cast<int32_t>(handles_.size());
    }
    // Other threads get in between calls, by this seed; 0: never on purpose.
    void set_noise(uint64_t seed);

    [[nodiscard]] const std::vector<Node>& nodes() const noexcept { return nodes_; }
    [[nodiscard]] const std::vector<Op>& journal() const noexcept { return journal_; }
    std::string* content(const std::string& path); // null where there is none

  private:
    struct Handle {
        std::size_t node = 0;
        bool is_lock = false;
    };
    bool enter(Status* status, Fault* fault);
    [[nodiscard]] std::size_t start(int32_t directory, const std::string& path) const;
    [[nodiscard]] bool find(int32_t directory, const std::string& path, std::size_t* node) const;
    [[nodiscard]] bool find_parent(int32_t directory, const std::string& path, std::size_t* node,
                                   std::string* name) const;
    [[nodiscard]] system::FileIdentity identity(std::size_t node) const;
    int32_t add_handle(Handle handle);
    Status create(int32_t directory, const char* path, bool is_directory, std::size_t* node);
    Status erase(std::size_t directory, const std::string& name);

    std::mutex mutex_;
    std::vector<Node> nodes_;
    std::vector<Op> journal_;
    std::map<int32_t, Handle> handles_;
    std::set<std::size_t> locked_;
    int32_t next_handle_ = 3;
    int64_t calls_ = 0;
    int64_t fail_call_ = 0;
    Fault fault_ = Fault::none;
    bool fail_for_ever_ = false;
    std::mt19937_64 noise_;
    bool has_noise_ = false;
};

// An operation on nodes; one whose names are not there does nothing.
void apply_op(std::vector<Node>& nodes, const Op& op, bool half);
// The operations among the first `length` of a journal that a crash may or may not have kept.
std::vector<std::size_t> pending_ops(const std::vector<Op>& journal, std::size_t length);
// What is there after a crash that kept all that was synced and of the pending ones those with their bit in `kept`; the
// last kept write is only half there where `torn`.
std::vector<Node> crash_state(const std::vector<Node>& before, const std::vector<Op>& journal,
                              std::size_t length, const std::vector<std::size_t>& pending,
                              uint64_t kept, bool torn);
// The same for equal trees.
uint64_t tree_hash(const std::vector<Node>& nodes);

} // namespace mp::test
