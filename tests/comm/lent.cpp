// SPDX-License-Identifier: Apache-2.0
// Ranks that read each other's memory where it lies: the bits of a copy, whoever waits for what first, and memory that is not
// given back while somebody reads it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "comm/lent_sum.hpp"
#include "comm/shares.hpp"
#include "reduce_case.hpp"

namespace mp::test {
namespace {

// What a rank lends, and reads of the others: numbers.
struct Numbers {
    explicit Numbers(Communicator& comm)
        : own(kCount, comm.rank() + 1), bytes(static_cast<std::size_t>(comm.size()), kBytes) {}
    [[nodiscard]] comm::AllGather lent() const {
        comm::AllGather what;
        what.send = own.data();
        what.send_bytes = kBytes;
        what.receive_bytes = bytes.data();
        return what;
    }
    static int64_t sum_of(const void* numbers) {
        const auto* first = static_cast<const int64_t*>(numbers);
        return std::accumulate(first, first + kCount, int64_t{0});
    }
    static constexpr int64_t kCount = 1000;
    static constexpr int64_t kBytes = kCount * 8;
    std::vector<int64_t> own;
    std::vector<int64_t> bytes;
};

// Reads so many runs of all ranks.
class Reading {
  public:
    Reading(Communicator& comm, Stream& stream, int32_t runs)
        : numbers_(comm),
          exchange_(comm, stream, [this, &comm, runs](Stream&, const void* const* lent, bool) {
              sum_ = 0;
              for (int32_t r = 0; r < comm.size(); ++r) {
                  sum_ += Numbers::sum_of(lent[r]);
              }
              return ++runs_ == runs;
          }) {
        exchange_.begin(numbers_.lent(), {});
    }
    [[nodiscard]] int32_t runs() const { return runs_; }
    [[nodiscard]] int64_t sum() const { return sum_; }
    comm::LentExchange& exchange() { return exchange_; }

