// SPDX-License-Identifier: Apache-2.0
// column_sum of products and with a divisor, on every backend: the order of the operations is promised, so the bits are.
#include <tuple>
#include <utility>

#include "harness.hpp"

namespace mp::test {
namespace {

struct ProductCase {
    int64_t rows = 0;
    int64_t columns = 0;
    HostArray source;
    HostArray times; // dtype none: there are none
    HostArray divisor;
    HostArray old;
    bool accumulate = false;
    int64_t offset = 0;
};

ProductCase make_case(int64_t rows, int64_t columns, std::tuple<DType, DType, DType> types,
                      Content content) {
    const auto [from, times, to] = types;
    ProductCase c{rows, columns, make_array(from, rows * columns, content, 51), {}, {}, {}};
    c.times = make_array(times, rows * columns, content, 52);
    c.divisor = make_array(DType::fp32, columns, content, 53);
    for (int64_t i = 0; i < columns; i += 5) {
        c.divisor.set(i, i % 2 == 0 ? 0.0F : -0.0F);
    }
    c.old = make_array(to, columns, content, 54);
    return c;
}

HostArray sums(TestDevice& on, const Candidate& candidate, const ProductCase& c) {
    const DeviceArray source(on, c.source, c.offset);
    const DeviceArray times(on, c.times, c.offset);
    const DeviceArray divisor(on, c.divisor, c.offset);
    DeviceArray destination(on, c.old, c.offset);
    ColumnSumDesc op{};
    op.kind = OpKind::column_sum;
    op.source = source.ref();
    op.destination = destination.ref();
    op.rows = c.rows;
    op.columns = c.columns;
    op.accumulate = c.accumulate;
    if (c.times.dtype != DType::none) {
        op.times = times.ref();
    }
    if (c.divisor.dtype != DType::none) {
        op.divisor = static_cast<const float*>(divisor.data());
    }
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return destination.download();
}

const Candidate& only_candidate(TestDevice& on) {
    const CandidateList list = on.device().candidates(OpKind::column_sum);
    EXPECT_EQ(list.count, 1);
    return list.items[0];
}

constexpr std::array<std::pair<int64_t, int64_t>, 10> kShapes = {{{0, 5},
                                                                  {5, 0},
                                                                  {1, 1},
                                                                  {7, 255},
                                                                  {64, 3},
                                                                  {65, 257},
                                                                  {131, 2049},
                                                                  {4097, 7},
                                                                  {513, 129},
                                                                  {9000, 1}}};

class ColumnProducts : public BackendTest {
  protected:
    void compare(const ProductCase& c) {
        SCOPED_TRACE(std::string(dtype_name(c.source.dtype)) + " times " +
                     dtype_name(c.times.dtype) + " to " + dtype_name(c.old.dtype) + ", " +
                     std::to_string(c.rows) + " x " + std::to_string(c.columns) +
                     (c.accumulate ? ", accumulating" : ""));
        const HostArray expected =
            sums(reference_device(), reference_candidate(OpKind::column_sum), c);
        EXPECT_TRUE(
            same_bits(expected, sums(device(), only_candidate(device()), c), NanRule::any_nan));
    }
    // With products, a divisor, and both.
    void compare_parts(const ProductCase& c) {
        compare(c);
        ProductCase part = c;
        part.accumulate = true;
        part.divisor = {};
        compare(part);
        part.divisor = c.divisor;
        part.times = {};
        compare(part);
    }
};

TEST_P(ColumnProducts, EqualTheReferenceForEveryPairOfTypes) {
    for (const DType from : kWideTypes) {
        for (const DType times : kWideTypes) {
            for (const Content content : kAllContents) {
                SCOPED_TRACE(content_name(content));
                compare_parts(make_case(71, 261, {from, times, DType::fp32}, content));
            }
            compare_parts(make_case(71, 261, {from, times, times}, Content::normal));
        }
    }
}

TEST_P(ColumnProducts, EqualTheReferenceForEveryShape) {
    for (const auto& [rows, columns] : kShapes) {
        compare_parts(
            make_case(rows, columns, {DType::fp32, DType::fp32, DType::fp32}, Content::normal));
        compare_parts(
            make_case(rows, columns, {DType::bf16, DType::fp16, DType::fp32}, Content::normal));
    }
}

TEST_P(ColumnProducts, TakeArraysThatAreAlignedToTheirElementsOnly) {
    for (const DType dtype : kWideTypes) {
        ProductCase c = make_case(130, 37, {dtype, dtype, dtype}, Content::normal);
        c.offset = 1;
        compare_parts(c);
        c.offset = 3;
        compare_parts(c);
    }
}

MP_COMPARE_BACKENDS(ColumnProducts);

class ColumnProductValues : public BackendTest {};

// The promised order, written out a second time for two columns of fp32, of which one has no norm.
TEST_P(ColumnProductValues, FollowTheWrittenOrder) {
    constexpr int64_t kRows = 200;
    ProductCase c = make_case(kRows, 2, {DType::fp32, DType::fp32, DType::fp32}, Content::normal);
    c.divisor.set(0, 0.37F);
    c.divisor.set(1, -0.0F);
    c.accumulate = true;
    float blocks[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int64_t row = 0; row < kRows; ++row) {
        const volatile float product = c.source.get(2 * row) * c.times.get(2 * row);
        blocks[row / 64] += product;
    }
    const float total = ((blocks[0] + blocks[1]) + blocks[2]) + blocks[3];
    const HostArray result = sums(device(), only_candidate(device()), c);
    EXPECT_EQ(result.get(0), total / 0.37F + c.old.get(0));
    EXPECT_EQ(result.get(1), c.old.get(1));
    c.accumulate = false;
    EXPECT_EQ(sums(device(), only_candidate(device()), c).code(1), 0U);
}

// A fused multiply-add would keep what the rounded product loses: (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 or 0.
TEST_P(ColumnProductValues, RoundEachProductBeforeItIsAdded) {
    ProductCase c = make_case(2, 1, {DType::fp32, DType::fp32, DType::fp32}, Content::zeros);
    c.divisor = {};
    c.source.set(0, -(1.0F + 0x1p-11F));
    c.times.set(0, 1.0F);
    c.source.set(1, 1.0F + 0x1p-12F);
    c.times.set(1, 1.0F + 0x1p-12F);
    EXPECT_EQ(sums(device(), only_candidate(device()), c).get(0), 0.0F);
}

TEST_P(ColumnProductValues, RefuseCodes) {
    const DeviceArray source(device(), HostArray(DType::fp32, 8));
    const DeviceArray codes(device(), HostArray(DType::fp8_e4m3, 8));
    ColumnSumDesc op{};
    op.kind = OpKind::column_sum;
    op.source = source.ref();
    op.times = codes.ref();
    op.destination = {source.data(), 4, DType::fp32};
    op.rows = 2;
    op.columns = 4;
    EXPECT_FALSE(supports(device(), only_candidate(device()), op));
    op.source = codes.ref();
    op.times = source.ref();
    EXPECT_FALSE(supports(device(), only_candidate(device()), op));
}

MP_ALL_BACKENDS(ColumnProductValues);

} // namespace
} // namespace mp::test
