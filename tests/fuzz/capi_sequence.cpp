// SPDX-License-Identifier: Apache-2.0
// Sequences of calls of the C API, chosen by bytes: contexts, tensors, recipes, layers, scalers, optimizers, checkpoints, in
// any order, with handles that were destroyed or are of another kind, with NULL and with odd numbers. Also by 1 to 3 ranks
// that are threads, which make the same calls, or of which one makes others from some call on: then every rank gets a
// status. What must hold of each call is in capi_world.hpp. MP_FUZZ_TRACE=1 prints the calls.
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <unistd.h>

#include "fuzz/capi_sharing.hpp"
#include "fuzz/target.hpp"

using namespace mp::fuzz;

namespace {

constexpr int32_t kMostRanks = 3;
constexpr int64_t kMostCalls = 60;
constexpr int64_t kShortDeadline = 40; // milliseconds, of ranks that do not make the same calls

// Ranks wait here for one another.
class Meeting {
  public:
    explicit Meeting(int32_t size) : size_(size) {}
    void come() {
        std::unique_lock lock(mutex_);
        const int64_t round = round_;
        if (++here_ == size_) {
            here_ = 0;
            ++round_;
            all_.notify_all();
            return;
        }
        require(all_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round; }),
                "ranks that make the same calls meet");
    }

  private:
    std::mutex mutex_;
    std::condition_variable all_;
    int32_t size_;
    int32_t here_ = 0;
    int64_t round_ = 0;
};

void destroy_one(Bytes& bytes, World& world) {
    const std::size_t at = bytes.below(World::Tensors::kCount);
    switch (bytes.below(12)) {
    case 0:
        world.contexts.destroy(at);
        break;
    case 1:
        world.queues.destroy(at);
        break;
    case 2:
        world.recipes.destroy(at);
        break;
    case 3:
        world.scalers.destroy(at);
        break;
    case 4:
        world.meet();
        world.drop_states();
        world.optimizers.destroy(at);
        break;
    case 5:
        world.linears.destroy(at);
        world.saveds.destroy(at);
        break;
    case 6:
        world.gemms.destroy(at);
        break;
    case 7:
        world.meet();
        world.comms.destroy(at);
        world.meet();
        break;
    case 8:
        world.meet();
        world.checkpoints.destroy(at);
        break;
    default:
        world.tensors.destroy(at);
        break;
    }
}

void one_call(Bytes& bytes, World& world) {
    using Call = void (*)(Bytes&, World&);
    constexpr Call kCalls[] = {
        create_context,   use_context,      create_tensor,  wrap_tensor,       look_at_tensor,
        move_tensor,      create_quantized, quantize,       use_gemm,          create_recipe,
        set_key,          look_at_recipe,   create_scaler,  use_scaler,        create_linear,
        use_linear,       use_linear,       look_at_linear, use_saved,         create_optimizer,
        add_to_optimizer, add_to_optimizer, set_optimizer,  look_at_optimizer, step_optimizer,
        step_optimizer,   use_comm,         start_training, create_checkpoint, use_checkpoint,
        ask_rule,         destroy_one};
    kCalls[bytes.below(std::size(kCalls))](bytes, world);
}

// Everything in some order; the contexts' memory is then back.
void destroy_all(std::size_t order, World& world) {
    world.meet(); // nobody leaves before the others are done
    world.drop_states();
    for (int32_t i = 0; i < 5; ++i) {
        switch ((order + static_cast<std::size_t>(i)) % 5) {
        case 0:
            world.contexts.clear();
            break;
        case 1:
            world.tensors.clear();
            world.queues.clear();
            break;
        case 2:
            world.checkpoints.clear();
            world.comms.clear();
            break;
        case 3:
            world.optimizers.clear();
            world.scalers.clear();
            break;
        default:
            world.linears.clear();
            world.saveds.clear();
            world.gemms.clear();
            world.recipes.clear();
            break;
        }
    }
    require(world.deleted == world.wrapped, "every deleter has run once");
}

struct Result {
    std::vector<std::pair<std::string, mp_status>> outcomes;
    int64_t calls = 0;
};

