// SPDX-License-Identifier: Apache-2.0
// Floating-point environments that a program may have set for its threads, and what a thread has.
#pragma once

#include <cfenv>
#include <cstdint>
#include <string>

namespace mp_test {

// The words of the processor, flags too.
struct FloatWords {
    uint64_t control = 0; // rounding, subnormals, traps
    uint64_t other = 0;   // of the x87 unit
    int flags = 0;
    bool operator==(const FloatWords&) const = default;

    static FloatWords read() {
        FloatWords now;
#if defined(__x86_64__)
        uint32_t sse = 0;
        uint16_t x87 = 0;
        asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(sse), "=m"(x87) : : "memory");
        now.control = sse & ~0x3fU;
        now.other = x87;
#elif defined(__aarch64__)
        asm volatile("mrs %0, fpcr" : "=r"(now.control) : : "memory");
#else
        now.control = static_cast<uint64_t>(std::fegetround());
#endif
        now.flags = std::fetestexcept(FE_ALL_EXCEPT);
        return now;
    }
};

struct Floats {
    const char* name;
    int rounding;
    bool flushes; // results that are subnormal
    bool ignores; // operands that are
    bool traps;

    // For the calling thread, with a flag that was left behind.
    void set() const {
        (void)std::fesetenv(FE_DFL_ENV);
        (void)std::fesetround(rounding);
#if defined(__x86_64__)
        uint32_t sse = 0;
        asm volatile("stmxcsr %0" : "=m"(sse) : : "memory");
        sse |= (flushes ? 0x8000U : 0U) | (ignores ? 0x40U : 0U);
        asm volatile("ldmxcsr %0" : : "m"(sse) : "memory");
#elif defined(__aarch64__)
        if (flushes || ignores) {
            uint64_t control = 0;
            asm volatile("mrs %0, fpcr" : "=r"(control) : : "memory");
            control |= uint64_t{1} << 24;
            asm volatile("msr fpcr, %0" : : "r"(control) : "memory");
        }
#endif
        if (traps) {
            (void)feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
        }
        (void)std::feraiseexcept(FE_UNDERFLOW);
    }
};

inline constexpr Floats kFloats[] = {
    {"flushed to zero", FE_TONEAREST, true, false, false},
    {"subnormal operands taken for zero", FE_TONEAREST, false, true, false},
    {"both", FE_TONEAREST, true, true, false},
    {"rounded up", FE_UPWARD, false, false, false},
    {"rounded down", FE_DOWNWARD, false, false, false},
    {"cut", FE_TOWARDZERO, false, false, false},
    {"traps", FE_TONEAREST, false, false, true},
    {"everything", FE_UPWARD, true, true, true},
};

// What a test computes itself, under the default environment whatever the thread has.
class OwnArithmetic {
  public:
    OwnArithmetic() {
        (void)std::fegetenv(&before_);
        (void)std::fesetenv(FE_DFL_ENV);
    }
    OwnArithmetic(const OwnArithmetic&) = delete;
    OwnArithmetic& operator=(const OwnArithmetic&) = delete;
    ~OwnArithmetic() { (void)std::fesetenv(&before_); }

  private:
    std::fenv_t before_{};
};

} // namespace mp_test
