// SPDX-License-Identifier: Apache-2.0
// One reduction over thread ranks, and what the wire makes of one element of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "numerics/quantize.hpp"
#include "rank_device.hpp"
#include "ranks.hpp"
#include "wire_formats.hpp"

namespace mp::test {

using comm::ReduceDesc;
using comm::ReduceScatter;
using comm::SumOrder;

// One reduction by `ranks` ranks; the shards one after another.
struct ReduceCase {
    ReduceDesc desc;
    int64_t total = 0;
    DType source = DType::fp32;
    DType result = DType::fp32;
    int32_t threads = 1;
    std::string backend = "host";
    // Of the whole array, by rank; empty: even, at multiples of 128.
    std::vector<int64_t> counts;
};

inline Values reduced(const ReduceCase& run, int32_t ranks, int64_t* bytes = nullptr) {
    std::vector<int64_t> counts = run.counts;
    if (counts.empty()) {
        counts = comm::even_counts(run.total, ranks, 128);
    }
    Values all(run.result, run.total);
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
        const auto stream = make_stream(run.threads, run.backend);
        const int32_t slots = run.desc.slots == 0 ? ranks : run.desc.slots;
        const comm::SlotRun own = comm::slots_of(comm.rank(), ranks, slots);
        std::vector<Values> arrays;
        std::vector<ArrayRef> sources;
        for (int32_t slot = own.first; slot < own.end; ++slot) {
            arrays.push_back(
                gradients(run.source, slot, run.desc.rounding.first_element, run.total));
        }
        for (Values& array : arrays) {
            sources.push_back(plain_array(array.ref()));
        }
        const auto me = static_cast<std::size_t>(comm.rank());
        const auto at = static_cast<std::ptrdiff_t>(me);
        const int64_t first = std::accumulate(counts.begin(), counts.begin() + at, int64_t{0});
        Values shard(run.result, counts[me]);
        ReduceScatter reduce(comm, *stream);
        reduce.begin(run.desc, sources, counts, shard.ref());
        reduce.wait();
        const std::lock_guard lock(mutex);
        std::copy(shard.bytes.begin(), shard.bytes.end(),
                  all.bytes.begin() + static_cast<std::ptrdiff_t>(bytes_of(run.result, first)));
        if (bytes != nullptr) {
            *bytes += comm.traffic().total_bytes();
        }
    });
    return all;
}

// What one element is after it went over the wire in a message that begins at `first` and has `count`. Written
// without the library's pack().
inline float on_wire(const Format& format, int32_t slot, int64_t first, int64_t count, int64_t i) {
    const float x = gradient_at(slot, i);
    if (!format.is_quantized()) {
        Values one(format.dtype, 1);
        one.set(0, x);
        return one.get(0);
    }
    const int64_t width = comm::wire_block(format) == 0 ? count : comm::wire_block(format);
    const int64_t begin = first + (i - first) / width * width;
    float amax = 0.0F;
    for (int64_t j = begin; j < std::min(begin + width, first + count); ++j) {
        amax = std::max(amax, std::fabs(gradient_at(slot, j)));
    }
    const auto rule = comm::wire_scale(format) == WireScale::mx ? numerics::ScaleRule::mx_rceil
                                                                : numerics::ScaleRule::current;
    const numerics::BlockScale scale =
        numerics::block_scale(numerics::scale_policy(rule, format.dtype), amax, 1.0F, 0.0F);
    Values code(format.dtype, 1);
    numerics::store_quantized(format.dtype, code.bytes.data(), 0,
                              numerics::quantize_code(format.dtype, x, scale.multiply));
    return code.get(0) * scale.scale_inv;
}

} // namespace mp::test
