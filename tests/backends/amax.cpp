// SPDX-License-Identifier: Apache-2.0
// amax on every backend: the reference's bits, and what they must be.
#include "harness.hpp"

namespace mp::test {
namespace {

// What is there before, and whether the step that it belongs to was skipped.
struct Before {
    float amax = -1.0F;
    bool accumulate = false;
    uint32_t skip = 0;
    bool may_skip = false;
};

bool amax(TestDevice& on, const Candidate& candidate, const HostArray& array, int64_t offset,
          uint32_t& bits, const Before& before = {}) {
    const DeviceArray source(on, array, offset);
    DeviceValue<float> result(on, before.amax);
    DeviceValue<uint32_t> skip(on, before.skip);
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = source.ref();
    op.result = result.data();
    op.accumulate = before.accumulate;
    op.skip = before.may_skip ? skip.data() : nullptr;
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    bits = numerics::bits_from_float(result.download());
    return true;
}

// The largest pattern of |x|, written a second time and not through the backend.
uint32_t largest_pattern(const HostArray& array) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < array.count; ++i) {
        largest = std::max(largest, numerics::bits_from_float(array.get(i)) & 0x7fffffffU);
    }
    return largest;
}

class Amax : public BackendTest {
  protected:
    void expect(const HostArray& array, uint32_t expected, int64_t offset = 0,
                const Before& before = {}) {
        SCOPED_TRACE(std::string(dtype_name(array.dtype)) + ", " + std::to_string(array.count) +
                     " elements");
        const int32_t supporting =
            for_each_candidate(device(), OpKind::amax, [&](const Candidate& candidate) {
                uint32_t bits = 0;
                if (!amax(device(), candidate, array, offset, bits, before)) {
                    return false;
                }
                EXPECT_EQ(bits, expected);
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

TEST_P(Amax, IsTheLargestPattern) {
    for (const DType dtype : kFloatTypes) {
        for (const int64_t count : kSizes) {
            for (const Content content : kAllContents) {
                SCOPED_TRACE(content_name(content));
                const HostArray array = make_array(dtype, count, content, 11);
                expect(array, largest_pattern(array));
            }
        }
        for (int64_t offset = 1; offset < 4; ++offset) {
            const HostArray array = make_array(dtype, 1021, Content::normal, 12);
            expect(array, largest_pattern(array), offset);
        }
    }
}

// One large element, in every position where a loop may begin or end.
TEST_P(Amax, FindsASingleElementAnywhere) {
    constexpr int64_t kCount = 4097;
    for (const DType dtype : kFloatTypes) {
        for (const int64_t at : {0, 1, 15, 16, 63, 2047, 2048, 4095, 4096}) {
            HostArray array = make_array(dtype, kCount, Content::normal, 13);
            array.set(at, -2.0F);
            expect(array, 0x40000000U);
        }
    }
}

TEST_P(Amax, PutsNanBeforeInfinityBeforeNumbers) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan | 0x80000000U);
    for (const DType dtype : kWideTypes) {
        HostArray array = make_array(dtype, 300, Content::normal, 14);
        array.set(17, -infinity);
        expect(array, numerics::kFloatInfinity);
        array.set(290, nan);
        expect(array, numerics::kFloatQuietNan);
    }
    HostArray array = make_array(DType::fp8_e4m3, 300, Content::normal, 14);
    array.set(299, nan);
    expect(array, numerics::kFloatQuietNan);
}

// A negative amax is the mark of none.
TEST_P(Amax, AddsToAnEarlierOneUnlessSkipped) {
    HostArray array = make_array(DType::bf16, 40000, Content::normal, 15);
    array.set(39999, -100.0F);
    const auto bits = [](float x) { return numerics::bits_from_float(x); };
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    expect(array, bits(100.0F), 0, {0.0F, true});
    expect(array, bits(100.0F), 0, {99.0F, true});
    expect(array, bits(101.0F), 0, {101.0F, true});
    expect(array, bits(100.0F), 0, {-1.0F, true});
    expect(array, numerics::kFloatQuietNan, 0, {nan, true});
    expect(array, bits(100.0F), 0, {101.0F, false, 0, true});
    for (const bool accumulate : {false, true}) {
        expect(array, bits(3.0F), 0, {3.0F, accumulate, 1, true});
    }
    expect(make_array(DType::fp32, 0, Content::normal, 1), bits(3.0F), 0, {3.0F, true});
}

MP_ALL_BACKENDS(Amax);

} // namespace
} // namespace mp::test
