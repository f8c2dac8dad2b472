// SPDX-License-Identifier: Apache-2.0
// The codes of moments in blocks: every instruction set against numerics/block_state.hpp, one element at a time, on
// numbers beside every border between two codes. With beta1 = beta2 = 0 and no old moments the first moment is the
// gradient and the second a multiple of its square.
#include <cmath>
#include <vector>

#include "device/update_scaling.hpp"
#include "numerics/block_state.hpp"
#include "numerics/rules.hpp"
#include "tables.hpp"

namespace mp::test {
namespace {

struct Moment {
    std::vector<uint8_t> codes;
    std::vector<uint8_t> scales; // bytes of the coding's type
};

struct Moments {
    Moment exp_avg;
    Moment exp_avg_sq;
};

void encode(Coding coding, bool is_signed, const std::vector<float>& values, Moment& to) {
    const auto size = static_cast<std::size_t>(block_size(coding));
    for (std::size_t first = 0; first < values.size(); first += size) {
        const std::size_t end = std::min(values.size(), first + size);
        uint32_t amax = 0;
        for (std::size_t i = first; i < end; ++i) {
            const uint32_t magnitude =
                numerics::bits_from_float(values[i]) & numerics::kFloatMagnitudeMask;
            amax = std::max(amax, magnitude);
        }
        numerics::with_block_codec(coding, [&](auto codec) {
            using Codec = decltype(codec);
            const numerics::MomentScale scale =
                Codec::scales(is_signed, numerics::float_from_bits(amax));
            numerics::store_block_scale(coding, to.scales.data(),
                                        static_cast<int64_t>(first / size), scale.stored);
            for (std::size_t i = first; i < end; ++i) {
                numerics::store_block_code(coding, to.codes.data(), static_cast<int64_t>(i),
                                           Codec::code(is_signed, values[i], scale.divisor));
            }
        });
    }
}

// All codes and scales 0, which decodes to 0.
Moments empty_moments(Coding coding, std::size_t count) {
    const std::size_t blocks = count / static_cast<std::size_t>(block_size(coding)) + 1;
    const auto bytes =
        static_cast<std::size_t>(code_bytes(coding, DType::uint8, static_cast<int64_t>(count)));
    const auto scale = static_cast<std::size_t>(dtype_size(block_layout(coding).scales.dtype));
    const Moment moment = {std::vector<uint8_t>(bytes), std::vector<uint8_t>(scale * blocks)};
    return {moment, moment};
}

class BlockCodes : public TableTest {
  protected:
    // v = factor * g * g
    static void compare(Coding coding, const std::vector<float>& gradients, float factor) {
        Moments expected = empty_moments(coding, gradients.size());
        std::vector<float> sums;
        std::vector<float> squares;
        for (const float g : gradients) {
            sums.push_back(0.0F + g); // -0 becomes 0
            squares.push_back(0.0F + factor * (g * g));
        }
        encode(coding, true, sums, expected.exp_avg);
        encode(coding, false, squares, expected.exp_avg_sq);

        Moments actual = empty_moments(coding, gradients.size());
        std::vector<float> param(gradients.size());
        std::vector<float> grad = gradients;
        UpdateSegment s;
        s.count = static_cast<int64_t>(gradients.size());
        s.param.dtype = s.grad.dtype = DType::fp32;
        s.states[0].dtype = s.states[1].dtype = block_layout(coding).codes;
        s.states[0].coding = s.states[1].coding = coding;
        s.param.data = param.data();
        s.grad.data = grad.data();
        s.states[0].data = actual.exp_avg.codes.data();
        s.states[1].data = actual.exp_avg_sq.codes.data();
        s.states[0].scale_inv = actual.exp_avg.scales.data();
        s.states[1].scale_inv = actual.exp_avg_sq.scales.data();
        numerics::GroupScalars k;
        numerics::Adamw::Scalars scalars{};
        scalars.one_minus_beta1 = 1.0F;
        scalars.one_minus_beta2 = factor;
        k.set(scalars);
        OptimizerUpdateDesc op{};
        op.kind = OpKind::optimizer_update;
        op.scalars = &k;
        for (int64_t start = 0; start < s.count; start += kChunkElements) {
            GetParam()->update(
                {&op, &s, start, std::min(s.count - start, kChunkElements), 1, false, nullptr});
        }
        EXPECT_EQ(expected.exp_avg.scales, actual.exp_avg.scales);
        EXPECT_EQ(expected.exp_avg_sq.scales, actual.exp_avg_sq.scales);
        expect_codes("exp_avg", sums, expected.exp_avg.codes, actual.exp_avg.codes);
        expect_codes("exp_avg_sq", squares, expected.exp_avg_sq.codes, actual.exp_avg_sq.codes);
    }

