// SPDX-License-Identifier: Apache-2.0
// AdamW over every way to store its arrays, as simply as it can be said: decode to fp32, one line of arithmetic after
// another, encode. Shares the codecs of single numbers with the library (tests/numerics has their oracles), nothing
// else: scales by powers of two found by trying, codes of maps by looking at both neighbours.
#pragma once

#include <functional>

#include <cmath>
#include <cstring>

#include "launch.hpp"
#include "numerics/block_state.hpp"
#include "numerics/optimizer_state.hpp"

namespace mp::test::oracle {

struct Moment {
    DType dtype = DType::none;
    Coding coding = Coding::plain; // scaled: one scale
};

inline float map_value(Coding coding, bool is_signed, int code) {
    if (coding == Coding::dynamic8) {
        return is_signed ? numerics::kSigned8Map.value[code] : numerics::kUnsigned8Map.value[code];
    }
    return is_signed ? numerics::kSigned4Map.value[code] : numerics::kLinear4Map.value[code];
}

// The nearest value's code; where both neighbours are as near, in fp32, the upper one.
inline int map_code(Coding coding, bool is_signed, float x) {
    const int last = coding == Coding::dynamic8 ? 255 : 15;
    int below = 0;
    int above = last; // values ascend; the answer is one of two neighbours around x
    while (above - below > 1) {
        const int middle = (below + above) / 2;
        (map_value(coding, is_signed, middle) <= x ? below : above) = middle;
    }
    const float low = map_value(coding, is_signed, below);
    const float high = map_value(coding, is_signed, above);
    return x - low >= (high - low) * 0.5F ? above : below;
}

inline int nibble(const HostArray& codes, int64_t i) {
    const int byte = codes.bytes[static_cast<std::size_t>(i / 2)];
    return i % 2 == 0 ? byte / 16 : byte % 16;
}

// FlashOptim's pairs of maps, in double but for the roundings to fp32 that its kernels make.
inline float expanded(bool is_signed, int byte, float scale) {
    if (is_signed) {
        const float y = static_cast<float>(byte > 127 ? byte - 256 : byte) / 127.0F;
        const float x = y / (2.0F - std::fabs(y));
        return x * scale;
    }
    const float root = static_cast<float>(byte) / 255.0F * scale;
    return root * root;
}
inline int companded(bool is_signed, float x, float largest) {
    if (std::isnan(x) || std::isinf(largest) || std::isnan(largest)) {
        return !is_signed && x > 0.0F ? 1 : 0;
    }
    const float part = (is_signed ? x : std::sqrt(x)) / largest;
    const float y = is_signed ? 2.0F * part / (1.0F + std::fabs(part)) : part;
    const auto code = static_cast<int>(std::floor(y * (is_signed ? 127.0F : 255.0F) + 0.5F));
    return code == 0 && !is_signed && x > 0.0F ? 1 : code & 255;
}

// The 16 bits of a companded block's scale: fp16 down to 2^-17, else bf16 under a sign.
inline float companded_scale(const HostArray& scales, int64_t block) {
    const uint32_t code = scales.code(block);
    if (code < 0x8000U) {
        return scales.get(block);
    }
    const uint32_t bits = (code - 0x8000U) * 0x10000U;
    float value = 0.0F;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline void set_companded_scale(HostArray& scales, int64_t block, float scale) {
    if (scale == 0.0F || (scale >= 0x1p-17F && scale < 65520.0F) || std::isinf(scale)) {
        scales.set(block, scale);
        return;
    }
    HostArray wide(DType::bf16, 1);
    wide.set(0, scale);
    scales.set_code(block, 0x8000U + wide.code(0));
}

inline float decode_moment(const HostArray& codes, Coding coding, const HostArray& scales,
                           float scale_inv, bool is_signed, int64_t i) {
    switch (coding) {
    case Coding::block:
        return codes.get(i) * scales.get(i / 256);
    case Coding::block128:
        return codes.get(i) * scales.get(i / 128);
    case Coding::companded8:
        return expanded(is_signed, codes.bytes[static_cast<std::size_t>(i)],
                        companded_scale(scales, i / 32));
    case Coding::dynamic8:
        return map_value(coding, is_signed, codes.bytes[static_cast<std::size_t>(i)]) *
               scales.get(i / 256);
    case Coding::dynamic4:
        return map_value(coding, is_signed, nibble(codes, i)) * scales.get(i / 128);
    default:
        return scale_inv != 0.0F ? codes.get(i) * scale_inv : codes.get(i);
    }
}

// The smallest power of two that the largest of the values, over it, fits the type with; the old one for none.
inline float power_of_two_scale(const std::vector<float>& values, DType dtype, float old) {
    float largest = 0.0F;
    for (const float x : values) {
        largest = std::fmax(largest, std::fabs(x));
    }
    if (largest == 0.0F) {
        return old;
    }
    float scale = 0x1p-126F;
    while (largest / scale > max_finite(dtype)) {
        scale *= 2.0F;
    }
    return scale;
}

inline void encode_blocks(const std::vector<float>& values, Coding coding, bool is_signed,
                          HostArray& codes, HostArray& scales) {
    const std::size_t size = coding == Coding::companded8                               ? 32
                             : coding == Coding::dynamic4 || coding == Coding::block128 ? 128
                                                                                        : 256;
    const bool is_fp8 = coding == Coding::block || coding == Coding::block128;
    float root = 0.0F; // of the largest, companded
    float scale = 1.0F;
    std::fill(codes.bytes.begin(), codes.bytes.end(), static_cast<unsigned char>(0));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t first = i / size * size;
        if (i == first) {
            float largest = 0.0F;
            for (std::size_t k = first; k < values.size() && k < first + size; ++k) {
                largest = std::fmax(largest, std::fabs(values[k]));
            }
            root = std::fmax(0x1p-126F, is_signed ? largest : std::sqrt(largest));
            const auto block = static_cast<int64_t>(i / size);
            // torchao's 1e-12 of zeros; no scale where codes of a second moment have no zero
            const float whole = largest == 0.0F ? 1e-12F : std::fmax(0x1p-126F, largest);
            scale = is_fp8 ? std::fmax(0x1p-126F, whole / 448.0F) : whole;
            if (coding == Coding::companded8) {
                set_companded_scale(scales, block, largest == 0.0F ? 0.0F : root);
            } else {
                const bool has_no_zero = coding == Coding::dynamic4 && !is_signed;
                scales.set(block, has_no_zero && largest == 0.0F ? 0.0F : scale);
            }
        }
        const float x = values[i];
        const float quotient = x / scale;
        const bool is_small_second = !is_signed && x > 0.0F; // never a zero that was none
        if (coding == Coding::companded8) {
            codes.bytes[i] = static_cast<unsigned char>(companded(is_signed, x, root));
            continue;
        }
        if (is_fp8) {
            codes.set(static_cast<int64_t>(i),
                      is_small_second && quotient < 0x1p-9F ? 0x1p-9F : quotient);
            continue;
        }
        int code = map_code(coding, is_signed, quotient);
        if (coding == Coding::dynamic8) {
            code = code == 0 && is_small_second ? 1 : code;
            codes.bytes[i] = static_cast<unsigned char>(code);
        } else {
            codes.bytes[i / 2] =
                static_cast<unsigned char>(codes.bytes[i / 2] + (i % 2 == 0 ? 16 * code : code));
        }
    }
}

// Into plain codes, or codes under one scale, which is renewed.
inline void encode(const std::vector<float>& values, HostArray& codes, float& scale_inv) {
    const bool is_scaled = scale_inv != 0.0F;
    if (is_scaled) {
        scale_inv = power_of_two_scale(values, codes.dtype, scale_inv);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        codes.set(static_cast<int64_t>(i), is_scaled ? values[i] / scale_inv : values[i]);
    }
}

inline void encode_moment(const std::vector<float>& values, Coding coding, bool is_signed,
                          HostArray& codes, HostArray& scales, float& scale_inv) {
    if (has_blocks(coding)) {
        encode_blocks(values, coding, is_signed, codes, scales);
    } else {
        encode(values, codes, scale_inv);
    }
}

inline float joined(const ParamArrays& a, int64_t i) {
    int16_t low = 0;
    std::memcpy(&low, a.master.bytes.data() + 2 * i, 2);
    const auto bits = static_cast<uint32_t>((int64_t{a.param.code(i)} << 16) + low);
    float x = 0.0F;
    std::memcpy(&x, &bits, 4);
    return x;
}

// The upper half of the bits, rounded with halves away from zero, and what that lacks.
inline void split(ParamArrays& a, int64_t i, float x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    const uint32_t upper = (bits + 0x8000U) / 0x10000U;
    const auto low = static_cast<int16_t>(static_cast<int64_t>(bits) - int64_t{upper} * 0x10000);
    a.param.set_code(i, upper);
    std::memcpy(a.master.bytes.data() + 2 * i, &low, 2);
}

// The code of the bf16 number nearest to x; of two as near, the one farther from zero.
inline uint32_t nearest_bf16_half_away(float x) {
    uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    const uint32_t inner = bits / 0x10000U * 0x10000U; // cut off: towards zero
    const uint32_t outer = inner + 0x10000U;
    float near_zero = 0.0F;
    float beyond = 0.0F;
    std::memcpy(&near_zero, &inner, 4);
    std::memcpy(&beyond, &outer, 4);
    const double lost = std::fabs(double{x}) - std::fabs(double{near_zero});
    const double end = std::isinf(beyond) ? 0x1p128 : std::fabs(double{beyond});
    const double added = end - std::fabs(double{x});
    return (added <= lost ? outer : inner) / 0x10000U;
}

inline std::vector<float> decoded(const HostArray& codes, float scale_inv) {
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(codes.count));
    for (int64_t i = 0; i < codes.count; ++i) {
        values.push_back(scale_inv != 0.0F ? codes.get(i) * scale_inv : codes.get(i));
    }
    return values;
}

