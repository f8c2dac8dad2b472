// SPDX-License-Identifier: Apache-2.0
// The sum on every rank: exact where it fits, the same everywhere, and left to a transport that adds.
#include <gtest/gtest.h>

#include <new>

#include "reduce_case.hpp"

namespace mp::test {
namespace {

using comm::AllReduce;

// "Verifiable" inputs: multiples of one power of two, few enough that every sum is a number of every type used.
TEST(AllReduce, IsExactWhereEverySumFits) {
    const auto value = [](int32_t rank, int64_t i) {
        return static_cast<float>((static_cast<int64_t>(rank) * 31 + i * 7) % 15 - 7);
    };
    for (const Format& format : kWireFormats) {
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
            ReduceCase run;
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

} // namespace
} // namespace mp::test
