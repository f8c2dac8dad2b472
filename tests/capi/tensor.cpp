// SPDX-License-Identifier: Apache-2.0
// Tensors: shapes, borrowed memory, copies, casts. The bits of casts are checked in tests/numerics and
// tests/backends; here it is that the ABI asks for the right ones.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "support.hpp"

using namespace mp_test;

TEST(Tensor, IsZeroAndAligned) {
    const Context context = make_context();
    const Tensor tensor = make_tensor(context, MP_DTYPE_BF16, {3, 5, 7});
    void* data = nullptr;
    MP_OK(mp_tensor_get_data(tensor, &data));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    for (const unsigned char byte : bytes_of(tensor)) {
        ASSERT_EQ(byte, 0);
    }
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    MP_OK(mp_tensor_get_desc(tensor, &desc));
    EXPECT_EQ(desc.dtype, MP_DTYPE_BF16);
    EXPECT_EQ(desc.ndim, 3);
    EXPECT_EQ(desc.shape[2], 7);
    EXPECT_EQ(desc.device_kind, MP_DEVICE_HOST);
}

TEST(Tensor, EmptyAndScalarTensorsAreOrdinary) {
    const Context context = make_context();
    const Tensor empty = make_tensor(context, MP_DTYPE_FP32, {4, 0, 3});
    const Tensor scalar = make_tensor(context, MP_DTYPE_FP32, {});
    MP_OK(mp_tensor_zero(empty, nullptr));
    MP_OK(mp_tensor_read(empty, nullptr, nullptr, 0));
    EXPECT_EQ(bytes_of(scalar).size(), 4U);
}

TEST(Tensor, ImpossibleShapes) {
    const Context context = make_context();
    mp_tensor* tensor = nullptr;
    const auto create = [&](const mp_tensor_desc& desc) {
        return mp_tensor_create(context, &desc, &tensor);
    };
    MP_FAILS(create(tensor_desc(MP_DTYPE_FP32, {2, -1})), MP_STATUS_INVALID_SHAPE, "shape[1]",
             "-1");
    MP_FAILS(create(tensor_desc(MP_DTYPE_FP32, {INT64_MAX, INT64_MAX})), MP_STATUS_INVALID_SHAPE,
             "2^62");
    MP_FAILS(create(tensor_desc(MP_DTYPE_FP32, {INT64_MAX, 4})), MP_STATUS_INVALID_SHAPE, "2^62");
    MP_FAILS(create(tensor_desc(MP_DTYPE_FP32, {int64_t{1} << 50})), MP_STATUS_OUT_OF_MEMORY,
             "bytes");
    MP_FAILS(create(tensor_desc(77, {2})), MP_STATUS_INVALID_DTYPE, "77");
    MP_FAILS(create(tensor_desc(0, {2})), MP_STATUS_INVALID_DTYPE, "dtype");
    MP_FAILS(create(tensor_desc(MP_DTYPE_FP4_E2M1, {2})), MP_STATUS_UNSUPPORTED, "fp4_e2m1");
    mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {1});
    desc.ndim = 9;
    MP_FAILS(create(desc), MP_STATUS_INVALID_SHAPE, "ndim", "9");
    desc = tensor_desc(MP_DTYPE_FP32, {1});
    desc.device_kind = MP_DEVICE_CUDA;
    MP_FAILS(create(desc), MP_STATUS_INVALID_ARGUMENT, "CUDA device 0 is not open");
    desc.device_kind = 77;
    MP_FAILS(create(desc), MP_STATUS_INVALID_ARGUMENT, "device_kind is 77");
    EXPECT_EQ(tensor, nullptr);
}

TEST(Tensor, BorrowedMemoryIsUsedInPlaceAndReleasedOnce) {
    const Context context = make_context();
    float memory[6] = {1, 2, 3, 4, 5, 6};
    int released = 0;
    const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {2, 3});
    mp_tensor* raw = nullptr;
    MP_OK(mp_tensor_wrap(
        context, &desc, memory, [](void* count) { ++*static_cast<int*>(count); }, &released, &raw));
    void* data = nullptr;
    MP_OK(mp_tensor_get_data(raw, &data));
    EXPECT_EQ(data, memory);
    MP_OK(mp_tensor_zero(raw, nullptr));
    EXPECT_EQ(memory[5], 0.0F);
    EXPECT_EQ(released, 0);
    mp_tensor_destroy(raw);
    EXPECT_EQ(released, 1);
}

