// SPDX-License-Identifier: Apache-2.0
// A rank is lost at every message of a change of parameters: the others are told in time, and have the parameters, states and
// slices that they had.
#include <gtest/gtest.h>

#include <thread>

#include "faulty_transport.hpp"
#include "test_model.hpp"

namespace mp::test {
namespace {

constexpr int64_t kDeadlineMs = 2000;
constexpr int32_t kRanks = 3;
constexpr int32_t kVictim = 1;

enum class Change { freeze, train, add };

// What a rank has of everything, without a word to others.
std::vector<std::vector<unsigned char>> held_by(TestModel& model) {
    std::vector<std::vector<unsigned char>> all;
    const optim::Parameters& parameters = model.optimizer().parameters();
    const auto keep = [&](const void* data, std::size_t bytes) {
        const auto* raw = static_cast<const unsigned char*>(data);
        all.emplace_back(raw, raw + (data != nullptr ? bytes : 0));
    };
    for (int32_t i = 0; i < parameters.count(); ++i) {
        const optim::Parameter& p = parameters[i];
        const shard::ShardSlice slice = parameters.slice(i);
        keep(&slice.start, sizeof slice.start);
        keep(&slice.count, sizeof slice.count);
        keep(p.param->data(), p.param->bytes());
        const ArrayRef own = parameters.device_weight(i);
        keep(own.data, static_cast<std::size_t>(bytes_of(own.dtype(), own.count())));
        keep(own.scale_inv,
             static_cast<std::size_t>(bytes_of(own.format.grid.dtype, own.scale_count())));
        if (p.states.has_value()) {
            p.states->for_each([&](const Tensor& state) { keep(state.data(), state.bytes()); });
        }
    }
    return all;
}

// Frozen codes with scales of blocks, all bytes of both different. Their slices move where what is frozen changes.
void add_blocks(TestModel& model) {
    optim::NewParameter blocks;
    blocks.name = "blocks";
    blocks.is_frozen = true;
    const Format format = {DType::fp4_e2m1, kNvfp4Scales,
                           numerics::scale_policy(numerics::ScaleRule::nvfp4, DType::fp4_e2m1)};
    blocks.param =
        make_tensor(model.optimizer().context(), model.stream(), format, {{400, 176}, 2});
    for (const Tensor* const part : {blocks.param.get(), blocks.param->scales()->scale_inv.get()}) {
        auto* const bytes = static_cast<unsigned char*>(part->data());
        for (std::size_t i = 0; i < part->bytes(); ++i) {
            bytes[i] = static_cast<unsigned char>(i % 113);
        }
    }
    model.optimizer().add_parameter(model.stream(), 0, blocks);
}

void change(TestModel& model, Change what) {
    static constexpr int32_t kIndices[] = {0, 2};
    if (what == Change::add) {
        optim::NewParameter late;
        late.name = "late";
        const Shape shape = {{150, 150}, 2};
        late.param = std::make_shared<Tensor>(model.optimizer().context(), model.stream(),
                                              DType::bf16, shape);
        late.init_fp32 = std::make_shared<Tensor>(model.optimizer().context(), model.stream(),
                                                  DType::fp32, shape);
        model.optimizer().add_parameter(model.stream(), 0, late);
        return;
    }
    model.optimizer().set_frozen(
        model.stream(), [] { return std::span<const int32_t>(kIndices); }, what == Change::freeze);
}

// Returns how many messages the victim began in the change. `message` -1: nobody is lost.
int32_t live(int32_t stage, Change what, int32_t message) {
    Training run;
    run.recipe = recipe::find_preset("bf16_pure_kahan").recipe;
    run.sharding.stage = stage;
    run.sharding.bucket_elements = 30000;
    auto transports = comm::make_thread_transports({kRanks, 0});
    std::vector<std::thread> threads;
    int32_t begun = 0;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
            const auto fault = std::make_shared<PlannedFault>();
            if (rank == kVictim && message >= 0) {
                fault->phase = "change";
                fault->message = message;
                fault->strike = [] { return Status::error(Code::internal, "this rank is lost"); };
            }
            auto comm = std::make_shared<Communicator>(
                std::make_unique<FaultyTransport>(
                    std::move(transports[static_cast<std::size_t>(rank)]), fault),
                kDeadlineMs);
            TestModel model(run, comm);
            add_blocks(model);
            model.optimizer().shard(model.stream());
            model.backward(0, false);
            model.optimizer().step(model.stream(), nullptr);
            if (what == Change::train) {
                change(model, Change::freeze);
            }
            const auto before = held_by(model);
            fault->enter("change");
            bool has_failed = false;
            try {
                change(model, what);
            } catch (const Error&) {
                has_failed = true;
            }
            EXPECT_EQ(has_failed, message >= 0) << "rank " << rank << " message " << message;
            EXPECT_EQ(held_by(model) == before, message >= 0) << "rank " << rank;
            if (rank == kVictim) {
                begun = fault->counts["change"];
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    return begun;
}

} // namespace

TEST(ChangedFaults, ALostRankChangesNothingOnTheOthers) {
    for (const int32_t stage : {0, 1, 2, 3}) {
        for (const Change what : {Change::freeze, Change::train, Change::add}) {
            const int32_t messages = live(stage, what, -1);
            EXPECT_GE(messages, 3);
            for (int32_t message = 0; message < messages; ++message) {
                SCOPED_TRACE("stage " + std::to_string(stage) + " message " +
                             std::to_string(message));
                (void)live(stage, what, message);
            }
        }
    }
}

} // namespace mp::test
