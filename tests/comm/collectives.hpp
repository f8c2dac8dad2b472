// SPDX-License-Identifier: Apache-2.0
// What every transport must do, told by rank and size alone, so that each rank knows what it must receive. Used by
// threads, by processes and by MPI programs: no test framework, the answer is a text, empty when all is well.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace mp::test {

using comm::AllGather;
using comm::AllToAll;
using comm::CommRequest;
using comm::Communicator;

// Bytes with uneven sizes; every third is empty.
inline int64_t uneven(int32_t from, int32_t to, int64_t scale) {
    return (from + 2 * to) % 3 == 0 ? 0 : (from * 7 + to * 3 + 1) * scale;
}

inline unsigned char byte_of(int32_t from, int32_t to, int64_t position, uint64_t salt) {
    return static_cast<unsigned char>((static_cast<uint64_t>(from) * 31 +
                                       static_cast<uint64_t>(to) * 17 +
                                       static_cast<uint64_t>(position) * 5 + salt * 13) &
                                      0xff);
}

// The layout of one side: parts for each rank, apart by a gap that must stay as it was.
struct Side {
    std::vector<int64_t> bytes;
    std::vector<int64_t> offsets;
    std::vector<unsigned char> data;
};

inline constexpr unsigned char kGap = 0xA5;

template <typename Size> Side make_side(int32_t size, const Size& size_of) {
    Side side;
    int64_t next = 3;
    for (int32_t i = 0; i < size; ++i) {
        side.bytes.push_back(size_of(i));
        side.offsets.push_back(next);
        next += side.bytes.back() + 1;
    }
    side.data.assign(static_cast<std::size_t>(next), kGap);
    return side;
}

struct Exchange {
    Side send;
    Side receive;
    uint64_t salt = 0;
};

inline Exchange make_exchange(int32_t rank, int32_t size, int64_t scale, uint64_t salt) {
    Exchange exchange;
    exchange.salt = salt;
    exchange.send = make_side(size, [&](int32_t to) { return uneven(rank, to, scale); });
    exchange.receive = make_side(size, [&](int32_t from) { return uneven(from, rank, scale); });
    for (int32_t to = 0; to < size; ++to) {
        const auto t = static_cast<std::size_t>(to);
        for (int64_t k = 0; k < exchange.send.bytes[t]; ++k) {
            exchange.send.data[static_cast<std::size_t>(exchange.send.offsets[t] + k)] =
                byte_of(rank, to, k, salt);
        }
    }
    return exchange;
}

inline AllToAll describe(Exchange& exchange) {
    return {exchange.send.data.data(),     exchange.send.bytes.data(),
            exchange.send.offsets.data(),  exchange.receive.data.data(),
            exchange.receive.bytes.data(), exchange.receive.offsets.data()};
}

// `to_of(from)` is the second argument that the sender gave byte_of.
template <typename To>
std::string check_side(const Side& side, int32_t size, uint64_t salt, const To& to_of) {
    std::vector<unsigned char> expected(side.data.size(), kGap);
    for (int32_t from = 0; from < size; ++from) {
        const auto f = static_cast<std::size_t>(from);
        for (int64_t k = 0; k < side.bytes[f]; ++k) {
            expected[static_cast<std::size_t>(side.offsets[f] + k)] =
                byte_of(from, to_of(from), k, salt);
        }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != side.data[i]) {
            return "byte " + std::to_string(i) + " is " + std::to_string(side.data[i]) + ", not " +
                   std::to_string(expected[i]);
        }
    }
    return {};
}

inline std::string words(const Status& status) {
    return status.ok() ? std::string() : std::string(status.text());
}

inline std::string check_exchange(const Exchange& exchange, int32_t rank, int32_t size) {
    return check_side(exchange.receive, size, exchange.salt,
                      [&](int32_t /*from*/) { return rank; });
}

inline std::string check_all_to_all(Communicator& comm, int64_t scale, uint64_t salt) {
    Exchange exchange = make_exchange(comm.rank(), comm.size(), scale, salt);
    const Status status = comm.run(describe(exchange));
    return status.ok() ? check_exchange(exchange, comm.rank(), comm.size()) : words(status);
}

inline std::string check_all_gather(Communicator& comm, int64_t scale, uint64_t salt) {
    const int32_t size = comm.size();
    Side side = make_side(size, [&](int32_t from) { return uneven(from, 1, scale); });
    std::vector<unsigned char> own(static_cast<std::size_t>(uneven(comm.rank(), 1, scale)));
    for (std::size_t k = 0; k < own.size(); ++k) {
        own[k] = byte_of(comm.rank(), 1, static_cast<int64_t>(k), salt);
    }
    const auto bytes = static_cast<int64_t>(own.size());
    const Status status = comm.run(comm::AllGather{own.data(), bytes, side.data.data(),
                                                   side.bytes.data(), side.offsets.data()});
    return status.ok() ? check_side(side, size, salt, [](int32_t /*from*/) { return 1; })
                       : words(status);
}

