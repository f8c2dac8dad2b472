// SPDX-License-Identifier: Apache-2.0
// E4M3 gradients under a scale that ranks share (FP8-LM): its published examples, sums against their formula, mu over
// steps, and training with them, whose bits do not depend on stage, plan or who moves the messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/fp8.hpp"
#include "shard/gradient_buckets.hpp"
#include "wire_formats.hpp"
#include "zero.hpp"

namespace mp::test {
namespace {

using Codes = std::vector<uint8_t>;
using Floats = std::vector<float>;

constexpr Format kShared = comm::wire_format(DType::fp8_e4m3, WireScale::shared);

// The gradients of one rank on their way.
class Buckets {
  public:
    Buckets(Communicator& comm, const std::vector<int64_t>& counts, shard::ShardKind kind,
            bool drops = false)
        : context_(make_context("", 1)), comm_(comm),
          plan_({kind, comm.size(), int64_t{1} << 20}, {counts, {}, {}}) {
        shard::GradientForm form;
        form.wires.assign(counts.size(), kShared);
        form.lent = &lent_;
        form.drops_gradients = drops;
        form.zeroes_gradients = true;
        for (const int64_t count : counts) {
            gradients_.push_back(
                std::make_shared<Tensor>(context_, stream(), DType::fp32, Shape{{count}, 1}));
        }
        buckets_ = std::make_unique<shard::GradientBuckets>(stream(), comm, plan_, form, gradients_,
                                                            messages_);
    }

    // All parameters' gradients are there, the last one's first.
    void send(const std::vector<Floats>& values) {
        for (std::size_t p = values.size(); p-- > 0;) {
            buckets_->acquire(stream(), static_cast<int32_t>(p));
            std::copy(values[p].begin(), values[p].end(),
                      static_cast<float*>(gradients_[p]->data()));
            buckets_->ready(stream(), static_cast<int32_t>(p));
        }
    }

    // The vote of a step.
    void agree() {
        comm::Agreement agreement(stream());
        scales().collect(stream());
        scales().propose(agreement);
        EXPECT_TRUE(agreement.reach(comm_).ok());
        scales().accept(agreement);
        buckets_->start_over();
    }

    void finish() { buckets_->finish(stream()); }
    shard::SharedScales& scales() { return buckets_->scales(); }
    const shard::ShardPlan& plan() { return plan_; }
    float scale_inv(int32_t parameter) { return *scales().scale(parameter); }
    Codes codes(int32_t parameter) {
        const ArrayRef sum = buckets_->sum_of(parameter);
        EXPECT_EQ(sum.dtype(), DType::fp8_e4m3);
        EXPECT_EQ(*static_cast<const float*>(sum.scale_inv), scale_inv(parameter));
        const auto* first = static_cast<const uint8_t*>(sum.data);
        return {first, first + sum.count()};
    }

  private:
    Stream& stream() { return context_->stream(); }

