// SPDX-License-Identifier: Apache-2.0
// The floating-point environment: rounding, subnormals, traps, and the flags that operations leave behind. Whatever a
// thread of the caller's has set, this library computes under the default one, and gives the caller's back with its flags.
// The caller's functions run under the caller's.
#pragma once

#include <cfenv>
#include <cstdint>

namespace mp::process {

// What the calling thread has now. Writing the processor's words costs more than reading them.
class FloatEnvironment {
  public:
    [[nodiscard]] static FloatEnvironment read() noexcept {
        FloatEnvironment now;
#if defined(__x86_64__)
        // Each to a place of its own: two stores that one load reads together hold the processor up.
        uint32_t sse = 0;
        uint16_t control = 0;
        uint16_t status = 0;
        asm volatile("stmxcsr %0\n\tfnstcw %1\n\tfnstsw %2"
                     : "=m"(sse), "=m"(control), "=a"(status)
                     :
                     : "memory");
        now.sse_ = sse;
        now.x87_control_ = control;
        now.x87_status_ = status;
#elif defined(__aarch64__)
        asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr"
                     : "=r"(now.control_), "=r"(now.flags_)
                     :
                     : "memory");
#else
        (void)std::fegetenv(&now.all_);
#endif
        return now;
    }

    // Makes it the thread's, which had this one until now, but for flags.
    void change_to_default() const noexcept {
#if defined(__x86_64__)
        if ((sse_ & ~kSseFlags) != kSseDefault) {
            write_sse(kSseDefault);
        }
        // The C library asks the x87 unit how numbers in text are rounded. Waiting exceptions would come now.
        if ((x87_control_ & kX87Fields) != (kX87Default & kX87Fields) ||
            (x87_status_ & kX87Waits) != 0) {
            asm volatile("fnclex\n\tfldcw %0" : : "m"(kX87Default) : "memory");
        }
#elif defined(__aarch64__)
        if (control_ != 0) {
            asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}) : "memory");
        }
#else
        (void)std::fesetenv(FE_DFL_ENV);
#endif
    }

    // Makes this one the thread's.
    void write() const noexcept {
#if defined(__x86_64__)
        const FloatEnvironment now = read();
        if (now.sse_ != sse_) {
            write_sse(sse_);
        }
        if (now.x87_control_ != x87_control_ ||
            ((now.x87_status_ ^ x87_status_) & kX87Flags) != 0) {
            write_x87();
        }
#elif defined(__aarch64__)
        const FloatEnvironment now = read();
        if (now.control_ != control_) {
            asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
        }
        if (now.flags_ != flags_) {
            asm volatile("msr fpsr, %0" : : "r"(flags_) : "memory");
        }
#else
        (void)std::fesetenv(&all_);
#endif
    }

  private:
#if defined(__x86_64__)
    static constexpr uint32_t kSseFlags = 0x3f;
    static constexpr uint32_t kSseDefault = 0x1f80;
    static constexpr uint16_t kX87Default = 0x37f;
    static constexpr uint16_t kX87Fields = 0xf3f; // masks, precision, rounding
    static constexpr uint16_t kX87Flags = 0xff;
    static constexpr uint16_t kX87Waits = 0x80;

    static void write_sse(uint32_t word) noexcept {
        asm volatile("ldmxcsr %0" : : "m"(word) : "memory");
    }
    // The status has no instruction of its own that writes it.
    void write_x87() const noexcept {
        struct {
            uint16_t control, unused_control, status, unused_status;
            uint32_t others[5];
        } image;
        asm volatile("fnstenv %0" : "=m"(image) : : "memory");
        image.control = x87_control_;
        image.status =
            static_cast<uint16_t>((image.status & ~kX87Flags) | (x87_status_ & kX87Flags));
        asm volatile("fldenv %0" : : "m"(image) : "memory");
    }

    uint32_t sse_ = 0;
    uint16_t x87_control_ = 0;
    uint16_t x87_status_ = 0;
#elif defined(__aarch64__)
    uint64_t control_ = 0;
    uint64_t flags_ = 0;
#else
    std::fenv_t all_;
#endif
};

// The default environment on this thread, for one call of the library, one task of a loop, or a whole thread of ours.
class DefaultFloats {
  public:
    DefaultFloats() noexcept : outer_(innermost()), caller_(FloatEnvironment::read()) {
        innermost() = this;
        caller_.change_to_default();
    }
    DefaultFloats(const DefaultFloats&) = delete;
    DefaultFloats& operator=(const DefaultFloats&) = delete;
    ~DefaultFloats() {
        innermost() = outer_;
        caller_.write();
    }

    // That of the thread's caller, for a thread that begins in its name.
    [[nodiscard]] static FloatEnvironment of_caller() noexcept {
        return innermost() != nullptr ? innermost()->caller_ : FloatEnvironment::read();
    }

  private:
    friend class CallerFloats;
    static DefaultFloats*& innermost() noexcept {
        static thread_local DefaultFloats* scope = nullptr;
        return scope;
    }

    DefaultFloats* outer_;
    FloatEnvironment caller_;
};

// The caller's environment again, around a function of the caller's: what that changes, it changes for the caller.
class CallerFloats {
  public:
    // `is_callers`: the function may be one of ours instead, which needs nothing.
    explicit CallerFloats(bool is_callers = true) noexcept
        : call_(is_callers ? DefaultFloats::innermost() : nullptr) {
        if (call_ != nullptr) {
            DefaultFloats::innermost() = nullptr; // so that the function may even leave for good
            call_->caller_.write();
        }
    }
    CallerFloats(const CallerFloats&) = delete;
    CallerFloats& operator=(const CallerFloats&) = delete;
    ~CallerFloats() {
        if (call_ != nullptr) {
            call_->caller_ = FloatEnvironment::read();
            call_->caller_.change_to_default();
            DefaultFloats::innermost() = call_;
        }
    }

  private:
    DefaultFloats* call_;
};

} // namespace mp::process