inline std::string check_broadcast(Communicator& comm, int64_t bytes, uint64_t salt) {
    for (int32_t root = 0; root < comm.size(); ++root) {
        std::vector<unsigned char> data(static_cast<std::size_t>(bytes));
        std::vector<unsigned char> expected(data.size());
        for (std::size_t k = 0; k < data.size(); ++k) {
            expected[k] = byte_of(root, root, static_cast<int64_t>(k), salt);
        }
        if (comm.rank() == root) {
            data = expected;
        }
        const Status status = comm.run(comm::Broadcast{data.data(), bytes, root});
        if (!status.ok() || data != expected) {
            return status.ok() ? "broadcast from " + std::to_string(root) + " is wrong"
                               : words(status);
        }
    }
    return {};
}

inline std::string check_max(Communicator& comm) {
    // The extremes, and one that each rank has.
    const auto rank = static_cast<uint32_t>(comm.rank());
    const auto last = static_cast<uint32_t>(comm.size() - 1);
    std::vector<uint32_t> values = {rank, last - rank, rank == last ? UINT32_MAX : 0, 0,
                                    0x80000000U - rank};
    const Status status =
        comm.run(comm::MaxU32{values.data(), static_cast<int64_t>(values.size())});
    const std::vector<uint32_t> expected = {last, last, UINT32_MAX, 0, 0x80000000U};
    return !status.ok() ? words(status) : values == expected ? std::string() : "a maximum is wrong";
}

// Three in flight, waited for in another order on every other rank.
inline std::string check_overlap(Communicator& comm, int64_t scale) {
    std::vector<Exchange> exchanges;
    for (uint64_t i = 0; i < 3; ++i) {
        exchanges.push_back(make_exchange(comm.rank(), comm.size(), scale, 100 + i));
    }
    std::vector<CommRequest> requests(3);
    for (std::size_t i = 0; i < 3; ++i) {
        const Status status = comm.begin(describe(exchanges[i]), {}, &requests[i]);
        if (!status.ok()) {
            return words(status);
        }
    }
    for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t which = comm.rank() % 2 == 0 ? i : 2 - i;
        const Status status = requests[which].wait();
        std::string wrong = status.ok() ? check_exchange(exchanges[which], comm.rank(), comm.size())
                                        : words(status);
        if (!wrong.empty()) {
            return wrong;
        }
    }
    return {};
}

inline std::string check_sum(Communicator& comm) {
    if (!comm.caps().sum_f32) {
        return {};
    }
    // Small whole numbers: exact in any order.
    std::vector<float> values = {1.0F, static_cast<float>(comm.rank()), -2.0F};
    const Status status = comm.run(comm::SumF32{values.data(), 3});
    const auto n = static_cast<float>(comm.size());
    const std::vector<float> expected = {n, n * (n - 1.0F) / 2.0F, -2.0F * n};
    return !status.ok() ? words(status) : values == expected ? std::string() : "a sum is wrong";
}

inline std::string check_basics(Communicator& comm) {
    std::string wrong;
    for (const int64_t scale : {int64_t{0}, int64_t{1}, int64_t{1000}}) {
        wrong += check_all_to_all(comm, scale, 1);
        wrong += check_all_gather(comm, scale, 2);
        wrong += check_broadcast(comm, scale * 3, 3);
    }
    wrong += check_max(comm);
    wrong += check_sum(comm);
    wrong += words(comm.run(comm::Barrier{}));
    wrong += check_overlap(comm, 100);
    return wrong;
}

// Halves by parity in reverse order, and the halves' halves; one rank in no group.
inline std::string check_split(Communicator& comm) {
    const int32_t color = comm.rank() == comm.size() - 1 && comm.size() > 1 ? -1 : comm.rank() % 2;
    std::unique_ptr<Communicator> half;
    const Status status = comm.split(color, -comm.rank(), &half);
    if (!status.ok()) {
        return words(status);
    }
    if ((half == nullptr) != (color < 0)) {
        return "a group where there should be none, or none where there should be one";
    }
    std::string wrong;
    if (half != nullptr) {
        const int32_t members = comm.size() == 1 ? 1 : (comm.size() - 1 + (color == 0 ? 1 : 0)) / 2;
        uint32_t highest = static_cast<uint32_t>(comm.rank());
        wrong += words(half->run(comm::MaxU32{&highest, 1}));
        // The highest parent rank comes first.
        if (half->size() != members ||
            static_cast<uint32_t>(comm.rank() + 2 * half->rank()) != highest) {
            wrong += "rank " + std::to_string(half->rank()) + " of " +
                     std::to_string(half->size()) + " in the half of rank " +
                     std::to_string(comm.rank());
        }
        wrong += check_basics(*half);
        std::unique_ptr<Communicator> single;
        wrong += words(half->split(half->rank(), 0, &single));
        wrong += single != nullptr && single->size() == 1 ? check_basics(*single)
                                                          : "no communicator of one";
    }
    return wrong + check_basics(comm);
}

} // namespace mp::test