inline void store_weight(ParamArrays& a, const std::vector<float>& old,
                         const std::vector<float>& change) {
    std::vector<float> next;
    next.reserve(old.size());
    for (std::size_t i = 0; i < old.size(); ++i) {
        next.push_back(old[i] + change[i]);
    }
    if (a.compensation.dtype != DType::none) { // Kahan
        std::vector<float> lost;
        for (int64_t i = 0; i < a.count(); ++i) {
            const auto k = static_cast<std::size_t>(i);
            const float carried = decode_moment(a.compensation, a.compensation_coding,
                                                a.compensation_scales, 0.0F, true, i);
            const float pending = carried + change[k];
            a.param.set(i, old[k] + pending);
            lost.push_back(pending + (old[k] - a.param.get(i)));
        }
        float no_scale = 0.0F;
        encode_moment(lost, a.compensation_coding, true, a.compensation, a.compensation_scales,
                      no_scale);
    } else if (a.master_coding == Coding::remainder) {
        for (int64_t i = 0; i < a.count(); ++i) {
            split(a, i, next[static_cast<std::size_t>(i)]);
        }
    } else if (a.master.dtype != DType::none) {
        encode(next, a.master, a.scale_inv.master);
        if (a.half_away) {
            for (int64_t i = 0; i < a.count(); ++i) {
                a.param.set_code(i, nearest_bf16_half_away(a.master.get(i)));
            }
            return;
        }
        encode(decoded(a.master, a.scale_inv.master), a.param, a.scale_inv.param);
    } else {
        encode(next, a.param, a.scale_inv.param);
    }
}