Result run(const Setting& setting, const std::string& input) {
    World world(setting);
    Bytes bytes(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    const std::size_t order = bytes.next();
    start_training(bytes, world);
    while (!bytes.empty() && world.calls < kMostCalls) {
        const auto begin = std::chrono::steady_clock::now();
        one_call(bytes, world);
        if (!setting.is_lockstep) { // a few waits of one deadline each, on a busy machine
            require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(200),
                    "a rank that is left alone gets a status in time");
        }
    }
    destroy_all(order, world);
    return {std::move(world.outcomes), world.calls};
}

int64_t total_calls = 0;

struct Summary {
    ~Summary() { std::printf("%lld calls\n", static_cast<long long>(total_calls)); }
} summary;

// Ranks as threads; `other` is what one of them does, where they differ.
void run_ranks(int32_t ranks, const std::string& input, const std::string* other, int32_t differs,
               const std::string& folder) {
    mp_comm* comms[kMostRanks] = {};
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    Setting setting;
    setting.is_lockstep = other == nullptr;
    desc.deadline_ms = setting.is_lockstep ? 20000 : kShortDeadline;
    require(mp_comm_create_threads(&desc, ranks, comms) == MP_STATUS_OK, mp_last_error_message());
    Meeting meeting(ranks);
    setting.ranks = ranks;
    setting.folder = folder;
    setting.payload = &meeting;
    setting.meet = setting.is_lockstep
                       ? [](void* payload) { static_cast<Meeting*>(payload)->come(); }
                       : static_cast<void (*)(void*)>(nullptr);
    Result results[kMostRanks];
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank) {
        Setting own = setting;
        own.rank = rank;
        own.comm = comms[rank];
        const std::string& does = other != nullptr && rank == differs ? *other : input;
        threads.emplace_back([own, &does, &results, rank] { results[rank] = run(own, does); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (int32_t rank = 0; rank < ranks; ++rank) {
        total_calls += results[rank].calls;
        const auto& outcomes = results[rank].outcomes;
        for (std::size_t i = 0; setting.is_lockstep && i < results[0].outcomes.size(); ++i) {
            const auto& [name, status] = results[0].outcomes[i];
            require(i < outcomes.size() && outcomes[i].first == name &&
                        (outcomes[i].second < 0) == (status < 0),
                    "all ranks fail or none: " + name);
        }
    }
}

// Where checkpoints go: memory, if there is a file system of it.
std::string make_folder() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code error;
    const auto parent = std::filesystem::is_directory(memory, error)
                            ? memory
                            : std::filesystem::temp_directory_path();
    return (parent / ("mixedprec-fuzz-" + std::to_string(::getpid()))).string();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    static const std::string folder = make_folder();
    // Each context asks for the machine, which takes longer than all its calls here.
    static const int asked =
        ::setenv("HWLOC_SYNTHETIC", "core:2 pu:1", 0) + ::setenv("HWLOC_PLUGINS_PATH", "/", 0);
    require(asked == 0, "an environment can be set");
    Bytes bytes(data, size);
    const std::size_t mode = bytes.next();
    const std::size_t detail = bytes.next();
    const std::string input(reinterpret_cast<const char*>(data) + std::min<std::size_t>(size, 2),
                            size - std::min<std::size_t>(size, 2));
    if (mode < 160) {
        Setting setting;
        setting.folder = folder;
        total_calls += run(setting, input).calls;
    } else if (mode < 250 || input.size() < 8) {
        run_ranks(1 + static_cast<int32_t>(detail) % kMostRanks, input, nullptr, 0, folder);
    } else { // one of several differs from some byte on
        std::string other = input;
        const std::size_t at = detail * input.size() / 256;
        other[at] = static_cast<char>(other[at] ^ static_cast<char>(1 + detail % 255));
        const int32_t ranks = 2 + static_cast<int32_t>(mode % 2);
        run_ranks(ranks, input, &other, static_cast<int32_t>(detail) % ranks, folder);
    }
    std::error_code error;
    std::filesystem::remove_all(folder, error);
    return 0;
}

// Mostly random: a byte's remainder is a call, and most calls find something that fits.
std::vector<std::string> fuzz_seeds() {
    std::vector<std::string> seeds;
    uint64_t state = 1;
    const auto random = [&state] {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<char>(state >> 56);
    };
    for (int32_t i = 0; i < 12; ++i) {
        std::string seed = {static_cast<char>(i % 4 == 0 ? 170 : i == 9 ? 252 : 0), random()};
        for (int32_t k = 0; k < 150; ++k) {
            seed += random();
        }
        seeds.push_back(seed);
    }
    return seeds;
}
