// SPDX-License-Identifier: Apache-2.0
// Matrix products for the tests: what is asked for, and how far a result may be from one in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "device/ops.hpp"

namespace mp::test {

struct Shape {
    int64_t m, n, k;
};

struct ProductOptions {
    Shape shape{};
    DType in = DType::fp32;
    DType out = DType::fp32;
    DType bias = DType::none;
    bool trans_a = false;
    bool trans_b = false;
    bool gelu = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    int64_t pad = 0;
    int64_t batch = 1;
};

inline std::string describe(const ProductOptions& o) {
    return std::string(dtype_name(o.in)) + " to " + dtype_name(o.out) + ", " +
           std::to_string(o.shape.m) + " x " + std::to_string(o.shape.n) + " x " +
           std::to_string(o.shape.k) + (o.trans_a ? ", A^T" : "") + (o.trans_b ? ", B^T" : "") +
           ", alpha " + std::to_string(o.alpha) + ", beta " + std::to_string(o.beta) + ", bias " +
           dtype_name(o.bias) + (o.gelu ? ", gelu" : "") + ", pad " + std::to_string(o.pad) +
           ", batch " + std::to_string(o.batch);
}

inline GemmDesc make_desc(const ProductOptions& o) {
    GemmDesc d{};
    d.kind = OpKind::gemm;
    d.m = o.shape.m;
    d.n = o.shape.n;
    d.k = o.shape.k;
    d.lda = (o.trans_a ? d.m : d.k) + o.pad;
    d.ldb = (o.trans_b ? d.k : d.n) + o.pad;
    d.ldc = d.ldd = d.n + o.pad;
    d.batch_count = o.batch;
    d.batch_stride_a = (o.trans_a ? d.k : d.m) * d.lda;
    d.batch_stride_b = (o.trans_b ? d.n : d.k) * d.ldb;
    d.batch_stride_c = d.batch_stride_d = d.m * d.ldd;
    d.alpha = o.alpha;
    d.beta = o.beta;
    d.dtype_a = d.dtype_b = o.in;
    d.dtype_d = o.out;
    d.dtype_bias = o.bias;
    d.trans_a = o.trans_a;
    d.trans_b = o.trans_b;
    d.gelu = o.gelu;
    return d;
}

// The scalar product of an element, and that of the magnitudes.
struct Sum {
    double value = 0.0;
    double magnitude = 0.0;

    void add(double product) {
        value += product;
        magnitude += std::abs(product);
        add_to_instruction(product);
    }
    // Of fp8 on Hopper: over its instructions, the largest of their terms times how many they are. An instruction adds 32
    // products to the sum before them, which begins anew after four.
    [[nodiscard]] double aligned_terms() const { return terms_ + largest_ * (in_instruction_ + 1); }

