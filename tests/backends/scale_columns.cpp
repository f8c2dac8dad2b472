// SPDX-License-Identifier: Apache-2.0
// scale_columns on every backend: the reference's bits, and values written out a second time.
#include <tuple>
#include <utility>

#include "harness.hpp"

namespace mp::test {
namespace {

struct ScaleCase {
    int64_t rows = 0;
    int64_t columns = 0;
    HostArray source;
    HostArray magnitude;
    HostArray norm;
    HostArray bias; // dtype none: there is none
    DType to = DType::fp32;
    int64_t offset = 0;
};

// source, destination, magnitude, bias
using Types = std::tuple<DType, DType, DType, DType>;

ScaleCase make_case(int64_t rows, int64_t columns, const Types& types, Content content) {
    const auto [from, to, magnitude, bias] = types;
    ScaleCase c{rows, columns, make_array(from, rows * columns, content, 71), {}, {}, {}, to};
    c.magnitude = make_array(magnitude, columns, content, 72);
    c.norm = make_array(DType::fp32, columns, content, 73);
    for (int64_t i = 2; i < columns; i += 5) {
        c.norm.set(i, i % 2 == 0 ? 0.0F : -0.0F);
    }
    if (bias != DType::none) {
        c.bias = make_array(bias, columns, content, 74);
    }
    return c;
}

// A case's arrays but the source and the destination, in a device's memory.
class Arrays {
  public:
    Arrays(TestDevice& on, const ScaleCase& c)
        : magnitude_(on, c.magnitude, c.offset), norm_(on, c.norm, c.offset),
          bias_(on, c.bias, c.offset) {}

    [[nodiscard]] ScaleColumnsDesc describe(const ScaleCase& c, const TensorRef& source,
                                            const TensorRef& destination) const {
        ScaleColumnsDesc op{};
        op.kind = OpKind::scale_columns;
        op.source = source;
        op.destination = destination;
        op.rows = c.rows;
        op.columns = c.columns;
        op.magnitude = magnitude_.ref();
        op.norm = static_cast<const float*>(norm_.data());
        if (c.bias.dtype != DType::none) {
            op.bias = bias_.ref();
        }
        return op;
    }

