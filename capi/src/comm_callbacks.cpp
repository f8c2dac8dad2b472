// SPDX-License-Identifier: Apache-2.0
#include "comm_callbacks.hpp"

#include <string>
#include <vector>

#include "callers_function.hpp"
#include "objects.hpp"
#include "status/guarded.hpp"
#include "versioned_struct.hpp"

namespace mp::capi {
namespace {

static_assert(MP_COMM_ALL_TO_ALL == static_cast<int32_t>(CollectiveKind::all_to_all));
static_assert(MP_COMM_ALL_GATHER == static_cast<int32_t>(CollectiveKind::all_gather));
static_assert(MP_COMM_BROADCAST == static_cast<int32_t>(CollectiveKind::broadcast));
static_assert(MP_COMM_BARRIER == static_cast<int32_t>(CollectiveKind::barrier));
static_assert(MP_COMM_MAX_U32 == static_cast<int32_t>(CollectiveKind::max_u32));
static_assert(MP_COMM_SUM_F32 == static_cast<int32_t>(CollectiveKind::sum_f32));

// What the caller's function returns.
template <typename Call> Status status_from(const Call& call, const char* function) noexcept {
    const mp_status status = call_callers(call);
    return status >= 0 ? Status()
                       : Status::error(failure_code(status), "the caller's %s returned %d (%s)",
                                       function, status, mp_status_string(status));
}

class CallbackRequest final : public TransportRequest {
  public:
    explicit CallbackRequest(const mp_comm_callbacks& table) noexcept : table_(table) {}
    ~CallbackRequest() override {
        if (is_open_) {
            const process::CallerFloats floats;
            table_.release(request_, table_.payload);
        }
    }
    Status begin(const Collective& what) noexcept {
        operation_.struct_size = sizeof operation_;
        operation_.kind = static_cast<int32_t>(what.kind);
        operation_.sequence = what.sequence;
        operation_.send = what.send;
        operation_.send_bytes = what.send_bytes;
        operation_.send_offsets = what.send_offsets;
        operation_.receive = what.receive;
        operation_.receive_bytes = what.receive_bytes;
        operation_.receive_offsets = what.receive_offsets;
        operation_.count = what.count;
        operation_.root = what.root;
        stream_ = what.stream;
        operation_.native = stream_ != nullptr ? &stream_ : nullptr;
        const Status status = status_from(
            [&] { return table_.begin(&operation_, &request_, table_.payload); }, "begin");
        is_open_ = status.ok();
        return status;
    }
    Status poll(bool* done) noexcept override {
        int32_t is_done = 0;
        const Status status =
            status_from([&] { return table_.poll(request_, &is_done, table_.payload); }, "poll");
        *done = is_done != 0;
        return status;
    }

  private:
    const mp_comm_callbacks& table_; // the transport's, which outlives its requests
    mp_comm_operation operation_{};
    void* stream_ = nullptr;
    void* request_ = nullptr;
    bool is_open_ = false;
};

class CallbackTransport final : public Transport {
  public:
    explicit CallbackTransport(const mp_comm_callbacks& table)
        : table_(table), name_(table.name != nullptr ? table.name : "callbacks") {
        if (table.nodes != nullptr) {
            nodes_.assign(table.nodes, table.nodes + table.size);
        }
    }
    ~CallbackTransport() override {
        if (table_.destroy != nullptr) {
            const process::CallerFloats floats;
            table_.destroy(table_.payload);
        }
    }
    [[nodiscard]] int32_t rank() const noexcept override { return table_.rank; }
    [[nodiscard]] int32_t size() const noexcept override { return table_.size; }
    [[nodiscard]] const char* name() const noexcept override { return name_.c_str(); }
    [[nodiscard]] TransportCaps caps() const noexcept override {
        return {(table_.flags & MP_COMM_HAS_SUM_F32) != 0,
                (table_.flags & MP_COMM_HAS_DEVICE_MEMORY) != 0};
    }
    [[nodiscard]] const char* why_one_thread() const noexcept override {
        return (table_.flags & MP_COMM_TAKES_ANY_THREAD) != 0
                   ? nullptr
                   : "the caller's table has no MP_COMM_TAKES_ANY_THREAD";
    }
    [[nodiscard]] int32_t node(int32_t rank) const noexcept override {
        return nodes_.empty() ? 0 : nodes_[static_cast<std::size_t>(rank)];
    }
    [[nodiscard]] int32_t next_context() const noexcept override { return next_context_; }

    Status begin(const Collective& what, TransportRequest** out) noexcept override {
        auto* request = new (std::nothrow) CallbackRequest(table_);
        if (request == nullptr) {
            return Status::error(Code::out_of_memory, "no memory for a request");
        }
        const Status status = request->begin(what);
        if (status.ok()) {
            *out = request;
        } else {
            delete request;
        }
        return status;
    }

    void abort(const Status& reason) noexcept override {
        if (table_.abort != nullptr) {
            const process::CallerFloats floats;
            table_.abort(static_cast<mp_status>(reason.code()), reason.text(), table_.payload);
        }
    }

    void pause(int64_t attempt, int64_t nanoseconds) noexcept override {
        if (table_.pause != nullptr) {
            const process::CallerFloats floats;
            table_.pause(nanoseconds, table_.payload);
        } else {
            Transport::pause(attempt, nanoseconds);
        }
    }

    Status make_group(const GroupDesc& group, Transport** out) noexcept override;

  private:
    mp_comm_callbacks table_;
    std::string name_;
    std::vector<int32_t> nodes_;
    int32_t next_context_ = 1;
};

Status CallbackTransport::make_group(const GroupDesc& desc, Transport** out) noexcept {
    *out = nullptr;
    next_context_ = desc.next_context;
    if (table_.split == nullptr) {
        return Status::error(Code::unsupported, "the caller's table has no split");
    }
    mp_comm_group group{};
    group.struct_size = sizeof group;
    group.color = desc.color;
    group.key = desc.key;
    group.count = desc.count;
    group.rank = desc.rank;
    group.context = desc.context;
    group.members = desc.members;
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
    const Status status =
        status_from([&] { return table_.split(&group, &table, table_.payload); }, "split");
    if (!status.ok() || desc.color < 0) {
        return status;
    }
    return guarded("a transport", [&] {
        *out = make_callback_transport(&table).release();
        return Status();
    });
}

} // namespace

std::unique_ptr<Transport> make_callback_transport(const mp_comm_callbacks* callbacks) {
    const auto table = read_struct(callbacks, "callbacks");
    check_flags(table.flags,
                MP_COMM_HAS_SUM_F32 | MP_COMM_HAS_DEVICE_MEMORY | MP_COMM_TAKES_ANY_THREAD,
                "callbacks.flags");
    if (table.size < 1 || table.rank < 0 || table.rank >= table.size) {
        fail(Code::invalid_argument, "callbacks: rank is %d and size is %d; wants 0 <= rank < size",
             table.rank, table.size);
    }
    if (table.begin == nullptr || table.poll == nullptr || table.release == nullptr) {
        fail(Code::null_argument, "callbacks: begin, poll and release are required");
    }
    return std::make_unique<CallbackTransport>(table);
}

} // namespace mp::capi
