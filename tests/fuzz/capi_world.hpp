// SPDX-License-Identifier: Apache-2.0
// What a sequence of calls works on, and what must hold of every call: its status is a declared one, a failure has words and
// has changed nothing, and the context's memory comes back.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fuzz/bytes.hpp"
#include "fuzz/target.hpp"
#include "mixedprec.h"

namespace mp::fuzz {

// The contexts' memory: every block comes back as it was given, and none is larger than a small tensor needs.
class Ledger {
  public:
    ~Ledger() { require(blocks_.empty(), "all memory of the contexts is given back"); }

    static void* allocate(std::size_t size, std::size_t alignment, void* payload) {
        constexpr std::size_t kMostBytes = std::size_t{8} << 20;
        if (size > kMostBytes) {
            return nullptr;
        }
        void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        auto* ledger = static_cast<Ledger*>(payload);
        const std::lock_guard lock(ledger->mutex_);
        ledger->blocks_[block] = {size, alignment};
        return block;
    }
    static void release(void* block, std::size_t size, std::size_t alignment, void* payload) {
        auto* ledger = static_cast<Ledger*>(payload);
        {
            const std::lock_guard lock(ledger->mutex_);
            const auto found = ledger->blocks_.find(block);
            require(found != ledger->blocks_.end() && found->second == std::pair(size, alignment),
                    "a block comes back with its size and alignment, once");
            ledger->blocks_.erase(found);
        }
        std::free(block);
    }

  private:
    std::mutex mutex_;
    std::unordered_map<void*, std::pair<std::size_t, std::size_t>> blocks_;
};

// A public struct with room behind it, for callers that are newer than the library.
template <typename T> struct Sized {
    T value;
    unsigned char more[16] = {};

    explicit Sized(const T& init) : value(init) { value.struct_size = sizeof(T); }
    void odd_size(Bytes& bytes) {
        switch (bytes.below(40)) {
        case 0:
            value.struct_size = static_cast<uint32_t>(bytes.below(9));
            break;
        case 1:
            value.struct_size = static_cast<uint32_t>(8 * bytes.below(sizeof(T) / 8 + 1));
            break;
        case 2:
            value.struct_size += 16;
            more[bytes.below(16)] = static_cast<unsigned char>(bytes.next());
            break;
        default:
            break;
        }
    }
    bool operator==(const Sized& other) const {
        return std::memcmp(&value, &other.value, sizeof value) == 0 &&
               std::memcmp(more, other.more, sizeof more) == 0;
    }
};

// A struct that a call fills: all but its size is marked before.
template <typename T> Sized<T> marked(Bytes& bytes) {
    Sized<T> made{T{}};
    std::memset(static_cast<void*>(&made.value), 0x5A, sizeof(T));
    made.value.struct_size = sizeof(T);
    made.odd_size(bytes);
    return made;
}

// What ends a handle of a kind.
template <typename T> using Destroyer = void (*)(T*);

// Some handles of one kind: live, destroyed, and none.
template <typename T, Destroyer<T> Destroy> class Slots {
  public:
    Slots() = default;
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;
    ~Slots() { clear(); }

    // A live one most of the time; NULL, a destroyed one, or another kind's `stranger`.
    T* pick(Bytes& bytes, void* stranger = nullptr) {
        const std::size_t byte = bytes.next();
        if (byte >= 252) {
            return byte == 252 ? static_cast<T*>(stranger) : nullptr;
        }
        const std::size_t at = byte % kCount;
        if (byte < 240) { // the next that is alive
            for (std::size_t i = 0; i < kCount; ++i) {
                if (alive_[(at + i) % kCount]) {
                    return handles_[(at + i) % kCount];
                }
            }
        }
        return handles_[at];
    }
    void put(T* handle) {
        if (handle == nullptr) {
            return;
        }
        next_ = (next_ + 1) % kCount;
        destroy(next_);
        handles_[next_] = handle;
        alive_[next_] = true;
    }
    void destroy(std::size_t at) {
        if (handles_[at] == nullptr) {
            return;
        }
        const std::string words = mp_last_error_message();
        Destroy(handles_[at]); // perhaps once more
        alive_[at] = false;
        require(words == mp_last_error_message(), "destroying leaves the message");
    }
    void clear() {
        for (std::size_t i = 0; i < kCount; ++i) {
            destroy(i);
        }
    }
    [[nodiscard]] bool is_alive(const T* handle) const {
        for (std::size_t i = 0; i < kCount; ++i) {
            if (alive_[i] && handles_[i] == handle) {
                return true;
            }
        }
        return false;
    }
    [[nodiscard]] T* newest() const { return alive(next_); }
    [[nodiscard]] T* alive(std::size_t at) const { return alive_[at] ? handles_[at] : nullptr; }

    static constexpr std::size_t kCount = 6;

  private:
    T* handles_[kCount] = {};
    bool alive_[kCount] = {};
    std::size_t next_ = 0;
};

// Which failures a call may have.
enum class Kind {
    local, // neither files nor other ranks
    files,
    ranks, // class C
};

inline bool is_declared(mp_status status, Kind kind) {
    const bool is_local =
        (status <= MP_STATUS_NULL_ARGUMENT && status >= MP_STATUS_PARSE_ERROR) ||
        (status <= MP_STATUS_UNSUPPORTED && status >= MP_STATUS_VERSION_MISMATCH) ||
        status == MP_STATUS_OUT_OF_MEMORY;
    const bool is_file = status == MP_STATUS_IO_ERROR || status == MP_STATUS_CORRUPT_DATA;
    const bool is_ranks = status <= MP_STATUS_TIMEOUT && status >= MP_STATUS_CORRUPT_DATA;
    return is_local || (kind != Kind::local && is_file) || (kind == Kind::ranks && is_ranks);
}

// Ranks that make the same calls meet before a communicator ends, or they would see it end at different calls.
struct Setting {
    int32_t rank = 0;
    int32_t ranks = 0;       // 0: one world without a communicator
    mp_comm* comm = nullptr; // of this rank; the world's from now on
    bool is_lockstep = true; // all ranks make the same calls
    void (*meet)(void* payload) = nullptr;
    void* payload = nullptr;
    std::string folder; // for checkpoints
};

// Of a tensor that there is.
inline std::size_t bytes_of(const mp_tensor_desc& desc) {
    int64_t count = 1;
    for (int32_t i = 0; i < desc.ndim; ++i) {
        count *= desc.shape[i];
    }
    return mp_dtype_bytes(desc.dtype, count);
}

class World {
  public:
    explicit World(const Setting& its_setting) : setting(its_setting) {
        comms.put(setting.comm);
        setting.comm = nullptr;
    }

