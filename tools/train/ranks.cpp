// SPDX-License-Identifier: Apache-2.0
// Making ranks, and what they tell each other besides gradients and weights.
#include "ranks.hpp"

#include <exception>
#include <system_error>
#include <thread>

namespace train {

static Ranks describe(mp_comm* comm) {
    Ranks ranks{comm, 0, 1, 0};
    int32_t mine = 0, node = 0;
    MP_CHECK(mp_comm_get_rank(comm, &ranks.rank));
    MP_CHECK(mp_comm_get_size(comm, &ranks.count));
    MP_CHECK(mp_comm_get_node(comm, ranks.rank, &mine));
    for (int32_t i = 0; i < ranks.count; i++) {
        MP_CHECK(mp_comm_get_node(comm, i, &node));
        ranks.neighbours += node == mine ? 1 : 0;
    }
    this_rank = ranks.count > 1 ? ranks.rank : -1;
    return ranks;
}

Processes::Processes(const Options& o) {
    if (o.mpi) {
        MP_CHECK(mp_comm_create_mpi(nullptr, nullptr, out(comm_)));
        mine_ = describe(comm_.get());
        o.check_ranks(mine_.count);
    }
}

void Processes::begin(const std::function<void()>& body) const {
    std::exception_ptr failure;
    try {
        body();
    } catch (...) {
        failure = std::current_exception();
    }
    const bool failed = mine_.any(failure != nullptr);
    if (failure) {
        std::rethrow_exception(failure);
    }
    must<Failure>(!failed, "another rank could not begin; its own message says why");
}

void Processes::must_agree(const std::vector<Options::Setting>& settings) const {
    if (comm_ == nullptr) {
        return;
    }
    std::vector<uint32_t>
        words; // the largest of x and of ~x are each other's complements where all x are the same
    for (const auto& [name, value] : settings) {
        uint32_t hash = 0x811c9dc5;
        for (const char byte : value) {
            hash = (hash ^ static_cast<uint8_t>(byte)) * 0x01000193;
        }
        words.insert(words.end(), {hash, ~hash});
    }
    MP_CHECK(
        mp_comm_max_u32(comm_.get(), words.data(), static_cast<int64_t>(words.size()), nullptr));
    for (size_t i = 0; i < settings.size(); i++) {
        must<Failure>(words[2 * i] == ~words[2 * i + 1], "ranks have other values of ",
                      settings[i].first, "; here it is ", settings[i].second,
                      ". Start all with the same options and text");
    }
}

static bool run_rank(const Ranks& ranks, const RankBody& body) {
    try {
        body(ranks);
        return true;
    } catch (const std::exception& error) {
        print_failure(error);
        return false;
    }
}

// Whoever gives up lets go of its communicator, which the others learn at once.
static bool run_thread(Comm comm, const RankBody& body) {
    const bool good = run_rank({}, [&](const Ranks&) { body(describe(comm.get())); });
    comm.reset();
    this_rank = -1;
    return good;
}

static bool run_threads(const Options& o, const RankBody& body) {
    const auto count = size(o.ranks);
    std::vector<mp_comm*> made(count);
    std::vector<Comm> comms(count);
    MP_CHECK(mp_comm_create_threads(nullptr, static_cast<int32_t>(o.ranks), made.data()));
    for (size_t i = 0; i < count; i++) {
        comms[i].reset(made[i]);
    }
    std::vector<char> good(count, 0);
    {
        std::vector<std::jthread> threads;
        try {
            for (size_t i = 1; i < count; i++) {
                threads.emplace_back(
                    [&, i] { good[i] = run_thread(std::move(comms[i]), body) ? 1 : 0; });
            }
        } catch (const std::system_error& error) { // the others then learn that these are lost
            print_failure(error);
            comms.resize(threads.size() + 1);
        }
        good[0] = run_thread(std::move(comms[0]), body) ? 1 : 0;
    }
    return std::find(good.begin(), good.end(), 0) == good.end();
}

bool Processes::run(const Options& o, const RankBody& body) const {
    return o.shared && !o.mpi ? run_threads(o, body) : run_rank(mine_, body);
}

void Ranks::share(std::vector<double>& values, int64_t total) const {
    if (comm == nullptr) {
        return;
    }
    std::vector<int64_t> bytes, offsets;
    for (int32_t i = 0; i < count; i++) {
        const Ranks other{nullptr, i, count, 1};
        offsets.push_back(other.first(total) * int64_t{sizeof(double)});
        bytes.push_back(other.end(total) * int64_t{sizeof(double)} - offsets.back());
    }
    mp_comm_exchange exchange = MP_COMM_EXCHANGE_INIT;
    exchange.send = values.data() + first(total);
    exchange.send_bytes = &bytes[size(rank)];
    exchange.receive = values.data();
    exchange.receive_bytes = bytes.data();
    exchange.receive_offsets = offsets.data();
    exchange.site = "losses";
    MP_CHECK(mp_comm_all_gather(comm, nullptr, &exchange, nullptr));
}

bool Ranks::any(bool mine) const {
    uint32_t flag = mine ? 1 : 0;
    if (comm != nullptr) {
        MP_CHECK(mp_comm_max_u32(comm, &flag, 1, nullptr));
    }
    return flag != 0;
}

} // namespace train
