// SPDX-License-Identifier: Apache-2.0
// Checkpointer: what has state, and saving and loading all of it; also while training goes on.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/convert.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/stateful.hpp"
#include "comm/communicator.hpp"

namespace mp::checkpoint {

struct CheckpointerOptions {
    int32_t keep = 0;
    Progress progress;
    std::string library;
    system::FileTable* files = nullptr; // null: the system's; else it outlives the checkpointer
};

struct LoadFlags {
    bool verify_all = false;
    bool other_recipe = false;
    bool convert = false; // to this optimizer's recipe and types, where the checkpoint's are others
};

// What a checkpoint is converted for.
enum class Conversions : int32_t { none, types, recipe };

class Checkpointer {
  public:
    // `communicator` null: one rank. It is not used again after this call: its ranks get communicators of their own,
    // so that saves run beside training. Collective.
    Checkpointer(std::shared_ptr<Context> context, comm::Communicator* communicator,
                 const CheckpointerOptions& options);
    Checkpointer(const Checkpointer&) = delete;
    Checkpointer& operator=(const Checkpointer&) = delete;
    ~Checkpointer(); // waits for a save

    void add(std::unique_ptr<Stateful> stateful);
    // Collective. In the background: returns when the state is copied. Throws bad_state while a save is running.
    void save(const std::string& parent, int64_t step, bool in_background);
    // Whether no save is running.
    [[nodiscard]] bool is_idle();
    // Ends the last save in the background: its status, and then ok until there is another.
    Status wait();
    // Collective. Waits for a save that is running.
    Loaded load(const std::string& path, const LoadFlags& flags, Conversion* conversion);
    void export_weights(const std::string& path);
    [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return context_; }

  private:
    [[nodiscard]] Catalog catalog() const;
    // For a save: of what catalog() took on this rank, and once those of all ranks are known.
    [[nodiscard]] std::string maxima() const;
    void set_maxima(const std::vector<std::string>& ranks);
    [[nodiscard]] system::FileTable& files() const noexcept {
        return options_.files != nullptr ? *options_.files : system::posix_files();
    }
    // Into `catalog`, of which nothing is written yet; `targets` are prepared.
    Loaded read(LoadOptions options, const Catalog& catalog, std::span<Stateful* const> targets);
    [[nodiscard]] LoadOptions options_of(const std::string& path, const LoadFlags& flags) const;
    Loaded load_all(const std::string& path, const LoadFlags& flags);
    Loaded load_converted(const std::string& path, const LoadFlags& flags, Conversions what,
                          Conversion* conversion);
    [[nodiscard]] Conversions conversions(const std::string& path) const;
    void run(const Snapshot& snapshot, const system::OpenFile& folder,
             const SaveOptions& options) noexcept;
    void refuse_if_busy();
    void refuse_if_empty() const;
    void log_saved(const std::string& path, int64_t step) const noexcept;
    void log_loaded(const Loaded& loaded) const noexcept;

    std::shared_ptr<Context> context_;
    CheckpointerOptions options_;
    std::unique_ptr<comm::Communicator> front_; // of the calls; null: one rank
    std::unique_ptr<comm::Communicator> back_;  // of the worker
    std::unique_ptr<Ranks> ranks_;
    std::unique_ptr<Ranks> back_ranks_;
    std::vector<std::unique_ptr<Stateful>> stateful_;
    std::thread worker_;
    std::mutex mutex_;
    bool running_ = false; // under the mutex
    Status result_;        // of the worker, under the mutex
};

} // namespace mp::checkpoint