TEST(Tensor, BadBorrowedMemoryStaysTheCallers) {
    const Context context = make_context();
    alignas(8) char memory[16] = {};
    int released = 0;
    const auto deleter = [](void* count) { ++*static_cast<int*>(count); };
    const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {2});
    mp_tensor* raw = nullptr;
    MP_FAILS(mp_tensor_wrap(context, &desc, memory + 1, deleter, &released, &raw),
             MP_STATUS_INVALID_ARGUMENT, "aligned");
    MP_FAILS(mp_tensor_wrap(context, &desc, nullptr, deleter, &released, &raw),
             MP_STATUS_NULL_ARGUMENT, "data");
    EXPECT_EQ(released, 0);
}

TEST(Tensor, CopyWantsTheSameTypeAndCountAndNoOverlap) {
    const Context context = make_context();
    const std::vector<float> values = numbers(12, 1);
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {3, 4}, values);
    const Tensor target = make_tensor(context, MP_DTYPE_FP32, {12});
    MP_OK(mp_tensor_copy(source, nullptr, target));
    EXPECT_EQ(values_of(context, target), values);
    const Tensor narrow = make_tensor(context, MP_DTYPE_BF16, {12});
    MP_FAILS(mp_tensor_copy(source, nullptr, narrow), MP_STATUS_INVALID_DTYPE, "fp32", "bf16",
             "mp_tensor_cast");
    const Tensor small = make_tensor(context, MP_DTYPE_FP32, {11});
    MP_FAILS(mp_tensor_copy(source, nullptr, small), MP_STATUS_INVALID_SHAPE, "[3, 4]", "[11]");
    MP_FAILS(mp_tensor_copy(source, nullptr, source), MP_STATUS_INVALID_ARGUMENT, "overlap");
    MP_FAILS(mp_tensor_write(source, nullptr, values.data(), 4), MP_STATUS_INVALID_SHAPE, "48");
}

TEST(Cast, RoundsSaturatesAndKeepsNaN) {
    const Context context = make_context();
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> values = {1.00390625F, 1e6F, -inf,
                                       std::numeric_limits<float>::quiet_NaN(), 1e-7F};
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {5}, values);
    const Tensor bf16 = make_tensor(context, MP_DTYPE_BF16, {5});
    MP_OK(mp_tensor_cast(source, nullptr, bf16, nullptr));
    std::vector<float> got = values_of(context, bf16);
    EXPECT_EQ(got[0], 1.0F); // a tie goes to even
    EXPECT_EQ(got[2], -inf);
    EXPECT_TRUE(std::isnan(got[3]));

    const Tensor e4m3 = make_tensor(context, MP_DTYPE_FP8_E4M3, {5});
    MP_OK(mp_tensor_cast(source, nullptr, e4m3, nullptr));
    got = values_of(context, e4m3);
    EXPECT_EQ(got[1], 448.0F);
    EXPECT_EQ(got[2], -448.0F);
    EXPECT_TRUE(std::isnan(got[3]));

    mp_cast_desc desc = MP_CAST_DESC_INIT;
    desc.flags = MP_CAST_NO_SATURATE;
    MP_OK(mp_tensor_cast(source, nullptr, e4m3, &desc));
    EXPECT_TRUE(std::isnan(values_of(context, e4m3)[1]));

    const Tensor fp16 = make_tensor(context, MP_DTYPE_FP16, {5});
    MP_OK(mp_tensor_cast(source, nullptr, fp16, nullptr));
    EXPECT_EQ(values_of(context, fp16)[1], inf);
    desc.flags = MP_CAST_SATURATE;
    MP_OK(mp_tensor_cast(source, nullptr, fp16, &desc));
    EXPECT_EQ(values_of(context, fp16)[1], 65504.0F);
}

