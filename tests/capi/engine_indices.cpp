// SPDX-License-Identifier: Apache-2.0
// Indices of 32 bits, a mistake of two engines (engine_mistakes.cpp): what lies behind as many elements is told apart and seen.
#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

#include "support.hpp"

using namespace mp_test;

namespace {

constexpr int64_t kLong = (int64_t{1} << 32) + 4096; // elements of two bytes

// So many of them, of which all but the last pieces are the same memory: what matters is where they are.
class LongArray {
  public:
    LongArray() {
        const int file = ::memfd_create("long", 0);
        bool is_mapped = ::ftruncate(file, static_cast<off_t>(2 * kPiece)) == 0;
        void* const all =
            ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        is_mapped = is_mapped && all != MAP_FAILED;
        base_ = static_cast<unsigned char*>(all);
        for (std::size_t at = 0; at < kBytes && is_mapped; at += kPiece) {
            const bool is_last = at + kPiece >= kBytes;
            is_mapped = ::mmap(base_ + at, std::min(kPiece, kBytes - at), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED, file,
                               static_cast<off_t>(is_last ? kPiece : 0)) != MAP_FAILED;
        }
        ::close(file);
        if (!is_mapped) {
            throw std::runtime_error("8 GiB of addresses over 4 MiB of memory: " +
                                     std::string(std::strerror(errno)));
        }
    }
    ~LongArray() { ::munmap(base_, kBytes); }
    LongArray(const LongArray&) = delete;
    LongArray& operator=(const LongArray&) = delete;
    [[nodiscard]] void* data() const { return base_; }
    [[nodiscard]] uint16_t& last() const { return reinterpret_cast<uint16_t*>(base_)[kLong - 1]; }

  private:
    static constexpr std::size_t kPiece = std::size_t{1} << 21;
    static constexpr std::size_t kBytes = 2 * static_cast<std::size_t>(kLong);
    unsigned char* base_ = nullptr;
};

} // namespace

// Theirs have 32 bits: a block index that wraps at 2^32 (LLMQ), a count that is cast to int (Surogate). Here: the random bits
// of a slice that lies behind that many elements are not those of the first ones.
TEST(EngineIndices, ElementsBehindThirtyTwoBitsHaveTheirOwnNoise) {
    const Context context = make_context(1);
    constexpr std::size_t kCount = 4096;
    const std::vector<float> grads = numbers(kCount, 2);
    const auto step = [&](int64_t first) {
        std::vector<uint16_t> param(kCount, 0x3f80); // 1 in bf16
        std::vector<float> m(kCount), v(kCount), grad = grads;
        mp_step_slot slot = MP_STEP_SLOT_INIT;
        slot.count = kCount;
        slot.param.data = param.data();
        slot.grad.data = grad.data();
        slot.states[0].data = m.data();
        slot.states[1].data = v.data();
        slot.param.dtype = MP_DTYPE_BF16;
        slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype = MP_DTYPE_FP32;
        slot.first_element = first;
        mp_step_args args = MP_STEP_ARGS_INIT;
        args.lr = 1e-3;
        args.flags |= MP_STEP_SR_PARAM;
        EXPECT_TRUE(succeeded(
            mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr)));
        return param;
    };
    const std::vector<uint16_t> first = step(0);
    EXPECT_EQ(first, step(0));
    for (const int bits : {31, 32, 33, 35, 36, 40}) {
        EXPECT_NE(first, step(int64_t{1} << bits)) << bits;
    }
}

// The last of 2^32 + 4096 elements: seen by the finite check, and stepped, once.
TEST(EngineIndices, ArraysLongerThanThirtyTwoBits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "skipped: every access is looked at, which takes minutes";
#endif
    const Context context = make_context(1);
    const LongArray param, grad, m;
    const Scaler scaler = make_scaler(context);
    const auto found_inf = [&] {
        const void* const arrays[] = {grad.data()};
        const int32_t dtype = MP_DTYPE_BF16;
        mp_scaler_state state = MP_SCALER_STATE_INIT;
        EXPECT_TRUE(
            succeeded(mp_scaler_check_pointers(scaler, nullptr, 1, arrays, &dtype, &kLong)));
        EXPECT_TRUE(succeeded(mp_scaler_get_state(scaler, nullptr, &state)));
        return state.found_inf;
    };
    EXPECT_EQ(found_inf(), 0U);
    grad.last() = 0x7f80; // infinity
    EXPECT_EQ(found_inf(), 1U);
    grad.last() = 0x3f80;  // 1
    param.last() = 0x3f80; // 1
    mp_step_slot slot = MP_STEP_SLOT_INIT;
    slot.count = kLong;
    slot.param.data = param.data();
    slot.grad.data = grad.data();
    slot.states[0].data = m.data();
    slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = MP_DTYPE_BF16;
    mp_step_args args = MP_STEP_ARGS_INIT;
    args.rule = MP_RULE_LION;
    args.lr = 0.25;
    MP_OK(mp_optimizer_step_pointers(context, nullptr, &args, &slot, 1, nullptr, nullptr));
    EXPECT_EQ(param.last(), 0x3f40); // 0.75: one sign of lr
}
