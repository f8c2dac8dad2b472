// SPDX-License-Identifier: Apache-2.0
// What a training of bits_training.hpp ends with, collected over its ranks, and calls under its caller's environment of
// floating-point numbers.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "floats.hpp"
#include "support.hpp"

namespace mp_test::bits {

using Bytes = std::vector<unsigned char>;
struct Outcome {
    std::map<std::string, Bytes> values;
    std::vector<std::string> errors;
    bool operator==(const Outcome&) const = default;
};

class Collected {
  public:
    // The same on every rank that has it.
    void add(const std::string& name, Bytes bytes) { add_piece(name, 0, std::move(bytes)); }
    // One piece of it, the same on every rank that has this piece.
    void add_piece(const std::string& name, int64_t start, Bytes bytes) {
        const std::lock_guard lock(mutex_);
        const auto [at, is_new] = pieces_[name].try_emplace(start, bytes);
        if (!is_new && at->second != bytes) {
            outcome_.errors.push_back(name + " is not the same on all ranks");
        }
    }
    void fail(const std::string& text) {
        const std::lock_guard lock(mutex_);
        outcome_.errors.push_back(text);
    }
    Outcome take() {
        for (auto& [name, pieces] : pieces_) {
            for (const auto& [start, bytes] : pieces) {
                outcome_.values[name].insert(outcome_.values[name].end(), bytes.begin(),
                                             bytes.end());
            }
        }
        return std::move(outcome_);
    }

  private:
    std::mutex mutex_;
    std::map<std::string, std::map<int64_t, Bytes>> pieces_;
    Outcome outcome_;
};

template <typename T> Bytes raw_bytes(const T* data, std::size_t count) {
    Bytes bytes(count * sizeof(T));
    std::memcpy(bytes.data(), data, bytes.size());
    return bytes;
}

// The floating-point environment that every rank's thread calls the library under, where it is not the default one: from the
// beginning, or from its second step on, when all threads of the library have begun.
inline const Floats* callers_floats = nullptr;
inline bool are_floats_late = false;
inline thread_local std::optional<FloatWords> this_threads_floats;

inline void set_floats() {
    if (callers_floats != nullptr) {
        callers_floats->set();
        this_threads_floats = FloatWords::read();
    }
}
inline void reset_floats() {
    this_threads_floats.reset();
    (void)std::fesetenv(FE_DFL_ENV);
}

inline void check(mp_status status) {
    if (this_threads_floats && *this_threads_floats != FloatWords::read()) {
        throw std::runtime_error("a call has changed its thread's floating-point environment");
    }
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

} // namespace mp_test::bits
