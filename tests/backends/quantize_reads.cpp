// SPDX-License-Identifier: Apache-2.0
// What quantize reads, on every backend whose memory is the host's: pages that fault at their first touch tell in which order
// they were read and written.
#include <array>
#include <atomic>
#include <csignal>
#include <sys/mman.h>
#include <tuple>
#include <ucontext.h>
#include <unistd.h>

#include "quantize_case.hpp"

namespace mp::test {
namespace {

using numerics::DelayedState;
using numerics::ScaleRule;

// Memory that nobody has touched since seal().
class Sealed {
  public:
    explicit Sealed(std::size_t bytes)
        : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          pages_((bytes + page_ - 1) / page_), is_touched_(new std::atomic<bool>[pages_]()) {
        void* memory = mmap(nullptr, pages_ * page_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        base_ = static_cast<char*>(memory);
    }
    ~Sealed() { (void)munmap(base_, pages_ * page_); }
    Sealed(const Sealed&) = delete;
    Sealed& operator=(const Sealed&) = delete;

    void seal() { EXPECT_EQ(mprotect(base_, pages_ * page_, PROT_NONE), 0); }
    [[nodiscard]] void* data() const { return base_; }
    [[nodiscard]] int64_t pages() const { return static_cast<int64_t>(pages_); }
    [[nodiscard]] int64_t touched() const { return touched_; }
    [[nodiscard]] bool is_written_first() const { return is_written_first_; }
    // How many pages of the other memory had been touched when this one first was.
    [[nodiscard]] int64_t before() const { return before_; }

    // In a signal handler. Whether the address is in here.
    bool touch(const void* address, bool is_write, const Sealed* other) {
        const auto* at = static_cast<const char*>(address);
        if (at < base_ || at >= base_ + pages_ * page_) {
            return false;
        }
        const std::size_t page = static_cast<std::size_t>(at - base_) / page_;
        if (!is_touched_[page].exchange(true) && touched_++ == 0) {
            is_written_first_ = is_write;
            before_ = other != nullptr ? other->touched() : 0;
        }
        (void)mprotect(base_ + page * page_, page_, PROT_READ | PROT_WRITE);
        return true;
    }

  private:
    std::size_t page_;
    std::size_t pages_;
    std::unique_ptr<std::atomic<bool>[]> is_touched_;
    char* base_ = nullptr;
    std::atomic<int64_t> touched_ = 0;
    std::atomic<bool> is_written_first_ = false;
    std::atomic<int64_t> before_ = 0;
};

// Seals memory, and opens it page by page as it is touched.
class Watch {
  public:
    explicit Watch(Sealed& first, Sealed* second = nullptr) {
        memory_ = {&first, second};
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        EXPECT_EQ(sigaction(SIGSEGV, &action, &before_), 0);
        for (Sealed* sealed : memory_) {
            if (sealed != nullptr) {
                sealed->seal();
            }
        }
    }
    ~Watch() {
        (void)sigaction(SIGSEGV, &before_, nullptr);
        memory_ = {};
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

  private:
    static void on_fault(int /*signal*/, siginfo_t* info, void* context) {
        const auto [first, second] = memory_;
        const bool is_write = writes(*static_cast<const ucontext_t*>(context));
        if (!first->touch(info->si_addr, is_write, nullptr) &&
            (second == nullptr || !second->touch(info->si_addr, is_write, first))) {
            (void)signal(SIGSEGV, SIG_DFL); // somebody else's fault
        }
    }
    static bool writes([[maybe_unused]] const ucontext_t& context) {
#ifdef __x86_64__
        return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0; // of the processor's page fault
#else
        return false;
#endif
    }

    static inline std::array<Sealed*, 2> memory_ = {};
    struct sigaction before_ = {};
};

class QuantizeReads : public BackendTest {
  protected:
    void SetUp() override {
        BackendTest::SetUp();
        if (!IsSkipped() && !device().device().is_host()) {
            GTEST_SKIP() << "skipped: its memory is not the host's";
        }
    }
};

// The device finds out by itself that the delayed state is warm; the elements are then read once, code by code.
TEST_P(QuantizeReads, AWarmSlotIsNotMeasured) {
    constexpr int64_t kCount = int64_t{1} << 20;
    for (const bool with_amax : {false, true}) {
        for (const int32_t updates : {2, 3}) {
            Sealed source(kCount * sizeof(float));
            Sealed codes(kCount);
            const HostArray values = make_array(DType::fp32, kCount, Content::normal, 3);
            std::memcpy(source.data(), values.bytes.data(), values.bytes.size());
            DelayedState delayed = {2.0F, 0.0F, updates, 0};
            float scale_inv = 0.0F;
            float amax = -1.0F;
            QuantizeDesc op{};
            op.kind = OpKind::quantize;
            constexpr DType kTo = DType::fp8_e4m3;
            op.source = plain_array({source.data(), kCount, DType::fp32});
            op.sink.codes = {codes.data(),
                             &scale_inv,
                             with_amax ? &amax : nullptr,
                             {kTo, kTensorScale, numerics::scale_policy(ScaleRule::current, kTo)},
                             1,
                             kCount};
            op.sink.tracking.delayed = &delayed;
            op.sink.tracking.amax = &delayed.amax;
            op.sink.tracking.warm_up = 3;
            const Candidate& candidate = device().device().candidates(OpKind::quantize).items[0];
            ASSERT_TRUE(supports(device(), candidate, op));
            {
                const Watch watch(source, &codes);
                run(device(), candidate, op);
            }
            EXPECT_EQ(source.touched(), source.pages());
            EXPECT_EQ(codes.touched(), codes.pages());
            if (updates < op.sink.tracking.warm_up) {
                EXPECT_EQ(codes.before(), source.pages()) << "a scale needs all elements";
            } else {
                EXPECT_LT(codes.before(), source.pages()) << "all was read before the first code";
                EXPECT_EQ(scale_inv, 0.5F);
            }
            EXPECT_GT(delayed.amax, 0.0F);
            EXPECT_EQ(amax, with_amax ? delayed.amax : -1.0F);
        }
    }
}

// Nor is it known what is in memory where scales are to be.
TEST_P(QuantizeReads, OldScalesAreReadByTheRuleThatKeepsThem) {
#ifndef __x86_64__
    GTEST_SKIP() << "skipped: faults tell reads from writes on x86 only";
#endif
    for (const GridRule& kind : kGridRules) {
        constexpr int64_t kRows = 6;
        constexpr int64_t kColumns = 64;
        for (const int64_t rows : {int64_t{0}, kRows}) {
            const HostArray values = make_array(DType::fp32, rows * kColumns, Content::normal, 4);
            std::vector<unsigned char> codes(static_cast<std::size_t>(2 * kRows * kColumns));
            float amax = 0.0F;
            QuantizeDesc op{};
            op.kind = OpKind::quantize;
            op.source = plain_array(
                {const_cast<unsigned char*>(values.bytes.data()), rows * kColumns, DType::fp32},
                rows, kColumns);
            Sealed scales(4096);
            const DType to = kind.codes.front();
            op.sink.codes = {codes.data(), scales.data(), &amax, {to, kind.grid, kind.policy(to)},
                             rows,         kColumns};
            const Candidate& candidate = device().device().candidates(OpKind::quantize).items[0];
            if (!supports(device(), candidate, op)) {
                continue;
            }
            {
                const Watch watch(scales);
                run(device(), candidate, op);
            }
            const bool keeps = kind.rule == ScaleRule::msamp;
            EXPECT_EQ(scales.is_written_first(), !keeps && scales.touched() > 0)
                << "rule " << static_cast<int32_t>(kind.rule) << ", " << kind.grid.block_rows
                << " x " << kind.grid.block_columns << ", " << rows << " rows";
        }
    }
}

// The second array is begun long before the last of the numbers is read. On the host: elsewhere each grid is a kernel of its own.
TEST_P(QuantizeReads, TwoGridsOfBlocksAreWrittenInOneReading) {
    constexpr int64_t kRows = 2048;
    constexpr int64_t kColumns = 512;
    const HostArray values = make_array(DType::fp32, kRows * kColumns, Content::normal, 3);
    const Candidate& candidate = device().device().candidates(OpKind::quantize).items[0];
    if (std::strcmp(candidate.name, "host") != 0) {
        GTEST_SKIP() << "skipped: " << candidate.name << " writes a grid after the other";
    }
    constexpr DType kTo = DType::fp8_e4m3;
    for (const auto& [grid, other, rule] :
         {std::tuple{kRowBlockScales, kColumnBlockScales, ScaleRule::deepseek},
          std::tuple{kMxColumnScales, kMxRowScales, ScaleRule::mx_rceil}}) {
        Sealed source(kRows * kColumns * sizeof(float));
        Sealed second(kRows * kColumns);
        std::memcpy(source.data(), values.bytes.data(), values.bytes.size());
        std::vector<unsigned char> codes(kRows * kColumns);
        std::vector<float> scales(kRows * kColumns / 32);
        std::vector<float> second_scales(scales.size());
        const numerics::ScalePolicy policy = numerics::scale_policy(rule, kTo);
        QuantizeDesc op{};
        op.kind = OpKind::quantize;
        op.source = plain_array({source.data(), kRows * kColumns, DType::fp32}, kRows, kColumns);
        op.sink.codes = {codes.data(),        scales.data(), nullptr,
                         {kTo, grid, policy}, kRows,         kColumns};
        op.sink.second = {second.data(), second_scales.data(), nullptr, {kTo, other, policy}, kRows,
                          kColumns};
        {
            const Watch watch(source, &second);
            run(device(), candidate, op);
        }
        EXPECT_EQ(source.touched(), source.pages());
        EXPECT_EQ(second.touched(), second.pages());
        EXPECT_LT(second.before(), source.pages() / 2);
    }
}

MP_COMPARE_BACKENDS(QuantizeReads);

} // namespace
} // namespace mp::test
