// SPDX-License-Identifier: Apache-2.0
// What a queue that is captured into a graph asks of memory, and when memory of the caller's is given back.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>

#include "context/given_back.hpp"
#include "fake_device.hpp"
#include "runtime/memory_watch.hpp"
#include "runtime/stream.hpp"

namespace mp {
namespace {

using mp_test::FakeDevice;
using mp_test::FakeQueue;

class Captures : public ::testing::Test {
  protected:
    void capture(uint64_t number) {
        static_cast<FakeQueue&>(stream_->queue()).captured_as = number;
    }
    std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
    std::shared_ptr<Stream> stream_ = std::make_shared<Stream>(device_, nullptr);
};

Code code_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.status().code();
    }
    return Code::ok;
}

TEST_F(Captures, ScratchThatIsNotThereIsRefusedAndNothingFreed) {
    { const Scratch small(*stream_, 512); }
    const int64_t bytes = device_->live_bytes;
    capture(7);
    EXPECT_EQ(code_of([&] { const Scratch large(*stream_, 4096); }), Code::bad_state);
    EXPECT_EQ(code_of([&] { (void)stream_->allocate(8); }), Code::bad_state);
    EXPECT_EQ(device_->live_bytes, bytes);
    { const Scratch again(*stream_, 512); }
    capture(0);
    { const Scratch large(*stream_, 4096); }
    EXPECT_EQ(stream_->workspace_peak(), 4096U); // the refused one left no place taken
}

TEST_F(Captures, ScratchOfAGraphIsUsedAgainButNeverFreed) {
    { const Scratch before(*stream_, 512); }
    void* captured = nullptr;
    capture(7);
    {
        const Scratch used(*stream_, 512);
        captured = used.data();
    }
    capture(0);
    {
        const Scratch same(*stream_, 300);
        EXPECT_EQ(same.data(), captured);
    }
    for (const std::size_t bytes : {1000U, 2000U, 3000U}) {
        const Scratch larger(*stream_, bytes);
    }
    EXPECT_EQ(device_->live_bytes, 512 + 3000);
    {
        const Scratch same(*stream_, 512);
        EXPECT_EQ(same.data(), captured);
    }
    alignas(256) static unsigned char lent[8192];
    stream_->set_workspace(lent, sizeof lent);
    EXPECT_EQ(device_->live_bytes, 512);
    {
        const Scratch there(*stream_, 512);
        EXPECT_EQ(there.data(), lent);
    }
    stream_->set_workspace(nullptr, 0);
    {
        const Scratch same(*stream_, 512);
        EXPECT_EQ(same.data(), captured);
    }
    stream_.reset();
    EXPECT_EQ(device_->live_bytes, 0);
}

TEST_F(Captures, MemoryThatAGraphWritesIsKnownForEver) {
    std::array<float, 64> memory{};
    const MemoryWatch whole(memory.data(), sizeof memory);
    const MemoryWatch half(&memory[32], 32 * sizeof(float));
    note_write(memory.data(), 16 * sizeof(float));
    EXPECT_EQ(whole.writes(), 1U);
    EXPECT_FALSE(whole.is_written_by_graphs());
    note_write(memory.data(), 32 * sizeof(float), true);
    EXPECT_TRUE(whole.is_written_by_graphs());
    EXPECT_FALSE(half.is_written_by_graphs());
    for (const std::size_t at : {50U, 34U, 42U, 35U}) { // apart, then joined
        note_write(&memory[at], 8 * sizeof(float), true);
    }
    EXPECT_TRUE(half.is_written_by_graphs());
    EXPECT_TRUE(MemoryWatch(&memory[57], sizeof(float)).is_written_by_graphs());
    EXPECT_FALSE(MemoryWatch(&memory[58], sizeof(float)).is_written_by_graphs());
    EXPECT_FALSE(MemoryWatch(&memory[33], sizeof(float)).is_written_by_graphs());
}

class LentMemory : public Captures {
  protected:
    static void count(void* payload) { ++*static_cast<int*>(payload); }
    int calls_ = 0;
    const Deleter deleter_ = {count, &calls_};
};

TEST_F(LentMemory, OfAHostIsGivenBackAtOnce) {
    GivenBack given_back;
    given_back.add(deleter_, {stream_});
    EXPECT_EQ(calls_, 1);
}

TEST_F(LentMemory, IsGivenBackOnceTheWorkIsDone) {
    device_->has_events = true;
    GivenBack given_back;
    given_back.add(deleter_, {stream_});
    given_back.run_due();
    EXPECT_EQ(calls_, 0);
    device_->are_events_reached = true;
    given_back.run_due();
    given_back.run_due();
    EXPECT_EQ(calls_, 1);
}

TEST_F(LentMemory, WaitsForACaptureToEnd) {
    device_->has_events = device_->are_events_reached = true;
    GivenBack given_back;
    capture(7);
    given_back.add(deleter_, {stream_});
    given_back.run_due();
    EXPECT_EQ(calls_, 0);
    capture(0);
    given_back.run_due();
    EXPECT_EQ(calls_, 1);
}

// A queue over a caller's stream may go before the work there is done.
TEST_F(LentMemory, IsGivenBackByItsEventOrAtTheEnd) {
    device_->has_events = true;
    {
        GivenBack given_back;
        given_back.add(deleter_, {stream_});
        stream_.reset();
        given_back.run_due();
        EXPECT_EQ(calls_, 0);
        device_->are_events_reached = true;
        given_back.run_due();
        EXPECT_EQ(calls_, 1);
        device_->are_events_reached = false;
        given_back.add(deleter_, {std::make_shared<Stream>(device_, nullptr)});
        stream_ = std::make_shared<Stream>(device_, nullptr);
        given_back.add(deleter_, {stream_});
        EXPECT_EQ(calls_, 1);
    }
    EXPECT_EQ(calls_, 3);
}

} // namespace
} // namespace mp
