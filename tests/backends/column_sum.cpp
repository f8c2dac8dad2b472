// SPDX-License-Identifier: Apache-2.0
// column_sum on every backend: the order of the additions is promised, so the bits are.
#include <utility>

#include "harness.hpp"

namespace mp::test {
namespace {

struct SumCase {
    int64_t rows = 0;
    int64_t columns = 0;
    HostArray source;
    HostArray old;
    bool accumulate = false;
    int64_t offset = 0;
};

bool column_sum(TestDevice& on, const Candidate& candidate, const SumCase& c, HostArray& result) {
    const DeviceArray source(on, c.source, c.offset);
    DeviceArray destination(on, c.old, c.offset);
    ColumnSumDesc op{};
    op.kind = OpKind::column_sum;
    op.source = source.ref();
    op.destination = destination.ref();
    op.rows = c.rows;
    op.columns = c.columns;
    op.accumulate = c.accumulate;
    if (!supports(on, candidate, op)) {
        return false;
    }
    run(on, candidate, op);
    result = destination.download();
    return true;
}

constexpr std::array<std::pair<int64_t, int64_t>, 14> kShapes = {{{0, 5},
                                                                  {5, 0},
                                                                  {1, 1},
                                                                  {7, 255},
                                                                  {63, 3},
                                                                  {64, 1},
                                                                  {65, 257},
                                                                  {127, 33},
                                                                  {129, 16},
                                                                  {4097, 7},
                                                                  {3, 4097},
                                                                  {1000, 64},
                                                                  {513, 129},
                                                                  {16385, 1}}};

class ColumnSum : public BackendTest {
  protected:
    void compare(const SumCase& c) {
        SCOPED_TRACE(std::string(dtype_name(c.source.dtype)) + " to " + dtype_name(c.old.dtype) +
                     ", " + std::to_string(c.rows) + " x " + std::to_string(c.columns) +
                     (c.accumulate ? ", accumulating" : ""));
        HostArray expected;
        ASSERT_TRUE(
            column_sum(reference_device(), reference_candidate(OpKind::column_sum), c, expected));
        const int32_t supporting =
            for_each_candidate(device(), OpKind::column_sum, [&](const Candidate& candidate) {
                HostArray result;
                if (!column_sum(device(), candidate, c, result)) {
                    return false;
                }
                EXPECT_TRUE(same_bits(expected, result, NanRule::any_nan));
                return true;
            });
        EXPECT_GT(supporting, 0);
    }

    void compare_shapes(DType from, DType to, Content content) {
        SCOPED_TRACE(content_name(content));
        for (const auto& [rows, columns] : kShapes) {
            SumCase c{rows, columns, make_array(from, rows * columns, content, 21),
                      make_array(to, columns, content, 22)};
            compare(c);
            c.accumulate = true;
            compare(c);
        }
    }
};

TEST_P(ColumnSum, EqualsTheReference) {
    for (const DType from : kWideTypes) {
        for (const DType to : kWideTypes) {
            compare_shapes(from, to, Content::normal);
        }
        compare_shapes(from, DType::fp32, Content::subnormal);
        compare_shapes(from, DType::fp32, Content::patterns);
        compare_shapes(from, DType::fp32, Content::specials);
        compare_shapes(from, DType::fp32, Content::zeros);
    }
}

TEST_P(ColumnSum, EqualsTheReferenceOnALargeMatrix) {
    constexpr int64_t kRows = 4099;
    constexpr int64_t kColumns = 244;
    compare({kRows, kColumns, make_array(DType::fp32, kRows * kColumns, Content::normal, 23),
             make_array(DType::fp32, kColumns, Content::normal, 24), true});
    compare({kRows, kColumns, make_array(DType::bf16, kRows * kColumns, Content::normal, 23),
             make_array(DType::fp32, kColumns, Content::normal, 24), false});
}

TEST_P(ColumnSum, TakesArraysThatAreAlignedToTheirElementsOnly) {
    for (const DType dtype : kWideTypes) {
        SumCase c{130,
                  37,
                  make_array(dtype, 130 * 37, Content::normal, 25),
                  make_array(dtype, 37, Content::normal, 26),
                  true,
                  1};
        compare(c);
        c.offset = 3;
        compare(c);
    }
}

MP_COMPARE_BACKENDS(ColumnSum);

class ColumnSumValues : public BackendTest {};

// The promised order, written out a second time for one column of fp32.
TEST_P(ColumnSumValues, FollowsTheWrittenOrder) {
    constexpr int64_t kRows = 200;
    const SumCase c{kRows, 1, make_array(DType::fp32, kRows, Content::normal, 27),
                    make_array(DType::fp32, 1, Content::normal, 28), true};
    float blocks[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int64_t row = 0; row < kRows; ++row) {
        blocks[row / 64] += c.source.get(row);
    }
    const float expected = (((blocks[0] + blocks[1]) + blocks[2]) + blocks[3]) + c.old.get(0);
    for_each_candidate(device(), OpKind::column_sum, [&](const Candidate& candidate) {
        HostArray result;
        if (!column_sum(device(), candidate, c, result)) {
            return false;
        }
        EXPECT_EQ(result.get(0), expected);
        return true;
    });
}

MP_ALL_BACKENDS(ColumnSumValues);

} // namespace
} // namespace mp::test
