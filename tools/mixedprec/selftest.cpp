// SPDX-License-Identifier: Apache-2.0
#include "selftest.hpp"

#include <cmath>
#include <cstring>

namespace command {
namespace {

using mixedprec::Tensor;

constexpr int64_t kSide = 64;

// Whole numbers from -4 to 4, which every type has; sums of 64 products of them are exact in fp32.
float small_number(int64_t i) { return static_cast<float>((i * 7 + i / 5) % 9 - 4); }

std::vector<float> numbers(int64_t count, int64_t begin) {
    std::vector<float> values(size(count));
    for (int64_t i = 0; i < count; i++) {
        values[size(i)] = small_number(begin + i);
    }
    return values;
}

Tensor in_type(const mixedprec::Context& device, const std::vector<float>& values, int32_t dtype) {
    Tensor exact = Tensor::from(device, values, {kSide, kSide});
    Tensor made = Tensor::create(device, dtype, {kSide, kSide});
    train::check(mp_tensor_cast(exact.get(), nullptr, made.get(), nullptr), "mp_tensor_cast");
    return made;
}

Check check_product(const mixedprec::Context& device, int32_t dtype) {
    const std::vector<float> a = numbers(kSide * kSide, 0), b = numbers(kSide * kSide, 3);
    mixedprec::GemmOptions options;
    options.m = options.n = options.k = kSide;
    options.dtype_a = options.dtype_b = dtype;
    options.dtype_d = MP_DTYPE_FP32;
    auto gemm = mixedprec::Gemm::create(device, options);
    const Tensor left = in_type(device, a, dtype), right = in_type(device, b, dtype);
    const Tensor made = Tensor::create(device, MP_DTYPE_FP32, {kSide, kSide});
    gemm.run(left, right, made);
    const auto got = made.to_vector<float>();
    int64_t wrong = 0;
    for (int64_t i = 0; i < kSide; i++) {
        for (int64_t j = 0; j < kSide; j++) {
            float sum = 0.0F;
            for (int64_t k = 0; k < kSide; k++) {
                sum += a[size(i * kSide + k)] * b[size(k * kSide + j)];
            }
            wrong += got[size(i * kSide + j)] != sum ? 1 : 0;
        }
    }
    return {join("product of ", mp_dtype_name(dtype)), wrong == 0,
            wrong == 0 ? "" : join(wrong, " of 4096 sums are wrong")};
}

// Every finite number of bf16 to fp32 and back.
Check check_cast(const mixedprec::Context& device) {
    std::vector<mixedprec::Bf16> all;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7F80U) != 0x7F80U) {
            all.push_back({static_cast<uint16_t>(bits)});
        }
    }
    const auto count = static_cast<int64_t>(all.size());
    const Tensor narrow = Tensor::from(device, all, {count});
    const Tensor wide = Tensor::create(device, MP_DTYPE_FP32, {count}),
                 again = Tensor::create(device, MP_DTYPE_BF16, {count});
    train::check(mp_tensor_cast(narrow.get(), nullptr, wide.get(), nullptr), "mp_tensor_cast");
    train::check(mp_tensor_cast(wide.get(), nullptr, again.get(), nullptr), "mp_tensor_cast");
    const auto got = again.to_vector<mixedprec::Bf16>();
    const auto values = wide.to_vector<float>();
    int64_t wrong = 0;
    for (size_t i = 0; i < all.size(); i++) {
        uint32_t bits = 0;
        std::memcpy(&bits, &values[i], sizeof bits);
        wrong += got[i].bits != all[i].bits || bits != uint32_t{all[i].bits} << 16U ? 1 : 0;
    }
    return {"casts of bf16", wrong == 0, wrong == 0 ? "" : join(wrong, " numbers are wrong")};
}

// The weight after three steps under a preset, exact.
std::vector<float> trained(const mixedprec::Context& device, const std::string& preset) {
    const auto recipe = mixedprec::Recipe::create(device, preset);
    auto optimizer = mixedprec::Optimizer::create(device, recipe);
    const int group = optimizer.add_group();
    const std::vector<float> values = numbers(kSide * kSide, 1);
    const Tensor weight = recipe.weight(device, {kSide, kSide}, values);
    mixedprec::ParamOptions options;
    options.group = group;
    const int index = optimizer.add_param("weight", weight, options);
    const Tensor source = Tensor::from(device, numbers(kSide * kSide, 5), {kSide, kSide});
    for (int step = 0; step < 3; step++) {
        const Tensor gradient = optimizer.grad(index);
        train::convert(source.get(), gradient.get());
        optimizer.step();
    }
    const Tensor end = Tensor::create(device, MP_DTYPE_FP32, {kSide, kSide});
    optimizer.read_state(index, "fp32_param", end);
    return end.to_vector<float>();
}