    // Looks at what a call has returned. True where it has failed.
    bool failed(const char* name, mp_status status, Kind kind, bool may_write = false) {
        const std::string words = mp_last_error_message();
        const std::string said = std::string(name) + ": " + mp_status_string(status) + ": " + words;
        if (is_traced()) {
            std::fprintf(stderr, "rank %d: %s\n", setting.rank, said.c_str());
        }
        ++calls;
        require(std::strcmp(mp_status_string(status), "MP_STATUS_UNKNOWN") != 0,
                "declared: " + said);
        require(status != MP_STATUS_OK || words.empty(), "a success has no words: " + said);
        require(status == MP_STATUS_OK || words.size() >= 8, "anything else has: " + said);
        require(words.find('\n') == std::string::npos, "in one line: " + said);
        require(status >= 0 || is_declared(status, kind), "a declared failure: " + said);
        require(!setting.is_lockstep || status != MP_STATUS_TIMEOUT,
                "ranks that make the same calls do not wait in vain: " + said);
        if (kind == Kind::ranks) {
            outcomes.emplace_back(name, status);
        }
        require(status >= 0 || may_write || fingerprint() == before_,
                "a failure changes nothing: " + said);
        return status < 0;
    }

    // All bytes that the caller may read and no other rank writes.
    uint64_t fingerprint() {
        uint64_t hash = 0xcbf29ce484222325ULL;
        const auto add = [&](mp_tensor* tensor) {
            void* data = nullptr;
            Sized<mp_tensor_desc> desc(MP_TENSOR_DESC_INIT);
            if (tensor == nullptr || mp_tensor_get_data(tensor, &data) != MP_STATUS_OK ||
                mp_tensor_get_desc(tensor, &desc.value) != MP_STATUS_OK) {
                return;
            }
            const std::size_t bytes = data == nullptr ? 0 : bytes_of(desc.value);
            uint64_t word = 0;
            for (std::size_t i = 0; i < bytes; i += sizeof word) {
                std::memcpy(&word, static_cast<unsigned char*>(data) + i,
                            std::min(bytes - i, sizeof word));
                hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
                hash ^= hash >> 29;
            }
        };
        for (std::size_t i = 0; i < Tensors::kCount; ++i) {
            mp_tensor* tensor = tensors.alive(i);
            add(is_shared(tensor) ? nullptr : tensor);
        }
        for (mp_tensor* state : states) {
            add(state);
        }
        return hash;
    }
    // Before a call.
    World& look() {
        before_ = fingerprint();
        return *this;
    }

    void share(mp_tensor* tensor) { shared.push_back(tensor); }
    [[nodiscard]] bool is_shared(const mp_tensor* tensor) const {
        for (const mp_tensor* one : shared) {
            if (one == tensor) {
                return true;
            }
        }
        return false;
    }
    void drop_states() {
        for (mp_tensor* state : states) {
            mp_tensor_destroy(state);
        }
        states.clear();
    }
    void meet() const {
        if (setting.meet != nullptr) {
            setting.meet(setting.payload);
        }
    }
    static bool is_traced() {
        static const bool traced = std::getenv("MP_FUZZ_TRACE") != nullptr;
        return traced;
    }

    using Tensors = Slots<mp_tensor, mp_tensor_destroy>;
    Ledger ledger;
    Setting setting;
    std::vector<std::unique_ptr<unsigned char[]>> memory; // of wrapped tensors
    int64_t wrapped = 0;                                  // with a deleter
    int64_t deleted = 0;
    int64_t calls = 0;
    std::vector<std::pair<std::string, mp_status>> outcomes; // of class C, for comparing ranks
    std::vector<mp_tensor*> shared; // belong to an optimizer that ranks share
    std::vector<mp_tensor*> states; // of optimizers that they do not
    int64_t saves = 0;
    Slots<mp_context, mp_context_destroy> contexts;
    Slots<mp_queue, mp_queue_destroy> queues;
    Tensors tensors;
    Slots<mp_recipe, mp_recipe_destroy> recipes;
    Slots<mp_scaler, mp_scaler_destroy> scalers;
    Slots<mp_optimizer, mp_optimizer_destroy> optimizers;
    Slots<mp_linear, mp_linear_destroy> linears;
    Slots<mp_saved, mp_saved_destroy> saveds;
    Slots<mp_gemm, mp_gemm_destroy> gemms;
    Slots<mp_comm, mp_comm_destroy> comms;
    Slots<mp_checkpoint, mp_checkpoint_destroy> checkpoints;

  private:
    uint64_t before_ = 0;
};

// The call's own name goes into what is said about it.
#define MP_CALL(world, kind, function, ...)                                                        \
    (world).look().failed(#function, function(__VA_ARGS__), Kind::kind)

} // namespace mp::fuzz
