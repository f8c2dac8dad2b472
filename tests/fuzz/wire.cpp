// SPDX-License-Identifier: Apache-2.0
// What a lying peer may send: any bytes as codes and scales of any wire form, and any maxima. Sums of them never
// leave their buffers, and every instruction set gives the reference's bits.
#include <cstring>
#include <memory>

#include "comm/rank_device.hpp"
#include "comm/sum.hpp"
#include "comm/wire.hpp"
#include "device/sum_supports.hpp"
#include "fuzz/target.hpp"
#include "host/kernels/isa.hpp"
#include "numerics/part_sum.hpp"

namespace {

using namespace mp;

constexpr Format kFormats[] = {
    comm::wire_format(DType::fp32),
    comm::wire_format(DType::bf16),
    comm::wire_format(DType::fp16),
    comm::wire_format(DType::fp8_e4m3, comm::WireScale::block),
    comm::wire_format(DType::fp8_e5m2, comm::WireScale::mx),
    comm::wire_format(DType::fp8_e4m3, comm::WireScale::tensor),
    comm::wire_format(DType::fp8_e5m2, comm::WireScale::block),
    comm::wire_format(DType::int64),
};

using mp::fuzz::require;

// Reads the input from its start again when it ends.
class Input {
  public:
    Input(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    uint8_t byte() { return size_ == 0 ? 0 : data_[next_++ % size_]; }
    int64_t below(int64_t limit) { return (byte() * 256 + byte()) % limit; }
    // Of its own size exactly, so that a sanitizer sees what is read beside it.
    std::unique_ptr<char[]> bytes(int64_t count) {
        auto out = std::make_unique<char[]>(static_cast<std::size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
            out[static_cast<std::size_t>(i)] = static_cast<char>(byte());
        }
        return out;
    }

  private:
    const uint8_t* data_;
    std::size_t size_;
    std::size_t next_ = 0;
};

Stream& reference() {
    static const auto stream = test::make_stream(1, "reference");
    return *stream;
}

std::size_t blocks_of(const SumPartsDesc& op) {
    constexpr int64_t kBlock = numerics::kExactBlock;
    return static_cast<std::size_t>((op.first_element % kBlock + op.count + kBlock - 1) / kBlock);
}

struct Result {
    std::vector<char> sum;
    std::vector<uint32_t> amax;
    bool operator==(const Result&) const = default;
};

template <class Body> Result result_of(SumPartsDesc op, const Result& before, const Body& body) {
    Result result = before;
    op.destination.data = result.sum.data();
    op.block_amax = result.amax.data();
    body(op);
    return result;
}

void compare(SumPartsDesc op, const std::vector<SumPart>& parts, Input& input) {
    Result before;
    before.sum.resize(static_cast<std::size_t>(bytes_of(op.destination.dtype, op.count)));
    before.amax.resize(blocks_of(op));
    for (uint32_t& amax : before.amax) {
        const auto bits = input.bytes(4);
        std::memcpy(&amax, bits.get(), 4);
    }
    op.kind = OpKind::sum_parts;
    op.host_parts = parts.data();
    op.part_count = static_cast<int32_t>(parts.size());
    op.block_amax = before.amax.data();
    Reason reason;
    if (!is_sum_parts(op, reason)) {
        require(!reason.empty());
        return;
    }
    const Result expected = result_of(
        op, before, [&](const SumPartsDesc& desc) { comm::sum_parts(reference(), parts, desc); });
    const backends::host::IsaList list = backends::host::runnable_isas();
    for (int32_t i = 0; i < list.count; ++i) {
        const Result found = result_of(op, before, [&](const SumPartsDesc& desc) {
            if (op.count > 0) {
                list.items[i]->sum_parts({&desc, 0, op.count, false});
            }
        });
        require(found == expected);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    Input input(data, size);
    const Format& format = kFormats[input.below(8)];
    SumPartsDesc op{};
    op.mode = static_cast<SumMode>(input.below(4));
    op.count = input.below(700);
    op.first_element = input.below(300);
    op.fixed_bits = static_cast<int32_t>(input.below(64));
    op.grid = comm::wire_grid(format);
    constexpr DType kResults[] = {DType::fp32, DType::bf16, DType::fp16, DType::int64};
    op.destination = {nullptr, op.count, kResults[input.below(4)]};
    std::vector<SumPart> parts(static_cast<std::size_t>(1 + input.below(5)));
    std::vector<std::unique_ptr<char[]>> memory;
    int64_t depth = 0;
    for (SumPart& part : parts) {
        ++depth;
        part.merges = static_cast<int32_t>(input.below(depth + (depth > 3 ? 1 : 0)));
        part.merges = &part == &parts.back() ? static_cast<int32_t>(depth - 1) : part.merges;
        depth -= part.merges;
        part.dtype = format.dtype;
        memory.push_back(input.bytes(bytes_of(format.dtype, op.count)));
        part.codes = memory.back().get();
        if (format.is_quantized()) {
            memory.push_back(input.bytes(comm::wire_scale_bytes(op.count, format)));
            part.scale_inv = memory.back().get();
        }
    }
    compare(op, parts, input);
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    std::vector<std::string> seeds;
    for (int format = 0; format < 8; ++format) {
        for (int mode = 0; mode < 4; ++mode) {
            std::string seed;
            for (const int number :
                 {format, mode, 130 + 60 * format, 77 * mode, 55, format % 3, 1 + mode, 0, 0, 1}) {
                seed.push_back(static_cast<char>(number / 256));
                seed.push_back(static_cast<char>(number % 256));
            }
            for (int i = 0; i < 40; ++i) {
                seed.push_back(static_cast<char>(i * 37 + format));
            }
            seeds.push_back(seed);
        }
    }
    return seeds;
}