TEST(Cast, StochasticRoundingDependsOnSeedOnlyAndIsUnbiased) {
    constexpr std::size_t kCount = 100003;
    const std::vector<float> values(kCount, 1.001F);
    std::vector<unsigned char> first;
    for (const int32_t threads : {1, 2, 3}) {
        const Context context = make_context(threads);
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, {kCount}, values);
        const Tensor target = make_tensor(context, MP_DTYPE_BF16, {kCount});
        mp_cast_desc desc = MP_CAST_DESC_INIT;
        desc.rounding = MP_ROUND_STOCHASTIC;
        desc.seed = 42;
        desc.uid = 7;
        desc.step = 3;
        MP_OK(mp_tensor_cast(source, nullptr, target, &desc));
        if (first.empty()) {
            first = bytes_of(target);
            double mean = 0.0;
            for (const float value : values_of(context, target)) {
                mean += static_cast<double>(value) / kCount;
            }
            // one unit in the last place is 2^-7, rounded up with probability q: five sigma of the mean
            const double q = (1.001F - 1.0) / 0x1p-7;
            EXPECT_NEAR(mean, static_cast<double>(1.001F),
                        5 * 0x1p-7 * std::sqrt(q * (1 - q) / kCount));
            desc.step = 4;
            MP_OK(mp_tensor_cast(source, nullptr, target, &desc));
            EXPECT_NE(bytes_of(target), first);
        } else {
            EXPECT_EQ(bytes_of(target), first) << threads << " threads";
        }
    }
}

// A sum over micro-batches that is rounded each time: fresh bits average out, the same ones add up.
TEST(Cast, EveryMicrobatchHasBitsOfItsOwn) {
    constexpr std::size_t kCount = 4096;
    constexpr int32_t kMicrobatches = 32;
    const Context context = make_context();
    const Tensor sum = make_tensor(context, MP_DTYPE_BF16, {kCount});
    const std::vector<float> part = numbers(kCount, 8);
    const auto rms_error = [&](bool fresh) {
        std::vector<float> kept(kCount);
        mp_cast_desc desc = MP_CAST_DESC_INIT;
        desc.rounding = MP_ROUND_STOCHASTIC;
        desc.seed = 1;
        desc.step = 5;
        for (int32_t i = 0; i < kMicrobatches; ++i) {
            for (std::size_t k = 0; k < kCount; ++k) {
                kept[k] += part[k];
            }
            desc.microbatch = fresh ? i : 0;
            const Tensor wide = make_tensor(context, MP_DTYPE_FP32, {kCount}, kept);
            EXPECT_TRUE(succeeded(mp_tensor_cast(wide, nullptr, sum, &desc)));
            kept = values_of(context, sum);
        }
        double squares = 0.0;
        for (std::size_t k = 0; k < kCount; ++k) {
            const double exact = kMicrobatches * static_cast<double>(part[k]);
            const double error = exact != 0.0 ? static_cast<double>(kept[k]) / exact - 1.0 : 0.0;
            squares += error * error;
        }
        return std::sqrt(squares / kCount);
    };
    const double fresh = rms_error(true);
    const double same = rms_error(false);
    EXPECT_GT(fresh, 0.0);
    EXPECT_GT(same, 2.0 * fresh);
}

TEST(Cast, MicrobatchesAndStepsHaveTheirRange) {
    const Context context = make_context();
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {4});
    const Tensor target = make_tensor(context, MP_DTYPE_BF16, {4});
    mp_cast_desc desc = MP_CAST_DESC_INIT;
    desc.microbatch = 65535;
    desc.step = (uint64_t{1} << 48) - 1;
    MP_OK(mp_tensor_cast(source, nullptr, target, &desc));
    desc.step += 1;
    MP_FAILS(mp_tensor_cast(source, nullptr, target, &desc), MP_STATUS_INVALID_ARGUMENT, "2^48");
    desc.step = 0;
    desc.microbatch = 65536;
    MP_FAILS(mp_tensor_cast(source, nullptr, target, &desc), MP_STATUS_INVALID_ARGUMENT, "65536");
    desc.microbatch = -1;
    MP_FAILS(mp_tensor_cast(source, nullptr, target, &desc), MP_STATUS_INVALID_ARGUMENT, "-1");
}

