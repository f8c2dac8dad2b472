// SPDX-License-Identifier: Apache-2.0
// Shares of a sum over thread ranks: what is added, how many bytes are sent, what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "reduce_case.hpp"

namespace mp::test {
namespace {

TEST(ReduceScatter, AddsByRankWhatTheWireCarries) {
    for (const Format& format : kWireFormats) {
        for (const int32_t ranks : {1, 2, 3, 5}) {
            for (const int64_t total : {int64_t{0}, int64_t{1}, int64_t{129}, int64_t{1000}}) {
                ReduceCase run;
                run.desc.wire = format;
                run.total = total;
                const Values sums = reduced(run, ranks);
                const auto counts = comm::even_counts(total, ranks, 128);
                int64_t first = 0;
                for (const int64_t count : counts) {
                    for (int64_t i = first; i < first + count; ++i) {
                        float sum = on_wire(format, 0, first, count, i);
                        for (int32_t r = 1; r < ranks; ++r) {
                            sum += on_wire(format, r, first, count, i);
                        }
                        ASSERT_EQ(numerics::bits_from_float(sums.get(i)),
                                  numerics::bits_from_float(sum))
                            << comm::wire_text(format) << ", " << ranks << " ranks, element " << i
                            << " of " << total;
                    }
                    first += count;
                }
            }
        }
    }
}

TEST(ReduceScatter, IsWithinOneRoundingOfFp64) {
    for (const SumOrder order : {SumOrder::rank, SumOrder::tree, SumOrder::exact}) {
        for (const DType result : {DType::fp32, DType::bf16, DType::fp16}) {
            ReduceCase run;
            run.desc.wire = kBf16;
            run.desc.order = order;
            run.total = 16385;
            run.result = result;
            const Values sums = reduced(run, 4);
            const double ulp = result == DType::fp32   ? 0x1p-24
                               : result == DType::bf16 ? 0x1p-8
                                                       : 0x1p-11;
            for (int64_t i = 0; i < run.total; ++i) {
                double sum = 0;
                double magnitudes = 0;
                for (int32_t r = 0; r < 4; ++r) {
                    const double x = on_wire(kBf16, r, 0, run.total, i);
                    sum += x;
                    magnitudes += std::fabs(x);
                }
                // fp32 additions lose 2^-24 of the partial sums each; exact loses nothing.
                const double lost = order == SumOrder::exact ? 0x1p-50 : 3 * 0x1p-24 * magnitudes;
                ASSERT_NEAR(static_cast<double>(sums.get(i)), sum,
                            ulp * std::fabs(sum) + lost + (result == DType::fp16 ? 0x1p-25 : 0.0))
                    << comm::order_name(order) << " " << i;
            }
        }
    }
}

TEST(ReduceScatter, AddsInFp64) {
    ReduceCase run;
    run.desc.wire = kFp32;
    run.desc.accumulate = comm::Accumulate::fp64;
    run.total = 2000;
    const Values sums = reduced(run, 5);
    for (int64_t i = 0; i < run.total; ++i) {
        double sum = 0;
        for (int32_t r = 0; r < 5; ++r) {
            sum += static_cast<double>(gradient_at(r, i));
        }
        ASSERT_EQ(sums.get(i), static_cast<float>(sum));
    }
}

// Bytes that all ranks send for `total` elements: (ranks - 1) / ranks of the wire form each.
TEST(ReduceScatter, SendsTheBytesOfARing) {
    constexpr int64_t kTotal = 8 * 1280;
    const struct {
        Format format = comm::wire_format(DType::bf16);
        double bytes;
    } rows[] = {{kFp32, 4.0},
                {kBf16, 2.0},
                {kFp16, 2.0},
                {kBlocks, 1.0 + 4.0 / 128},
                {kMx, 1.0 + 1.0 / 32}};
    for (const auto& row : rows) {
        for (const int32_t ranks : {1, 2, 4, 8}) {
            for (const SumOrder order : {SumOrder::rank, SumOrder::tree}) {
                ReduceCase run;
                run.desc.wire = row.format;
                run.desc.order = order;
                run.total = kTotal;
                int64_t bytes = 0;
                (void)reduced(run, ranks, &bytes);
                EXPECT_EQ(static_cast<double>(bytes), row.bytes * kTotal * (ranks - 1))
                    << comm::wire_text(row.format) << ", " << ranks;
            }
        }
    }
    ReduceCase run; // exact: the amaxes, and units of 8 bytes where a rank has several slots
    run.desc.wire = kFp32;
    run.desc.order = SumOrder::exact;
    run.desc.slots = 8;
    run.total = kTotal;
    int64_t bytes = 0;
    (void)reduced(run, 4, &bytes);
    EXPECT_EQ(bytes, 8 * kTotal * 3 + 4 * (kTotal / 128) * 4);
}

TEST(ReduceScatter, SeesWhatOneRankHas) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const Format& format : kWireFormats) {
        for (const SumOrder order : {SumOrder::rank, SumOrder::tree, SumOrder::exact}) {
            if (order != SumOrder::rank && comm::wire_scale(format) == WireScale::tensor) {
                continue;
            }
            for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
                for (const int32_t who : {0, 2}) {
                    run_ranks(3, [&](Communicator& comm) {
                        const auto stream = make_stream();
                        Values source = gradients(DType::fp32, comm.rank(), 0, 3 * 128);
                        if (comm.rank() == who) {
                            source.set(200, bad); // of rank 1's share
                        }
                        Values shard(DType::fp32, 128);
                        const std::vector<int64_t> counts(3, 128);
                        ReduceDesc desc;
                        desc.wire = format;
                        desc.order = order;
                        ReduceScatter reduce(comm, *stream);
                        const ArrayRef from = plain_array(source.ref());
                        reduce.begin(desc, {&from, 1}, counts, shard.ref());
                        reduce.wait();
                        EXPECT_EQ(std::isfinite(shard.get(72)), comm.rank() != 1)
                            << comm::wire_text(format) << " " << comm::order_name(order);
                        for (int64_t i = 0; i < 128 && comm.rank() != 1; ++i) {
                            EXPECT_TRUE(std::isfinite(shard.get(i)));
                        }
                        Values largest(DType::fp32, source.count);
                        comm::all_reduce_max_abs(comm, *stream, source.ref(), largest.ref(), {});
                        EXPECT_EQ(std::isnan(bad), std::isnan(largest.get(200)));
                        EXPECT_FALSE(std::isfinite(largest.get(200)));
                        for (const int64_t i : {0, 199, 201, 383}) {
                            float expected = 0.0F;
                            for (int32_t r = 0; r < 3; ++r) {
                                expected = std::max(expected, std::fabs(gradient_at(r, i)));
                            }
                            EXPECT_EQ(largest.get(i), expected);
                        }
                    });
                }
            }
        }
    }
}