    std::shared_ptr<Context> context_;
    Communicator& comm_;
    shard::ShardPlan plan_;
    std::vector<std::shared_ptr<Tensor>> gradients_;
    comm::MessageCounts messages_;
    shard::LentMemory lent_;
    std::unique_ptr<shard::GradientBuckets> buckets_;
};

TEST(SharedScales, PublishedCoherentGradients) {
    const struct {
        float mu;
        float multiply;
        Codes codes;
        float next; // of mu: one clipped element is forgiven
    } rows[] = {
        {1.0F, 8.0F, {0x60, 0xD8, 0x50, 0x7E}, 1.0F},
        {0.5F, 4.0F, {0x58, 0xD0, 0x48, 0x7E}, 0.5F},
        {0.25F, 2.0F, {0x50, 0xC8, 0x40, 0x7E}, 0.25F},
        {0.125F, 1.0F, {0x48, 0xC0, 0x38, 0x76}, 0.125F},
    };
    for (const auto& row : rows) {
        run_ranks(4, [&](Communicator& comm) {
            Buckets buckets(comm, {4}, shard::ShardKind::greedy);
            EXPECT_EQ(buckets.scales().mu(0), 0.5F) << "1 / sqrt(4)";
            buckets.scales().set_mu(0, row.mu);
            const comm::Traffic before = comm.traffic();
            buckets.send({{1.0F, -0.5F, 0.25F, 56.0F}});
            buckets.finish();
            const comm::Traffic& after = comm.traffic();
            EXPECT_EQ(buckets.scale_inv(0), 1.0F / row.multiply);
            const bool owns = buckets.plan().slice_on(0, comm.rank()).count > 0;
            EXPECT_EQ(buckets.codes(0), owns ? row.codes : Codes());
            const auto of = [&](CollectiveKind kind) { return static_cast<std::size_t>(kind); };
            EXPECT_EQ(after.calls[of(CollectiveKind::max_u32)] -
                          before.calls[of(CollectiveKind::max_u32)],
                      1);
            // A code an element, and the gap behind the slice.
            EXPECT_EQ(after.bytes[of(CollectiveKind::all_to_all)] -
                          before.bytes[of(CollectiveKind::all_to_all)],
                      owns ? 0 : 128);
            buckets.agree();
            EXPECT_NEAR(buckets.scales().mu(0), row.next * 1.0006934F, 1e-6F);
        });
    }
}

// Whatever the plan: each rank's codes under the scale of the largest amax, added in rank order, rounded once.
TEST(SharedScales, SumsAreTheFormulas) {
    const std::vector<int64_t> counts = {3 * kChunkElements + 7, 1, 0, 1000};
    constexpr int32_t kRanks = 3;
    const auto gradient = [&](int32_t rank, std::size_t p) {
        Floats values(static_cast<std::size_t>(counts[p]));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = noise(static_cast<uint64_t>(rank), 0, p, i) *
                        (p == 3 ? 1e-3F : 700.0F * static_cast<float>(rank + 1));
        }
        return values;
    };
    for (const shard::ShardKind kind :
         {shard::ShardKind::flat, shard::ShardKind::per_parameter, shard::ShardKind::greedy}) {
        run_ranks(kRanks, [&](Communicator& comm) {
            Buckets buckets(comm, counts, kind);
            std::vector<Floats> own;
            for (std::size_t p = 0; p < counts.size(); ++p) {
                own.push_back(gradient(comm.rank(), p));
            }
            buckets.send(own);
            buckets.finish();
            for (std::size_t p = 0; p < counts.size(); ++p) {
                float amax = 0.0F;
                std::vector<Floats> all;
                for (int32_t rank = 0; rank < kRanks; ++rank) {
                    all.push_back(gradient(rank, p));
                    for (const float x : all.back()) {
                        amax = std::max(amax, std::fabs(x));
                    }
                }
                // floor(log2(448 / amax)), and half of it: mu is 1/sqrt(3), to a power of two
                const float multiply =
                    amax == 0.0F ? 1.0F : 0.5F * std::exp2(std::floor(std::log2(448.0F / amax)));
                const auto parameter = static_cast<int32_t>(p);
                EXPECT_EQ(buckets.scale_inv(parameter), 1.0F / multiply);
                const shard::ShardSlice slice = buckets.plan().slice_on(parameter, comm.rank());
                const Codes codes = buckets.codes(parameter);
                ASSERT_EQ(static_cast<int64_t>(codes.size()), slice.count);
                for (std::size_t i = 0; i < codes.size(); ++i) {
                    const std::size_t at = i + static_cast<std::size_t>(slice.start);
                    float sum = 0.0F;
                    for (const Floats& of_rank : all) {
                        sum += numerics::e4m3_to_float(
                            numerics::float_to_e4m3_sat(of_rank[at] * multiply));
                    }
                    ASSERT_EQ(codes[i] & (sum == 0.0F ? 0x7F : 0xFF),
                              numerics::float_to_e4m3_sat(sum) & (sum == 0.0F ? 0x7F : 0xFF))
                        << "parameter " << p << ", element " << at;
                }
            }
        });
    }
}

// Coherent gradients near the largest code: mu comes down until their sum fits, and grows again.
TEST(SharedScales, FindMu) {
    constexpr int32_t kRanks = 8;
    run_ranks(kRanks, [](Communicator& comm) {
        Buckets buckets(comm, {1000, 17, 600}, shard::ShardKind::flat);
        for (int step = 0; step < 3; ++step) {
            buckets.send({Floats(1000, 440.0F), Floats(17, 0.0F), Floats(600, -440.0F)});
            buckets.finish();
            if (step == 2) {
                for (const uint8_t code : buckets.codes(0)) {
                    EXPECT_EQ(numerics::e4m3_to_float(code) * buckets.scale_inv(0) / kRanks, 448.0F)
                        << "440 as a code";
                }
            }
            buckets.agree();
        }
        // From 1/sqrt(8), whose power of two is 1/4: 880 does not fit, and after that 8 * 56 does.
        const float first = 1.0F / std::sqrt(8.0F);
        EXPECT_NEAR(buckets.scales().mu(0), 0.5F * first * 1.0006934F * 1.0006934F, 1e-6F);
        EXPECT_EQ(buckets.scales().mu(0), buckets.scales().mu(2));
    });
}

TEST(SharedScales, KeepMuAndScaleWhereOneRankIsNotFinite) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        run_ranks(3, [&](Communicator& comm) {
            Buckets buckets(comm, {3, 2}, shard::ShardKind::greedy);
            const auto step = [&](float last) {
                buckets.send({{8.0F, -2.0F, last}, {1.0F, 2.0F}});
                buckets.finish();
            };
            step(1.0F);
            buckets.agree();
            const float scale = buckets.scale_inv(0);
            const float mu = buckets.scales().mu(0);
            step(comm.rank() == 2 ? bad : 1.0F);
            EXPECT_EQ(buckets.scale_inv(0), scale);
            if (const Codes codes = buckets.codes(0); !codes.empty()) {
                EXPECT_EQ(codes[2] & 0x7FU, numerics::kE4m3Nan);
                EXPECT_NE(codes[0] & 0x7FU, numerics::kE4m3Nan);
            }
            buckets.agree();
            EXPECT_EQ(buckets.scales().mu(0), mu) << "what was not finite says nothing about mu";
            EXPECT_GT(buckets.scales().mu(1), mu);
            step(1.0F);
            buckets.agree();
            EXPECT_GT(buckets.scales().mu(0), mu);
        });
    }
}

