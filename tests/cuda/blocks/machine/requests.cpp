// SPDX-License-Identifier: Apache-2.0
#include "requests.hpp"

#include <algorithm>
#include <set>

namespace mp::blocks {

namespace {

constexpr std::size_t kSector = 32;
constexpr std::size_t kBank = 4;
constexpr std::size_t kBanks = 32;
constexpr std::size_t kWidest = 16; // bytes that a lane accesses by one instruction

uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
    x ^= x >> 29;
    return x * 0x94d049bb133111ebU;
}

} // namespace

// A struct is copied in pieces as wide as its address allows.
void Requests::record(unsigned lane, const LaneAccess& access) {
    LaneAccess piece = access;
    for (std::size_t done = 0; done < access.bytes; done += piece.bytes) {
        piece.address = access.address + done;
        piece.bytes = kWidest;
        while (piece.bytes > access.bytes - done || piece.address % piece.bytes != 0) {
            piece.bytes /= 2;
        }
        piece.instruction = mix(access.instruction, done);
        record_piece(lane, piece);
    }
}

void Requests::record_piece(unsigned lane, const LaneAccess& access) {
    // Lanes whose pieces differ are different requests.
    const uint64_t instruction = mix(access.instruction, access.bytes);
    const uint64_t time = ++times_[lane][instruction];
    const auto [place, is_new] = places_.try_emplace(mix(instruction, time), requests_.size());
    if (is_new) {
        requests_.push_back({access.how, access.is_shared, access.bytes, instruction});
    }
    Request& request = requests_[place->second];
    request.lanes |= 1U << lane;
    request.addresses[lane] = access.address;
}

int64_t Requests::count_sectors(const Request& request, Traffic& to,
                                std::unordered_set<uintptr_t>& known) {
    std::array<uintptr_t, kWarp> addresses{};
    std::size_t count = 0;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        if ((request.lanes >> lane & 1U) != 0) {
            addresses[count++] = request.addresses[lane];
        }
    }
    // Accesses are aligned to their size: two either are the same or do not overlap, and none is in two sectors.
    std::sort(addresses.begin(), addresses.begin() + count);
    const auto end = std::unique(addresses.begin(), addresses.begin() + count);
    int64_t sectors = 0;
    uintptr_t last = UINTPTR_MAX;
    for (auto at = addresses.begin(); at != end; ++at) {
        sectors += *at / kSector != last ? 1 : 0;
        last = *at / kSector;
        to.distinct += known.insert(last).second ? 1 : 0;
    }
    const std::size_t bytes = static_cast<std::size_t>(end - addresses.begin()) * request.bytes;
    to.requests += 1;
    to.sectors += sectors;
    to.ideal += static_cast<int64_t>((bytes + kSector - 1) / kSector);
    return static_cast<int64_t>(bytes);
}

void Requests::count_banks(const Request& request, Banks& to) {
    const unsigned turn_lanes =
        request.bytes <= kBank ? kWarp : static_cast<unsigned>(kWarp * kBank / request.bytes);
    to.requests += 1;
    for (unsigned first = 0; first < kWarp; first += turn_lanes) {
        std::array<std::set<uintptr_t>, kBanks> words; // that are wanted of each bank
        for (unsigned lane = first; lane < first + turn_lanes; ++lane) {
            if ((request.lanes >> lane & 1U) == 0) {
                continue;
            }
            const uintptr_t begin = request.addresses[lane] / kBank;
            const uintptr_t end = (request.addresses[lane] + request.bytes - 1) / kBank;
            for (uintptr_t word = begin; word <= end; ++word) {
                words[word % kBanks].insert(word);
            }
        }
        std::size_t ways = 0;
        for (const auto& of_bank : words) {
            ways = std::max(ways, of_bank.size());
        }
        to.cycles += static_cast<int64_t>(ways);
        to.ideal += ways > 0 ? 1 : 0;
        to.worst = std::max(to.worst, static_cast<int64_t>(ways));
    }
}

// Requests stand in the order in which the first lane that took part made them.
void Requests::count(Counters& to) {
    std::unordered_set<uint64_t> instructions; // of the pass
    std::unordered_set<uintptr_t> loaded;
    std::unordered_set<uintptr_t> stored; // since the last load
    int64_t pass_bytes = 0;
    const auto end_pass = [&] {
        to.pass_bytes = std::max(to.pass_bytes, pass_bytes);
        pass_bytes = 0;
        instructions.clear();
        loaded.clear();
    };
    for (const Request& request : requests_) {
        if (request.is_shared && request.how != Access::atomic) {
            count_banks(request, to.shared);
        } else if (request.is_shared) {
            continue;
        } else if (request.how == Access::load) {
            if (instructions.contains(request.instruction)) {
                end_pass();
            }
            instructions.insert(request.instruction);
            pass_bytes += count_sectors(request, to.loads, loaded);
            stored.clear();
        } else if (request.how == Access::store) {
            end_pass();
            (void)count_sectors(request, to.stores, stored);
        } else {
            end_pass();
            to.atomics += __builtin_popcount(request.lanes);
        }
    }
    end_pass();
    requests_.clear();
    places_.clear();
    for (auto& times : times_) {
        times.clear();
    }
}

} // namespace mp::blocks
