// SPDX-License-Identifier: Apache-2.0
// One training with every option that must not change its bits: ranks, stages, transports, places, recomputed or kept
// inputs, micro-batches in flight, a stop and a start in between. What comes out is everything that training keeps.
//
// The model: an embedding of three chunks of 16384 elements, two layers and a third over the first's weight, a bias, and a
// scale like a norm's. Several micro-batches a step; one gradient of the second step is not finite, so that step is skipped.
#pragma once

#include <functional>
#include <thread>

#include "bits_trainer.hpp"
#include "forwarded_comm.hpp"

namespace mp_test::bits {

// The body of each rank in a thread of its own, with the communicator that the configuration asks for.
inline void on_ranks(const Configuration& c, Collected& collected,
                     const std::function<void(int32_t, mp_comm*)>& body) {
    const int32_t ranks = ranks_of(c);
    std::vector<mp_comm*> raw(static_cast<std::size_t>(ranks));
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = 20000;
    if (c[kTransport] == kSelf) {
        check(mp_comm_create_self(&desc, raw.data()));
    } else if (c[kTransport] != kNone) {
        check(mp_comm_create_threads(&desc, ranks, raw.data()));
    }
    const auto run = [&](int32_t rank) {
        try {
            if (!are_floats_late) {
                set_floats();
            }
            Comm comm(
                raw[static_cast<std::size_t>(rank)]); // a rank that gives up is lost to others
            Forward forward;
            if (c[kTransport] == kCallbacks) {
                forward.comm = std::move(comm);
                forward.flags = c[kProgress] == 0 ? MP_COMM_TAKES_ANY_THREAD : 0;
                const mp_comm_callbacks table = forward.table();
                mp_comm* made = nullptr;
                check(mp_comm_create_callbacks(&desc, &table, &made));
                comm = Comm(made);
            }
            body(rank, comm);
            if (comm != nullptr) {
                check(mp_comm_barrier(comm, nullptr)); // nobody leaves before the others are done
            }
        } catch (const std::runtime_error& error) {
            collected.fail("rank " + std::to_string(rank) + ": " + error.what());
        }
        reset_floats();
    };
    std::vector<std::thread> threads;
    for (int32_t rank = 1; rank < ranks; ++rank) {
        threads.emplace_back(run, rank);
    }
    run(0);
    for (std::thread& thread : threads) {
        thread.join();
    }
}

// The ranks, stage and nothing else of what a configuration's first half ran on.
inline Configuration first_half(const Configuration& c) {
    Configuration half{};
    for (const Option same :
         {kRecipe, kOrder, kSlotCount, kWire, kThreads, kSaving, kFrozen, kRules, kUnused}) {
        half[same] = c[same];
    }
    half[kLayers] = rounds_operands(c) ? c[kLayers] : 0;
    if (c[kTransport] != kNone) {
        half[kRanks] = c[kSavedOn] - 1;
        half[kTransport] = half[kRanks] == 0 ? kSelf : kThreadRanks;
        half[kStage] = c[kSavedStage];
        half[kGather] = half[kStage] > 0 ? c[kGather] : 0;
        half[kPlan] = is_scaled(c) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
        half[kGroups] = c[kOrder] == MP_COMM_ORDER_RANK ? c[kGroups] : 0;
    }
    return half;
}

inline Outcome run(const Configuration& c) {
    Collected collected;
    const bool is_resumed = c[kSavedOn] != 0;
    const Folder folder("equal_bits");
    if (is_resumed) {
        const Configuration half = first_half(c);
        on_ranks(half, collected, [&](int32_t rank, mp_comm* comm) {
            Trainer trainer(half, rank, comm, 50);
            trainer.train(0, kSaveAfter, collected);
            trainer.save(folder.c_str());
        });
    }
    on_ranks(c, collected, [&](int32_t rank, mp_comm* comm) {
        Trainer trainer(c, rank, comm, is_resumed ? 70 : 50);
        if (is_resumed) {
            trainer.load(folder.c_str());
        }
        trainer.train(is_resumed ? kSaveAfter : 0, kSteps, collected);
        trainer.collect(collected);
    });
    return collected.take();
}

} // namespace mp_test::bits