  private:
    DeviceArray magnitude_;
    DeviceArray norm_;
    DeviceArray bias_;
};

HostArray scaled(TestDevice& on, const Candidate& candidate, const ScaleCase& c) {
    const Arrays arrays(on, c);
    const DeviceArray source(on, c.source, c.offset);
    DeviceArray destination(on, HostArray(c.to, c.source.count), c.offset);
    const ScaleColumnsDesc op = arrays.describe(c, source.ref(), destination.ref());
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return destination.download();
}

const Candidate& only_candidate(TestDevice& on) {
    const CandidateList list = on.device().candidates(OpKind::scale_columns);
    EXPECT_EQ(list.count, 1);
    return list.items[0];
}

constexpr std::array<std::pair<int64_t, int64_t>, 12> kShapes = {{{0, 5},
                                                                  {5, 0},
                                                                  {1, 1},
                                                                  {7, 3},
                                                                  {8, 255},
                                                                  {9, 257},
                                                                  {17, 1023},
                                                                  {65, 1025},
                                                                  {3, 4099},
                                                                  {16385, 1},
                                                                  {1, 20001},
                                                                  {513, 129}}};

class ScaleColumns : public BackendTest {
  protected:
    void compare(const ScaleCase& c) {
        SCOPED_TRACE(std::string(dtype_name(c.source.dtype)) + " to " + dtype_name(c.to) + " by " +
                     dtype_name(c.magnitude.dtype) + ", bias " + dtype_name(c.bias.dtype) + ", " +
                     std::to_string(c.rows) + " x " + std::to_string(c.columns));
        const HostArray expected =
            scaled(reference_device(), reference_candidate(OpKind::scale_columns), c);
        EXPECT_TRUE(
            same_bits(expected, scaled(device(), only_candidate(device()), c), NanRule::any_nan));
    }
};

TEST_P(ScaleColumns, EqualsTheReferenceForEveryPairOfTypes) {
    for (const DType from : kWideTypes) {
        for (const DType to : kWideTypes) {
            for (const Content content : kAllContents) {
                SCOPED_TRACE(content_name(content));
                compare(make_case(19, 261, {from, to, DType::fp32, DType::none}, content));
                compare(make_case(19, 261, {from, to, from, to}, content));
            }
        }
    }
    for (const DType magnitude : kWideTypes) {
        for (const DType bias : kWideTypes) {
            compare(
                make_case(5, 100, {DType::bf16, DType::fp32, magnitude, bias}, Content::normal));
        }
    }
}

TEST_P(ScaleColumns, EqualsTheReferenceForEveryShape) {
    for (const auto& [rows, columns] : kShapes) {
        compare(make_case(rows, columns, {DType::fp32, DType::fp32, DType::fp32, DType::fp32},
                          Content::normal));
        compare(make_case(rows, columns, {DType::bf16, DType::bf16, DType::fp32, DType::none},
                          Content::normal));
    }
}

// Large enough for a host to write around its caches.
TEST_P(ScaleColumns, EqualsTheReferenceOnALargeMatrix) {
    compare(make_case(1100, 4096, {DType::bf16, DType::bf16, DType::fp32, DType::bf16},
                      Content::normal));
    compare(make_case(1500, 1500, {DType::fp16, DType::fp32, DType::fp32, DType::none},
                      Content::normal));
}

TEST_P(ScaleColumns, TakesArraysThatAreAlignedToTheirElementsOnly) {
    for (const DType dtype : kWideTypes) {
        ScaleCase c = make_case(21, 37, {dtype, dtype, dtype, dtype}, Content::normal);
        for (const int64_t offset : {1, 3}) {
            c.offset = offset;
            compare(c);
        }
    }
}

TEST_P(ScaleColumns, TakesOneMatrixAsBoth) {
    for (const DType dtype : kWideTypes) {
        const ScaleCase c = make_case(70, 1100, {dtype, dtype, dtype, dtype}, Content::normal);
        const HostArray expected =
            scaled(reference_device(), reference_candidate(OpKind::scale_columns), c);
        const Arrays arrays(device(), c);
        DeviceArray both(device(), c.source);
        run(device(), only_candidate(device()), arrays.describe(c, both.ref(), both.ref()));
        EXPECT_TRUE(same_bits(expected, both.download(), NanRule::same_bits)) << dtype_name(dtype);
    }
}

MP_COMPARE_BACKENDS(ScaleColumns);

class ScaleColumnValues : public BackendTest {};

// Three roundings: of the factor, of the product and of the sum.
TEST_P(ScaleColumnValues, RoundEachOperation) {
    const ScaleCase c =
        make_case(50, 40, {DType::fp32, DType::fp32, DType::fp32, DType::fp32}, Content::normal);
    const HostArray result = scaled(device(), only_candidate(device()), c);
    int fused = 0;
    for (int64_t i = 0; i < result.count; ++i) {
        const int64_t column = i % c.columns;
        const float norm = c.norm.get(column);
        const float factor = norm == 0.0F ? 0.0F : c.magnitude.get(column) / norm;
        const volatile float product = c.source.get(i) * factor;
        const float expected = product + c.bias.get(column);
        ASSERT_EQ(result.get(i), expected) << i;
        const double exact = static_cast<double>(c.source.get(i)) * static_cast<double>(factor) +
                             static_cast<double>(c.bias.get(column));
        fused += static_cast<float>(exact) != expected ? 1 : 0;
    }
    EXPECT_GT(fused, 50); // so many a fused multiply-add would have shown
}

// What has no norm has no direction: 0, whatever its magnitude; and nothing is added where there is no bias.
TEST_P(ScaleColumnValues, AreZeroWithoutANorm) {
    ScaleCase c =
        make_case(3, 2, {DType::fp32, DType::bf16, DType::fp32, DType::none}, Content::zeros);
    c.source.set(0, -1.0F);
    c.source.set(1, -1.0F);
    c.magnitude.set(0, numerics::float_from_bits(numerics::kFloatQuietNan));
    c.magnitude.set(1, 2.0F);
    c.norm.set(0, -0.0F);
    c.norm.set(1, 0.5F);
    const HostArray result = scaled(device(), only_candidate(device()), c);
    EXPECT_EQ(result.code(0), 0x8000U); // -1 * +0
    EXPECT_EQ(result.get(1), -4.0F);
}

TEST_P(ScaleColumnValues, RefuseCodes) {
    const ScaleCase c =
        make_case(2, 4, {DType::fp32, DType::fp32, DType::fp32, DType::fp32}, Content::normal);
    const Arrays arrays(device(), c);
    const DeviceArray source(device(), c.source);
    const DeviceArray codes(device(), HostArray(DType::fp8_e5m2, 8));
    const ScaleColumnsDesc good = arrays.describe(c, source.ref(), source.ref());
    EXPECT_TRUE(supports(device(), only_candidate(device()), good));
    std::array<ScaleColumnsDesc, 4> bad = {good, good, good, good};
    bad[0].source = codes.ref();
    bad[1].destination = codes.ref();
    bad[2].magnitude = codes.ref();
    bad[3].bias = codes.ref();
    for (const ScaleColumnsDesc& op : bad) {
        EXPECT_FALSE(supports(device(), only_candidate(device()), op));
    }
}

MP_ALL_BACKENDS(ScaleColumnValues);

} // namespace
} // namespace mp::test
