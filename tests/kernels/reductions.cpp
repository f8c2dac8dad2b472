// SPDX-License-Identifier: Apache-2.0
// amax, sums of squares and column sums of one chunk: every instruction set against the written
// order of additions.
#include "tables.hpp"

namespace mp::test {
namespace {

class AmaxChunk : public TableTest {};

TEST_P(AmaxChunk, IsTheLargestPattern) {
    for (const DType dtype : kFloatTypes) {
        for (const Content content : kAllContents) {
            for (const int64_t count : kOddSizes) {
                for (const std::size_t offset : kOffsets) {
                    const HostArray source = make_array(dtype, count, content, 11);
                    uint32_t expected = 0;
                    for (int64_t i = 0; i < count; ++i) {
                        const uint32_t u = numerics::bits_from_float(source.get(i));
                        expected = std::max(expected, u & numerics::kFloatMagnitudeMask);
                    }
                    Placed placed(source, offset);
                    EXPECT_EQ(GetParam()->amax(placed.ref(), 0, count), expected)
                        << dtype_name(dtype) << ", " << content_name(content) << ", " << count;
                }
            }
        }
    }
}

// Each code alone: what a signalling NaN becomes counts, not what it is.
TEST_P(AmaxChunk, OfOneElementIsItsMagnitude) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        HostArray source(dtype, 1);
        for (uint32_t code = 0; code < (1U << (8 * dtype_size(dtype))); ++code) {
            source.set_code(0, code);
            const uint32_t u = numerics::bits_from_float(source.get(0));
            const TensorRef ref = {source.bytes.data(), 1, dtype};
            ASSERT_EQ(GetParam()->amax(ref, 0, 1), u & numerics::kFloatMagnitudeMask)
                << dtype_name(dtype) << " " << code;
        }
    }
}

TEST_P(AmaxChunk, FindsAnElementAnywhere) {
    for (const DType dtype : kFloatTypes) {
        const int64_t count = 1000;
        for (int64_t at = 0; at < count; at += 37) {
            HostArray source(dtype, count);
            source.set(at, -3.0F);
            const TensorRef ref = {source.bytes.data(), count, dtype};
            ASSERT_EQ(GetParam()->amax(ref, 0, count), numerics::bits_from_float(3.0F)) << at;
            ASSERT_EQ(GetParam()->amax(ref, at, 1), numerics::bits_from_float(3.0F)) << at;
        }
    }
}

MP_FOR_EVERY_TABLE(AmaxChunk);

double tree_sum(std::vector<double> values) {
    while (values.size() > 1) {
        for (std::size_t i = 0; i < values.size() / 2; ++i) {
            values[i] = values[2 * i] + values[2 * i + 1];
        }
        values.resize(values.size() / 2);
    }
    return values[0];
}

double sum_of_squares(const HostArray& grad) {
    std::vector<double> blocks(static_cast<std::size_t>(kChunkElements / kStatsBlock), 0.0);
    for (int64_t first = 0; first < grad.count; first += kStatsBlock) {
        std::vector<double> lanes(static_cast<std::size_t>(kStatsLanes), 0.0);
        for (int64_t i = first; i < first + kStatsBlock && i < grad.count; ++i) {
            const auto g = static_cast<double>(grad.get(i));
            lanes[static_cast<std::size_t>((i - first) % kStatsLanes)] += g * g;
        }
        blocks[static_cast<std::size_t>(first / kStatsBlock)] = tree_sum(lanes);
    }
    return tree_sum(blocks);
}

class StatsChunk : public TableTest {};

TEST_P(StatsChunk, FollowsTheWrittenOrder) {
    for (const DType dtype : kWideTypes) {
        for (const Content content : kAllContents) {
            for (const int64_t count : kOddSizes) {
                if (count > kChunkElements) {
                    continue;
                }
                const HostArray grad = make_array(dtype, count, content, 21);
                const double expected = sum_of_squares(grad);
                for (const std::size_t offset : kOffsets) {
                    Placed placed(grad, offset);
                    const double sum = GetParam()->stats(placed.data(), dtype, nullptr, 0, count);
                    const bool same =
                        numerics::bits_from_double(sum) == numerics::bits_from_double(expected) ||
                        (sum != sum && expected != expected);
                    EXPECT_TRUE(same) << dtype_name(dtype) << ", " << content_name(content) << ", "
                                      << count << ": " << sum << " and not " << expected;
                }
            }
        }
    }
}

MP_FOR_EVERY_TABLE(StatsChunk);

class ColumnSumChunk : public TableTest {};

HostArray column_sums(const HostArray& source, int64_t columns, const HostArray& old,
                      bool accumulate) {
    HostArray result = old;
    const int64_t rows = source.count / columns;
    for (int64_t column = 0; column < columns; ++column) {
        float total = 0.0F;
        for (int64_t first = 0; first < rows; first += kColumnSumBlock) {
            float block = 0.0F;
            for (int64_t row = first; row < first + kColumnSumBlock && row < rows; ++row) {
                block += source.get(row * columns + column);
            }
            total += block;
        }
        result.set(column, accumulate ? total + old.get(column) : total);
    }
    return result;
}

TEST_P(ColumnSumChunk, FollowsTheWrittenOrder) {
    for (const DType dtype : kFloatTypes) {
        for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1},
                                            {7, 300},
                                            {64, 257},
                                            {65, 31},
                                            {200, 2049},
                                            {131, 16}}) {
            const HostArray source = make_array(dtype, rows * columns, Content::normal, 31);
            const HostArray old = make_array(DType::bf16, columns, Content::normal, 32);
            for (const bool accumulate : {false, true}) {
                for (const std::size_t offset : kOffsets) {
                    Placed from(source, offset);
                    Placed into(old, offset);
                    ColumnSumDesc op{};
                    op.source = from.ref();
                    op.destination = into.ref();
                    op.rows = rows;
                    op.columns = columns;
                    op.accumulate = accumulate;
                    const int64_t cut = columns / 3;
                    for (const auto& [first, end] :
                         {std::pair<int64_t, int64_t>{0, cut}, {cut, columns}}) {
                        for (int64_t at = first; at < end; at += kColumnStrip) {
                            GetParam()->column_sum({&op, at, std::min(end - at, kColumnStrip)});
                        }
                    }
                    EXPECT_TRUE(same_bits(column_sums(source, columns, old, accumulate),
                                          into.array(), NanRule::same_bits))
                        << dtype_name(dtype) << ", " << rows << " x " << columns;
                }
            }
        }
    }
}

MP_FOR_EVERY_TABLE(ColumnSumChunk);

} // namespace
} // namespace mp::test
