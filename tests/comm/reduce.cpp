// SPDX-License-Identifier: Apache-2.0
// Reductions over thread ranks: which bits are promised, how many bytes are sent, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>

#include "numerics/part_sum.hpp"
#include "numerics/quantize.hpp"
#include "rank_device.hpp"
#include "ranks.hpp"

namespace mp::test {
namespace {

using comm::AllReduce;
using comm::ReduceDesc;
using comm::ReduceScatter;
using comm::SumOrder;
using comm::WireScale;

constexpr Format kFp32 = comm::wire_format(DType::fp32);
constexpr Format kBf16 = comm::wire_format(DType::bf16);
constexpr Format kFp16 = comm::wire_format(DType::fp16);
constexpr Format kBlocks = comm::wire_format(DType::fp8_e4m3, WireScale::block);
constexpr Format kMx = comm::wire_format(DType::fp8_e5m2, WireScale::mx);
constexpr Format kTensor = comm::wire_format(DType::fp8_e4m3, WireScale::tensor);
constexpr Format kFormats[] = {kFp32, kBf16, kFp16, kBlocks, kMx, kTensor};
constexpr int64_t kSizes[] = {0, 1, 7, 127, 128, 129, 16385};

// One reduction by `ranks` ranks; the shards one after another.
struct Case {
    ReduceDesc desc;
    int64_t total = 0;
    DType source = DType::fp32;
    DType result = DType::fp32;
    int32_t threads = 1;
    std::string backend = "host";
    // Of the whole array, by rank; empty: even, at multiples of 128.
    std::vector<int64_t> counts;
};

Values reduced(const Case& run, int32_t ranks, int64_t* bytes = nullptr) {
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
float on_wire(const Format& format, int32_t slot, int64_t first, int64_t count, int64_t i) {
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

TEST(ReduceScatter, AddsByRankWhatTheWireCarries) {
    for (const Format& format : kFormats) {
        for (const int32_t ranks : {1, 2, 3, 5}) {
            for (const int64_t total : {int64_t{0}, int64_t{1}, int64_t{129}, int64_t{1000}}) {
                Case run;
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

TEST(ReduceScatter, DoesNotDependOnThreadsBackendsOrBuckets) {
    for (const Format& format : kFormats) {
        Case run;
        run.desc.wire = format;
        run.total = 40000;
        run.source = DType::bf16;
        const Values once = reduced(run, 3);
        run.threads = 3;
        EXPECT_EQ(reduced(run, 3), once) << comm::wire_text(format);
        run.backend = "reference";
        run.threads = 1;
        EXPECT_EQ(reduced(run, 3), once) << comm::wire_text(format);
        if (comm::wire_scale(format) == WireScale::tensor) {
            continue; // a scale for each message
        }
        run.backend = "host";
        for (const int64_t bucket : {int64_t{1280}, int64_t{16384}}) {
            Values joined(run.result, once.count);
            for (int64_t first = 0; first < once.count; first += bucket) {
                Case part = run;
                part.desc.rounding.first_element = first;
                part.total = std::min(bucket, once.count - first);
                const Values here = reduced(part, 3);
                std::copy(here.bytes.begin(), here.bytes.end(),
                          joined.bytes.begin() + static_cast<std::ptrdiff_t>(4 * first));
            }
            EXPECT_EQ(joined, once) << comm::wire_text(format) << ", buckets of " << bucket;
        }
    }
}

class ForEveryNumberOfRanks : public ::testing::TestWithParam<SumOrder> {};

TEST_P(ForEveryNumberOfRanks, GivesTheSameBits) {
    for (const Format& format : {kFp32, kBf16, kFp16, kBlocks, kMx}) {
        for (const int32_t slots : {8, 11}) {
            Case run;
            run.desc.wire = format;
            run.desc.order = GetParam();
            run.desc.slots = slots;
            run.total = 3000;
            run.source = DType::fp32;
            const Values alone = reduced(run, 1);
            for (const int32_t ranks : {2, 3, 4, 5, 6, 7, 8}) {
                run.threads = ranks == 3 ? 2 : 1;
                EXPECT_EQ(reduced(run, ranks), alone)
                    << comm::wire_text(format) << ", " << ranks << " ranks, " << slots << " slots";
            }
        }
    }
    Case few; // more ranks than slots: some contribute nothing, and get their share
    few.desc.wire = kBf16;
    few.desc.order = GetParam();
    few.desc.slots = 3;
    few.total = 1000;
    EXPECT_EQ(reduced(few, 5), reduced(few, 1));
    EXPECT_EQ(reduced(few, 7), reduced(few, 2));

    Case run; // elements that begin anywhere, shares of any size, results that are rounded
    run.desc.wire = kBf16;
    run.desc.order = GetParam();
    run.desc.slots = 6;
    run.desc.rounding.first_element = 77;
    run.result = DType::bf16;
    for (const int64_t total : kSizes) {
        run.total = total;
        run.counts = {total};
        const Values alone = reduced(run, 1);
        const int64_t third = total / 3;
        run.counts = {third, 0, total - third - third / 2, third / 2};
        EXPECT_EQ(reduced(run, 4), alone) << total;
    }
}

std::string order_label(const ::testing::TestParamInfo<SumOrder>& info) {
    return comm::order_name(info.param);
}

INSTANTIATE_TEST_SUITE_P(Orders, ForEveryNumberOfRanks,
                         ::testing::Values(SumOrder::tree, SumOrder::exact), order_label);

// The order of ranks is another one for another number of them: the promise above is not empty.
TEST(ReduceScatter, ByRankDependsOnTheNumberOfRanks) {
    Case run;
    run.desc.wire = kFp32;
    run.desc.order = SumOrder::tree;
    run.desc.slots = 8;
    run.total = 3000;
    const Values tree = reduced(run, 8);
    run.desc.order = SumOrder::rank;
    run.desc.slots = 0;
    EXPECT_NE(reduced(run, 8), tree);
}

TEST(ReduceScatter, IsWithinOneRoundingOfFp64) {
    for (const SumOrder order : {SumOrder::rank, SumOrder::tree, SumOrder::exact}) {
        for (const DType result : {DType::fp32, DType::bf16, DType::fp16}) {
            Case run;
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
    Case run;
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
                Case run;
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
    Case run; // exact: the amaxes, and units of 8 bytes where a rank has several slots
    run.desc.wire = kFp32;
    run.desc.order = SumOrder::exact;
    run.desc.slots = 8;
    run.total = kTotal;
    int64_t bytes = 0;
    (void)reduced(run, 4, &bytes);
    EXPECT_EQ(bytes, 8 * kTotal * 3 + 4 * (kTotal / 128) * 4);
}

// "Verifiable" inputs: multiples of one power of two, few enough that every sum is a number of every type used.
TEST(AllReduce, IsExactWhereEverySumFits) {
    const auto value = [](int32_t rank, int64_t i) {
        return static_cast<float>((static_cast<int64_t>(rank) * 31 + i * 7) % 15 - 7);
    };
    for (const Format& format : kFormats) {
        for (const SumOrder order :
             {SumOrder::rank, SumOrder::tree, SumOrder::exact, SumOrder::fast}) {
            const bool is_fp8 = format.is_quantized();
            if ((order == SumOrder::fast && is_fp8) ||
                comm::wire_scale(format) == WireScale::tensor || format == kBlocks) {
                continue; // refused, or scales that are no powers of two
            }
            run_ranks(4, [&](Communicator& comm) {
                const auto stream = make_stream();
                Values source(DType::bf16, 700);
                for (int64_t i = 0; i < source.count; ++i) {
                    source.set(i, value(comm.rank(), i));
                }
                Values sum(DType::bf16, source.count);
                ReduceDesc desc;
                desc.wire = format;
                desc.order = order;
                AllReduce reduce(comm, *stream);
                const ArrayRef from = plain_array(source.ref());
                reduce.begin(desc, {&from, 1}, sum.ref());
                reduce.wait();
                for (int64_t i = 0; i < sum.count; ++i) {
                    float expected = 0.0F;
                    for (int32_t r = 0; r < 4; ++r) {
                        expected += value(r, i);
                    }
                    ASSERT_EQ(sum.get(i), expected)
                        << comm::wire_text(format) << " " << comm::order_name(order);
                }
            });
        }
    }
}

TEST(AllReduce, GivesEveryRankTheSameAlsoThroughFp8) {
    for (const Format& gather : {kFp32, kBf16, kBlocks, kMx}) {
        for (const DType to : {DType::fp32, DType::bf16}) {
            std::vector<Values> results(3);
            int64_t bytes = 0;
            std::mutex mutex;
            run_ranks(3, [&](Communicator& comm) {
                const auto stream = make_stream();
                Values source = gradients(DType::fp32, comm.rank(), 0, 3 * 640);
                Values& sum = results[static_cast<std::size_t>(comm.rank())];
                sum = Values(to, source.count);
                ReduceDesc desc;
                desc.wire = kBlocks;
                AllReduce reduce(comm, *stream);
                const ArrayRef from = plain_array(source.ref());
                reduce.begin(desc, {&from, 1}, sum.ref(), &gather);
                reduce.wait();
                const std::lock_guard lock(mutex);
                bytes += comm.traffic().total_bytes();
            });
            EXPECT_EQ(results[0], results[1]);
            EXPECT_EQ(results[0], results[2]);
            EXPECT_EQ(bytes,
                      2 * (comm::wire_bytes(3 * 640, kBlocks) + comm::wire_bytes(3 * 640, gather)));
            Case run;
            run.desc.wire = kBlocks;
            run.total = 3 * 640;
            const Values sums = reduced(run, 3);
            for (int64_t i = 0; i < sums.count; ++i) {
                const float near = std::max(1e-3F, std::fabs(sums.get(i)));
                const float error = gather == kFp32 && to == DType::fp32 ? 0.0F
                                    : gather == kBf16 || gather == kFp32 ? 0x1p-8F
                                    : gather == kMx                      ? 0.13F
                                                                         : 0.0633F;
                ASSERT_NEAR(results[0].get(i), sums.get(i),
                            error * near + (error > 0.01F ? 0.01F : 0.0F));
            }
        }
    }
}

// A transport of one rank that says it can add.
class AddingTransport final : public Transport {
  public:
    explicit AddingTransport(int* sums) : sums_(sums) {}
    [[nodiscard]] int32_t rank() const noexcept override { return 0; }
    [[nodiscard]] int32_t size() const noexcept override { return 1; }
    [[nodiscard]] const char* name() const noexcept override { return "adding"; }
    [[nodiscard]] TransportCaps caps() const noexcept override { return {true, false}; }
    Status begin(const Collective& collective, TransportRequest** out) noexcept override {
        *sums_ += collective.kind == CollectiveKind::sum_f32 ? 1 : 0;
        *out = new (std::nothrow) DoneRequest;
        return *out != nullptr ? Status() : Status::error(Code::out_of_memory, "no request");
    }
    void abort(const Status& /*reason*/) noexcept override {}
    Status make_group(const GroupDesc& /*group*/, Transport** /*out*/) noexcept override {
        return {};
    }

  private:
    int* sums_;
};

TEST(AllReduce, LeavesFastSumsToATransportThatAdds) {
    int sums = 0;
    Communicator comm(std::make_unique<AddingTransport>(&sums));
    const auto stream = make_stream();
    Values source = gradients(DType::bf16, 0, 0, 300);
    Values sum(DType::fp32, 300);
    AllReduce reduce(comm, *stream);
    const ArrayRef from = plain_array(source.ref());
    for (const Format& format : {kFp32, kBf16}) {
        for (const SumOrder order : {SumOrder::fast, SumOrder::rank}) {
            sums = 0;
            ReduceDesc desc;
            desc.wire = format;
            desc.order = order;
            reduce.begin(desc, {&from, 1}, sum.ref());
            EXPECT_THROW(reduce.begin(desc, {&from, 1}, sum.ref()), Error);
            reduce.wait();
            EXPECT_EQ(sums, format == kFp32 && order == SumOrder::fast ? 1 : 0);
            EXPECT_EQ(sum.get(7), source.get(7));
        }
    }
}

TEST(ReduceScatter, SeesWhatOneRankHas) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (const Format& format : kFormats) {
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
        Case run;
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

TEST(SubtreesOfSlots, AreMaximalAndMergeToTheTree) {
    using comm::SlotRun;
    EXPECT_EQ(comm::subtrees_of({0, 8}, 8), (std::vector<SlotRun>{{0, 8}}));
    EXPECT_EQ(comm::subtrees_of({2, 5}, 8), (std::vector<SlotRun>{{2, 4}, {4, 5}}));
    EXPECT_EQ(comm::subtrees_of({3, 3}, 8), (std::vector<SlotRun>{}));
    EXPECT_EQ(comm::subtrees_of({4, 5}, 5), (std::vector<SlotRun>{{4, 5}}));
    std::size_t most = 0;
    for (const int32_t ranks : {3, 5}) {
        for (int32_t r = 0; r < ranks; ++r) {
            most = std::max(most, comm::subtrees_of(comm::slots_of(r, ranks, 64), 64).size());
        }
    }
    EXPECT_EQ(most, 5U);
    const std::vector<SlotRun> leaves = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}};
    EXPECT_EQ(comm::tree_merges(leaves, {0, 5}, 5), (std::vector<int32_t>{0, 1, 0, 2, 1}));
    EXPECT_THROW((void)comm::tree_merges({leaves.data(), 4}, {0, 5}, 5), Error);
}

} // namespace
} // namespace mp::test