// What left before is added to, under the larger of both scales.
TEST(SharedScales, AddWhatLeftBefore) {
    for (const float factor : {0x1p-6F, 1.0F, 0x1p6F}) {
        run_ranks(2, [&](Communicator& comm) {
            Buckets buckets(comm, {4}, shard::ShardKind::greedy, true);
            buckets.send({{1.0F, -0.5F, 2.0F, 0.0F}});
            buckets.send({{factor, factor, -2.0F * factor, 0.25F * factor}});
            buckets.finish();
            const Codes codes = buckets.codes(0);
            const Floats sums = {2.0F + 2.0F * factor, -1.0F + 2.0F * factor, 4.0F - 4.0F * factor,
                                 0.5F * factor};
            for (std::size_t i = 0; i < codes.size(); ++i) {
                const float scale_inv = buckets.scale_inv(0);
                const float value = numerics::e4m3_to_float(codes[i]) * scale_inv;
                EXPECT_NEAR(value, sums[i], std::fabs(sums[i]) / 16.0F + scale_inv * 0x1p-9F) << i;
            }
        });
    }
}

// ---- training

Training shared_training(const char* name, int32_t stage, shard::ShardKind kind,
                         int64_t bucket_elements = 20000) {
    Training run;
    run.recipe = recipe::find_preset(name).recipe;
    run.sharding.stage = stage;
    run.sharding.kind = kind;
    run.sharding.bucket_elements = bucket_elements;
    run.sharding.wire = kShared;
    run.steps = 4;
    return run;
}

