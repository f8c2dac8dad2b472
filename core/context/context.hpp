// SPDX-License-Identifier: Apache-2.0
// Context: the open devices and their default streams. Backends are injected; core names none.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "context/given_back.hpp"
#include "device/backend.hpp"
#include "runtime/stream.hpp"

namespace mp {

struct ContextOptions {
    DeviceKind kind = DeviceKind::host;
    int32_t device_index = 0;
    int32_t num_threads = 0;
    bool bind_threads = false;
    ParallelTable parallel;
    std::string host_backend; // empty: the first compiled-in one
    MemoryTable memory;
    LogTable log;
};

// As the caller's levels are.
enum class LogLevel : int32_t { error = 1, warning, info, debug };

class Context {
  public:
    // `backends` holds the compiled-in ones; `accelerator` the one for options.kind, null for the host.
    Context(const ContextOptions& options, BackendList backends, const Backend* accelerator);

    // The host's stream, and that of the context's own device (the same where that is the host).
    [[nodiscard]] Stream& host_stream() const noexcept { return *host_; }
    [[nodiscard]] Stream& stream() const noexcept { return *own_; }
    [[nodiscard]] const std::shared_ptr<Stream>& shared_stream() const noexcept { return own_; }
    // The default stream of the device of this kind and index; throws if it is not open here.
    [[nodiscard]] Stream& stream_of(DeviceKind kind, int32_t index) const;

    // Another stream of the context's device; `native` null: of its own.
    [[nodiscard]] std::shared_ptr<Stream> open_stream(void* native);
    // Of memory on this device that nobody uses any more: runs when the work of all streams so far is done, at once on the host.
    void give_back(const Deleter& deleter, const Device& device) noexcept;
    // What waited and is done by now. Called where a caller waits, or lends memory again.
    void give_back_due() noexcept { given_back_.run_due(); }
    void give_back_all() noexcept { given_back_.finish(); } // waits

    // A host device beside the context's, with so many threads, for work that goes on beside the caller's.
    [[nodiscard]] std::shared_ptr<Stream> open_host_stream(int32_t threads) const;

    [[nodiscard]] std::string describe() const;
    // The line that `text` returns, for the caller's log. Left out where there is no memory for it: what it reports has
    // happened.
    template <typename Text> void log(LogLevel level, const Text& text) const noexcept {
        try {
            const std::string line = text();
            log_.write(static_cast<int32_t>(level), line.c_str(), log_.payload);
        } catch (const std::exception&) {
        }
    }

  private:
    const Backend* host_backend_;
    MemoryTable memory_;
    LogTable log_;
    std::shared_ptr<Stream> host_;
    std::shared_ptr<Stream> own_;
    std::mutex streams_mutex_;
    std::vector<std::weak_ptr<Stream>> streams_; // of own_'s device, but that one
    GivenBack given_back_;                       // ends first: it waits for streams
};

// Finds a compiled-in backend, the first of its kind for an empty name; throws unknown_name with the names
// there are.
const Backend& find_backend(BackendList backends, const std::string& name, DeviceKind kind);

} // namespace mp