TEST(Cast, RefusesWhatItCannotConvert) {
    const Context context = make_context();
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {4});
    const Tensor integers = make_tensor(context, MP_DTYPE_INT32, {4});
    MP_FAILS(mp_tensor_cast(source, nullptr, integers, nullptr), MP_STATUS_INVALID_DTYPE, "int32");
    const Tensor target = make_tensor(context, MP_DTYPE_BF16, {4});
    mp_cast_desc desc = MP_CAST_DESC_INIT;
    desc.rounding = 5;
    MP_FAILS(mp_tensor_cast(source, nullptr, target, &desc), MP_STATUS_INVALID_ARGUMENT,
             "rounding");
    desc.rounding = 0;
    desc.flags = MP_CAST_SATURATE | MP_CAST_NO_SATURATE;
    MP_FAILS(mp_tensor_cast(source, nullptr, target, &desc), MP_STATUS_INVALID_ARGUMENT, "exclude");
}

TEST(Amax, NaNBeatsInfinityBeatsNumbers) {
    const Context context = make_context();
    std::vector<float> values = numbers(70001, 5);
    values[69999] = -3.5F;
    const Tensor amax = make_tensor(context, MP_DTYPE_FP32, {1});
    const auto amax_of = [&] {
        const Tensor source = make_tensor(context, MP_DTYPE_FP32, {70001}, values);
        EXPECT_TRUE(succeeded(mp_tensor_amax(source, nullptr, amax)));
        return values_of(context, amax)[0];
    };
    EXPECT_EQ(amax_of(), 3.5F);
    values[3] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(amax_of(), std::numeric_limits<float>::infinity());
    values[70000] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(amax_of()));
    const Tensor empty = make_tensor(context, MP_DTYPE_FP32, {0});
    MP_OK(mp_tensor_amax(empty, nullptr, amax));
    EXPECT_EQ(values_of(context, amax)[0], 0.0F);
    const Tensor pair = make_tensor(context, MP_DTYPE_FP32, {2});
    MP_FAILS(mp_tensor_amax(empty, nullptr, pair), MP_STATUS_INVALID_SHAPE, "one fp32");
}

// Each way to leave the range has its result, however the rounding is chosen.
TEST(Tensor, StochasticCastsSaturateOnlyWhereAskedTo) {
    const Context context = make_context();
    const std::vector<float> values = {1e6F, -1e6F, INFINITY, -INFINITY, 1.0F};
    const Tensor source = make_tensor(context, MP_DTYPE_FP32, {5}, values);
    mp_cast_desc cast = MP_CAST_DESC_INIT;
    cast.rounding = MP_ROUND_STOCHASTIC;
    const auto codes = [&](int32_t dtype) {
        const Tensor destination = make_tensor(context, dtype, {5});
        EXPECT_TRUE(succeeded(mp_tensor_cast(source, nullptr, destination, &cast)));
        return bytes_of(destination);
    };
    using Codes = std::vector<unsigned char>;
    EXPECT_EQ(codes(MP_DTYPE_FP8_E4M3), (Codes{0x7e, 0xfe, 0x7e, 0xfe, 0x38}));
    EXPECT_EQ(codes(MP_DTYPE_FP8_E5M2), (Codes{0x7b, 0xfb, 0x7b, 0xfb, 0x3c}));
    cast.flags = MP_CAST_NO_SATURATE;
    EXPECT_EQ(codes(MP_DTYPE_FP8_E4M3), (Codes{0x7f, 0xff, 0x7f, 0xff, 0x38}));
    EXPECT_EQ(codes(MP_DTYPE_FP8_E5M2), (Codes{0x7c, 0xfc, 0x7c, 0xfc, 0x3c}));
}

