// SPDX-License-Identifier: Apache-2.0
// The calls of the simulated file table: each may fail, and is written into a journal.
#include "checkpoint/simulated_files.hpp"

#include <cstring>
#include <thread>

#include "allocations.hpp"

namespace mp::test {
namespace {

Status missing(const char* path) {
    return Status::error(Code::io_error, "'%s': no such file", path);
}

} // namespace

SimulatedFiles::SimulatedFiles() : nodes_(1) { nodes_[0].is_directory = true; }
SimulatedFiles::SimulatedFiles(std::vector<Node> nodes) : nodes_(std::move(nodes)) {}

void SimulatedFiles::fail_at(int64_t call, Fault fault, bool for_ever) {
    calls_ = 0;
    fail_call_ = call;
    fault_ = fault;
    fail_for_ever_ = for_ever;
}

void SimulatedFiles::set_noise(uint64_t seed) {
    noise_.seed(seed);
    has_noise_ = seed != 0;
}

// True where the call goes on; a torn write goes on and fails afterwards.
bool SimulatedFiles::enter(Status* status, Fault* fault) {
    ++calls_;
    const bool fails =
        fail_call_ > 0 && (calls_ == fail_call_ || (fail_for_ever_ && calls_ > fail_call_));
    *fault = fails ? fault_ : Fault::none;
    if (fails) {
        *status = Status::error(Code::io_error, "simulated: call %lld failed",
                                static_cast<long long>(calls_));
    }
    return !fails || fault_ == Fault::torn;
}

namespace {
// The simulation stands for the system and does not run out of memory.
class NoAllocationFails {
  public:
    NoAllocationFails() noexcept : left_(allocations_left) { allocations_left = -1; }
    ~NoAllocationFails() { allocations_left = left_; }
    NoAllocationFails(const NoAllocationFails&) = delete;
    NoAllocationFails& operator=(const NoAllocationFails&) = delete;

