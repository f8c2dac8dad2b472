// SPDX-License-Identifier: Apache-2.0
// Saving and loading an fp32 optimizer, against writing the same number of bytes to one file with an fsync, and against
// reading them, in turns in one run, in TMPDIR. What was written is in the system's cache when it is read.
#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>
#include <vector>

#include "array.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{4} << 20;

void require(bool holds, const char* what) {
    if (!holds) {
        throw std::runtime_error(std::string("checkpoint bench: ") + what + " failed");
    }
}

// Numbers that no file system stores shorter.
std::vector<float> some_numbers(std::size_t count) {
    std::vector<float> values(count);
    fill_numbers(values.data(), count);
    return values;
}

void write_raw(const fs::path& path, const std::vector<float>& chunk, std::size_t bytes) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    require(file >= 0, "open");
    for (std::size_t at = 0; at < bytes; at += kChunk) {
        const std::size_t size = std::min(kChunk, bytes - at);
        require(::write(file, chunk.data(), size) == static_cast<ssize_t>(size), "write");
    }
    require(::fsync(file) == 0 && ::close(file) == 0, "fsync");
}

void read_raw(const fs::path& path, std::vector<float>& memory, std::size_t bytes) {
    const int file = ::open(path.c_str(), O_RDONLY);
    require(file >= 0, "open");
    auto* to = reinterpret_cast<unsigned char*>(memory.data());
    for (std::size_t at = 0; at < bytes; at += kChunk) {
        const std::size_t size = std::min(kChunk, bytes - at);
        require(::read(file, to + at, size) == static_cast<ssize_t>(size), "read");
    }
    require(::close(file) == 0, "close");
}

// An optimizer of one parameter, and a checkpoint of it.
struct Saved {
    Saved(mp_context* context, std::size_t elements) : values(some_numbers(elements)) {
        check(mp_recipe_create(context, "fp32", &recipe));
        check(mp_optimizer_create(context, recipe, nullptr, &optimizer));
        int32_t group = 0;
        check(mp_optimizer_add_group(optimizer, nullptr, &group));
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        desc.dtype = MP_DTYPE_FP32;
        desc.ndim = 1;
        desc.shape[0] = static_cast<int64_t>(elements);
        check(mp_tensor_wrap(context, &desc, values.data(), nullptr, nullptr, &param));
        mp_param_desc param_desc = MP_PARAM_DESC_INIT;
        param_desc.name = "weight";
        param_desc.param = param;
        check(mp_optimizer_add_param(optimizer, group, &param_desc, nullptr));
        check(mp_checkpoint_create(context, nullptr, nullptr, &checkpoint));
        check(mp_checkpoint_add_optimizer(checkpoint, optimizer));
    }
    ~Saved() {
        mp_checkpoint_destroy(checkpoint);
        mp_optimizer_destroy(optimizer);
        mp_tensor_destroy(param);
        mp_recipe_destroy(recipe);
    }
    Saved(const Saved&) = delete;
    Saved& operator=(const Saved&) = delete;

    std::vector<float> values;
    mp_recipe* recipe = nullptr;
    mp_optimizer* optimizer = nullptr;
    mp_tensor* param = nullptr;
    mp_checkpoint* checkpoint = nullptr;
};

struct Pairs {
    std::vector<Pair> save;
    std::vector<Pair> load;
};

Pairs measure(const Saved& saved, const fs::path& folder, std::size_t bytes, int count) {
    const std::vector<float> chunk = some_numbers(kChunk / sizeof(float));
    std::vector<float> memory(bytes / sizeof(float));
    const fs::path raw = folder / "raw";
    const std::string checkpoints = (folder / "checkpoints").string();
    Pairs pairs;
    for (int i = 0; i < count; ++i) {
        fs::remove_all(folder / "checkpoints");
        fs::remove(raw);
        ::sync();
        const double write = seconds_of([&] { write_raw(raw, chunk, bytes); });
        const double save = seconds_of(
            [&] { check(mp_checkpoint_save(saved.checkpoint, checkpoints.c_str(), i, 0)); });
        const double read = seconds_of([&] { read_raw(raw, memory, bytes); });
        const double load = seconds_of(
            [&] { check(mp_checkpoint_load(saved.checkpoint, checkpoints.c_str(), 0, nullptr)); });
        pairs.save.push_back({write, save});
        pairs.load.push_back({read, load});
    }
    return pairs;
}

} // namespace

std::vector<Row> checkpoint_rows(mp_context* context, const Options& options) {
    if (!is_wanted(options, "checkpoint")) {
        return {};
    }
    const std::size_t elements = options.elements / 4;
    const std::size_t bytes = elements * 3 * sizeof(float); // the parameter and two moments
    const fs::path folder =
        fs::temp_directory_path() / ("mixedprec_bench_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    Pairs pairs;
    try {
        const Saved saved(context, elements);
        pairs = measure(saved, folder, bytes, options.turns.pairs);
    } catch (...) {
        fs::remove_all(folder);
        throw;
    }
    fs::remove_all(folder);
    const auto amount = static_cast<double>(bytes);
    return {{"checkpoint save", summarize("one file and its fsync", pairs.save), amount, "GB/s"},
            {"checkpoint load", summarize("read of one file", pairs.load), amount, "GB/s"}};
}

} // namespace mp_bench
