// SPDX-License-Identifier: Apache-2.0
// row_norm on every backend: the order of the operations is promised, so the bits are.
#include <cmath>
#include <utility>

#include "harness.hpp"
#include "numerics/magnitude.hpp"

namespace mp::test {
namespace {

struct NormCase {
    int64_t rows = 0;
    int64_t columns = 0;
    HostArray source;
    int64_t offset = 0;
};

HostArray norms(TestDevice& on, const Candidate& candidate, const NormCase& c) {
    const DeviceArray source(on, c.source, c.offset);
    DeviceArray result(on, HostArray(DType::fp32, c.rows), c.offset);
    RowNormDesc op{};
    op.kind = OpKind::row_norm;
    op.source = static_cast<const float*>(source.data());
    op.result = static_cast<float*>(result.data());
    op.rows = c.rows;
    op.columns = c.columns;
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return result.download();
}

const Candidate& only_candidate(TestDevice& on) {
    const CandidateList list = on.device().candidates(OpKind::row_norm);
    EXPECT_EQ(list.count, 1);
    return list.items[0];
}

NormCase make_case(int64_t rows, int64_t columns, Content content) {
    return {rows, columns, make_array(DType::fp32, rows * columns, content, 61)};
}

constexpr std::array<std::pair<int64_t, int64_t>, 12> kShapes = {{{0, 5},
                                                                  {5, 0},
                                                                  {1, 1},
                                                                  {3, 31},
                                                                  {8, 32},
                                                                  {9, 33},
                                                                  {17, 255},
                                                                  {7, 4097},
                                                                  {1, 65537},
                                                                  {1025, 16},
                                                                  {100, 513},
                                                                  {2, 16384}}};

class RowNorm : public BackendTest {
  protected:
    void compare(const NormCase& c) {
        SCOPED_TRACE(std::to_string(c.rows) + " x " + std::to_string(c.columns));
        const HostArray expected =
            norms(reference_device(), reference_candidate(OpKind::row_norm), c);
        EXPECT_TRUE(
            same_bits(expected, norms(device(), only_candidate(device()), c), NanRule::any_nan));
    }
};

TEST_P(RowNorm, EqualsTheReferenceForEveryShape) {
    for (const auto& [rows, columns] : kShapes) {
        compare(make_case(rows, columns, Content::normal));
    }
}

TEST_P(RowNorm, EqualsTheReferenceForEveryContent) {
    for (const Content content : kAllContents) {
        SCOPED_TRACE(content_name(content));
        compare(make_case(37, 131, content));
        compare(make_case(200, 3, content)); // rows without an exception, too
    }
}

TEST_P(RowNorm, TakesArraysThatAreAlignedToTheirElementsOnly) {
    for (const int64_t offset : {1, 2, 3}) {
        NormCase c = make_case(19, 77, Content::normal);
        c.offset = offset;
        compare(c);
    }
}

MP_COMPARE_BACKENDS(RowNorm);

class RowNormValues : public BackendTest {
  protected:
    [[nodiscard]] float norm_of(const std::vector<float>& row) const {
        const auto columns = static_cast<int64_t>(row.size());
        NormCase c{1, columns, HostArray(DType::fp32, columns)};
        for (int64_t i = 0; i < columns; ++i) {
            c.source.set(i, row[static_cast<std::size_t>(i)]);
        }
        return norms(device(), only_candidate(device()), c).get(0);
    }
};

TEST_P(RowNormValues, AreNorms) {
    const float infinity = numerics::float_from_bits(numerics::kFloatInfinity);
    EXPECT_EQ(norm_of({}), 0.0F);
    EXPECT_EQ(norm_of({-3.0F}), 3.0F);
    EXPECT_EQ(norm_of({3.0F, -4.0F}), 5.0F);
    EXPECT_EQ(norm_of({1.0F, -infinity}), infinity);
    EXPECT_EQ(norm_of({0x1p+64F}), infinity); // its square is
    EXPECT_TRUE(numerics::is_nan(norm_of({1.0F, numerics::float_from_bits(0x7fc00000U)})));
}

// The promised order, written out a second time in double: the square of an fp32 number is exact there, and where a sum of two
// is not, the error of the rounding to double is found and only its last bit decides.
float fused(float sum, float x) {
    const double square = static_cast<double>(x) * static_cast<double>(x);
    const double wide = static_cast<double>(sum);
    double total = wide + square;
    const double part = total - wide;
    const double error = (wide - (total - part)) + (square - part);
    if (error != 0.0 && (numerics::bits_from_double(total) & 1U) == 0) {
        total = std::nextafter(total, error > 0.0 ? 1e300 : 0.0);
    }
    return static_cast<float>(total);
}

TEST_P(RowNormValues, FollowTheWrittenOrder) {
    for (const int64_t columns : {5, 32, 100, 1000}) {
        const NormCase c = make_case(1, columns, Content::normal);
        std::vector<float> sums(32, 0.0F);
        for (int64_t i = 0; i < columns; ++i) {
            auto& sum = sums[static_cast<std::size_t>(i % 32)];
            sum = fused(sum, c.source.get(i));
        }
        while (sums.size() > 1) {
            for (std::size_t i = 0; i < sums.size() / 2; ++i) {
                sums[i] = sums[2 * i] + sums[2 * i + 1];
            }
            sums.resize(sums.size() / 2);
        }
        EXPECT_EQ(norms(device(), only_candidate(device()), c).get(0), std::sqrt(sums[0]))
            << columns;
    }
}

// One rounding for a square and its addition: with two, many of these norms would be others.
TEST_P(RowNormValues, RoundASquareAndItsSumOnce) {
    constexpr int64_t kRows = 200;
    NormCase c{kRows, 33, HostArray(DType::fp32, kRows * 33)};
    int differing = 0;
    HostArray expected(DType::fp32, kRows);
    for (int64_t row = 0; row < kRows; ++row) {
        const float first = 0.37F;
        const float second = 1.5F + static_cast<float>(row) * 0x1.3p-10F;
        c.source.set(row * 33, first);
        c.source.set(row * 33 + 32, second);
        const volatile float square = second * second;
        const float once = std::sqrt(fused(fused(0.0F, first), second));
        differing += once != std::sqrt(first * first + square) ? 1 : 0;
        expected.set(row, once);
    }
    ASSERT_GT(differing, 10);
    EXPECT_TRUE(
        same_bits(expected, norms(device(), only_candidate(device()), c), NanRule::same_bits));
}

MP_ALL_BACKENDS(RowNormValues);

} // namespace
} // namespace mp::test
