// SPDX-License-Identifier: Apache-2.0
// The choice of a candidate: order, reasons, failures, and what they leave behind.
#include <gtest/gtest.h>

#include "fake_device.hpp"
#include "gemm/gemm.hpp"
#include "runtime/select.hpp"

using namespace mp;
using mp_test::FakeDevice;

namespace {

int ran = 0;

bool refuse_small(const Device& /*device*/, const OpDesc& /*op*/, Reason& reason) noexcept {
    reason.set("wants more than %d elements", 1000);
    return false;
}

bool refuse_type(const Device& /*device*/, const OpDesc& /*op*/, Reason& reason) noexcept {
    reason.set("multiplies fp32 only");
    return false;
}

bool accept(const Device& /*device*/, const OpDesc& /*op*/, Reason& /*reason*/) noexcept {
    return true;
}

Status run_first(Device& /*device*/, Queue& /*queue*/, const OpDesc& /*op*/) noexcept {
    ran = 1;
    return {};
}

Status run_second(Device& /*device*/, Queue& /*queue*/, const OpDesc& /*op*/) noexcept {
    ran = 2;
    return Status::error(Code::kokkos_error, "the second one broke");
}

AmaxDesc amax() {
    AmaxDesc op{};
    op.kind = OpKind::amax;
    return op;
}

} // namespace

TEST(Select, FirstThatSupportsWins) {
    const auto device = std::make_shared<FakeDevice>();
    device->list = {{"small", refuse_small, run_first},
                    {"any", accept, run_first},
                    {"other", accept, run_second}};
    const Choice choice = select(*device, amax());
    EXPECT_STREQ(choice.candidate->name, "any");
    EXPECT_EQ(choice.passed_over, "small: wants more than 1000 elements");
    const auto made = std::make_shared<Stream>(device, nullptr);
    Stream& stream = *made;
    ran = 0;
    run_op(stream, amax());
    EXPECT_EQ(ran, 1);
}

TEST(Select, EveryReasonIsInTheMessage) {
    FakeDevice device;
    device.list = {{"small", refuse_small, run_first}, {"typed", refuse_type, run_first}};
    try {
        (void)select(device, amax());
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::unsupported);
        EXPECT_STREQ(error.what(), "amax is not supported here: small: wants more than 1000 "
                                   "elements; typed: multiplies fp32 "
                                   "only");
    }
    device.list.clear();
    EXPECT_THROW((void)select(device, amax()), Error);
}

TEST(Select, AFailureOfTheChosenOneIsReportedNotHidden) {
    const auto device = std::make_shared<FakeDevice>();
    device->list = {{"second", accept, run_second}, {"first", accept, run_first}};
    const auto made = std::make_shared<Stream>(device, nullptr);
    Stream& stream = *made;
    ran = 0;
    EXPECT_THROW(run_op(stream, amax()), Error);
    EXPECT_EQ(ran, 2); // and no other was tried behind the caller's back
}

TEST(Scratch, IsReusedAndGrowsInsteadOfPilingUp) {
    const auto device = std::make_shared<FakeDevice>();
    {
        const auto made = std::make_shared<Stream>(device, nullptr);
        Stream& stream = *made;
        const void* first = nullptr;
        {
            const Scratch scratch(stream, 1000);
            first = scratch.data();
        }
        {
            const Scratch scratch(stream, 500);
            EXPECT_EQ(scratch.data(), first);
            const Scratch beside(stream, 500);
            EXPECT_NE(beside.data(), first);
        }
        { const Scratch large(stream, 5000); }
        EXPECT_LE(device->live_bytes, 6000);
        device->allocations_left = 0;
        EXPECT_THROW(Scratch(stream, 100000), Error);
        EXPECT_NO_THROW(Scratch(stream, 5000));
    }
    EXPECT_EQ(device->live_bytes, 0);
}

TEST(Buffer, MovesAndReleasesOnce) {
    const auto device = std::make_shared<FakeDevice>();
    {
        Buffer a(device, 100);
        Buffer b = std::move(a);
        EXPECT_EQ(device->live_bytes, 100);
        b = Buffer(device, 200);
        a = std::move(b);
        EXPECT_EQ(a.bytes(), 200U);
    }
    EXPECT_EQ(device->live_bytes, 0);
}