Check check_step(const mixedprec::Context& device, const mixedprec::Context& reference,
                 const std::string& preset) {
    const auto got = trained(device, preset), wanted = trained(reference, preset);
    const bool same = got.size() == wanted.size() &&
                      std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)) == 0;
    return {"steps of " + preset, same, same ? "" : "other bits than the scalar reference has"};
}

template <typename Call> void add(std::vector<Check>& checks, const std::string& name, Call call) {
    try {
        checks.push_back(call());
    } catch (const std::exception& error) {
        checks.push_back({name, false, error.what()});
    }
}

template <typename Call> Support tried(Call call) {
    try {
        return call();
    } catch (const std::exception& error) {
        return {"no", error.what()};
    }
}

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

} // namespace

std::vector<Check> self_test(const mixedprec::Context& device) {
    std::vector<Check> checks;
    for (const int32_t dtype :
         {MP_DTYPE_FP32, MP_DTYPE_FP16, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2}) {
        add(checks, join("product of ", mp_dtype_name(dtype)),
            [&] { return check_product(device, dtype); });
    }
    add(checks, "casts of bf16", [&] { return check_cast(device); });
    for (const char* preset : {"fp32", "bf16_mixed_dual", "bf16_pure_sr", "msamp_o2"}) {
        add(checks, join("steps of ", preset),
            [&] { return check_step(device, host_context(1, "reference"), preset); });
    }
    return checks;
}

Support product_support(const mixedprec::Context& device, int32_t dtype, bool scaled) {
    return tried([&]() -> Support {
        mixedprec::GemmOptions options;
        options.m = options.n = options.k = 256;
        options.dtype_a = options.dtype_b = dtype;
        const bool is_fp8 = mp_dtype_size(dtype) == 1;
        options.dtype_d = is_fp8 ? MP_DTYPE_BF16 : dtype;
        options.scale_a_dtype = options.scale_b_dtype = scaled ? MP_DTYPE_FP32 : MP_DTYPE_NONE;
        const std::string chosen = first_word(mixedprec::Gemm::create(device, options).describe());
        const std::string type = is_fp8 ? "fp8" : mp_dtype_name(dtype);
        if (chosen.find(type) != std::string::npos || (chosen == "cublaslt" && !is_fp8)) {
            return {"native", chosen};
        }
        const bool by_bf16 = chosen.find("bf16") != std::string::npos;
        return {"emulated",
                chosen + (by_bf16 ? ": operands become bf16" : ": operands become fp32")};
    });
}

Support cast_support(const mixedprec::Context& device, int32_t dtype) {
    return tried([&]() -> Support {
        const Tensor source = Tensor::create(device, MP_DTYPE_FP32, {kSide}),
                     made = Tensor::create(device, dtype, {kSide});
        train::check(mp_tensor_cast(source.get(), nullptr, made.get(), nullptr), "mp_tensor_cast");
        return {"yes", ""};
    });
}

Support quantize_support(const mixedprec::Context& device, int32_t dtype) {
    return tried([&]() -> Support {
        mixedprec::QuantOptions quant;
        quant.scaling = dtype == MP_DTYPE_FP4_E2M1 ? MP_SCALING_NVFP4 : MP_SCALING_TENSOR;
        quant.rule = dtype == MP_DTYPE_FP16 ? MP_SCALE_RULE_MSAMP : 0;
        const Tensor source = Tensor::create(device, MP_DTYPE_FP32, {kSide, kSide});
        const Tensor made = Tensor::create_quantized(device, dtype, {kSide, kSide}, quant);
        train::check(
            mp_tensor_quantize(source.get(), nullptr, made.get(), nullptr, nullptr, nullptr),
            "mp_tensor_quantize");
        return {"yes", ""};
    });
}

Support step_support(const mixedprec::Context& device, const std::string& preset) {
    return tried([&]() -> Support {
        trained(device, preset);
        return {"yes", preset};
    });
}

} // namespace command
