// SPDX-License-Identifier: Apache-2.0
// What the tests of mixedprec.hpp share: statuses of refused calls, values, a folder of a test's own, a thread for each rank.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <mixedprec.hpp>
#include <random>
#include <thread>

namespace mp = mixedprec;

template <class Call> mp_status status_of(const Call& call) {
    try {
        static_cast<void>(call());
    } catch (const mp::Error& error) {
        EXPECT_NE(std::string(error.what()).find(mp_status_string(error.status())),
                  std::string::npos);
        EXPECT_GT(std::string(error.what()).size(),
                  std::string(mp_status_string(error.status())).size() + 4);
        return error.status();
    }
    return MP_STATUS_OK;
}

inline std::vector<float> ramp(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11) / 16.0f;
    return values;
}

inline mp::Tensor zeros(const mp::Context& context, const mp::Shape& shape) {
    return mp::Tensor::create(context, MP_DTYPE_FP32, shape);
}

// An optimizer with one group.
inline mp::Optimizer optimizer_of(const mp::Context& context, const mp::Recipe& recipe,
                                  std::uint32_t flags = 0) {
    mp::OptimizerOptions options;
    options.flags = flags;
    auto optimizer = mp::Optimizer::create(context, recipe, options);
    optimizer.add_group();
    return optimizer;
}

struct Folder {
    Folder()
        : path(std::filesystem::temp_directory_path() /
               ("mp_cpp_" + std::to_string(std::random_device()()))) {}
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
};

template <class Call> void on_ranks(int ranks, const Call& call) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&call, rank] { call(rank); });
    for (std::thread& thread : threads)
        thread.join();
}
