// SPDX-License-Identifier: Apache-2.0
// How far sums over N ranks are off: ours, through the library, and for comparison what rings and trees that round in the
// wire's type at every hop give, simulated here. Relative root mean square errors, of gradients of 1e-3 whose left half has
// a mean of 1e-3 on every rank and whose right half has none; of bf16 against the exact sum of the bf16 values, of fp8
// against the sum of the unrounded ones. The figures were computed apart from this library, in another language.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <mutex>
#include <numbers>

#include "numerics/quantize.hpp"
#include "rank_device.hpp"
#include "ranks.hpp"
#include "wire_formats.hpp"

namespace mp::test {
namespace {

using comm::ReduceDesc;

constexpr int64_t kHalf = 8192;
constexpr int64_t kCount = 2 * kHalf;

struct Errors {
    double correlated;
    double centred;
};

double uniform(int32_t rank, int64_t i, uint64_t stream) {
    const uint64_t bits = numerics::splitmix64((static_cast<uint64_t>(rank) << 40) ^
                                               (static_cast<uint64_t>(i) << 2) ^ stream);
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// Box and Muller's transform.
float gradient(int32_t rank, int64_t i) {
    const double normal = std::sqrt(-2.0 * std::log(uniform(rank, i, 1))) *
                          std::cos(2.0 * std::numbers::pi * uniform(rank, i, 2));
    return static_cast<float>(1e-3 * (normal + (i < kHalf ? 1.0 : 0.0)));
}

float rounded(DType dtype, float x) {
    Values one(dtype, 1);
    one.set(0, x);
    return one.get(0);
}

// Gradients of all ranks.
std::vector<std::vector<float>> gradients_of(int32_t ranks, bool in_bf16) {
    std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        for (int64_t i = 0; i < kCount; ++i) {
            const float x = gradient(static_cast<int32_t>(rank), i);
            all[rank].push_back(in_bf16 ? rounded(DType::bf16, x) : x);
        }
    }
    return all;
}

Errors errors_of(const std::vector<std::vector<float>>& gradients, const std::vector<float>& sums) {
    std::array<double, 2> wrong = {};
    std::array<double, 2> size = {};
    for (std::size_t i = 0; i < sums.size(); ++i) {
        double exact = 0.0;
        for (const std::vector<float>& of_rank : gradients) {
            exact += of_rank[i];
        }
        const std::size_t half = i < kHalf ? 0 : 1;
        wrong[half] += (sums[i] - exact) * (sums[i] - exact);
        size[half] += exact * exact;
    }
    return {std::sqrt(wrong[0] / size[0]), std::sqrt(wrong[1] / size[1])};
}

// ---- rings and trees that round at every hop

using Round = std::function<float(float)>;

std::vector<float> ring(const std::vector<std::vector<float>>& gradients, const Round& round) {
    std::vector<float> sums(gradients[0].size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = round(gradients[0][i]);
        for (std::size_t rank = 1; rank < gradients.size(); ++rank) {
            sums[i] = round(sums[i] + round(gradients[rank][i]));
        }
    }
    return sums;
}

std::vector<float> tree(std::vector<std::vector<float>> gradients, const Round& round) {
    for (std::size_t step = 1; step < gradients.size(); step *= 2) {
        for (std::size_t rank = 0; rank + step < gradients.size(); rank += 2 * step) {
            for (std::size_t i = 0; i < gradients[rank].size(); ++i) {
                gradients[rank][i] = round(gradients[rank][i] + gradients[rank + step][i]);
            }
        }
    }
    return gradients[0];
}

float bf16(float x) { return rounded(DType::bf16, x); }

// E4M3 with one scale for all, the largest gradient times `room` on the largest code; saturating, as NCCL's.
Round e4m3(const std::vector<std::vector<float>>& gradients, float room) {
    float amax = 0.0F;
    for (const std::vector<float>& of_rank : gradients) {
        for (const float x : of_rank) {
            amax = std::max(amax, std::fabs(x));
        }
    }
    const float scale = 448.0F / (amax * room);
    return [scale](float x) {
        Values code(DType::fp8_e4m3, 1);
        numerics::store_from_float(DType::fp8_e4m3, code.bytes.data(), 0, x * scale, true);
        return code.get(0) / scale;
    };
}

// ---- ours

struct Ours {
    Format wire = comm::wire_format(DType::bf16);
    DType result = DType::fp32;
    int32_t node_ranks = 0;         // inside nodes first, then between them
    const Format* gather = nullptr; // all-reduce, and what the sums are gathered as
};

void reduce(Communicator& comm, const Ours& how, const ArrayRef& source, Values& shard,
            const std::vector<int64_t>& counts) {
    const auto stream = make_stream();
    ReduceDesc desc;
    desc.wire = how.wire;
    if (how.gather != nullptr) {
        comm::AllReduce all(comm, *stream);
        all.begin(desc, {&source, 1}, shard.ref(), how.gather);
        all.wait();
    } else if (how.node_ranks > 0) {
        std::unique_ptr<Communicator> inside;
        std::unique_ptr<Communicator> across;
        check(comm.split(comm.rank() / how.node_ranks, 0, &inside));
        check(comm.split(comm.rank() % how.node_ranks, 0, &across));
        const auto nodes = static_cast<std::size_t>(across->size());
        const std::vector<int64_t> of_rank(static_cast<std::size_t>(how.node_ranks),
                                           counts[0] * across->size());
        Values sums(DType::fp32, of_rank[0]);
        comm::ReduceScatter first(*inside, *stream);
        first.begin(desc, {&source, 1}, of_rank, sums.ref());
        first.wait();
        const ArrayRef of_node = plain_array(sums.ref());
        comm::ReduceScatter second(*across, *stream);
        second.begin(desc, {&of_node, 1}, std::vector<int64_t>(nodes, counts[0]), shard.ref());
        second.wait();
    } else {
        comm::ReduceScatter scatter(comm, *stream);
        scatter.begin(desc, {&source, 1}, counts, shard.ref());
        scatter.wait();
    }
}

std::vector<float> ours(const std::vector<std::vector<float>>& gradients, const Ours& how) {
    const auto ranks = static_cast<int32_t>(gradients.size());
    const std::vector<int64_t> counts(gradients.size(), kCount / ranks);
    std::vector<float> sums(static_cast<std::size_t>(kCount));
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& comm) {
        const std::vector<float>& own = gradients[static_cast<std::size_t>(comm.rank())];
        Values source(DType::fp32, kCount);
        std::memcpy(source.bytes.data(), own.data(), source.bytes.size());
        const bool is_whole = how.gather != nullptr;
        Values shard(how.result, is_whole ? kCount : kCount / ranks);
        reduce(comm, how, plain_array(source.ref()), shard, counts);
        // Slice l * nodes + m belongs to local rank l of node m.
        const int32_t width = how.node_ranks > 0 ? how.node_ranks : 1;
        const int32_t slice =
            is_whole ? 0 : comm.rank() % width * (ranks / width) + comm.rank() / width;
        const std::lock_guard lock(mutex);
        for (int64_t i = 0; i < shard.count; ++i) {
            sums[static_cast<std::size_t>(slice * (kCount / ranks) + i)] = shard.get(i);
        }
    });
    return sums;
}

