// SPDX-License-Identifier: Apache-2.0
// Communicators of some ranks, and which ranks share a machine: both agreed on by an all-gather.
#include <algorithm>
#include <tuple>
#include <type_traits>

#include "comm/communicator.hpp"
#include "status/guarded.hpp"

namespace mp::comm {
namespace {

struct Ticket {
    int32_t color;
    int32_t key;
    int32_t next_context;
};

// Every rank's value, by rank.
template <typename T>
Status gather_values(Communicator& communicator, const T& own, const CallOptions& options,
                     std::vector<T>& out) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto size = static_cast<std::size_t>(communicator.size());
    out.resize(size);
    const std::vector<int64_t> bytes(size, sizeof(T));
    std::vector<int64_t> offsets(size);
    for (std::size_t i = 0; i < size; ++i) {
        offsets[i] = static_cast<int64_t>(i * sizeof(T));
    }
    AllGather what;
    what.send = &own;
    what.send_bytes = sizeof(T);
    what.receive = out.data();
    what.receive_bytes = bytes.data();
    what.receive_offsets = offsets.data();
    return communicator.run(what, options);
}

// Contexts are counted on from the highest that any rank has used, one for each color in ascending order.
void assign_contexts(const std::vector<Ticket>& tickets, GroupDesc& group) {
    std::vector<int32_t> colors;
    for (const Ticket& ticket : tickets) {
        group.context = std::max(group.context, ticket.next_context);
        if (ticket.color >= 0) {
            colors.push_back(ticket.color);
        }
    }
    std::sort(colors.begin(), colors.end());
    colors.erase(std::unique(colors.begin(), colors.end()), colors.end());
    group.next_context = group.context + static_cast<int32_t>(colors.size());
    group.context += static_cast<int32_t>(
        std::lower_bound(colors.begin(), colors.end(), group.color) - colors.begin());
}

std::vector<int32_t> members_of(const std::vector<Ticket>& tickets, int32_t color) {
    std::vector<int32_t> members;
    for (std::size_t rank = 0; color >= 0 && rank < tickets.size(); ++rank) {
        if (tickets[rank].color == color) {
            members.push_back(static_cast<int32_t>(rank));
        }
    }
    std::stable_sort(members.begin(), members.end(), [&](int32_t a, int32_t b) {
        return tickets[static_cast<std::size_t>(a)].key < tickets[static_cast<std::size_t>(b)].key;
    });
    return members;
}

} // namespace

Status Communicator::split(int32_t color, int32_t key, std::unique_ptr<Communicator>* out,
                           const CallOptions& options) noexcept {
    out->reset();
    return guarded("a communicator", [&]() -> Status {
        std::vector<Ticket> tickets;
        Status status =
            gather_values(*this, Ticket{color, key, transport_->next_context()}, options, tickets);
        if (!status.ok()) {
            return status;
        }
        const std::vector<int32_t> members = members_of(tickets, color);
        GroupDesc group;
        group.color = color;
        group.key = key;
        group.members = members.data();
        group.count = static_cast<int32_t>(members.size());
        group.rank = static_cast<int32_t>(std::find(members.begin(), members.end(), rank_) -
                                          members.begin());
        assign_contexts(tickets, group);
        group.deadline_ms = options.deadline_ms != 0 ? options.deadline_ms : deadline_ms_;
        Transport* transport = nullptr;
        {
            const Lock lock(*this);
            status = transport_->make_group(group, &transport);
            // Others may have made theirs; a transport that makes none has none anywhere.
            if (!status.ok() && status.code() != Code::unsupported) {
                status = fail_all(status);
            }
        }
        std::unique_ptr<Transport> owned(transport);
        if (!status.ok() || owned == nullptr) {
            return status;
        }
        auto communicator = std::make_unique<Communicator>(std::move(owned), deadline_ms_);
        for (std::size_t i = 0; i < members.size(); ++i) {
            communicator->nodes_[i] = node(members[i]);
        }
        *out = std::move(communicator);
        return {};
    });
}

Status Communicator::learn_nodes(uint64_t machine, const CallOptions& options) noexcept {
    return guarded("the nodes of the ranks", [&] {
        std::vector<uint64_t> machines;
        const Status status = gather_values(*this, machine, options, machines);
        if (!status.ok()) {
            return status;
        }
        std::vector<uint64_t> seen; // numbered in the order of their first rank
        for (std::size_t rank = 0; rank < machines.size(); ++rank) {
            const auto found = std::find(seen.begin(), seen.end(), machines[rank]);
            nodes_[rank] = static_cast<int32_t>(found - seen.begin());
            if (found == seen.end()) {
                seen.push_back(machines[rank]);
            }
        }
        return Status();
    });
}

} // namespace mp::comm