    static void expect_codes(const char* what, const std::vector<float>& values,
                             const std::vector<uint8_t>& expected,
                             const std::vector<uint8_t>& actual) {
        const std::size_t per_code = values.size() / expected.size();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(int{expected[i]}, int{actual[i]})
                << what << ", code " << i << ", value " << values[i * per_code];
        }
    }
};

// The borders between codes as parts of a block's largest value, of both moments.
std::vector<double> borders(Coding coding, bool is_signed) {
    std::vector<double> found;
    if (coding == Coding::dynamic8) {
        for (const float x :
             (is_signed ? numerics::kSigned8Map : numerics::kUnsigned8Map).threshold) {
            found.push_back(static_cast<double>(x));
        }
    } else if (coding == Coding::dynamic4) {
        for (const float x :
             (is_signed ? numerics::kSigned4Map : numerics::kLinear4Map).threshold) {
            found.push_back(static_cast<double>(x));
        }
    } else if (coding == Coding::companded8) {
        for (int code = 0; code < 127; ++code) { // y / (2 - y) of y half-way between two codes
            const double y = (code + 0.5) / 127.0;
            found.push_back(is_signed ? y / (2.0 - y) : y * y * 127.0 * 127.0 / (255.0 * 255.0));
            found.push_back(is_signed ? code / (254.0 - code)
                                      : (code + 127.5) * (code + 127.5) / (255.0 * 255.0));
        }
    } else {
        for (uint8_t code = 0; code < numerics::kE4m3MaxFinite; ++code) {
            const auto value = static_cast<double>(numerics::e4m3_to_float(code));
            const auto next = static_cast<double>(numerics::e4m3_to_float(code + 1));
            found.push_back(0.5 * (value + next) / 448.0);
            found.push_back(value / 448.0);
        }
    }
    return found;
}

// Appends the numbers up to `reach` ulps around x.
void add_around(double x, int32_t reach, std::vector<float>& to) {
    const uint32_t u = numerics::bits_from_float(static_cast<float>(x));
    if ((u & numerics::kFloatMagnitudeMask) <= static_cast<uint32_t>(reach)) {
        to.push_back(static_cast<float>(x));
        return;
    }
    for (int32_t ulps = -reach; ulps <= reach; ++ulps) {
        to.push_back(numerics::float_from_bits(u + static_cast<uint32_t>(ulps)));
    }
}

// Cut into blocks that each begin with `largest`, which makes their scale.
std::vector<float> in_blocks(const std::vector<float>& values, float largest, Coding coding) {
    const auto each = static_cast<std::size_t>(block_size(coding)) - 1;
    std::vector<float> blocks;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i % each == 0) {
            blocks.push_back(largest);
        }
        blocks.push_back(values[i]);
    }
    return blocks;
}

constexpr std::array<Coding, 5> kBlockCodings = {Coding::block, Coding::dynamic8, Coding::dynamic4,
                                                 Coding::block128, Coding::companded8};
// Some with an inverse that is exact, most with one that is not.
constexpr std::array<float, 10> kLargest = {1.0F,     0x1p-20F,       0.7F,   3.1e-7F, 1.999999F,
                                            77777.0F, 0x1.000002p-9F, 3e-15F, 9e-37F,  2e30F};

TEST_P(BlockCodes, BesideEveryBorderOfTheFirstMoment) {
    for (const Coding coding : kBlockCodings) {
        for (const float largest : kLargest) {
            SCOPED_TRACE(std::to_string(static_cast<int>(coding)) + ", " + std::to_string(largest));
            std::vector<float> values;
            for (const double border : borders(coding, true)) {
                add_around(border * static_cast<double>(largest), 3, values);
                add_around(-border * static_cast<double>(largest), 3, values);
            }
            compare(coding, in_blocks(values, largest, coding), 1.0F);
        }
    }
}

TEST_P(BlockCodes, BesideEveryBorderOfTheSecondMoment) {
    for (const Coding coding : kBlockCodings) {
        for (const float factor : {1.0F, 0.05F, 0.0099999F, 1.0F / 3.0F, 0.7071067F}) {
            SCOPED_TRACE(std::to_string(static_cast<int>(coding)) + ", " + std::to_string(factor));
            std::vector<float> values;
            for (const double border : borders(coding, false)) {
                add_around(0.37 * std::sqrt(std::fabs(border)), 4, values);
            }
            compare(coding, in_blocks(values, 0.37F, coding), factor);
        }
    }
}

// All binades, and with them numbers that are far below the smallest code.
TEST_P(BlockCodes, OfEveryKindOfNumber) {
    std::vector<float> values;
    for (uint32_t u = 0; u <= 0x3f800000U; u += 25013U) {
        const float x = numerics::float_from_bits(u);
        values.push_back(u % 2 == 0 ? x : -x);
    }
    for (const Coding coding : kBlockCodings) {
        SCOPED_TRACE(static_cast<int>(coding));
        compare(coding, in_blocks(values, 1.0F, coding), 0.05F);
        compare(coding, in_blocks(values, -3.0e37F, coding), 0.05F); // squares overflow
        std::vector<float> unsorted;
        for (std::size_t i = 0; i < values.size(); ++i) {
            unsorted.push_back(values[i * 7919U % values.size()] * 1e-3F);
        }
        compare(coding, unsorted, 1.0F);
    }
}

TEST_P(BlockCodes, OfShortBlocksZerosAndNumbersThatAreNone) {
    const float inf = numerics::float_from_bits(numerics::kFloatInfinity);
    const float nan = numerics::float_from_bits(numerics::kFloatQuietNan);
    for (const Coding coding : kBlockCodings) {
        for (const std::size_t count : {1U, 2U, 31U, 64U, 97U, 128U, 129U, 255U, 300U, 511U}) {
            for (const float special : {0.0F, -0.0F, inf, -inf, nan, 1e-13F, 3.4e38F, 0x1p-149F}) {
                SCOPED_TRACE(std::to_string(static_cast<int>(coding)) + ", " +
                             std::to_string(count) + " elements, " + std::to_string(special));
                std::vector<float> values(count);
                for (std::size_t i = 0; i < count && special != 0.0F; ++i) {
                    values[i] = static_cast<float>(i % 37) * 0.01F - 0.1F;
                }
                values[count / 2] = special;
                compare(coding, values, 0.5F);
            }
        }
    }
}

MP_FOR_EVERY_TABLE(BlockCodes);

} // namespace
} // namespace mp::test