TEST(ReduceScatter, ReadsScaledCodes) {
    run_ranks(2, [](Communicator& comm) {
        const auto stream = make_stream();
        Values codes = gradients(DType::fp8_e4m3, comm.rank(), 0, 300);
        float scale_inv = comm.rank() == 0 ? 0.5F : 4.0F;
        Values sum(DType::fp32, comm.rank() == 0 ? 200 : 100);
        ReduceDesc desc;
        desc.wire = kBf16;
        ReduceScatter reduce(comm, *stream);
        const ArrayRef from = scaled_array(codes.ref(), &scale_inv);
        reduce.begin(desc, {&from, 1}, std::vector<int64_t>{200, 100}, sum.ref());
        reduce.wait();
        const Values zero = gradients(DType::fp8_e4m3, 0, 0, 300);
        const Values one = gradients(DType::fp8_e4m3, 1, 0, 300);
        for (int64_t i = 0; i < sum.count; ++i) {
            const int64_t at = i + (comm.rank() == 0 ? 0 : 200);
            ASSERT_EQ(sum.get(i), 0.5F * zero.get(at) + 4.0F * one.get(at));
        }
    });
}

// Unbiased, the same for every cut of the elements, and another draw on every rank.
TEST(ReduceScatter, RoundsToTheWireByTheLogicalElement) {
    for (const Format& format : {kBf16, kBlocks}) {
        ReduceCase run;
        run.desc.wire = format;
        run.desc.rounding = {true, 7, 8, 9};
        run.total = 2048;
        const Values whole = reduced(run, 2);
        run.desc.rounding.step = 10;
        EXPECT_NE(reduced(run, 2), whole);
        run.desc.rounding.step = 9;
        run.counts = {384, 1664};
        EXPECT_EQ(reduced(run, 2), whole) << "shares of another size";
        run.counts = {};
        Values joined(DType::fp32, run.total);
        for (const int64_t first : {0, 640}) {
            run.desc.rounding.first_element = first;
            run.total = first == 0 ? 640 : 1408;
            const Values part = reduced(run, 2);
            std::copy(part.bytes.begin(), part.bytes.end(),
                      joined.bytes.begin() + static_cast<std::ptrdiff_t>(4 * first));
        }
        EXPECT_EQ(joined, whole) << "buckets";
    }
    // Equal contributions must not all be rounded the same way.
    run_ranks(2, [](Communicator& comm) {
        const auto stream = make_stream();
        Values source(DType::fp32, 4096);
        for (int64_t i = 0; i < source.count; ++i) {
            source.set(i, 1.0F + 0x1p-8F);
        }
        Values sum(DType::fp32, 2048);
        ReduceDesc desc;
        desc.wire = kBf16;
        desc.rounding.stochastic = true;
        ReduceScatter reduce(comm, *stream);
        const ArrayRef from = plain_array(source.ref());
        reduce.begin(desc, {&from, 1}, std::vector<int64_t>{2048, 2048}, sum.ref());
        reduce.wait();
        int64_t different = 0;
        double mean = 0;
        for (int64_t i = 0; i < sum.count; ++i) {
            different += sum.get(i) == 2.0F + 0x1p-7F ? 1 : 0;
            mean += static_cast<double>(sum.get(i)) / 2048;
        }
        EXPECT_NEAR(static_cast<double>(different), 1024.0, 120.0);
        EXPECT_NEAR(mean, 2.0 + 0x1p-7, 5e-4);
    });
}