// mp_tensor_destroy is class A: a call under way on another thread ends in peace, and the memory goes after it.
TEST(Tensor, MayBeDestroyedWhileAnotherThreadUsesIt) {
    const Context context = make_context();
    const Tensor destination = make_tensor(context, MP_DTYPE_BF16, {4096});
    const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {4096});
    for (int round = 0; round < 300; ++round) {
        auto* memory = new std::vector<float>(4096, 1.0F);
        mp_tensor* source = nullptr;
        MP_OK(mp_tensor_wrap(
            context, &desc, memory->data(),
            [](void* owned) {
                auto* data = static_cast<std::vector<float>*>(owned);
                std::fill(data->begin(), data->end(), 2.0F); // a late reader would see it
                delete data;
            },
            memory, &source));
        std::atomic<bool> started{false};
        std::thread user([&] {
            mp_status status = MP_STATUS_OK;
            while (status == MP_STATUS_OK) {
                status = mp_tensor_cast(source, nullptr, destination, nullptr);
                started = true;
            }
            EXPECT_EQ(status, MP_STATUS_INVALID_HANDLE);
        });
        while (!started) {
            std::this_thread::yield();
        }
        mp_tensor_destroy(source);
        user.join();
    }
    for (const float x : values_of(context, destination)) {
        ASSERT_EQ(x, 1.0F);
    }
}

TEST(Cast, OnPointersHasTheSameBits) {
    const Context context = make_context();
    constexpr int64_t kCount = 1000;
    const std::vector<float> values = numbers(kCount, 9);
    for (const int32_t dtype : {MP_DTYPE_BF16, MP_DTYPE_FP16, MP_DTYPE_FP8_E4M3}) {
        for (const int32_t rounding : {MP_ROUND_NEAREST, MP_ROUND_STOCHASTIC}) {
            mp_cast_desc desc = MP_CAST_DESC_INIT;
            desc.rounding = rounding;
            desc.seed = 5;
            desc.step = 3;
            const Tensor source = make_tensor(context, MP_DTYPE_FP32, {kCount}, values);
            const Tensor result = make_tensor(context, dtype, {kCount});
            MP_OK(mp_tensor_cast(source, nullptr, result, &desc));
            std::vector<unsigned char> codes(kCount * mp_dtype_size(dtype));
            MP_OK(mp_tensor_cast_pointers(context, nullptr, values.data(), MP_DTYPE_FP32,
                                          codes.data(), dtype, kCount, &desc));
            EXPECT_EQ(codes, bytes_of(result)) << dtype << ' ' << rounding;
        }
    }
    std::vector<uint16_t> narrow(kCount);
    const auto cast = [&](const void* source, int32_t source_dtype, void* destination,
                          int64_t count) {
        return mp_tensor_cast_pointers(context, nullptr, source, source_dtype, destination,
                                       MP_DTYPE_BF16, count, nullptr);
    };
    MP_OK(cast(nullptr, MP_DTYPE_FP32, nullptr, 0));
    MP_FAILS(cast(nullptr, MP_DTYPE_FP32, narrow.data(), 8), MP_STATUS_NULL_ARGUMENT, "source");
    MP_FAILS(cast(values.data(), MP_DTYPE_FP32, nullptr, 8), MP_STATUS_NULL_ARGUMENT,
             "destination");
    MP_FAILS(cast(values.data(), MP_DTYPE_INT8, narrow.data(), 8), MP_STATUS_INVALID_DTYPE,
             "source", "int8");
    MP_FAILS(cast(values.data(), 99, narrow.data(), 8), MP_STATUS_INVALID_DTYPE, "99");
    MP_FAILS(cast(values.data(), MP_DTYPE_FP32, narrow.data(), -1), MP_STATUS_INVALID_SHAPE, "-1");
    MP_FAILS(
        cast(reinterpret_cast<const char*>(values.data()) + 1, MP_DTYPE_FP32, narrow.data(), 8),
        MP_STATUS_INVALID_ARGUMENT, "aligned");
    MP_FAILS(cast(narrow.data(), MP_DTYPE_FP16, narrow.data() + 4, 8), MP_STATUS_INVALID_ARGUMENT,
             "overlap");
}
