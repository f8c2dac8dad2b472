// SPDX-License-Identifier: Apache-2.0
// cast of one chunk: every instruction set against one element at a time by core/base/numerics, bit for
// bit, NaN payloads included.
#include "tables.hpp"

namespace mp::test {
namespace {

struct Way {
    bool saturate;
    bool stochastic;
    bool stream;
};

CastDesc make_op(const Way& way) {
    CastDesc op{};
    op.kind = OpKind::cast;
    op.saturate = way.saturate;
    op.rounding.stochastic = way.stochastic;
    op.rounding.seed = 0xfeedfacecafebeefU;
    op.rounding.uid = 3;
    op.rounding.step = (uint64_t{1} << 35) + 9;
    return op;
}

float clamped(DType to, float x) {
    const float limit = max_finite(to);
    if (to == DType::fp32 || numerics::is_nan(x)) {
        return x;
    }
    return x > limit ? limit : (x < -limit ? -limit : x);
}

// `start`: the logical index of the first element, which keys the random bits.
HostArray cast_scalar(const CastDesc& op, const HostArray& source, DType to, int64_t start) {
    HostArray result(to, source.count);
    const numerics::SrKey key = op.rounding.key();
    for (int64_t i = 0; i < source.count; ++i) {
        const float x = source.get(i);
        if (op.rounding.stochastic) {
            const uint32_t bits = numerics::sr_bits32_at(key, numerics::Purpose::cast,
                                                         static_cast<uint64_t>(start + i));
            (void)numerics::store_from_float_sr(
                to, result.bytes.data(), i, op.saturate ? clamped(to, x) : x, bits, op.saturate);
        } else {
            numerics::store_from_float(to, result.bytes.data(), i, x, op.saturate);
        }
    }
    return result;
}

// Address of element 0 of an array whose element `start` is at `data`.
void* origin(void* data, DType dtype, int64_t start) {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) -
                                   static_cast<uintptr_t>(start * dtype_size(dtype)));
}

class CastChunk : public TableTest {
  protected:
    HostArray run(const Way& way, const HostArray& source, DType to, std::size_t source_offset,
                  std::size_t offset, int64_t first = 0) {
        Placed from(source, source_offset);
        Placed into(HostArray(to, source.count), offset);
        CastDesc op = make_op(way);
        op.source = from.ref();
        op.destination = into.ref();
        op.source.data = origin(op.source.data, source.dtype, first);
        op.destination.data = origin(op.destination.data, to, first);
        for (int64_t start = 0; start < source.count; start += kChunkElements) {
            const int64_t left = source.count - start;
            GetParam()->cast(
                {&op, first + start, left < kChunkElements ? left : kChunkElements, way.stream});
        }
        return into.array();
    }

    void compare(const Way& way, const HostArray& source, DType to, std::size_t source_offset = 0,
                 std::size_t offset = 0) {
        SCOPED_TRACE(std::string(dtype_name(source.dtype)) + " to " + dtype_name(to) +
                     (way.saturate ? ", saturating" : "") + (way.stochastic ? ", stochastic" : "") +
                     (way.stream ? ", streamed" : "") + ", " + std::to_string(source.count) +
                     " elements, offsets " + std::to_string(source_offset) + ", " +
                     std::to_string(offset));
        EXPECT_TRUE(same_bits(cast_scalar(make_op(way), source, to, 0),
                              run(way, source, to, source_offset, offset), NanRule::same_bits));
    }
};

constexpr std::array<Way, 4> kWays = {
    {{false, false, false}, {true, false, true}, {false, true, true}, {true, true, false}}};

TEST_P(CastChunk, EqualsScalarCodeForEveryPairSizeAndAlignment) {
    for (const DType from : kFloatTypes) {
        for (const int64_t count : kOddSizes) {
            const HostArray source = make_array(from, count, Content::patterns, 1);
            for (const DType to : kFloatTypes) {
                for (std::size_t i = 0; i < kOffsets.size(); ++i) {
                    compare(kWays[i], source, to, kOffsets[i], kOffsets[(i + 1) % 4]);
                    compare(kWays[i], source, to, kOffsets[i], 0);
                }
            }
        }
    }
}

TEST_P(CastChunk, EqualsScalarCodeForEveryCode) {
    for (const DType from : kFloatTypes) {
        const int64_t codes = from == DType::fp32 ? 0 : int64_t{1} << (8 * dtype_size(from));
        HostArray source(from, codes);
        for (int64_t i = 0; i < codes; ++i) {
            source.set_code(i, static_cast<uint32_t>(i));
        }
        for (const DType to : kFloatTypes) {
            for (const Way& way : kWays) {
                compare(way, source, to);
            }
        }
    }
}

// fp32 near every code and every midpoint between two codes of the target, and spread over all
// patterns.
std::vector<uint32_t> fp32_patterns(DType to) {
    std::vector<uint32_t> patterns;
    for (uint64_t u = 0; u < (uint64_t{1} << 32); u += 4099) {
        patterns.push_back(static_cast<uint32_t>(u));
    }
    const int64_t codes = int64_t{1} << (8 * dtype_size(to) - 1);
    HostArray code(to, 1);
    uint32_t previous = 0;
    for (int64_t i = 0; i < codes; ++i) {
        code.set_code(0, static_cast<uint32_t>(i));
        const uint32_t exact = numerics::bits_from_float(code.get(0));
        const auto middle = static_cast<uint32_t>((uint64_t{previous} + exact) / 2);
        for (const uint32_t center : {exact, middle}) {
            for (const uint32_t sign : {0U, 0x80000000U}) {
                for (uint32_t near = 0; near < 5; ++near) {
                    patterns.push_back((center + near - 2) ^ sign);
                }
            }
        }
        previous = exact;
    }
    return patterns;
}

TEST_P(CastChunk, EqualsScalarCodeNearEveryMidpoint) {
    for (const DType to : {DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2}) {
        const std::vector<uint32_t> patterns = fp32_patterns(to);
        HostArray source(DType::fp32, static_cast<int64_t>(patterns.size()));
        std::memcpy(source.bytes.data(), patterns.data(), source.bytes.size());
        for (const Way& way : kWays) {
            compare(way, source, to);
        }
    }
}

// A tile without NaN takes a shorter way than one with: both orders of the two.
TEST_P(CastChunk, MixesTilesWithAndWithoutNan) {
    HostArray source = make_array(DType::fp32, 2048, Content::normal, 5);
    for (const int64_t at : {3, 300, 1023, 2047}) {
        source.set_code(at, 0xffc12345U);
    }
    for (const DType to : kFloatTypes) {
        compare(kWays[0], source, to);
        compare(kWays[1], source, to);
    }
}

// The random bits follow the logical index, also where it needs more than 32 bits.
TEST_P(CastChunk, RandomBitsFollowTheLogicalIndex) {
    const HostArray source = make_array(DType::fp32, 1000, Content::normal, 6);
    const Way way = {false, true, false};
    for (const int64_t first : {int64_t{256}, int64_t{1} << 34, (int64_t{1} << 35) - 256}) {
        for (const DType to : {DType::bf16, DType::fp16}) {
            EXPECT_TRUE(same_bits(cast_scalar(make_op(way), source, to, first),
                                  run(way, source, to, 0, 0, first), NanRule::same_bits))
                << first;
        }
    }
}

MP_FOR_EVERY_TABLE(CastChunk);

} // namespace
} // namespace mp::test