  private:
    Numbers numbers_;
    int64_t sum_ = 0;
    int32_t runs_ = 0;
    comm::LentExchange exchange_;
};

class Lent : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Lent, testing::Values(1, 2, 3, 5, 8));

TEST_P(Lent, IsReadByAllRanks) {
    run_ranks(GetParam(), [](Communicator& comm) {
        const auto stream = make_stream();
        Reading waited(comm, *stream, 3);
        waited.exchange().wait(*stream);
        EXPECT_EQ(waited.runs(), 3);
        const int64_t ranks = comm.size();
        EXPECT_EQ(waited.sum(), Numbers::kCount * ranks * (ranks + 1) / 2);
        Reading stepped(comm, *stream, comm.rank() + 1);
        while (stepped.exchange().step(*stream) != comm::Advance::done) {
        }
        EXPECT_EQ(stepped.runs(), comm.rank() + 1);
        EXPECT_EQ(comm.traffic().total_bytes(), 2 * Numbers::kBytes * (ranks - 1));
    });
}

// Each rank begins both and waits for the other one first: whoever polls reads for both.
TEST_P(Lent, MayBeWaitedForInAnyOrder) {
    run_ranks(GetParam(), [](Communicator& comm) {
        const auto stream = make_stream();
        Reading first(comm, *stream, 5);
        Reading second(comm, *stream, 5);
        Reading& sooner = comm.rank() % 2 == 0 ? first : second;
        Reading& later = comm.rank() % 2 == 0 ? second : first;
        sooner.exchange().wait(*stream);
        later.exchange().wait(*stream);
        EXPECT_EQ(first.sum(), second.sum());
        Reading third(comm, *stream, 2);
        if (comm.rank() == 0) {
            third.exchange().wait(*stream);
            check(comm.run(comm::Barrier{}));
        } else {
            check(comm.run(comm::Barrier{}));
            third.exchange().wait(*stream);
        }
    });
}

// Every piece of every share, of pieces whose ranks have other numbers of them, with gaps between.
struct LentCase {
    std::vector<int64_t> starts; // of pieces, in the array
    std::vector<int64_t> sizes;
    std::vector<int64_t> counts; // by rank
};

LentCase pieces_of(int32_t ranks) {
    LentCase made;
    int64_t at = 0;
    for (int32_t r = 0; r < ranks; ++r) {
        const int64_t begin = at;
        for (int32_t piece = 0; piece < r % 3 * 2 + (r == 0 ? 1 : 0); ++piece) {
            made.starts.push_back(at);
            made.sizes.push_back(1 + 300 * piece + (r == 1 && piece == 1 ? comm::kSumStep + 5 : 0));
            at = round_up(at + made.sizes.back(), 128);
        }
        made.counts.push_back(at - begin);
    }
    return made;
}

std::vector<comm::LentPiece> own_pieces(const LentCase& made, int32_t rank) {
    const auto me = static_cast<std::size_t>(rank);
    const int64_t begin = comm::sums_before(made.counts)[me];
    std::vector<comm::LentPiece> pieces;
    for (std::size_t i = 0; i < made.starts.size(); ++i) {
        const int64_t first = made.starts[i] - begin;
        if (first >= 0 && first < made.counts[me]) {
            pieces.push_back({i, first, made.sizes[i]});
        }
    }
    return pieces;
}

void clear_gaps(const LentCase& made, Values& array) {
    for (int64_t i = 0, piece = -1; i < array.ref().count; ++i) {
        const auto next = static_cast<std::size_t>(piece + 1);
        piece += next < made.starts.size() && made.starts[next] == i ? 1 : 0;
        const auto in = static_cast<std::size_t>(piece);
        if (i >= made.starts[in] + made.sizes[in]) {
            array.set(i, 0.0F);
        }
    }
}

void expect_bits_of_a_copy(Communicator& comm, const ReduceDesc& desc, DType source, bool waits) {
    const auto stream = make_stream(2);
    const LentCase made = pieces_of(comm.size());
    const int32_t all = desc.slots == 0 ? comm.size() : desc.slots;
    const comm::SlotRun own = comm::slots_of(comm.rank(), comm.size(), all);
    std::vector<Values> arrays;
    std::vector<ArrayRef> sources;
    comm::LentSlots slots;
    for (int32_t slot = own.first; slot < own.end; ++slot) {
        arrays.push_back(gradients(source, slot, 0, comm::total_of(made.counts)));
        clear_gaps(made, arrays.back());
    }
    for (Values& array : arrays) {
        sources.push_back(plain_array(array.ref()));
        auto& pieces = slots.emplace_back();
        for (const int64_t start : made.starts) {
            pieces.push_back({array.bytes.data() + bytes_of(source, start), source});
        }
    }
    const int64_t count = made.counts[static_cast<std::size_t>(comm.rank())];
    Values copied(DType::fp32, count);
    ReduceScatter scatter(comm, *stream);
    scatter.begin(desc, sources, made.counts, copied.ref());
    scatter.wait();
    Values read(DType::fp32, count);
    std::fill(read.bytes.begin(), read.bytes.end(), static_cast<unsigned char>(0xff));
    const int64_t before = comm.traffic().total_bytes();
    comm::LentSum sum(comm, *stream);
    sum.begin(*stream, desc, slots, made.counts, own_pieces(made, comm.rank()), read.ref());
    if (waits) {
        sum.wait(*stream);
    }
    while (!waits && sum.step(*stream) != comm::Advance::done) {
    }
    EXPECT_EQ(copied.bytes, read.bytes) << comm::order_name(desc.order) << " of " << desc.slots;
    EXPECT_EQ(comm.traffic().total_bytes(), 2 * before) << "what the other ranks have had";
}

TEST_P(Lent, SumsHaveTheBitsOfACopy) {
    run_ranks(GetParam(), [](Communicator& comm) {
        for (const SumOrder order : {SumOrder::rank, SumOrder::tree, SumOrder::fast}) {
            for (const int32_t slots : {0, 8, 11}) {
                if (slots > 0 && order != SumOrder::tree) {
                    continue;
                }
                ReduceDesc desc;
                desc.order = order;
                desc.slots = slots;
                desc.wire = kBf16;
                std::unique_ptr<Communicator> fresh; // traffic from zero
                check(comm.split(0, 0, &fresh));
                expect_bits_of_a_copy(*fresh, desc, DType::bf16, slots == 0);
                desc.wire = kFp32;
                check(comm.split(0, 0, &fresh));
                expect_bits_of_a_copy(*fresh, desc, DType::fp32, slots != 0);
                check(comm.split(0, 0, &fresh));
                expect_bits_of_a_copy(*fresh, desc, DType::fp16, slots == 0);
            }
        }
    });
}

TEST(LentRanks, RefuseOrdersThatNeedAMessageBefore) {
    run_ranks(1, [](Communicator& comm) {
        const auto stream = make_stream();
        Values result(DType::fp32, 0);
        ReduceDesc desc;
        desc.order = SumOrder::exact;
        comm::LentSum sum(comm, *stream);
        const std::vector<int64_t> counts = {0};
        EXPECT_THROW(sum.begin(*stream, desc, {}, counts, {}, result.ref()), Error);
    });
}

TEST(LentRanks, HearWhoHasItCopied) {
    run_ranks(3, [](Communicator& comm) {
        const auto stream = make_stream();
        Status status;
        try {
            if (comm.rank() != 1) {
                Reading reading(comm, *stream, 1);
                reading.exchange().wait(*stream);
            } else {
                Numbers numbers(comm);
                comm::AllGather what = numbers.lent();
                std::vector<int64_t> received(3 * Numbers::kCount);
                const std::vector<int64_t> offsets = {0, Numbers::kBytes, 2 * Numbers::kBytes};
                what.receive = received.data();
                what.receive_offsets = offsets.data();
                status = comm.run(what);
            }
        } catch (const Error& error) {
            status = error.status();
        }
        // Or the first that has heard it is gone before.
        EXPECT_TRUE(status.code() == Code::rank_mismatch || status.code() == Code::peer_lost)
            << status.text();
    });
}

TEST(LentRanks, HearWhoseReadingFails) {
    run_ranks(3, [](Communicator& comm) {
        const auto stream = make_stream();
        Numbers numbers(comm);
        comm::LentExchange exchange(comm, *stream,
                                    [&comm](Stream&, const void* const*, bool) -> bool {
                                        if (comm.rank() == 1) {
                                            fail(Code::invalid_argument, "rank 1 reads nothing");
                                        }
                                        return true;
                                    });
        exchange.begin(numbers.lent(), {});
        EXPECT_THROW(exchange.wait(*stream), Error);
        EXPECT_FALSE(comm.status().ok());
    });
}

// Rank 0 gives up in the middle of another's reading: its memory is its own again only when that is over. Who has not read
// all yet hears of it.
void expect_memory_stays(int32_t ranks, bool destroys) {
    std::atomic<int32_t> reading{0};
    std::atomic<int32_t> over{0};
    run_ranks(make_ranks({ranks, 0}), [&](std::unique_ptr<Communicator>& comm) {
        const auto stream = make_stream();
        Numbers numbers(*comm);
        auto exchange = std::make_unique<comm::LentExchange>(
            *comm, *stream, [&](Stream&, const void* const* lent, bool) {
                ++reading;
                const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
                while (std::chrono::steady_clock::now() < until) {
                    EXPECT_EQ(Numbers::sum_of(lent[0]), Numbers::kCount);
                }
                ++over;
                return false;
            });
        exchange->begin(numbers.lent(), {});
        if (comm->rank() == 0) {
            while (reading < ranks - 1) { // rank 0 does not poll, and so does not read
                std::this_thread::yield();
            }
            if (destroys) {
                comm.reset();
            }
            exchange.reset();
            EXPECT_GE(over, ranks - 1) << "the first runs are over";
            std::fill(numbers.own.begin(), numbers.own.end(), 7);
            return;
        }
        try {
            exchange->wait(*stream);
            ADD_FAILURE() << "rank 0 has not read all";
        } catch (const Error& error) {
            EXPECT_EQ(error.status().code(), Code::peer_lost) << error.what();
        }
    });
}

TEST(LentRanks, KeepMemoryThatIsRead) {
    expect_memory_stays(2, false);
    expect_memory_stays(4, false);
    expect_memory_stays(3, true);
}

TEST(LentRanks, AreLostBeforeTheyCome) {
    run_ranks(make_ranks({3, 0}), [](std::unique_ptr<Communicator>& comm) {
        const auto stream = make_stream();
        if (comm->rank() == 2) {
            comm.reset();
            return;
        }
        Reading reading(*comm, *stream, 1);
        EXPECT_THROW(reading.exchange().wait(*stream), Error);
        EXPECT_EQ(comm->status().code(), Code::peer_lost);
    });
}

} // namespace
} // namespace mp::test
