// SPDX-License-Identifier: Apache-2.0
// sum_parts on every backend: the reference's bits for every type of part, order, size and result.
#include "sum_case.hpp"

namespace mp::test {
namespace {

constexpr ScaleGrid kMxGrid = {DType::e8m0, 1, 32};
constexpr DType kPartTypes[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3,
                                DType::fp8_e5m2};

class SumParts : public BackendTest {
  protected:
    void compare(const SumCase& c) {
        SumResult expected;
        ASSERT_TRUE(sum(reference_device(), reference_candidate(OpKind::sum_parts), c, expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::sum_parts, [&](const Candidate& candidate) {
                SumResult result;
                if (!sum(device(), candidate, c, result)) {
                    return false;
                }
                EXPECT_EQ(result, expected) << c.count << " elements from " << c.first_element;
                return true;
            });
        EXPECT_GT(supporting, 0);
    }
};

TEST_P(SumParts, EqualsTheReferenceForEveryTypeAndOrder) {
    for (const ScaleGrid& grid : {kTensorScale, kRowBlockScales, kMxGrid}) {
        for (const Content content : kAllContents) {
            for (const DType to : kWideTypes) {
                SumCase c;
                c.grid = grid;
                c.to = to;
                c.count = 700;
                uint64_t seed = 40;
                for (const DType dtype : {DType::fp8_e4m3, DType::bf16, DType::fp32, DType::fp16,
                                          DType::fp8_e5m2, DType::bf16, DType::fp32, DType::fp16}) {
                    c.parts.push_back(make_part(dtype, c.count, grid, content, seed += 7));
                }
                for (const SumMode mode : {SumMode::fp32, SumMode::fp64}) {
                    c.mode = mode;
                    left_to_right(c);
                    compare(c);
                    balanced(c);
                    compare(c);
                }
            }
        }
    }
}

TEST_P(SumParts, EqualsTheReferenceForEverySize) {
    for (const int64_t count : {0, 1, 7, 127, 128, 129, 255, 256, 257, 16385, 70001}) {
        for (const DType dtype : kPartTypes) {
            for (const int64_t first : {0, 1, 127, 16380}) {
                SumCase c;
                c.count = count;
                c.first_element = first;
                c.offset = first % 4;
                for (uint64_t i = 0; i < 3; ++i) {
                    c.parts.push_back(make_part(dtype, count, c.grid, Content::normal, 50 + i));
                }
                left_to_right(c);
                compare(c);
                c.written_first = int64_t{1} << 40; // around the caches
                compare(c);
                c.mode = SumMode::largest;
                compare(c);
                c.mode = SumMode::fixed;
                c.block_amax.assign(static_cast<std::size_t>(block_count(c)), 0x3f000000U);
                compare(c);
            }
        }
    }
}

// As ranks lend gradients: sums of these have a way of their own.
TEST_P(SumParts, EqualsTheReferenceForPartsOfOneType) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        for (const Content content : kAllContents) {
            for (const uint64_t parts : {1U, 2U, 3U, 8U}) {
                SumCase c;
                c.count = 16384 + 300; // a whole chunk, and one that ends inside a tile
                for (uint64_t i = 0; i < parts; ++i) {
                    c.parts.push_back(make_part(dtype, c.count, c.grid, content, 70 + i));
                }
                for (const DType to : kWideTypes) {
                    c.to = to;
                    for (const int64_t written_first : {int64_t{0}, int64_t{1} << 40}) {
                        c.written_first = written_first;
                        left_to_right(c);
                        compare(c);
                    }
                }
                if (parts == 8) {
                    balanced(c);
                    compare(c);
                }
            }
        }
    }
}

TEST_P(SumParts, EqualsTheReferenceInFixedPoint) {
    for (const Content content : kAllContents) {
        for (const DType to : {DType::fp32, DType::fp16, DType::bf16, DType::int64}) {
            SumCase c;
            c.mode = SumMode::fixed;
            c.to = to;
            c.count = 1500;
            c.first_element = 77;
            for (const DType dtype : kPartTypes) {
                c.parts.push_back(make_part(dtype, c.count, c.grid, content, 61));
            }
            c.parts.push_back(make_part(DType::int64, c.count, c.grid, content, 62));
            for (const uint32_t amax : {0x3f800000U, 0x7f7fffffU, 0x00000005U, 0U, 0x7f800000U}) {
                c.block_amax.push_back(amax);
                c.block_amax.push_back(amax + 1);
                c.block_amax.push_back(0x40490fdbU);
            }
            for (const int32_t bits : {numerics::fixed_bits(0), numerics::kFewestFixedBits}) {
                c.fixed_bits = bits;
                compare(c);
            }
        }
    }
}

MP_COMPARE_BACKENDS(SumParts);

} // namespace
} // namespace mp::test