TEST(SharedScales, TrainingDoesNotDependOnStagePlanOrThread) {
    const std::vector<Outcome> expected =
        train(3, shared_training("fp32", 1, shard::ShardKind::greedy));
    for (int32_t stage = 0; stage <= 3; ++stage) {
        for (const auto kind : {shard::ShardKind::flat, shard::ShardKind::per_parameter}) {
            for (const bool says_ready : {false, true}) {
                const std::vector<Outcome> actual = train(
                    3, shared_training("fp32", stage, kind, stage == 2 ? 1 : 60000), says_ready);
                for (std::size_t rank = 0; rank < 3; ++rank) {
                    SCOPED_TRACE(stage);
                    expect_same(expected[rank], actual[rank]);
                }
            }
        }
    }
}

TEST(SharedScales, OrdersWithSlotsDoNotDependOnTheRanks) {
    for (const auto order : {comm::SumOrder::tree, comm::SumOrder::exact}) {
        Training run = shared_training("bf16_mixed", 2, shard::ShardKind::flat);
        run.slots = 8;
        run.sharding.slots = 8;
        run.sharding.order = order;
        const std::vector<Outcome> expected = train(1, run);
        for (const int32_t ranks : {2, 3, 8}) {
            const std::vector<Outcome> actual = train(ranks, run);
            SCOPED_TRACE(ranks);
            expect_same(expected[0], actual[0]);
            expect_same(expected[0], actual.back());
        }
    }
}

TEST(SharedScales, HybridShardsAreThoseOfAllRanks) {
    const std::vector<Outcome> expected =
        train(4, shared_training("fp32", 1, shard::ShardKind::flat));
    Training run = shared_training("fp32", 1, shard::ShardKind::flat);
    run.sharding.shard_ranks = 2;
    const std::vector<Outcome> actual = train(4, run);
    for (std::size_t rank = 0; rank < 4; ++rank) {
        expect_same(expected[rank], actual[rank]);
    }
    run.sharding.shard_ranks = 0;
    run.sharding.node_ranks = 2;
    EXPECT_THROW(shard::check_sharding(run.sharding, 4), Error);
}

// Parameters of one bucket each, of both wires, said to be ready while messages are under way.
TEST(SharedScales, MsampTrainsWithBucketsInFlight) {
    for (const int32_t stage : {1, 2, 3}) {
        Training run = shared_training("msamp_o2", stage, shard::ShardKind::greedy, 1);
        const std::vector<Outcome> expected = train(3, run);
        const std::vector<Outcome> actual = train(3, run, true);
        for (std::size_t rank = 0; rank < 3; ++rank) {
            expect_same(expected[rank], actual[rank]);
        }
    }
}

// MS-AMP's levels: matrices a byte an element, what is kept in fp32 four, and sums as codes.
TEST(SharedScales, MsampSendsWhatIsPublished) {
    for (const char* name : {"msamp_o1", "msamp_o2", "msamp_o3"}) {
        Training run = shared_training(name, 1, shard::ShardKind::greedy, int64_t{1} << 40);
        run.max_grad_norm = 0.0;
        constexpr int32_t kRanks = 4;
        int64_t sent = 0;
        int64_t sums = 0;
        std::mutex mutex;
        train_ranks(kRanks, run, [&](TestModel& test_model) {
            test_model.optimizer().shard(test_model.stream());
            test_model.backward(0, false);
            const auto of = [&] {
                return test_model.optimizer()
                    .sharding()
                    ->groups()
                    .traffic()
                    .bytes[static_cast<std::size_t>(CollectiveKind::all_to_all)];
            };
            const int64_t before = of();
            test_model.optimizer().step(test_model.stream(), nullptr);
            const std::lock_guard lock(mutex);
            sent += of() - before;
            sums += test_model.optimizer().parameters().memory().reduced_grad;
        });
        int64_t once = 0;
        int64_t words = 0; // on each rank: a scale for each parameter,
        for (const Shape& shape : model()) {
            once += shard::with_gap(shape.count()) * (shape.ndim == 2 ? 1 : 4);
            words += 1 + (shape.ndim == 2 ? 2 * 2 : 0); // and twice an amax and a slice's count
        }
        EXPECT_EQ(sent, (kRanks - 1) * once) << name;
        EXPECT_EQ(sums, once + kRanks * 4 * words) << name;
    }
}

} // namespace
} // namespace mp::test