  private:
    static constexpr int kProducts = 32;
    static constexpr int kInstructions = 4;
    void add_to_instruction(double product) {
        if (in_instruction_ == kProducts) {
            terms_ += largest_ * (kProducts + 1);
            in_instruction_ = 0;
            instructions_ = (instructions_ + 1) % kInstructions;
            before_ = instructions_ == 0 ? 0.0 : before_;
            largest_ = std::abs(before_);
        }
        before_ += product;
        largest_ = std::max(largest_, std::abs(product));
        ++in_instruction_;
    }
    double terms_ = 0.0; // of the instructions before
    double before_ = 0.0;
    double largest_ = 0.0;
    int in_instruction_ = 0;
    int instructions_ = 0;
};

// Half a unit in the last place, relative.
inline double unit_of(DType dtype) {
    return dtype == DType::fp16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

// What some implementations are documented to do less exactly (docs/numerics.md, "Matrix products").
struct Allowance {
    double products = 0.0;    // relative, of the sum of their magnitudes
    double terms = 0.0;       // relative, of an instruction's largest term, for each of its terms
    double gelu = 0.0;        // relative, of GELU's argument
    bool rounds_bias = false; // to the type of D, or to bf16 where that is fp8
    bool rounds_sum = false;  // of products, or of them and the first addend, to the type of D
};
// Of cuBLASLt on an H200. fp8: an instruction aligns its terms to the largest and cuts off what is under 2^-13 of that (measured;
// DeepSeek-V3, arXiv 2412.19437, section 3.5.2, says as much). GELU: twice the largest of 184,000 errors.
inline constexpr double kFp8TermsOfGpu = 0x1p-13;
inline constexpr double kGeluOfGpu = 0x1p-17;

// An element of D before its last rounding, and how far from it what is computed in fp32 may be.
struct Expected {
    double value = 0.0;
    double bound = 0.0;
    double product = 0.0;  // |alpha| sum |a b|
    double sum = 0.0;      // |alpha a b| alone, with beta c or with the bias: the largest
    double terms = 0.0;    // |alpha| Sum::aligned_terms()
    double bias = 0.0;     // its magnitude
    double slope = 1.0;    // of what follows the sum
    double argument = 0.0; // of GELU, its magnitude; 0 where there is none

    [[nodiscard]] Expected allowing(const Allowance& allowance, DType to) const {
        const double unit = unit_of(to == DType::fp32 || to == DType::fp16 ? to : DType::bf16);
        const double of_sum = allowance.products * product + allowance.terms * terms;
        Expected wider = *this;
        wider.bound += allowance.gelu * argument +
                       slope * (of_sum + (allowance.rounds_bias ? unit * bias : 0.0) +
                                (allowance.rounds_sum ? unit * (sum + bound + of_sum) : 0.0));
        return wider;
    }

    // With the last rounding: half a unit in the last place, or half the smallest number.
    [[nodiscard]] double rounded_bound(DType to) const {
        const double unit = unit_of(to);
        const double smallest = to == DType::fp16   ? 0x1p-25
                                : to == DType::bf16 ? 0x1p-134
                                                    : 0x1p-150;
        return bound + unit * (std::abs(value) + bound) + smallest;
    }
};

// The tanh form in double.
inline double gelu(double z) {
    return 0.5 * z *
           (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (z + 0.044715 * z * z * z)));
}

// An fp32 sum in `steps` roundings is within steps u sum |a| |b| of it, u = 2^-24; k products take k of them (Higham,
// "Accuracy and stability of numerical algorithms", section 3.1). alpha, beta and the two additions round something not
// larger than all terms together. The slope of GELU is at most 1.13; evaluated in fp32, the factor 1 + tanh(...) has an
// absolute error of some u: 5 in the argument times the slope of tanh times argument (at most 0.45), 1 in tanh, 1 in the
// sum; the two products add 2.
inline Expected expect_element(const GemmDesc& d, const Sum& sum, int64_t steps, float c,
                               float bias) {
    constexpr double kU = 0x1p-24;
    const auto alpha = static_cast<double>(d.alpha);
    const double old = d.beta == 0.0F ? 0.0 : static_cast<double>(d.beta) * static_cast<double>(c);
    const double added = d.dtype_bias == DType::none ? 0.0 : static_cast<double>(bias);
    const double product = std::abs(alpha) * sum.magnitude;
    const double terms = product + std::abs(old) + std::abs(added);
    const double z = alpha * sum.value + old + added;
    const double bound = static_cast<double>(steps) * kU * product + 4.0 * kU * terms;
    Expected e;
    e.value = d.gelu ? gelu(z) : z;
    e.bound = d.gelu ? 1.13 * bound + 4.0 * kU * std::abs(z) : bound;
    e.product = product;
    const double scaled = alpha * sum.value;
    e.sum = std::max({std::abs(scaled), std::abs(scaled + old), std::abs(scaled + added)});
    e.terms = std::abs(alpha) * sum.aligned_terms();
    e.bias = std::abs(added);
    e.slope = d.gelu ? 1.13 : 1.0;
    e.argument = d.gelu ? std::abs(z) : 0.0;
    return e;
}

} // namespace mp::test
