// SPDX-License-Identifier: Apache-2.0
// oneDNN's products as implementations: within the bound of an fp32 sum, whatever is asked, and without a
// trace in the caller's OpenMP settings. In a build without oneDNN there are none.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include <omp.h>
#include <pthread.h>
#include <sys/time.h>

#include "gemm_case.hpp"
#include "host_device.hpp"

namespace mp::test {
namespace {

using namespace backends::host;

class Onednn : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!onednn_features().is_there) {
            TextLine<512> why;
            describe_onednn(why);
            GTEST_SKIP() << "skipped: " << why.c_str();
        }
    }
    // With the implementation for the operands' type, if this processor has it.
    void expect_within_bound(const GemmOptions& o, int32_t threads = 2) {
        SCOPED_TRACE(describe(o));
        GemmCase x(o);
        for (const GemmImplementation* implementation : {&kOnednnFp32, &kOnednnBf16}) {
            Reason reason;
            if (!implementation->supports(x.desc, reason)) {
                EXPECT_FALSE(reason.empty());
                continue;
            }
            std::unique_ptr<HostGemm> plan;
            check(implementation->make(x.desc, threads, plan));
            check(plan->run(workshop_.on(threads), x.buffers()));
            EXPECT_TRUE(within_bound(x));
            EXPECT_TRUE(x.padding_untouched());
            const auto first = x.result();
            x.reset();
            check(plan->run(workshop_.on(threads), x.buffers()));
            EXPECT_EQ(x.result(), first);
        }
    }

    Workshop workshop_;
};

constexpr DType kTypes[] = {DType::fp32, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2};
constexpr DType kAllTypes[] = {DType::fp32, DType::fp16, DType::bf16};

// Whoever multiplies bf16 takes fp8, which is bf16 exactly, except block scales that are no powers of two.
TEST_F(Onednn, TakesFp8WhereItTakesBf16) {
    const GemmImplementation& bf16 = kOnednnBf16;
    GemmDesc op = GemmCase({{{4, 5, 256}, DType::bf16}}).desc;
    Reason reason;
    const bool takes_bf16 = bf16.supports(op, reason);
    op.dtype_a = DType::fp8_e4m3;
    op.dtype_b = DType::fp8_e5m2;
    EXPECT_EQ(bf16.supports(op, reason), takes_bf16);
    op.scale_a = kMxRowScales;
    op.scale_b = kMxColumnScales;
    EXPECT_EQ(bf16.supports(op, reason), takes_bf16);
    op.scale_a = kRowBlockScales;
    op.scale_b = kSquareBlockScales;
    EXPECT_FALSE(bf16.supports(op, reason));
    op.power_of_two_scales = true;
    EXPECT_EQ(bf16.supports(op, reason), takes_bf16);
}

TEST_F(Onednn, IsWithinTheBoundOfAnFp32Sum) {
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{5, 17, 3}, Shape{13, 33, 70}, Shape{40, 30, 300}, Shape{3, 5, 0},
          Shape{0, 5, 3}, Shape{5, 0, 3}, Shape{2, 1100, 9}}) {
        for (const DType in : kTypes) {
            for (uint32_t bits = 0; bits < 12; ++bits) {
                GemmOptions o;
                o.shape = shape;
                o.in = in;
                o.out = kAllTypes[bits % 3];
                o.bias = bits % 4 == 3 ? DType::none : kAllTypes[(bits / 2) % 3];
                o.trans_a = bits % 2 == 1;
                o.trans_b = bits % 4 > 1;
                o.gelu = bits % 5 == 0;
                o.alpha = bits % 3 == 1 ? -1.5F : 1.0F;
                o.beta = bits > 8 ? 0.75F : 0.0F;
                o.c_is_d = bits % 2 == 0;
                o.pad = bits % 3;
                expect_within_bound(o);
            }
        }
    }
}

TEST_F(Onednn, TakesBatches) {
    for (const DType in : kTypes) {
        for (uint32_t bits = 0; bits < 4; ++bits) {
            GemmOptions o;
            o.shape = {9, 14, 35};
            o.in = in;
            o.out = bits == 3 ? DType::bf16 : DType::fp32;
            o.batch = 5;
            o.pad = bits;
            o.trans_a = (bits & 1U) != 0;
            o.trans_b = (bits & 2U) != 0;
            expect_within_bound(o);
        }
    }
}

TEST_F(Onednn, LeavesTheCallersOpenmpAlone) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(5);
    GemmOptions o;
    o.shape = {64, 64, 64};
    expect_within_bound(o, 2);
    EXPECT_EQ(omp_get_max_threads(), 5);
    omp_set_num_threads(before);
}

// A timer's signals to this thread, and whether each handler had its frame on the thread's own stack.
class Interruptions {
  public:
    Interruptions() {
        pthread_attr_t attributes;
        void* lowest = nullptr;
        std::size_t bytes = 0;
        EXPECT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
        EXPECT_EQ(pthread_attr_getstack(&attributes, &lowest, &bytes), 0);
        (void)pthread_attr_destroy(&attributes);
        stack_ = static_cast<char*>(lowest);
        stack_end_ = stack_ + bytes;
        on_stack_ = elsewhere_ = 0;
        sigset_t alarm;
        (void)sigemptyset(&alarm);
        (void)sigaddset(&alarm, SIGALRM);
        EXPECT_EQ(pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr), 0);
        struct sigaction action {};
        action.sa_handler = note;
        action.sa_flags = SA_RESTART;
        EXPECT_EQ(sigaction(SIGALRM, &action, &before_), 0);
        set_timer(200);
    }
    Interruptions(const Interruptions&) = delete;
    Interruptions& operator=(const Interruptions&) = delete;
    ~Interruptions() {
        set_timer(0);
        (void)sigaction(SIGALRM, &before_, nullptr);
    }
    [[nodiscard]] static int on_stack() { return on_stack_; }
    [[nodiscard]] static int elsewhere() { return elsewhere_; }

  private:
    static void set_timer(int microseconds) {
        const itimerval every{{0, microseconds}, {0, microseconds}};
        EXPECT_EQ(setitimer(ITIMER_REAL, &every, nullptr), 0);
    }
    static void note(int /*number*/) {
        const char* const frame = static_cast<char*>(__builtin_frame_address(0));
        (frame >= stack_ && frame < stack_end_ ? on_stack_ : elsewhere_) += 1;
    }

    inline static char* stack_ = nullptr;
    inline static char* stack_end_ = nullptr;
    inline static std::atomic<int> on_stack_ = 0;
    inline static std::atomic<int> elsewhere_ = 0;
    struct sigaction before_ {};
};

// A profiler's or a terminal's signal must find the stack where it was: a handler's frame anywhere else overwrites the heap.
TEST_F(Onednn, SignalsFindTheCallersStack) {
    for (const int64_t k : {64, 1024, 9000}) {
        for (uint32_t bits = 0; bits < 4; ++bits) {
            GemmOptions o;
            o.shape = {64, 96, k};
            o.trans_a = bits % 2 == 1;
            o.trans_b = bits > 1;
            SCOPED_TRACE(describe(o));
            GemmCase x(o);
            std::unique_ptr<HostGemm> plan;
            check(kOnednnFp32.make(x.desc, 1, plan));
            const Interruptions signals;
            while (Interruptions::on_stack() < 20 && Interruptions::elsewhere() == 0) {
                check(plan->run(workshop_.on(1), x.buffers()));
            }
            EXPECT_EQ(Interruptions::elsewhere(), 0);
        }
    }
}

} // namespace
} // namespace mp::test
