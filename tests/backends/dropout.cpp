// SPDX-License-Identifier: Apache-2.0
// dropout on every backend: the reference's bits, and which elements are dropped, by answers and by their share.
#include <cmath>

#include "harness.hpp"
#include "numerics/dropout.hpp"

namespace mp::test {
namespace {

struct DropCase {
    HostArray source;
    HostArray old; // its type is the destination's
    uint32_t drop_below = 6554;
    bool accumulate = false;
    int64_t first_element = 0;
    int64_t offset = 0;
    uint64_t seed = 0x123456789abcdefU;
    uint64_t uid = 77;
    uint64_t step = 0x300000002U;
};

DropoutDesc describe(const DropCase& c, const TensorRef& source, const TensorRef& destination) {
    DropoutDesc op{};
    op.kind = OpKind::dropout;
    op.source = source;
    op.destination = destination;
    op.drop_below = c.drop_below;
    op.accumulate = c.accumulate;
    op.seed = c.seed;
    op.uid = c.uid;
    op.step = c.step;
    op.first_element = c.first_element;
    return op;
}

HostArray dropped(TestDevice& on, const Candidate& candidate, const DropCase& c) {
    const DeviceArray source(on, c.source, c.offset);
    DeviceArray destination(on, c.old, c.offset);
    const DropoutDesc op = describe(c, source.ref(), destination.ref());
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return destination.download();
}

const Candidate& only_candidate(TestDevice& on) {
    const CandidateList list = on.device().candidates(OpKind::dropout);
    EXPECT_EQ(list.count, 1);
    return list.items[0];
}

// Elements [first, first + count).
HostArray slice(const HostArray& array, int64_t first, int64_t count) {
    HostArray part(array.dtype, count);
    std::memcpy(part.bytes.data(), array.bytes.data() + first * dtype_size(array.dtype),
                part.bytes.size());
    return part;
}

class Dropout : public BackendTest {
  protected:
    void compare(const DropCase& c) {
        SCOPED_TRACE(std::string(dtype_name(c.source.dtype)) + " to " + dtype_name(c.old.dtype) +
                     ", " + std::to_string(c.source.count) + " from " +
                     std::to_string(c.first_element) + ", below " + std::to_string(c.drop_below) +
                     (c.accumulate ? ", accumulating" : ""));
        const HostArray expected =
            dropped(reference_device(), reference_candidate(OpKind::dropout), c);
        EXPECT_TRUE(
            same_bits(expected, dropped(device(), only_candidate(device()), c), NanRule::any_nan));
    }
    // Of `count` elements.
    static DropCase make(DType from, DType to, int64_t count, Content content) {
        return {make_array(from, count, content, 41), make_array(to, count, content, 42)};
    }
};

TEST_P(Dropout, EqualsTheReferenceForEveryPairOfTypes) {
    for (const DType from : kWideTypes) {
        for (const DType to : kWideTypes) {
            for (const Content content : {Content::normal, Content::patterns, Content::specials}) {
                SCOPED_TRACE(content_name(content));
                DropCase c = make(from, to, kLargestOfMany, content);
                for (const uint32_t below : {0U, 6554U, 60000U}) {
                    c.drop_below = below;
                    c.accumulate = false;
                    compare(c);
                    c.accumulate = true;
                    compare(c);
                }
            }
        }
    }
}

TEST_P(Dropout, EqualsTheReferenceForEverySizeAndShare) {
    for (const int64_t count : kSizes) {
        if (count > 65537 && (has_teams_of(2) || has_teams_of(4))) {
            continue; // so many teams of this size take minutes here
        }
        compare(make(DType::bf16, DType::bf16, count, Content::normal));
        compare(make(DType::fp32, DType::fp16, count, Content::normal));
    }
    DropCase c = make(DType::bf16, DType::fp32, 4097, Content::subnormal);
    for (const uint32_t below : {1U, 255U, 256U, 32768U, 65534U, 65535U}) {
        c.drop_below = below;
        compare(c);
    }
}

// Large enough for a host to write around its caches.
TEST_P(Dropout, EqualsTheReferenceOnALargeArray) {
    if (has_teams_of(2) || has_teams_of(4)) {
        GTEST_SKIP() << "skipped: " << kManyTeams;
    }
    for (const int64_t first : {0, 3, 64}) {
        DropCase c = make(DType::bf16, DType::bf16, (int64_t{1} << 22) + 5, Content::normal);
        c.first_element = first;
        compare(c);
    }
    compare(make(DType::fp16, DType::fp32, (int64_t{1} << 21) + 77, Content::normal));
}

TEST_P(Dropout, TakesArraysThatAreAlignedToTheirElementsOnly) {
    for (const DType from : kWideTypes) {
        for (const DType to : kWideTypes) {
            DropCase c = make(from, to, 1021, Content::normal);
            c.offset = 3;
            c.first_element = 5;
            compare(c);
            c.accumulate = true;
            compare(c);
        }
    }
}

// Bits belong to logical elements: a piece, said where it lies, is as in the whole, on both sides of where words overflow.
TEST_P(Dropout, DrawsRandomBitsByTheLogicalElement) {
    constexpr int64_t kCount = 5000;
    for (const int64_t begin : {int64_t{0}, (int64_t{1} << 35) - 1003}) {
        for (const DType dtype : kWideTypes) {
            DropCase whole = make(dtype, dtype, kCount, Content::normal);
            whole.first_element = begin;
            const HostArray all = dropped(device(), only_candidate(device()), whole);
            EXPECT_TRUE(
                same_bits(dropped(reference_device(), reference_candidate(OpKind::dropout), whole),
                          all, NanRule::same_bits));
            for (const int64_t first : {1, 7, 8, 255, 256, 257, 1001, 2048, 4999}) {
                const int64_t count = std::min<int64_t>(kCount - first, 2500);
                DropCase part = whole;
                part.source = slice(whole.source, first, count);
                part.old = slice(whole.old, first, count);
                part.first_element = begin + first;
                EXPECT_TRUE(same_bits(slice(all, first, count),
                                      dropped(device(), only_candidate(device()), part),
                                      NanRule::same_bits))
                    << dtype_name(dtype) << " " << begin << " + " << first;
            }
        }
    }
}

TEST_P(Dropout, DrawsRandomBitsByItsKey) {
    DropCase c = make(DType::fp32, DType::fp32, 4097, Content::normal);
    const auto of = [&](uint64_t seed, uint64_t uid, uint64_t step) {
        c.seed = seed;
        c.uid = uid;
        c.step = step;
        return dropped(device(), only_candidate(device()), c).bytes;
    };
    const auto first = of(1, 2, 3);
    EXPECT_EQ(first, of(1, 2, 3));
    EXPECT_NE(first, of(2, 2, 3));
    EXPECT_NE(first, of(1, 3, 3));
    EXPECT_NE(first, of(1, 2, 4));
    EXPECT_NE(first, of(uint64_t{1} << 32, 2, 3));
    EXPECT_NE(first, of(1, 2, numerics::sr_time(3, 1)));
}

TEST_P(Dropout, TakesOneArrayAsBoth) {
    for (const DType dtype : kWideTypes) {
        for (const bool accumulate : {false, true}) {
            DropCase c = make(dtype, dtype, 20001, Content::normal);
            c.old = c.source;
            c.accumulate = accumulate;
            const HostArray expected =
                dropped(reference_device(), reference_candidate(OpKind::dropout), c);
            DeviceArray both(device(), c.source);
            run(device(), only_candidate(device()), describe(c, both.ref(), both.ref()));
            EXPECT_TRUE(same_bits(expected, both.download(), NanRule::same_bits))
                << dtype_name(dtype);
        }
    }
}

MP_COMPARE_BACKENDS(Dropout);

// What it must give, whoever computes it.
class DropoutValues : public BackendTest {};

struct KnownBits {
    uint64_t seed, uid, step;
    int64_t first;
    std::array<uint32_t, 20> bits;
};
// sr_piece(seed, uid, step, 9, first + i) of tests/fixtures/make_numerics.py: Philox in plain Python integers.
constexpr std::array<KnownBits, 3> kKnown = {
    {{0x123456789abcdefU, 77, 0x300000002U, 0, {0xf3c2, 0x998f, 0x2986, 0xf37a, 0xef5d,
                                                0x8f64, 0x4d0d, 0x43d1, 0x946e, 0x43e1,
                                                0x0602, 0xfb3a, 0x7e30, 0xb4bd, 0xd353,
                                                0x3d80, 0xdfbd, 0xab40, 0x0360, 0xe84c}},
     {1, 0, 0, 5, {0x855e, 0x16c9, 0x55fa, 0x09fa, 0x500f, 0x9557, 0xe5c9, 0xffeb, 0x8207, 0x2ace,
                   0x9526, 0x8858, 0x84fb, 0xaf48, 0x0d24, 0x9bee, 0x601b, 0x6327, 0xd5a1, 0x6a20}},
     {0xfedcba9876543210U,
      0xdeadbeefcafeU,
      numerics::sr_time(41, 3),
      (int64_t{1} << 36) + 6,
      {0x910a, 0xdb9f, 0xcfea, 0x3bab, 0x8af0, 0x3e5a, 0x359e, 0x9648, 0x3a09, 0xafde,
       0x5768, 0xf758, 0xf5c5, 0xc8dc, 0xcbe0, 0x5058, 0x05b4, 0x6309, 0xb905, 0x3002}}}};

// The bound lies at an element's very bits, and then one above.
TEST_P(DropoutValues, DropsWhatThePublishedGeneratorSays) {
    HostArray ones(DType::fp32, 20);
    for (int64_t i = 0; i < ones.count; ++i) {
        ones.set(i, 3.0F);
    }
    for (const KnownBits& known : kKnown) {
        for (std::size_t at = 0; at < known.bits.size(); ++at) {
            for (const uint32_t below : {known.bits[at], known.bits[at] + 1}) {
                DropCase c{ones, ones,       below,     false,     known.first,
                           0,    known.seed, known.uid, known.step};
                const HostArray result = dropped(device(), only_candidate(device()), c);
                const float kept =
                    3.0F * static_cast<float>(65536.0 / (65536.0 - static_cast<double>(below)));
                for (std::size_t i = 0; i < known.bits.size(); ++i) {
                    ASSERT_EQ(result.get(static_cast<int64_t>(i)),
                              known.bits[i] < below ? 0.0F : kept)
                        << "element " << i << " below " << below;
                }
            }
        }
    }
}

// NaN and infinity are dropped like numbers: nothing is left of them but +0, which changes no sum.
TEST_P(DropoutValues, DropsWhatIsNoNumber) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    for (const DType dtype : kWideTypes) {
        HostArray source(dtype, 20);
        for (int64_t i = 0; i < source.count; ++i) {
            source.set(i, i % 3 == 0   ? numerics::float_from_bits(numerics::kFloatQuietNan)
                          : i % 3 == 1 ? infinity
                                       : -infinity);
        }
        DropCase c{source, make_array(dtype, 20, Content::normal, 43), 0x8000};
        const KnownBits& known = kKnown[0];
        for (const bool accumulate : {false, true}) {
            c.accumulate = accumulate;
            const HostArray result = dropped(device(), only_candidate(device()), c);
            for (int64_t i = 0; i < source.count; ++i) {
                if (known.bits[static_cast<std::size_t>(i)] >= 0x8000U) {
                    EXPECT_FALSE(numerics::is_finite(result.get(i))) << i;
                } else {
                    EXPECT_EQ(result.code(i), accumulate ? c.old.code(i) : 0U) << i;
                }
            }
        }
    }
}

TEST_P(DropoutValues, KeepsAllWhereNothingIsDropped) {
    for (const DType dtype : kWideTypes) {
        DropCase c{make_array(dtype, 4097, Content::normal, 44), HostArray(dtype, 4097), 0};
        EXPECT_EQ(dropped(device(), only_candidate(device()), c).bytes, c.source.bytes);
    }
}

// The share of the kept against Chernoff's bound, which holds for every binomial count of n draws with chance q:
// P(share is as far as x) <= 2 exp(-n KL(x, q)). The draws are fixed, so this either holds or not: once in 1e9 keys it fails.
TEST_P(DropoutValues, KeepsTheRightShare) {
    constexpr int64_t kCount = 200000;
    HostArray ones(DType::bf16, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
        ones.set(i, 1.0F);
    }
    for (const uint32_t below : {655U, 6554U, 32768U, 62259U}) {
        DropCase c{ones, HostArray(DType::fp32, kCount), below};
        const HostArray result = dropped(device(), only_candidate(device()), c);
        double kept = 0.0;
        for (int64_t i = 0; i < kCount; ++i) {
            kept += result.get(i) != 0.0F ? 1.0 : 0.0;
        }
        const double x = kept / static_cast<double>(kCount);
        const double q = 1.0 - static_cast<double>(below) / 65536.0;
        const double divergence = x * std::log(x / q) + (1.0 - x) * std::log((1.0 - x) / (1.0 - q));
        EXPECT_LT(static_cast<double>(kCount) * divergence, std::log(2e9)) << below << ": " << x;
    }
}

TEST_P(DropoutValues, RefusesWhatHasNoMeaning) {
    const DropCase c{HostArray(DType::fp32, 8), HostArray(DType::fp32, 8)};
    const DeviceArray source(device(), c.source);
    const DeviceArray codes(device(), HostArray(DType::fp8_e4m3, 8));
    const DropoutDesc good = describe(c, source.ref(), source.ref());
    EXPECT_TRUE(supports(device(), only_candidate(device()), good));
    std::array<DropoutDesc, 5> bad = {good, good, good, good, good};
    bad[0].drop_below = 65536;
    bad[1].first_element = -1;
    bad[2].source.count = 7;
    bad[3].source = codes.ref();
    bad[4].destination = codes.ref();
    for (const DropoutDesc& op : bad) {
        EXPECT_FALSE(supports(device(), only_candidate(device()), op));
    }
}

MP_ALL_BACKENDS(DropoutValues);

} // namespace
} // namespace mp::test
