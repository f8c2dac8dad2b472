// SPDX-License-Identifier: Apache-2.0
// Catalog: what the caller wants saved or loaded, as this rank holds it. Nothing here assumes that a rank owns whole
// tensors: an entry has any number of slices, also none.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "process/float_environment.hpp"
#include "runtime/stream.hpp"
#include "system/host_bytes.hpp"

namespace mp::checkpoint {

// The state of an entry that holds a layer's scales and amax histories.
inline constexpr const char* kScalingState = "scaling";

// What the numbers of an fp32 entry must be for a file to be believed.
enum class ValueRule : int32_t {
    any,
    scale,        // finite, not negative (of blocks: zero where nothing was stored yet)
    power_of_two, // a positive, normal power of two
};

// Of an optimizer's array, by its name.
ValueRule value_rule(const std::string& state) noexcept;

// Elements [start, start + length) in logical order; where codes have blocks, both are multiples of the block size,
// but for the tensor's end.
struct LocalSlice {
    int64_t start = 0;
    int64_t length = 0;
    void* data = nullptr;
};

struct Entry {
    std::string name;
    std::string state; // neither dot nor @
    FormatId format = FormatId::none;
    std::vector<int64_t> shape;
    std::vector<LocalSlice> slices;
    const Stream* stream = nullptr; // of the device that has the data; null: host memory
    ValueRule rule = ValueRule::any;
    // Every rank has all of it. Rank 0 writes it, every rank reads it; with `agrees` the ranks' bytes must be equal.
    bool replicated = false;
    bool agrees = false;
    bool is_copy = false; // another rank writes these slices; this one only reads its own

    [[nodiscard]] int64_t count() const noexcept;
    [[nodiscard]] std::size_t bytes(const LocalSlice& slice) const noexcept;
    // Bytes before element i, of the whole tensor's codes.
    [[nodiscard]] int64_t offset(int64_t i) const noexcept { return code_bytes(format, i); }
    [[nodiscard]] std::string text() const { return "'" + name + "' (" + state + ")"; }
};

struct Catalog {
    std::vector<Entry> entries;
    std::vector<Scalar> scalars;
    std::set<std::string> frozen; // parameters that need nothing of a file but their weight
    std::string recipe;
    std::string preset; // the recipe, for people
    uint64_t seed = 0;
    int64_t rng_step = 0;
};

// Throws invalid_argument for entries no checkpoint can hold.
void check_catalog(const Catalog& catalog);

// What is wrong with these numbers of an entry by its rule; empty: nothing.
std::string wrong_value(const Entry& entry, const unsigned char* values, std::size_t bytes);

// Bytes of slice memory to host memory and back, from byte `offset` of the slice. The first two do not wait.
void copy_out(const Entry& entry, const LocalSlice& slice, std::size_t offset, void* host,
              std::size_t bytes);
void copy_in(const Entry& entry, const LocalSlice& slice, const void* host);
void wait_for(const Catalog& catalog);

// The catalog with its own copy of all data in host memory, one copy of the state, so that training can go on.
class Snapshot {
  public:
    explicit Snapshot(const Catalog& live);
    [[nodiscard]] const Catalog& catalog() const noexcept { return catalog_; }

  private:
    Catalog catalog_;
    std::vector<system::HostBytes> memory_;
};

struct Progress {
    void (*call)(int64_t done, int64_t total, void* payload) = nullptr;
    void* payload = nullptr;

    void report(int64_t done, int64_t total) const {
        if (call != nullptr) {
            const process::CallerFloats floats;
            call(done, total, payload);
        }
    }
};

} // namespace mp::checkpoint