// ---- the table

// Figures are given to one or two digits, from another sample.
constexpr double kTenth = 0.1;
constexpr double kFifth =
    0.2; // where the scale hangs on the largest value of the sample, and errors add up

void expect_near(const Errors& found, const Errors& expected, double part, const char* row,
                 int32_t ranks) {
    std::printf("%2d ranks, %-42s %.2g / %.2g\n", ranks, row, found.correlated, found.centred);
    EXPECT_NEAR(found.correlated, expected.correlated, part * expected.correlated) << row;
    EXPECT_NEAR(found.centred, expected.centred, part * expected.centred) << row;
}

struct Row {
    int32_t ranks;
    Errors bf16_ring, bf16_tree, bf16_ours, bf16_nodes;
    Errors fp8_ring_room, fp8_ring_tight, fp8_ours, fp8_ours_bf16;
};

class ReduceAccuracy : public testing::TestWithParam<Row> {};

TEST_P(ReduceAccuracy, OfBf16OnTheWire) {
    const Row& row = GetParam();
    const auto gradients = gradients_of(row.ranks, true);
    const auto check_row = [&](const std::vector<float>& sums, const Errors& expected,
                               const char* name) {
        expect_near(errors_of(gradients, sums), expected, kTenth, name, row.ranks);
    };
    check_row(ring(gradients, bf16), row.bf16_ring, "bf16 ring");
    check_row(tree(gradients, bf16), row.bf16_tree, "bf16 tree");
    check_row(ours(gradients, {kBf16, DType::bf16}), row.bf16_ours, "ours, bf16 result");
    if (row.ranks > 8) {
        check_row(ours(gradients, {kBf16, DType::bf16, 8}), row.bf16_nodes,
                  "ours, bf16 result, nodes of 8");
    }
    const Errors kept = errors_of(gradients, ours(gradients, {kBf16}));
    std::printf("%2d ranks, %-42s %.2g / %.2g\n", row.ranks, "ours, fp32 result", kept.correlated,
                kept.centred);
    EXPECT_LT(std::max(kept.correlated, kept.centred), 1e-7); // fp32's sums alone
}

TEST_P(ReduceAccuracy, OfFp8OnTheWire) {
    const Row& row = GetParam();
    const auto gradients = gradients_of(row.ranks, false);
    const auto check_row = [&](const std::vector<float>& sums, const Errors& expected, double part,
                               const char* name) {
        expect_near(errors_of(gradients, sums), expected, part, name, row.ranks);
    };
    check_row(ring(gradients, e4m3(gradients, static_cast<float>(row.ranks))), row.fp8_ring_room,
              kFifth, "e4m3 ring, scale with room for N");
    check_row(ring(gradients, e4m3(gradients, 1.0F)), row.fp8_ring_tight, kFifth,
              "e4m3 ring, scale of one rank");
    check_row(ours(gradients, {kBlocks, DType::fp32, 0, &kBlocks}), row.fp8_ours, kTenth,
              "ours, e4m3 blocks both ways");
    check_row(ours(gradients, {kBlocks, DType::bf16}), row.fp8_ours_bf16, kTenth,
              "ours, e4m3 blocks, bf16 result");
}

INSTANTIATE_TEST_SUITE_P(Table, ReduceAccuracy,
                         testing::Values(Row{8,
                                             {3.2e-3, 3.7e-3},
                                             {2.6e-3, 3.1e-3},
                                             {1.7e-3, 1.7e-3},
                                             {},
                                             {.052, .063},
                                             {.47, .17},
                                             {.029, .038},
                                             {.012, .026}},
                                         Row{64,
                                             {7.6e-3, 9.6e-3},
                                             {2.8e-3, 4.2e-3},
                                             {1.8e-3, 1.7e-3},
                                             {1.9e-3, 2.3e-3},
                                             {.27, .15},
                                             {.92, .74},
                                             {.029, .038},
                                             {.005, .026}}),
                         [](const auto& row) { return "N" + std::to_string(row.param.ranks); });

} // namespace
} // namespace mp::test
