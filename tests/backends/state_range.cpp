// SPDX-License-Identifier: Apache-2.0
// Every way to keep a state over all of fp32's range: gradients of every decade, alike and mixed in a block, in slices far
// into a parameter. The reference's bits on every backend; and what is stored against the state before it was rounded.
#include <cmath>
#include <cstdio>
#include <limits>

#include "device/update_scaling.hpp"
#include "numerics/block_state.hpp"
#include "step_case.hpp"
#include "training.hpp"

namespace mp::test {
namespace {

constexpr int64_t kCount = 520; // two blocks of the largest, and a rest
constexpr int kFirstDecade = -38;
constexpr int kLastDecade = 38;

std::vector<FormatId> state_formats() {
    std::vector<FormatId> formats;
    AllFormats::for_each([&](auto of) {
        const FormatId format = decltype(of)::kFormat;
        if ((format_roles(format) & kForState) != 0) {
            formats.push_back(format);
        }
    });
    return formats;
}
// One scale for the tensor is too little for squares: E4M3 is refused there.
bool may_hold_squares(FormatId format) { return format != FormatId::e4m3_scaled; }

Layout layout_of(FormatId m, FormatId v) {
    Layout layout;
    layout.exp_avg = dtype_of(m);
    layout.exp_avg_sq = dtype_of(v);
    layout.exp_avg_coding = is_scaled(m) ? Coding::plain : coding_of(m);
    layout.exp_avg_sq_coding = is_scaled(v) ? Coding::plain : coding_of(v);
    layout.scale_inv.exp_avg = is_scaled(m) ? 1.0F : 0.0F;
    layout.scale_inv.exp_avg_sq = is_scaled(v) ? 1.0F : 0.0F;
    return layout;
}

// Of one decade, both signs, with a zero among them; mixed: from it down over 12 decades.
HostArray gradients(int decade, bool is_mixed) {
    HostArray grad(DType::fp32, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
        const uint64_t h = numerics::splitmix64(static_cast<uint64_t>(i + 1000 * decade));
        const double unit = 1.0 + 2.4 * static_cast<double>(h >> 40) * 0x1p-24;
        const double down = is_mixed ? static_cast<double>(i % 13) : 0.0;
        const double x = unit * std::pow(10.0, decade - down);
        grad.set(i, i % 31 == 7 ? 0.0F : static_cast<float>((h & 1U) != 0 ? x : -x));
    }
    return grad;
}

ParamArrays begun(FormatId m, FormatId v, int decade, bool is_mixed) {
    ParamArrays arrays = fresh_param(layout_of(m, v), HostArray(DType::fp32, kCount));
    arrays.grad = gradients(decade, is_mixed);
    return arrays;
}

template <class Body> void for_each_case(const Body& body) {
    for (int decade = kFirstDecade; decade <= kLastDecade; ++decade) {
        for (const bool is_mixed : {false, true}) {
            body(decade, is_mixed);
        }
    }
}

class StateRange : public AdamwComparison {};

TEST_P(StateRange, HasTheBitsOfTheReference) {
    int64_t cases = 0;
    for (const FormatId format : state_formats()) {
        SCOPED_TRACE(format_name(format));
        const FormatId squares = may_hold_squares(format) ? format : FormatId::fp32;
        for (const uint32_t stochastic : {0U, 7U}) {
            StepCase c = with_flags(is_map(format) ? 0U : stochastic);
            for_each_case([&](int decade, bool is_mixed) {
                ParamArrays arrays = begun(format, squares, decade, is_mixed);
                // In the whole, and where random blocks have numbers beyond 32 bits.
                arrays.first = decade % 2 == 0 ? 0 : (int64_t{1} << 35) - (is_mixed ? 256 : 8);
                c.params.push_back(std::move(arrays));
            });
            cases += static_cast<int64_t>(c.params.size());
            compare(c);
        }
    }
    std::printf("%lld parameters\n", static_cast<long long>(cases));
}

MP_COMPARE_BACKENDS(StateRange);

// ---- against the state before it was rounded ---------------------------------------------------

struct Stored {
    std::vector<double> values;
    std::vector<double> ladder; // what the codes are worth under an amax of 1, in order
};

Stored stored_values(FormatId format, bool is_signed, const HostArray& codes,
                     const HostArray& scales, float scale_inv) {
    Stored stored;
    for (int64_t i = 0; i < kCount; ++i) {
        stored.values.push_back(static_cast<double>(
            has_blocks(format)
                ? numerics::load_block_value(coding_of(format), is_signed, codes.bytes.data(),
                                             scales.bytes.data(), i)
                : decoded(codes.get(i), is_scaled(format) ? &scale_inv : nullptr)));
    }
    if (has_blocks(format)) {
        numerics::with_block_codec(coding_of(format), [&](auto codec) {
            using Codec = decltype(codec);
            const float one = Codec::scales(is_signed, 1.0F).stored;
            const int codes_there = 1 << block_layout(coding_of(format)).bits;
            for (int code = 0; code < codes_there; ++code) {
                const auto value = static_cast<double>(Codec::value(is_signed, code, one));
                if (!std::isnan(value)) {
                    stored.ladder.push_back(value);
                }
            }
        });
        std::sort(stored.ladder.begin(), stored.ladder.end());
    }
    return stored;
}

// The distance between the two codes beside x, a part of its block's amax; from the last one to it beyond the ends.
double step_at(const std::vector<double>& ladder, double x) {
    const auto above = std::lower_bound(ladder.begin(), ladder.end(), x);
    if (above == ladder.end()) {
        return x - ladder.back();
    }
    return above == ladder.begin() ? *above - x : *above - *(above - 1);
}

// What a format may lose of x in a block, or tensor, of this amax: half a last place of floats; of codes in blocks one step,
// what rounding the scale does, and what lies below fp32's normal numbers. Companded scales have 8 bits, and those of second
// moments are roots, so that twice their error counts; others are fp32, and so is what is computed from them.
double allowed(FormatId format, bool is_signed, const std::vector<double>& ladder, double x,
               double amax) {
    const double size = std::fabs(x);
    if (has_blocks(format)) {
        // Scales begin at 2^-126: below it the steps are those of the amax that has it.
        const bool is_e4m3 = format == FormatId::block || format == FormatId::block128;
        amax = std::fmax(amax, is_e4m3 ? 448.0 * 0x1p-126 : 0x1p-126);
        const double of_scale =
            format == FormatId::companded8 ? (is_signed ? 0x1p-8 : 0x1p-7) : 0x1p-20;
        return amax * step_at(ladder, x / amax) * (1.0 + of_scale) + size * of_scale + 0x1p-126;
    }
    const double half = dtype_of(format) == DType::fp32   ? 0x1p-24
                        : dtype_of(format) == DType::fp16 ? 0x1p-11
                        : dtype_of(format) == DType::bf16 ? 0x1p-8
                                                          : 0x1p-4;
    const double least = dtype_of(format) == DType::fp16 ? 0x1p-25 : 0x1p-10; // of scaled codes
    const double largest_code = dtype_of(format) == DType::fp16 ? 65504.0 : 448.0;
    const double floor = is_scaled(format) ? std::fmax(2.0 * amax / largest_code, 0x1p-126) * least
                         : dtype_of(format) == DType::fp16 ? 0x1p-25
                         : dtype_of(format) == DType::bf16 ? 0x1p-134
                                                           : 0x1p-149;
    return size * half + floor + 0x1p-149;
}

class StateRangeValues : public AdamwStep {
  protected:
    // Returns how many numbers were compared.
    static int64_t check(FormatId format, bool is_signed, const std::vector<float>& exact,
                         const Stored& stored) {
        const int64_t size = has_blocks(format) ? block_size(format) : kCount;
        int64_t compared = 0;
        for (int64_t first = 0; first < kCount; first += size) {
            double amax = 0.0;
            const int64_t end = std::min(first + size, kCount);
            for (int64_t i = first; i < end; ++i) {
                amax = std::fmax(amax, std::fabs(double{exact[static_cast<std::size_t>(i)]}));
            }
            if (amax == 0.0 || std::isinf(amax)) { // no state that fp32 holds
                continue;
            }
            for (int64_t i = first; i < end; ++i) {
                const double x = double{exact[static_cast<std::size_t>(i)]};
                const double kept = stored.values[static_cast<std::size_t>(i)];
                const double most = allowed(format, is_signed, stored.ladder, x, amax);
                const bool beyond = format == FormatId::fp16 && std::fabs(x) > 65504.0;
                EXPECT_TRUE(beyond || std::fabs(kept - x) <= most)
                    << i << ": " << x << " became " << kept << ", may be off by " << most
                    << (is_signed ? "" : ", second moment");
                EXPECT_TRUE(x != 0.0 || format == FormatId::dynamic4 || kept == 0.0);
                ++compared;
            }
        }
        return compared;
    }
};

TEST_P(StateRangeValues, EveryFiniteStateIsKeptWithinItsFormat) {
    int64_t compared = 0;
    for (const FormatId format : state_formats()) {
        const FormatId squares = may_hold_squares(format) ? format : FormatId::fp32;
        if (!takes(device(), GetParam(), begun(format, squares, 0, false))) {
            continue;
        }
        StepCase exact = with_flags(0);
        StepCase kept = with_flags(0);
        for_each_case([&](int decade, bool is_mixed) {
            exact.params.push_back(begun(FormatId::fp32, FormatId::fp32, decade, is_mixed));
            kept.params.push_back(begun(format, squares, decade, is_mixed));
        });
        const std::vector<ParamArrays> of_fp32 = step(exact);
        const std::vector<ParamArrays> of_format = step(kept);
        for (std::size_t i = 0; i < of_fp32.size(); ++i) {
            SCOPED_TRACE(std::string(format_name(format)) + ", decade " +
                         std::to_string(kFirstDecade + static_cast<int>(i / 2)) +
                         (i % 2 == 0 ? "" : ", mixed"));
            const auto floats = [](const HostArray& array) {
                std::vector<float> values;
                for (int64_t k = 0; k < array.count; ++k) {
                    values.push_back(array.get(k));
                }
                return values;
            };
            const ParamArrays& a = of_format[i];
            compared += check(
                format, true, floats(of_fp32[i].exp_avg),
                stored_values(format, true, a.exp_avg, a.exp_avg_scales, a.scale_inv.exp_avg));
            compared += check(squares, false, floats(of_fp32[i].exp_avg_sq),
                              stored_values(squares, false, a.exp_avg_sq, a.exp_avg_sq_scales,
                                            a.scale_inv.exp_avg_sq));
            ASSERT_FALSE(HasFailure());
        }
    }
    std::printf("%lld numbers\n", static_cast<long long>(compared));
}

// With an eps in the gradient's unit, Adam's steps do not depend on that unit; nor may they by how states are kept.
TEST_P(StateRangeValues, StepsDoNotDependOnTheGradientsUnit) {
    constexpr int64_t kNumbers = 512;
    for (const FormatId format : state_formats()) {
        Layout layout = layout_of(format, format);
        if (!has_blocks(format) ||
            !takes(device(), GetParam(), fresh_param(layout, HostArray(DType::fp32, kNumbers)))) {
            continue;
        }
        double usual = 0.0;
        // Scales begin at 2^-126: that of E4M3 codes of a first second moment, 0.001 g^2 / 448, at gradients of 2^-54.
        for (const int exponent : {-10, -17, -20, -23, -27, -40, -54, 10, 20, 60}) {
            const double unit = std::ldexp(1.0, exponent);
            Training training(device(), {fresh_param(layout, HostArray(DType::fp32, kNumbers))},
                              {1e-3, 0.9, 0.999, 1e-8 * unit, 0.0}, {});
            for (uint64_t step = 1; step <= 40; ++step) {
                HostArray grad = make_array(DType::fp32, kNumbers, Content::normal, step);
                for (int64_t i = 0; i < kNumbers; ++i) {
                    grad.set(i, (grad.get(i) + 0.1F) * static_cast<float>(unit));
                }
                training.set_grad(grad);
                training.step();
            }
            double moved = 0.0;
            const HostArray param = training.download().param;
            for (int64_t i = 0; i < kNumbers; ++i) {
                moved += std::fabs(double{param.get(i)});
            }
            usual = usual == 0.0 ? moved : usual;
            // bf16 scales are rounded more coarsely than fp16 ones; the others' codes are the same.
            EXPECT_NEAR(moved / usual, 1.0, 0.02) << format_name(format) << ", 2^" << exponent;
        }
    }
}

MP_ALL_BACKENDS(StateRangeValues);

} // namespace
} // namespace mp::test