// What moves one element: the change of p, and what m and v become.
using Rule = std::function<float(float p, float g, float& m, float& v)>;

inline Rule adamw_rule(const numerics::GroupHyper& hyper, int64_t t) {
    const auto b1 = static_cast<float>(hyper.beta1);
    const auto b2 = static_cast<float>(hyper.beta2);
    const auto c1 = static_cast<float>(1.0 - hyper.beta1);
    const auto c2 = static_cast<float>(1.0 - hyper.beta2);
    const auto power = static_cast<double>(t);
    const auto size = static_cast<float>(hyper.lr / (1.0 - std::pow(hyper.beta1, power)));
    const auto root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(hyper.beta2, power)));
    const auto eps = static_cast<float>(hyper.eps);
    const auto decay = static_cast<float>(hyper.lr * hyper.weight_decay);
    return [=](float p, float g, float& m, float& v) {
        m = b1 * m + c1 * g;
        v = b2 * v + c2 * (g * g);
        const float denominator = std::sqrt(v) * root + eps;
        return -(decay * p) - size * (m / denominator);
    };
}

inline Rule lion_rule(const numerics::GroupHyper& hyper) {
    const auto b1 = static_cast<float>(hyper.beta1);
    const auto b2 = static_cast<float>(hyper.beta2);
    const auto c1 = static_cast<float>(1.0 - hyper.beta1);
    const auto c2 = static_cast<float>(1.0 - hyper.beta2);
    const auto lr = static_cast<float>(hyper.lr);
    const auto decay = static_cast<float>(hyper.lr * hyper.weight_decay);
    return [=](float p, float g, float& m, float& /*v*/) {
        const float mean = b1 * m + c1 * g;
        m = b2 * m + c2 * g;
        const float sign = mean > 0.0F ? 1.0F : mean < 0.0F ? -1.0F : mean;
        return -(decay * p) - lr * sign;
    };
}