TEST(ReduceScatter, HasSeveralBucketsInFlight) {
    run_ranks(3, [](Communicator& comm) {
        const auto stream = make_stream();
        constexpr int kBuckets = 5;
        std::vector<Values> sources;
        std::vector<Values> shards;
        std::vector<std::unique_ptr<ReduceScatter>> buckets;
        for (int b = 0; b < kBuckets; ++b) {
            sources.push_back(gradients(DType::fp32, comm.rank() + 10 * b, 0, 300));
            shards.emplace_back(DType::fp32, 100);
        }
        const std::vector<int64_t> counts(3, 100);
        for (std::size_t b = 0; b < kBuckets; ++b) {
            buckets.push_back(std::make_unique<ReduceScatter>(comm, *stream));
            ReduceDesc desc;
            desc.wire = b % 2 == 0 ? kBf16 : kFp32;
            const ArrayRef from = plain_array(sources[b].ref());
            buckets[b]->begin(desc, {&from, 1}, counts, shards[b].ref());
        }
        for (std::size_t b = 0; b < kBuckets; ++b) {
            buckets[b]->wait();
            for (int64_t i = 0; i < 100; ++i) {
                float sum = 0.0F;
                for (int32_t r = 0; r < 3; ++r) {
                    Values x(b % 2 == 0 ? DType::bf16 : DType::fp32, 1);
                    x.set(0, gradient_at(r + 10 * static_cast<int32_t>(b), 100 * comm.rank() + i));
                    sum = r == 0 ? x.get(0) : sum + x.get(0);
                }
                ASSERT_EQ(shards[b].get(i), sum);
            }
        }
    });
}

std::string refusal(const ReduceDesc& desc, DType result = DType::fp32) {
    try {
        comm::check_reduce(desc, result, "test");
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(ReduceScatter, RefusesWithTheReason) {
    ReduceDesc desc;
    EXPECT_EQ(refusal(desc), "");
    const auto expect = [&](const char* words) {
        EXPECT_NE(refusal(desc).find(words), std::string::npos) << refusal(desc);
    };
    desc.wire = kBlocks;
    EXPECT_EQ(refusal(desc), "");
    desc.order = SumOrder::fast;
    expect("every hop");
    desc = {};
    desc.wire = comm::wire_format(DType::fp8_e4m3);
    expect("needs a scale");
    desc.wire = comm::wire_format(DType::bf16, WireScale::block);
    expect("no scale");
    desc.wire = comm::wire_format(DType::int8, WireScale::block);
    expect("int8");
    desc.wire = kTensor;
    EXPECT_EQ(refusal(desc), "");
    desc.order = SumOrder::tree;
    expect("block scales");
    desc.wire = kBf16;
    desc.accumulate = comm::Accumulate::fp64;
    expect("partial sums");
    desc.order = SumOrder::exact;
    expect("int64");
    desc.accumulate = comm::Accumulate::fixed;
    EXPECT_EQ(refusal(desc), "");
    desc.order = SumOrder::rank;
    expect("fp32 or fp64");
    desc = {};
    EXPECT_NE(refusal(desc, DType::fp8_e4m3), "");
    desc.slots = -1;
    expect("slots");

    run_ranks(2, [](Communicator& comm) { // no rank sends anything
        const auto stream = make_stream();
        Values source(DType::fp32, 100);
        Values shard(DType::fp32, 50);
        const ArrayRef from = plain_array(source.ref());
        ReduceScatter reduce(comm, *stream);
        ReduceDesc wire;
        wire.wire = kBlocks;
        wire.order = SumOrder::tree;
        EXPECT_THROW(reduce.begin(wire, {&from, 1}, std::vector<int64_t>{50, 50}, shard.ref()),
                     Error)
            << "a block of 128 on two ranks";
        wire.order = SumOrder::rank;
        EXPECT_THROW(reduce.begin(wire, {&from, 1}, std::vector<int64_t>{50, 49}, shard.ref()),
                     Error);
        EXPECT_THROW(reduce.begin(wire, {}, std::vector<int64_t>{50, 50}, shard.ref()), Error);
        EXPECT_THROW(reduce.begin(wire, {&from, 1}, std::vector<int64_t>{100}, shard.ref()), Error);
        EXPECT_THROW(reduce.begin(wire, {&from, 1}, std::vector<int64_t>{150, -50}, shard.ref()),
                     Error);
        EXPECT_THROW(reduce.wait(), Error);
        EXPECT_EQ(comm.sequence(), 0U);
    });
}

} // namespace
} // namespace mp::test
