// SPDX-License-Identifier: Apache-2.0
// Communicators over NCCL whose part the script of mock.hpp plays, and one exchange over them.
#pragma once

#include <gtest/gtest.h>

#include <array>

#include "comm/communicator.hpp"
#include "comm/nccl/transport.hpp"
#include "mock.hpp"

namespace mp::test {

using comm::Communicator;

inline const comm::NcclApi& api() {
    static const comm::NcclApi table = mock_nccl();
    return table;
}

class Nccl : public testing::Test {
  protected:
    void SetUp() override { renew_script(); }
    void TearDown() override {
        EXPECT_EQ(script().errors, std::vector<std::string>());
        EXPECT_EQ(script().group_depth, 0);
    }

    std::unique_ptr<Communicator> make(int32_t rank, int32_t size, int64_t deadline_ms = 300) {
        comm::NcclUniqueId id{};
        check(api().GetUniqueId(&id) == 0 ? Status() : Status::error(Code::internal, "id"));
        Transport* transport = nullptr;
        check(comm::make_nccl_transport(api(), device_, id, rank, size, deadline_ms, &transport));
        EXPECT_STREQ(transport->name(), "nccl(mock)") << "never taken for the real one";
        return std::make_unique<Communicator>(std::unique_ptr<Transport>(transport), deadline_ms);
    }

    // What is called after the making.
    std::vector<std::string> calls_of(Communicator& comm, Status (*body)(Communicator&)) {
        script().calls.clear();
        const Status status = body(comm);
        EXPECT_TRUE(status.ok()) << status.text();
        return script().calls;
    }

    std::shared_ptr<MockDevice> device_ = std::make_shared<MockDevice>();
};

using Calls = std::vector<std::string>;

inline Status exchange(Communicator& comm) {
    // To rank 0: 5 bytes, to itself: 3, to rank 2: none; from rank 0: 2, from rank 2: 4.
    static std::array<unsigned char, 8> send{};
    static std::array<unsigned char, 12> receive{};
    const std::array<int64_t, 3> send_bytes = {5, 3, 0};
    const std::array<int64_t, 3> send_offsets = {0, 5, 8};
    const std::array<int64_t, 3> receive_bytes = {2, 3, 4};
    const std::array<int64_t, 3> receive_offsets = {0, 2, 8};
    return comm.run(comm::AllToAll{send.data(), send_bytes.data(), send_offsets.data(),
                                   receive.data(), receive_bytes.data(), receive_offsets.data()});
}

} // namespace mp::test
