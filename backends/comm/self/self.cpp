// SPDX-License-Identifier: Apache-2.0
#include "comm/self/self.hpp"

#include <cstring>

namespace mp::comm {
namespace {

Status move_bytes(void* receive, int64_t receive_bytes, const void* send,
                  int64_t send_bytes) noexcept {
    if (receive_bytes != send_bytes) {
        return Status::error(
            Code::invalid_argument, "self transport: %lld bytes are sent but %lld are expected",
            static_cast<long long>(send_bytes), static_cast<long long>(receive_bytes));
    }
    if (send_bytes > 0) {
        std::memmove(receive, send, static_cast<std::size_t>(send_bytes));
    }
    return {};
}

class SelfTransport final : public Transport {
  public:
    [[nodiscard]] int32_t rank() const noexcept override { return 0; }
    [[nodiscard]] int32_t size() const noexcept override { return 1; }
    Status max_u32(uint32_t* /*values*/, int64_t /*count*/) noexcept override { return {}; }
    Status all_to_all(const void* send, const int64_t* send_bytes, const int64_t* send_offsets,
                      void* receive, const int64_t* receive_bytes,
                      const int64_t* receive_offsets) noexcept override {
        return move_bytes(static_cast<char*>(receive) + receive_offsets[0], receive_bytes[0],
                          static_cast<const char*>(send) + send_offsets[0], send_bytes[0]);
    }
    Status all_gather(const void* send, int64_t send_bytes, void* receive,
                      const int64_t* receive_bytes,
                      const int64_t* receive_offsets) noexcept override {
        return move_bytes(static_cast<char*>(receive) + receive_offsets[0], receive_bytes[0], send,
                          send_bytes);
    }
    Status broadcast(void* /*data*/, int64_t /*bytes*/, int32_t root) noexcept override {
        return root == 0 ? Status()
                         : Status::error(Code::invalid_argument,
                                         "self transport: root is %d; the only rank is 0", root);
    }
    Status barrier() noexcept override { return {}; }
};

} // namespace

std::unique_ptr<Transport> make_self_transport() { return std::make_unique<SelfTransport>(); }

} // namespace mp::comm
