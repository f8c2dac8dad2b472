// SPDX-License-Identifier: Apache-2.0
// mixedprec_comm_bench [--ranks N] [--repeats N]       thread ranks
// mpirun -n N mixedprec_comm_bench --mpi [--repeats N] ranks of MPI
// all_to_all, all_gather, and a reduce-scatter of fp32 with the all-gather of its sums, of 4 MB and 256 MB on each rank,
// beside what the same bytes take by memcpy on all ranks at once and, over MPI, by MPI's own calls. Each repetition measures
// all of them in turn; the time is the slowest rank's, the best repetition counts. One JSON row a case.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mixedprec.h"
#ifdef MP_BENCH_MPI
#include <mpi.h>
#endif

namespace {

struct Options {
    int32_t ranks = 2;
    int repeats = 5;
    bool uses_mpi = false;
};

void check(mp_status status) {
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

struct Rank {
    mp_comm* comm = nullptr;
    int32_t rank = 0;
    int32_t size = 0;
    std::vector<char> send;
    std::vector<char> receive;
    std::vector<int64_t> bytes;
    std::vector<int64_t> offsets;

    Rank(mp_comm* c, int64_t total) : comm(c) {
        check(mp_comm_get_rank(comm, &rank));
        check(mp_comm_get_size(comm, &size));
        const int64_t part = total / size;
        send.assign(static_cast<std::size_t>(part * size), 1);
        receive.assign(send.size(), 0);
        for (int32_t i = 0; i < size; ++i) {
            bytes.push_back(part);
            offsets.push_back(i * part);
        }
    }
    [[nodiscard]] mp_comm_exchange exchange() {
        mp_comm_exchange what = MP_COMM_EXCHANGE_INIT;
        what.send = send.data();
        what.send_bytes = bytes.data();
        what.send_offsets = offsets.data();
        what.receive = receive.data();
        what.receive_bytes = bytes.data();
        what.receive_offsets = offsets.data();
        return what;
    }
};

// Seconds of the slowest rank.
double measure(const Rank& rank, const std::function<void()>& body) {
    check(mp_comm_barrier(rank.comm, nullptr));
    const auto begin = std::chrono::steady_clock::now();
    body();
    const auto took = std::chrono::steady_clock::now() - begin;
    auto ns = static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(took).count() / 100);
    check(mp_comm_max_u32(rank.comm, &ns, 1, nullptr));
    return static_cast<double>(ns) * 1e-7;
}

// The arrays of a rank as fp32, and its share of their sum.
struct Sums {
    mp_context* context = nullptr;
    std::vector<float> share;
    mp_tensor* source = nullptr;
    mp_tensor* sum = nullptr;
    mp_tensor* all = nullptr;

    explicit Sums(Rank& rank) : share(static_cast<std::size_t>(rank.bytes[0]) / sizeof(float)) {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = 1; // a core for each rank
        check(mp_context_create(&desc, &context));
        source = wrap(rank.send.data(), rank.send.size());
        sum = wrap(share.data(), share.size() * sizeof(float));
        all = wrap(rank.receive.data(), rank.receive.size());
    }
    Sums(const Sums&) = delete;
    Sums& operator=(const Sums&) = delete;
    ~Sums() {
        for (mp_tensor* tensor : {source, sum, all}) {
            mp_tensor_destroy(tensor);
        }
        mp_context_destroy(context);
    }
    [[nodiscard]] mp_tensor* wrap(void* data, std::size_t bytes) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        desc.dtype = MP_DTYPE_FP32;
        desc.ndim = 1;
        desc.shape[0] = static_cast<int64_t>(bytes / sizeof(float));
        mp_tensor* tensor = nullptr;
        check(mp_tensor_wrap(context, &desc, data, nullptr, nullptr, &tensor));
        return tensor;
    }
    void reduce_and_gather(mp_comm* comm) const {
        const mp_tensor* sources[] = {source};
        check(mp_comm_reduce_scatter(comm, nullptr, nullptr, sources, 1, nullptr, sum, nullptr));
        check(mp_comm_all_gather_values(comm, nullptr, nullptr, sum, nullptr, all, nullptr));
    }
};

struct Case {
    const char* name;
    std::function<void()> ours;
    std::function<void()> raw; // empty: there is none
};

