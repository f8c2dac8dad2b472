// SPDX-License-Identifier: Apache-2.0
#include "comm/self/self.hpp"

#include <cstring>
#include <new>

namespace mp::comm {
namespace {

void move_bytes(void* to, int64_t to_offset, const void* from, int64_t from_offset, int64_t bytes) {
    if (bytes > 0) {
        std::memmove(static_cast<char*>(to) + to_offset,
                     static_cast<const char*>(from) + from_offset, static_cast<std::size_t>(bytes));
    }
}

Status mismatch(int64_t sent, int64_t expected) {
    return Status::error(Code::rank_mismatch, "%lld bytes are sent but %lld are expected",
                         static_cast<long long>(sent), static_cast<long long>(expected));
}

class SelfTransport final : public Transport {
  public:
    [[nodiscard]] int32_t rank() const noexcept override { return 0; }
    [[nodiscard]] int32_t size() const noexcept override { return 1; }
    [[nodiscard]] const char* name() const noexcept override { return "self"; }
    [[nodiscard]] TransportCaps caps() const noexcept override { return {true, false}; }
    void abort(const Status& /*reason*/) noexcept override {}

    Status begin(const Collective& what, TransportRequest** out) noexcept override {
        if (what.kind == CollectiveKind::all_to_all || what.kind == CollectiveKind::all_gather) {
            if (what.send_bytes[0] != what.receive_bytes[0]) {
                return mismatch(what.send_bytes[0], what.receive_bytes[0]);
            }
            move_bytes(what.receive, what.receive_offsets[0], what.send,
                       what.kind == CollectiveKind::all_to_all ? what.send_offsets[0] : 0,
                       what.send_bytes[0]);
        }
        *out = new (std::nothrow) DoneRequest;
        return *out != nullptr ? Status()
                               : Status::error(Code::out_of_memory, "no memory for a request");
    }

    Status make_group(const GroupDesc& group, Transport** out) noexcept override {
        *out = group.color < 0 ? nullptr : new (std::nothrow) SelfTransport;
        return *out != nullptr || group.color < 0
                   ? Status()
                   : Status::error(Code::out_of_memory, "no memory for a transport");
    }
};

} // namespace

std::unique_ptr<Transport> make_self_transport() { return std::make_unique<SelfTransport>(); }

} // namespace mp::comm
