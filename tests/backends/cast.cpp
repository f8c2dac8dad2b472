// SPDX-License-Identifier: Apache-2.0
// cast on every backend: the reference's bits for every pair of types, rounding and content.
#include "harness.hpp"

namespace mp::test {
namespace {

struct CastCase {
    HostArray source;
    DType to = DType::none;
    bool saturate = false;
    bool stochastic = false;
    int64_t offset = 0;
};

CastDesc describe(const CastCase& c, const DeviceArray& source, const DeviceArray& destination) {
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source.ref();
    op.destination = destination.ref();
    op.saturate = c.saturate;
    op.rounding.stochastic = c.stochastic;
    op.rounding.seed = 0x123456789abcdefU;
    op.rounding.uid = 77;
    op.rounding.step = 0x300000002U;
    return op;
}

// False where the candidate does not support the case.
bool cast(TestDevice& on, const Candidate& candidate, const CastCase& c, HostArray& result) {
    const DeviceArray source(on, c.source, c.offset);
    DeviceArray destination(on, HostArray(c.to, c.source.count), c.offset);
    const CastDesc op = describe(c, source, destination);
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result = destination.download();
    return true;
}

class Cast : public BackendTest {
  protected:
    void compare(const CastCase& c) {
        SCOPED_TRACE(std::string(dtype_name(c.source.dtype)) + " to " + dtype_name(c.to) +
                     (c.saturate ? ", saturating" : "") + (c.stochastic ? ", stochastic" : "") +
                     ", " + std::to_string(c.source.count) + " elements");
        HostArray expected;
        ASSERT_TRUE(cast(reference_device(), reference_candidate(OpKind::cast), c, expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::cast, [&](const Candidate& candidate) {
                HostArray result;
                if (!cast(device(), candidate, c, result)) {
                    return false;
                }
                EXPECT_TRUE(same_bits(expected, result, NanRule::same_bits));
                return true;
            });
        EXPECT_GT(supporting, 0);
    }

    // Both settings of both switches.
    void compare_roundings(CastCase c) {
        for (int32_t bits = 0; bits < 4; ++bits) {
            c.saturate = (bits & 1) != 0;
            c.stochastic = (bits & 2) != 0;
            compare(c);
        }
    }
};

TEST_P(Cast, EqualsTheReferenceForEveryPairOfTypes) {
    for (const DType from : kFloatTypes) {
        for (const DType to : kFloatTypes) {
            for (const Content content : kAllContents) {
                SCOPED_TRACE(content_name(content));
                compare_roundings({make_array(from, kLargestOfMany, content, 3), to});
            }
        }
    }
}

TEST_P(Cast, EqualsTheReferenceForEverySize) {
    for (const int64_t count : kSizes) {
        for (const DType narrow : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
            CastCase c{make_array(DType::fp32, count, Content::patterns, 4), narrow};
            compare(c);
            c.stochastic = count <= 65537;
            compare(c);
            compare({make_array(narrow, count, Content::patterns, 5), DType::fp32});
        }
    }
}

TEST_P(Cast, TakesArraysThatAreAlignedToTheirElementsOnly) {
    for (int64_t offset = 1; offset < 4; ++offset) {
        for (const DType from : kFloatTypes) {
            for (const DType to : kFloatTypes) {
                CastCase c{make_array(from, 1021, Content::normal, 6), to};
                c.offset = offset;
                compare_roundings(c);
            }
        }
    }
}

// Random bits belong to (seed, uid, step, element): the same call gives the same bits, any other key
// gives others, and the bits of an element do not depend on how many elements there are.
TEST_P(Cast, DrawsRandomBitsByItsKey) {
    const HostArray source = make_array(DType::fp32, 4097, Content::normal, 7);
    const auto rounded = [&](uint64_t seed, uint64_t uid, uint64_t step, int64_t count) {
        const DeviceArray from(device(), source);
        DeviceArray to(device(), HostArray(DType::bf16, count));
        CastCase c{source, DType::bf16, false, true};
        CastDesc op = describe(c, from, to);
        op.source.count = count;
        op.rounding.seed = seed;
        op.rounding.uid = uid;
        op.rounding.step = step;
        const Candidate* candidate = first_candidate(device(), op);
        run(device(), *candidate, op);
        return to.download();
    };
    const HostArray first = rounded(1, 2, 3, 4097);
    EXPECT_EQ(first.bytes, rounded(1, 2, 3, 4097).bytes);
    EXPECT_NE(first.bytes, rounded(2, 2, 3, 4097).bytes);
    EXPECT_NE(first.bytes, rounded(1, 3, 3, 4097).bytes);
    EXPECT_NE(first.bytes, rounded(1, 2, 4, 4097).bytes);
    EXPECT_NE(first.bytes, rounded(uint64_t{1} << 32, 2, 3, 4097).bytes);
    const HostArray part = rounded(1, 2, 3, 1000);
    EXPECT_TRUE(std::equal(part.bytes.begin(), part.bytes.end(), first.bytes.begin()));
}

// A piece of an array, said where it lies, is rounded as it is in the whole.
TEST_P(Cast, DrawsRandomBitsByTheLogicalElement) {
    constexpr int64_t kCount = 2000;
    const HostArray source = make_array(DType::fp32, kCount, Content::normal, 8);
    for (const DType to : {DType::bf16, DType::fp16, DType::fp8_e4m3}) {
        const auto rounded = [&](int64_t first, int64_t count) {
            HostArray piece(DType::fp32, count);
            std::memcpy(piece.bytes.data(), source.bytes.data() + 4 * first, piece.bytes.size());
            const DeviceArray from(device(), piece);
            DeviceArray result(device(), HostArray(to, count));
            CastDesc op = describe({piece, to, false, true}, from, result);
            op.rounding.first_element = first;
            run(device(), *first_candidate(device(), op), op);
            return result.download();
        };
        const HostArray whole = rounded(0, kCount);
        for (const int64_t first : {1, 7, 8, 255, 256, 257, 1000}) {
            const int64_t count = kCount - first;
            const auto offset = static_cast<std::ptrdiff_t>(first * dtype_size(to));
            EXPECT_EQ(rounded(first, count).bytes,
                      std::vector<unsigned char>(whole.bytes.begin() + offset, whole.bytes.end()))
                << dtype_name(to) << " " << first;
        }
    }
}

MP_COMPARE_BACKENDS(Cast);

// What the reference itself must give.
class CastValues : public BackendTest {
  protected:
    float cast_one(float x, DType to, bool saturate, bool stochastic) {
        CastCase c{HostArray(DType::fp32, 1), to, saturate, stochastic};
        c.source.set(0, x);
        HostArray result;
        const Candidate* candidate = nullptr;
        {
            const DeviceArray source(device(), c.source);
            const DeviceArray destination(device(), HostArray(to, 1));
            candidate = first_candidate(device(), describe(c, source, destination));
        }
        EXPECT_TRUE(candidate != nullptr && cast(device(), *candidate, c, result));
        return result.get(0);
    }
};

TEST_P(CastValues, RoundsAndSaturates) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    EXPECT_EQ(cast_one(1.00390625F, DType::bf16, false, false), 1.0F); // tie to even
    EXPECT_EQ(cast_one(1.01171875F, DType::bf16, false, false), 1.015625F);
    EXPECT_EQ(cast_one(3.4e38F, DType::bf16, false, false), infinity);
    EXPECT_EQ(cast_one(3.4e38F, DType::bf16, true, false), 0x1.fep+127F);
    EXPECT_EQ(cast_one(65520.0F, DType::fp16, false, false), infinity);
    EXPECT_EQ(cast_one(-65520.0F, DType::fp16, true, false), -65504.0F);
    EXPECT_EQ(cast_one(0x1p-24F, DType::fp16, false, false), 0x1p-24F);
    EXPECT_EQ(cast_one(500.0F, DType::fp8_e4m3, true, false), 448.0F);
    EXPECT_TRUE(numerics::is_nan(cast_one(500.0F, DType::fp8_e4m3, false, false)));
    EXPECT_EQ(cast_one(70000.0F, DType::fp8_e5m2, false, false), infinity);
    EXPECT_EQ(cast_one(infinity, DType::fp8_e5m2, true, false), 57344.0F);
    EXPECT_EQ(cast_one(infinity, DType::fp32, true, false), infinity);
    for (const DType to : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        EXPECT_EQ(cast_one(infinity, to, true, true), max_finite(to));
        EXPECT_EQ(cast_one(-infinity, to, true, true), -max_finite(to));
        EXPECT_EQ(cast_one(0.5F, to, false, true), 0.5F);
    }
    EXPECT_EQ(cast_one(infinity, DType::bf16, false, true), infinity);
}

// The mean of stochastically rounded values is the input: within 5 sigma of N draws, where
// sigma = ulp sqrt(q (1 - q) / N) and q is the dropped fraction of an ulp.
TEST_P(CastValues, StochasticRoundingHasTheRightMean) {
    constexpr int64_t kCount = 65537;
    for (const DType to : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        const float ulp = to == DType::fp16       ? 0x1p-10F
                          : to == DType::bf16     ? 0x1p-7F
                          : to == DType::fp8_e4m3 ? 0x1p-3F
                                                  : 0x1p-2F;
        CastCase c{HostArray(DType::fp32, kCount), to, false, true};
        for (int64_t i = 0; i < kCount; ++i) {
            c.source.set(i, 1.0F + 0.25F * ulp);
        }
        const DeviceArray source(device(), c.source);
        DeviceArray destination(device(), HostArray(to, kCount));
        const CastDesc op = describe(c, source, destination);
        run(device(), *first_candidate(device(), op), op);
        const HostArray result = destination.download();
        double up = 0;
        for (int64_t i = 0; i < kCount; ++i) {
            const float x = result.get(i);
            ASSERT_TRUE(x == 1.0F || x == 1.0F + ulp);
            up += x == 1.0F ? 0.0 : 1.0;
        }
        const double sigma = std::sqrt(0.25 * 0.75 / static_cast<double>(kCount));
        EXPECT_NEAR(up / static_cast<double>(kCount), 0.25, 5.0 * sigma) << dtype_name(to);
    }
}

MP_ALL_BACKENDS(CastValues);

} // namespace
} // namespace mp::test