// One step, nearest rounding. Without an exp_avg_sq there is no second moment.
inline void step(ParamArrays& a, const numerics::GroupHyper& hyper, int64_t t, double grad_mul) {
    const auto mul = static_cast<float>(grad_mul);
    const Rule rule =
        hyper.rule == numerics::RuleId::lion ? lion_rule(hyper) : adamw_rule(hyper, t);
    std::vector<float> weight;
    std::vector<float> change;
    std::vector<float> first;
    std::vector<float> second;
    const bool has_second = a.exp_avg_sq.dtype != DType::none;
    const bool has_master = a.master.dtype != DType::none;
    const std::vector<float> stored = has_master && a.master_coding != Coding::remainder
                                          ? decoded(a.master, a.scale_inv.master)
                                          : decoded(a.param, a.scale_inv.param);
    for (int64_t i = 0; i < a.count(); ++i) {
        const float p = a.master_coding == Coding::remainder ? joined(a, i)
                                                             : stored[static_cast<std::size_t>(i)];
        float g = a.grad.get(i);
        g = a.scale_inv.grad != 0.0F ? g * a.scale_inv.grad : g;
        g = g * mul;
        float m = decode_moment(a.exp_avg, a.exp_avg_coding, a.exp_avg_scales, a.scale_inv.exp_avg,
                                true, i);
        float v = has_second ? decode_moment(a.exp_avg_sq, a.exp_avg_sq_coding, a.exp_avg_sq_scales,
                                             a.scale_inv.exp_avg_sq, false, i)
                             : 0.0F;
        weight.push_back(p);
        change.push_back(rule(p, g, m, v));
        first.push_back(m);
        second.push_back(v);
    }
    store_weight(a, weight, change);
    encode_moment(first, a.exp_avg_coding, true, a.exp_avg, a.exp_avg_scales, a.scale_inv.exp_avg);
    if (has_second) {
        encode_moment(second, a.exp_avg_sq_coding, false, a.exp_avg_sq, a.exp_avg_sq_scales,
                      a.scale_inv.exp_avg_sq);
    }
}

} // namespace mp::test::oracle
