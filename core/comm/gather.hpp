// SPDX-License-Identifier: Apache-2.0
// All-gather of values in a wire type: bf16, fp8 codes with their scales, or as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/wire.hpp"
#include "comm/wire_buffer.hpp"
#include "runtime/stream.hpp"

namespace mp::comm {

struct GatherDesc {
    Format wire = wire_format(DType::bf16);
    numerics::Rounding rounding; // of the whole array's first element
    int64_t deadline_ms = 0;
    const char* site = nullptr;
};

// Every rank gets all ranks' shards, the owner too as they went over the wire.
class AllGatherValues {
  public:
    AllGatherValues(Communicator& comm, Stream& stream)
        : comm_(comm), stream_(stream.shared_from_this()) {}

    // The shard may lie in its place in the destination (fp32, fp16 or bf16).
    void begin(const GatherDesc& desc, const ArrayRef& shard, std::span<const int64_t> counts,
               const TensorRef& destination);
    void wait();
    bool test();
    [[nodiscard]] bool is_open() const noexcept { return is_open_; }

    // It has one message.
    [[nodiscard]] static bool begins_more() noexcept { return false; }
    static void begin_rest() noexcept {}

  private:
    void unpack_received();

    Communicator& comm_;
    std::shared_ptr<Stream> stream_;
    bool is_open_ = false;
    bool is_direct_ = false;
    GatherDesc desc_;
    std::vector<int64_t> counts_;
    std::vector<int64_t> offsets_;
    TensorRef destination_;
    std::unique_ptr<WireBuffer> buffer_;
    CommRequest request_;
};

} // namespace mp::comm
