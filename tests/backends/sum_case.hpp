// SPDX-License-Identifier: Apache-2.0
// One sum of parts of a test: its arrays on a device, what comes out, and the orders in which parts are merged.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "harness.hpp"
#include "numerics/part_sum.hpp"

namespace mp::test {

struct Part {
    HostArray codes;
    HostArray scales; // none where codes are no fp8
    int32_t merges = 0;
};

struct SumCase {
    std::vector<Part> parts;
    SumMode mode = SumMode::fp32;
    DType to = DType::fp32;
    ScaleGrid grid = kRowBlockScales;
    int64_t count = 0;
    int64_t first_element = 0;
    int32_t fixed_bits = numerics::fixed_bits(6);
    std::vector<uint32_t> block_amax;
    int64_t offset = 0; // elements
    int64_t written_first = 0;
};

struct SumResult {
    std::vector<unsigned char> sum;
    std::vector<uint32_t> block_amax;
    bool operator==(const SumResult&) const = default;
};

inline int64_t block_count(const SumCase& c) {
    constexpr int64_t kBlock = numerics::kExactBlock;
    return c.count == 0 ? 0 : (c.first_element % kBlock + c.count + kBlock - 1) / kBlock;
}

// False where the candidate does not support the case.
inline bool sum(TestDevice& on, const Candidate& candidate, const SumCase& c, SumResult& result) {
    std::vector<std::unique_ptr<DeviceArray>> arrays;
    std::vector<SumPart> parts;
    for (const Part& part : c.parts) {
        SumPart to;
        arrays.push_back(std::make_unique<DeviceArray>(on, part.codes, c.offset));
        to.codes = arrays.back()->data();
        to.dtype = part.codes.dtype;
        to.merges = part.merges;
        if (part.scales.dtype != DType::none) {
            arrays.push_back(std::make_unique<DeviceArray>(on, part.scales, c.offset));
            to.scale_inv = arrays.back()->data();
        }
        parts.push_back(to);
    }
    const DeviceBytes table(on, parts.data(), parts.size() * sizeof(SumPart));
    std::vector<uint32_t> amax = c.block_amax;
    amax.resize(static_cast<std::size_t>(block_count(c)), 0x5a5a5a5aU);
    DeviceBytes blocks(on, amax.data(), amax.size() * sizeof(uint32_t));
    DeviceArray destination(on, HostArray(c.to, c.count), c.offset);
    SumPartsDesc op{};
    op.kind = OpKind::sum_parts;
    op.host_parts = parts.data();
    op.part_count = static_cast<int32_t>(parts.size());
    op.mode = c.mode;
    op.count = c.count;
    op.grid = c.grid;
    op.destination = destination.ref();
    op.block_amax = blocks.as<uint32_t>();
    op.first_element = c.first_element;
    op.fixed_bits = c.fixed_bits;
    op.written_first = c.written_first;
    const auto run_with = [&](const SumPart* device_parts) {
        op.parts = device_parts;
        check(on.device().copy(on.queue(), blocks.data(), amax.data(),
                               amax.size() * sizeof(uint32_t), CopyKind::host_to_device));
        run(on, candidate, op);
        on.sync();
        SumResult found;
        found.sum = destination.download().bytes;
        found.block_amax.resize(amax.size());
        blocks.download(found.block_amax.data());
        return found;
    };
    if (!supports(on, candidate, op)) {
        return false;
    }
    result = run_with(table.as<const SumPart>());
    if (op.part_count <= kPartsOfLaunch) {
        const SumResult few = run_with(nullptr);
        EXPECT_EQ(few.sum, result.sum);
        EXPECT_EQ(few.block_amax, result.block_amax);
    }
    return true;
}

inline Part make_part(DType dtype, int64_t count, const ScaleGrid& grid, Content content,
                      uint64_t seed) {
    Part part;
    part.codes = HostArray(dtype, count);
    if (dtype == DType::int64) {
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t h = numerics::splitmix64(seed * 977 + static_cast<uint64_t>(i));
            const int64_t units = h % 97 == 0 ? numerics::kUnitsNan : static_cast<int64_t>(h) >> 9;
            std::memcpy(part.codes.bytes.data() + 8 * i, &units, sizeof units);
        }
        return part;
    }
    part.codes = make_array(dtype, count, content, seed);
    // Every third one is plain numbers to the sum, as codes are whose scale all ranks know.
    if ((dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2) && seed % 3 != 0) {
        part.scales = make_array(grid.dtype, grid.count(1, count), Content::patterns, seed + 1);
        if (content == Content::normal && grid.dtype == DType::fp32) {
            part.scales = make_array(grid.dtype, grid.count(1, count), content, seed + 1);
        }
    }
    return part;
}

// 0, 1, 1, ...: left to right.
inline void left_to_right(SumCase& c) {
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
        c.parts[i].merges = i == 0 ? 0 : 1;
    }
}

// The balanced tree over a power of two of parts.
inline void balanced(SumCase& c) {
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
        c.parts[i].merges = __builtin_ctz(static_cast<unsigned>(i + 1));
    }
}

} // namespace mp::test
