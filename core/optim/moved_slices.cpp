// SPDX-License-Identifier: Apache-2.0
#include "optim/moved_slices.hpp"

#include <algorithm>
#include <functional>

#include "comm/shares.hpp"
#include "comm/wire_buffer.hpp"
#include "device/ops.hpp"

namespace mp::optim {
namespace {

// Elements that go from one slice to another one, of two ranks or the same.
struct Piece {
    const shard::ShardSlice* from;
    const shard::ShardSlice* to;
    int64_t first;
    int64_t end;
    int64_t unit;
};

void visit_pieces(const MovedSlices& moved, const std::function<void(const Piece&)>& visit) {
    for (const shard::ShardSlice& from : moved.from) {
        for (const shard::ShardSlice& to : moved.to) {
            const int64_t first = std::max(from.start, to.start);
            const int64_t end = std::min(from.start + from.count, to.start + to.count);
            if (first < end) {
                visit({&from, &to, first, end, moved.unit});
            }
        }
    }
}

struct Bytes {
    int64_t first;
    int64_t count;
};

// Of a piece of the slice, which begins and ends with a unit or with the slice.
Bytes bytes_of_piece(const SliceArray& array, const shard::ShardSlice& slice, const Piece& piece) {
    if (array.unit_bytes == 0) {
        return {0, array.bytes};
    }
    const auto at = [&](int64_t element) {
        return element == slice.start + slice.count
                   ? array.bytes
                   : (element - slice.start) / piece.unit * array.unit_bytes;
    };
    return {at(piece.first), at(piece.end) - at(piece.first)};
}

int64_t piece_bytes(const std::vector<SliceArray>& arrays, const shard::ShardSlice& slice,
                    const Piece& piece) {
    int64_t bytes = 0;
    for (const SliceArray& array : arrays) {
        bytes += bytes_of_piece(array, slice, piece).count;
    }
    return bytes;
}

// How much goes to each rank, and comes from each.
struct Shares {
    std::vector<int64_t> sent;
    std::vector<int64_t> received;

    Shares(const MovedSlices& moved, int32_t rank, int32_t ranks)
        : sent(static_cast<std::size_t>(ranks)), received(static_cast<std::size_t>(ranks)) {
        visit_pieces(moved, [&](const Piece& piece) {
            const int32_t from = piece.from->rank;
            const int32_t to = piece.to->rank;
            if (from == rank && to != rank) {
                sent[static_cast<std::size_t>(to)] += piece_bytes(moved.before, *piece.from, piece);
            }
            if (to == rank && from != rank) {
                received[static_cast<std::size_t>(from)] +=
                    piece_bytes(moved.after, *piece.to, piece);
            }
        });
    }
};

int32_t ranks_of(const MovedSlices& moved) {
    int32_t last = 0;
    for (const auto* slices : {&moved.from, &moved.to}) {
        for (const shard::ShardSlice& slice : *slices) {
            last = std::max(last, slice.rank);
        }
    }
    return last + 1;
}

void copy(const Stream& stream, void* to, const void* from, int64_t bytes, CopyKind kind) {
    if (bytes > 0) {
        stream.copy(to, from, static_cast<std::size_t>(bytes), kind);
    }
}

// Of this rank's own slice to its own.
void copy_inside(Stream& stream, Stream& host, const MovedSlices& moved, const Piece& piece) {
    for (std::size_t i = 0; i < moved.before.size(); ++i) {
        const SliceArray& before = moved.before[i];
        const SliceArray& after = moved.after[i];
        const Bytes from = bytes_of_piece(before, *piece.from, piece);
        const Bytes to = bytes_of_piece(after, *piece.to, piece);
        if (after.data + to.first != before.data + from.first) {
            copy(before.is_on_host ? host : stream, after.data + to.first, before.data + from.first,
                 from.count, CopyKind::device_to_device);
        }
    }
}

// Between arrays and the exchange's memory on the stream's device. Returns how much of that it was.
int64_t copy_piece(Stream& stream, const std::vector<SliceArray>& arrays,
                   const shard::ShardSlice& slice, const Piece& piece, char* memory, bool is_sent) {
    char* at = memory;
    for (const SliceArray& array : arrays) {
        const Bytes bytes = bytes_of_piece(array, slice, piece);
        if (is_sent) {
            copy(stream, at, array.data + bytes.first, bytes.count,
                 array.is_on_host ? CopyKind::host_to_device : CopyKind::device_to_device);
        } else {
            copy(stream, array.data + bytes.first, at, bytes.count,
                 array.is_on_host ? CopyKind::device_to_host : CopyKind::device_to_device);
        }
        at += bytes.count;
    }
    return at - memory;
}

} // namespace

int64_t exchange_bytes(const MovedSlices& moved, int32_t rank) {
    const Shares shares(moved, rank, std::max(rank + 1, ranks_of(moved)));
    return comm::total_of(shares.sent) + comm::total_of(shares.received);
}

void move_slices(Stream& stream, Stream& host, comm::Communicator& comm, const MovedSlices& moved,
                 void* memory) {
    const int32_t rank = comm.rank();
    const Shares shares(moved, rank, comm.size());
    const std::vector<int64_t> sent_at = comm::sums_before(shares.sent);
    const std::vector<int64_t> received_at = comm::sums_before(shares.received);
    const int64_t sent = comm::total_of(shares.sent);
    const int64_t received = comm::total_of(shares.received);
    auto* const base = static_cast<char*>(memory);
    comm::WireBuffer out(stream, comm, base, sent);
    comm::WireBuffer in(stream, comm, base + sent, received);
    host.sync();
    visit_pieces(moved, [&](const Piece& piece) {
        if (piece.from->rank != rank) {
            return;
        }
        if (piece.to->rank == rank) {
            copy_inside(stream, host, moved, piece);
        } else { // one piece at most for each rank
            copy_piece(stream, moved.before, *piece.from, piece,
                       out.device() + sent_at[static_cast<std::size_t>(piece.to->rank)], true);
        }
    });
    out.to_wire();
    comm::CallOptions options;
    options.site = "states of parameters that are cut anew";
    options.queue = &stream.queue();
    check(comm.run(comm::AllToAll{out.wire(), shares.sent.data(), sent_at.data(), in.wire(),
                                  shares.received.data(), received_at.data()},
                   options));
    in.from_wire();
    visit_pieces(moved, [&](const Piece& piece) {
        if (piece.to->rank == rank && piece.from->rank != rank) {
            copy_piece(stream, moved.after, *piece.to, piece,
                       in.device() + received_at[static_cast<std::size_t>(piece.from->rank)],
                       false);
        }
    });
    stream.sync();
    host.sync();
}

} // namespace mp::optim