std::vector<Case> cases_of(Rank& rank, Sums& sums, bool uses_mpi) {
    std::vector<Case> cases = {{"all_to_all",
                                [&rank] {
                                    const mp_comm_exchange what = rank.exchange();
                                    check(mp_comm_all_to_all(rank.comm, nullptr, &what, nullptr));
                                },
                                {}},
                               {"all_gather",
                                [&rank] {
                                    const mp_comm_exchange what = rank.exchange();
                                    check(mp_comm_all_gather(rank.comm, nullptr, &what, nullptr));
                                },
                                {}},
                               {"reduce_scatter + all_gather, fp32",
                                [&rank, &sums] { sums.reduce_and_gather(rank.comm); },
                                {}}};
#ifdef MP_BENCH_MPI
    if (uses_mpi) {
        const auto part = static_cast<int>(rank.bytes[0]);
        cases[0].raw = [&rank, part] {
            (void)MPI_Alltoall(rank.send.data(), part, MPI_BYTE, rank.receive.data(), part,
                               MPI_BYTE, MPI_COMM_WORLD);
        };
        cases[1].raw = [&rank, part] {
            (void)MPI_Allgather(rank.send.data(), part, MPI_BYTE, rank.receive.data(), part,
                                MPI_BYTE, MPI_COMM_WORLD);
        };
        cases[2].raw = [&rank, &sums, part] {
            (void)MPI_Reduce_scatter_block(rank.send.data(), sums.share.data(),
                                           static_cast<int>(sums.share.size()), MPI_FLOAT, MPI_SUM,
                                           MPI_COMM_WORLD);
            (void)MPI_Allgather(sums.share.data(), part, MPI_BYTE, rank.receive.data(), part,
                                MPI_BYTE, MPI_COMM_WORLD);
        };
    }
#endif
    (void)uses_mpi;
    return cases;
}

void run_rank(mp_comm* comm, const Options& options) {
    for (const int64_t megabytes : {4, 256}) {
        Rank rank(comm, megabytes << 20);
        Sums sums(rank);
        for (const Case& c : cases_of(rank, sums, options.uses_mpi)) {
            double ours = 1e9;
            double raw = 1e9;
            double copy = 1e9;
            for (int i = 0; i <= options.repeats; ++i) {
                const double o = measure(rank, c.ours);
                const double r = c.raw ? measure(rank, c.raw) : 0.0;
                const double m = measure(rank, [&rank] {
                    std::memcpy(rank.receive.data(), rank.send.data(), rank.send.size());
                });
                if (i > 0) { // the first one touches the memory
                    ours = std::min(ours, o);
                    raw = std::min(raw, r);
                    copy = std::min(copy, m);
                }
            }
            if (rank.rank == 0) {
                const double gigabytes = static_cast<double>(rank.receive.size()) * 1e-9;
                std::printf(
                    "{\"transport\": \"%s\", \"ranks\": %d, \"case\": \"%s\", \"MB\": %lld, "
                    "\"ms\": %.3f, \"GB/s received\": %.2f, \"ours/memcpy time\": %.2f",
                    options.uses_mpi ? "mpi" : "threads", rank.size, c.name,
                    static_cast<long long>(megabytes), 1e3 * ours, gigabytes / ours, ours / copy);
                if (c.raw) {
                    std::printf(", \"raw MPI ms\": %.3f, \"ours/raw MPI time\": %.2f", 1e3 * raw,
                                ours / raw);
                }
                std::puts("}");
            }
        }
    }
}

void run_threads(const Options& options) {
    std::vector<mp_comm*> comms(static_cast<std::size_t>(options.ranks));
    check(mp_comm_create_threads(nullptr, options.ranks, comms.data()));
    std::vector<std::thread> threads;
    threads.reserve(comms.size());
    for (mp_comm* comm : comms) {
        threads.emplace_back([comm, &options] {
            try {
                run_rank(comm, options);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "%s\n", error.what());
            }
            mp_comm_destroy(comm);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

void run_mpi(const Options& options) {
#ifdef MP_BENCH_MPI
    (void)MPI_Init(nullptr, nullptr);
    mp_comm* comm = nullptr;
    check(mp_comm_create_mpi(nullptr, nullptr, &comm));
    run_rank(comm, options);
    mp_comm_destroy(comm);
    (void)MPI_Finalize();
#else
    (void)options;
    throw std::runtime_error("--mpi: this build has no MPI");
#endif
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--mpi") {
            options.uses_mpi = true;
        } else if (name == "--ranks" && i + 1 < argc) {
            options.ranks = std::atoi(argv[++i]);
        } else if (name == "--repeats" && i + 1 < argc) {
            options.repeats = std::atoi(argv[++i]);
        } else {
            throw std::runtime_error("unknown option " + name +
                                     "; there is --mpi, --ranks N, --repeats N");
        }
    }
    return options;
}

} // namespace

int main(int argc, char** argv) {
    try {
        const Options options = parse(argc, argv);
        options.uses_mpi ? run_mpi(options) : run_threads(options);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
