// SPDX-License-Identifier: Apache-2.0
// What every file needs around the library's calls: failures as exceptions, handles that end with their owner, and tensors
// together with their memory.
#pragma once

#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <mixedprec.h>

namespace train {

template <typename T> double real(T x) { return static_cast<double>(x); }
inline size_t size(int64_t x) { return static_cast<size_t>(x); }

// As printf does.
__attribute__((format(printf, 1, 2))) std::string format(const char* text, ...);

// One text of many parts.
template <typename... Parts> std::string join(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

struct Failure : std::runtime_error {
    template <typename... Parts>
    explicit Failure(const Parts&... parts) : std::runtime_error(join(parts...)) {}
};
struct UsageError : std::runtime_error {
    template <typename... Parts>
    explicit UsageError(const Parts&... parts) : std::runtime_error(join(parts...)) {}
};

// Throws an Error of these parts unless all is well.
template <typename Error, typename... Parts> void must(bool good, const Parts&... parts) {
    if (!good) {
        throw Error(parts...);
    }
}

// Throws a Failure with the call's name and the library's message. Notes come back.
mp_status check(mp_status status, const char* call);

// Bytes of all states that rules keep, by name.
std::vector<std::pair<std::string, int64_t>> states_of(const mp_memory_report& report);

#define MP_CHECK(call) ::train::check((call), #call)

// On stderr, with the rank that this thread is.
void print_failure(const std::exception& error);
extern thread_local int this_rank; // -1: there is only one

template <auto destroy> struct Destroy {
    template <typename T> void operator()(T* handle) const { destroy(handle); }
};
using Context = std::unique_ptr<mp_context, Destroy<mp_context_destroy>>;
using Recipe = std::unique_ptr<mp_recipe, Destroy<mp_recipe_destroy>>;
using Scaler = std::unique_ptr<mp_scaler, Destroy<mp_scaler_destroy>>;
using Tensor = std::unique_ptr<mp_tensor, Destroy<mp_tensor_destroy>>;
using Linear = std::unique_ptr<mp_linear, Destroy<mp_linear_destroy>>;
using Gemm = std::unique_ptr<mp_gemm, Destroy<mp_gemm_destroy>>;
using Optimizer = std::unique_ptr<mp_optimizer, Destroy<mp_optimizer_destroy>>;
using Comm = std::unique_ptr<mp_comm, Destroy<mp_comm_destroy>>;
using Checkpoint = std::unique_ptr<mp_checkpoint, Destroy<mp_checkpoint_destroy>>;

// Where a call is to put a new handle: mp_context_create(&desc, out(context)).
template <typename Handle> class Out {
  public:
    explicit Out(Handle& handle) : handle_(handle) {}
    Out(const Out&) = delete;
    Out& operator=(const Out&) = delete;
    ~Out() { handle_.reset(made_); }
    operator typename Handle::pointer *() { return &made_; } // NOLINT: that is its purpose

  private:
    Handle& handle_;
    typename Handle::pointer made_ = nullptr;
};
template <typename Handle> Out<Handle> out(Handle& handle) { return Out<Handle>(handle); }

// A tensor of the library together with its memory.
struct Array {
    Tensor tensor;
    void* memory = nullptr;
    int64_t count = 0;

    [[nodiscard]] float* floats() const { return static_cast<float*>(memory); }
};

// New memory, all zero: [rows, cols], or [rows] with cols 0.
Array make_array(mp_context* context, int32_t dtype, int64_t rows, int64_t cols = 0);
// A matrix of codes with one power-of-two scale (MS-AMP's), all zero.
Array make_scaled_array(mp_context* context, int32_t dtype, int64_t rows, int64_t cols);
Array make_weight_codes(mp_context* context, const mp_recipe* recipe, int64_t rows, int64_t cols,
                        const float* values);
// fp32 memory that stays the caller's.
Array wrap_array(mp_context* context, float* memory, int64_t rows, int64_t cols = 0);

// Rounds, or quantizes or dequantizes where a tensor has scales. One of the two is fp32 without scales.
void convert(const mp_tensor* source, mp_tensor* destination);

std::string recipe_string(const mp_recipe* recipe, const char* key);
// "bf16", or "fp8_e4m3_scaled": then *scaled. MP_DTYPE_NONE for another name.
int32_t dtype_by_name(const std::string& name, bool* scaled = nullptr);

} // namespace train