  private:
    int64_t left_;
};
} // namespace

#define MP_ENTER                                                                                   \
    const NoAllocationFails no_failure;                                                            \
    if (has_noise_) {                                                                              \
        const std::lock_guard<std::mutex> hold(mutex_);                                            \
        if (noise_() % 2 == 0) {                                                                   \
            std::this_thread::yield();                                                             \
        }                                                                                          \
    }                                                                                              \
    const std::lock_guard<std::mutex> lock(mutex_);                                                \
    Status status;                                                                                 \
    Fault fault = Fault::none;                                                                     \
    if (!enter(&status, &fault)) {                                                                 \
        return status;                                                                             \
    }

std::size_t SimulatedFiles::start(int32_t directory, const std::string& path) const {
    const bool from_root = directory == system::kCurrentDirectory || path.starts_with('/');
    return from_root ? 0 : handles_.at(directory).node;
}

bool SimulatedFiles::find(int32_t directory, const std::string& path, std::size_t* node) const {
    std::size_t at = start(directory, path);
    for (std::size_t begin = 0; begin < path.size();) {
        std::size_t end = path.find('/', begin);
        end = end == std::string::npos ? path.size() : end;
        const std::string part = path.substr(begin, end - begin);
        begin = end + 1;
        if (part.empty() || part == ".") {
            continue;
        }
        const auto child = nodes_[at].children.find(part);
        if (child == nodes_[at].children.end()) {
            return false;
        }
        at = child->second;
    }
    *node = at;
    return true;
}

bool SimulatedFiles::find_parent(int32_t directory, const std::string& path, std::size_t* node,
                                 std::string* name) const {
    const std::size_t slash = path.rfind('/');
    *name = slash == std::string::npos ? path : path.substr(slash + 1);
    return find(directory, slash == std::string::npos ? "" : path.substr(0, slash + 1), node) &&
           nodes_[*node].is_directory;
}

int32_t SimulatedFiles::add_handle(Handle handle) {
    handles_[next_handle_] = handle;
    return next_handle_++;
}

system::FileIdentity SimulatedFiles::identity(std::size_t node) const {
    return {nodes_[node].is_directory ? system::FileKind::directory : system::FileKind::regular, 1,
            node};
}

Status SimulatedFiles::create(int32_t directory, const char* path, bool is_directory,
                              std::size_t* node) {
    std::size_t parent = 0;
    std::string name;
    if (!find_parent(directory, path, &parent, &name)) {
        return missing(path);
    }
    if (nodes_[parent].children.contains(name)) {
        return Status::error(Code::io_error, "'%s' exists", path);
    }
    Op op;
    op.kind = JournalKind::create;
    op.node = parent;
    op.name = name;
    op.other = nodes_.size();
    op.is_directory = is_directory;
    nodes_.emplace_back();
    apply_op(nodes_, op, false);
    *node = op.other;
    journal_.push_back(std::move(op));
    return {};
}

Status SimulatedFiles::open(int32_t directory, const char* path, system::OpenMode mode,
                            int32_t* handle) noexcept {
    MP_ENTER
    std::size_t node = 0;
    const bool wants_directory =
        mode == system::OpenMode::directory || mode == system::OpenMode::plain_directory;
    if (mode == system::OpenMode::create_new) {
        const Status created = create(directory, path, false, &node);
        if (!created.ok()) {
            return created;
        }
    } else if (!find(directory, path, &node) || (wants_directory && !nodes_[node].is_directory)) {
        return missing(path);
    }
    *handle = add_handle({node, false});
    return {};
}

Status SimulatedFiles::size(int32_t handle, int64_t* bytes) noexcept {
    MP_ENTER
    *bytes = static_cast<int64_t>(nodes_[handles_.at(handle).node].content.size());
    return {};
}

Status SimulatedFiles::read(int32_t handle, int64_t offset, void* data,
                            std::size_t bytes) noexcept {
    MP_ENTER
    const std::string& content = nodes_[handles_.at(handle).node].content;
    if (fault == Fault::torn) {
        return status;
    }
    if (static_cast<std::size_t>(offset) + bytes > content.size()) {
        return Status::error(Code::io_error, "read: the file ended early");
    }
    std::memcpy(data, content.data() + offset, bytes);
    return {};
}

Status SimulatedFiles::write(int32_t handle, int64_t offset, const void* data,
                             std::size_t bytes) noexcept {
    MP_ENTER
    Op op;
    op.kind = JournalKind::write;
    op.node = handles_.at(handle).node;
    op.offset = offset;
    op.data.assign(static_cast<const char*>(data), fault == Fault::torn ? bytes / 2 : bytes);
    apply_op(nodes_, op, false);
    journal_.push_back(std::move(op));
    return status;
}

Status SimulatedFiles::sync(int32_t handle) noexcept {
    MP_ENTER
    if (fault == Fault::torn) {
        return status;
    }
    Op op;
    op.node = handles_.at(handle).node;
    op.kind = nodes_[op.node].is_directory ? JournalKind::sync_directory : JournalKind::sync;
    journal_.push_back(std::move(op));
    return {};
}

// The handle is gone whatever the status, as with the system's close.
Status SimulatedFiles::close(int32_t handle) noexcept {
    const NoAllocationFails no_failure;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = handles_.find(handle);
    if (found == handles_.end()) {
        return Status::error(Code::internal, "closed twice");
    }
    if (found->second.is_lock) {
        locked_.erase(found->second.node);
    }
    handles_.erase(found);
    Status status;
    Fault fault = Fault::none;
    (void)enter(&status, &fault);
    return status;
}

Status SimulatedFiles::make_directory(int32_t directory, const char* path) noexcept {
    MP_ENTER
    std::size_t node = 0;
    const Status created = create(directory, path, true, &node);
    return created.ok() ? status : created;
}

Status SimulatedFiles::rename(int32_t directory, const char* from, const char* to) noexcept {
    MP_ENTER
    Op op;
    op.kind = JournalKind::rename;
    if (!find_parent(directory, from, &op.node, &op.name) ||
        !find_parent(directory, to, &op.other, &op.other_name) ||
        !nodes_[op.node].children.contains(op.name)) {
        return missing(from);
    }
    if (nodes_[op.other].children.contains(op.other_name)) {
        return Status::error(Code::io_error, "'%s' exists", to);
    }
    apply_op(nodes_, op, false);
    journal_.push_back(std::move(op));
    return status;
}

// What a save does is never in need of it.
Status SimulatedFiles::replace(int32_t /*directory*/, const char* /*from*/,
                               const char* to) noexcept {
    return Status::error(Code::unsupported, "'%s': not simulated", to);
}

Status SimulatedFiles::erase(std::size_t directory, const std::string& name) {
    const auto child = nodes_[directory].children.find(name);
    if (child == nodes_[directory].children.end()) {
        return missing(name.c_str());
    }
    if (!nodes_[child->second].children.empty()) {
        return Status::error(Code::io_error, "'%s' is not empty", name.c_str());
    }
    Op op;
    op.kind = JournalKind::remove;
    op.node = directory;
    op.name = name;
    apply_op(nodes_, op, false);
    journal_.push_back(std::move(op));
    return {};
}

Status SimulatedFiles::remove(int32_t directory, const char* path) noexcept {
    MP_ENTER
    std::size_t parent = 0;
    std::string name;
    const Status erased =
        find_parent(directory, path, &parent, &name) ? erase(parent, name) : missing(path);
    return erased.ok() ? status : erased;
}

Status SimulatedFiles::reserve(int32_t /*handle*/, int64_t /*bytes*/) noexcept {
    MP_ENTER
    return status;
}

Status SimulatedFiles::list(int32_t directory, std::vector<std::string>* names) noexcept {
    MP_ENTER
    names->clear();
    for (const auto& [name, child] : nodes_[handles_.at(directory).node].children) {
        names->push_back(name);
    }
    return status;
}

Status SimulatedFiles::look(int32_t directory, const char* path,
                            system::FileIdentity* found) noexcept {
    MP_ENTER
    std::size_t node = 0;
    *found = find(directory, path, &node) ? identity(node) : system::FileIdentity();
    return status;
}

Status SimulatedFiles::look(int32_t handle, system::FileIdentity* found) noexcept {
    MP_ENTER
    *found = identity(handles_.at(handle).node);
    return status;
}

Status SimulatedFiles::lock(int32_t directory, bool* taken) noexcept {
    MP_ENTER
    Handle& handle = handles_.at(directory);
    *taken = locked_.insert(handle.node).second;
    handle.is_lock = *taken;
    return {};
}

std::string* SimulatedFiles::content(const std::string& path) {
    std::size_t node = 0;
    return find(system::kCurrentDirectory, path, &node) ? &nodes_[node].content : nullptr;
}

} // namespace mp::test
