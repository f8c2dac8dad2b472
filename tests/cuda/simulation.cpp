// SPDX-License-Identifier: Apache-2.0
// The host code of the CUDA module on a simulated device: what a real one would not show, such as
// copies made late and the context of the calling thread.
#include "simulation.hpp"

#include <initializer_list>
#include <nlohmann/json.hpp>

namespace mp::test {
namespace {

std::vector<unsigned char> pattern(std::size_t bytes, unsigned char seed) {
    std::vector<unsigned char> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        data[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
    }
    return data;
}

// ---- copies ------------------------------------------------------------------------------------

TEST_F(Simulation, UploadsLeaveTheSourceFree) {
    TestDevice on(backend(), 1);
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{65535}, std::size_t{65536}, std::size_t{65537},
          std::size_t{8} * 65536, std::size_t{8} * 65536 + 1, std::size_t{3} << 20}) {
        const std::vector<unsigned char> expected = pattern(bytes, 3);
        std::vector<unsigned char> source = expected;
        void* memory = nullptr;
        check(on.device().allocate(bytes, &memory));
        check(on.device().copy(on.queue(), memory, source.data(), bytes, CopyKind::host_to_device));
        std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));
        std::vector<unsigned char> result(bytes);
        check(on.device().copy(on.queue(), result.data(), memory, bytes, CopyKind::device_to_host));
        on.sync();
        EXPECT_EQ(result, expected) << bytes;
        on.device().release(memory, bytes);
    }
}

// A step uploads its learning rate every time: that must not wait for the step before.
TEST_F(Simulation, SmallUploadsDoNotWaitForTheStream) {
    TestDevice on(backend(), 1);
    constexpr std::size_t kBytes = 8 * 65536;
    void* memory = nullptr;
    check(on.device().allocate(kBytes, &memory));
    check(on.device().zero(on.queue(), memory, kBytes));
    const std::vector<unsigned char> source = pattern(kBytes, 5);
    const int64_t waits = control().waits;
    check(on.device().copy(on.queue(), memory, source.data(), kBytes, CopyKind::host_to_device));
    EXPECT_EQ(control().waits, waits);
    on.sync();
    EXPECT_GT(control().waits, waits);
    on.device().release(memory, kBytes);
}

// More copies than there are slots, each from the same memory.
TEST_F(Simulation, SlotsAreUsedAgainOnlyWhenTheyAreFree) {
    TestDevice on(backend(), 1);
    constexpr std::size_t kBytes = 5000;
    constexpr std::size_t kCopies = 100;
    void* memory = nullptr;
    check(on.device().allocate(kBytes * kCopies, &memory));
    for (std::size_t i = 0; i < kCopies; ++i) {
        const auto source = pattern(kBytes, static_cast<unsigned char>(i));
        check(on.device().copy(on.queue(), static_cast<char*>(memory) + i * kBytes, source.data(),
                               kBytes, CopyKind::host_to_device));
    }
    std::vector<unsigned char> result(kBytes * kCopies);
    check(on.device().copy(on.queue(), result.data(), memory, result.size(),
                           CopyKind::device_to_host));
    on.sync();
    for (std::size_t i = 0; i < kCopies; ++i) {
        const auto expected = pattern(kBytes, static_cast<unsigned char>(i));
        EXPECT_EQ(std::memcmp(result.data() + i * kBytes, expected.data(), kBytes), 0) << i;
    }
    on.device().release(memory, result.size());
}

// ---- streams, contexts, descriptions -----------------------------------------------------------

TEST_F(Simulation, ACallersStreamStaysTheCallers) {
    TestDevice on(backend(), 1);
    const int64_t streams = control().streams;
    Queue* wrapped = nullptr;
    check(on.device().create_queue(on.queue().native(), &wrapped));
    EXPECT_EQ(control().streams, streams);
    EXPECT_EQ(wrapped->native(), on.queue().native());
    void* memory = nullptr;
    check(on.device().allocate(16, &memory));
    check(on.device().zero(*wrapped, memory, 16));
    delete wrapped;
    EXPECT_EQ(control().streams, streams);
    on.sync();
    on.device().release(memory, 16);
}

// Whatever the calling thread had current, a context of its own or none.
TEST_F(Simulation, LeavesTheCurrentContextAsItWas) {
    auto* const get = symbol<CUcontext()>("mp_simulated_context");
    auto* const set = symbol<void(CUcontext)>("mp_simulated_set_context");
    int32_t other = 0;
    for (CUcontext mine : {CUcontext{nullptr}, reinterpret_cast<CUcontext>(&other)}) {
        set(mine);
        {
            TestDevice on(backend(), 1);
            EXPECT_EQ(get(), mine);
            GemmCase c = make_case({{5, 6, 7}});
            HostArray result;
            EXPECT_TRUE(gemm(on, on.device().candidates(OpKind::gemm).items[0], c, result));
            EXPECT_EQ(get(), mine);
        }
        EXPECT_EQ(get(), mine);
    }
    set(nullptr);
}

TEST_F(Simulation, DevicesKeepToTheirOwnContexts) {
    DeviceConfig config;
    config.device_index = 1;
    Device* second = nullptr;
    check(backend().open(config, &second));
    const std::unique_ptr<Device> owner(second);
    EXPECT_EQ(second->index(), 1);
    Queue* queue = nullptr;
    check(second->create_queue(nullptr, &queue));
    const std::unique_ptr<Queue> queue_owner(queue);
    const TestDevice first(backend(), 1);
    void* memory = nullptr;
    check(second->allocate(64, &memory));
    check(second->zero(*queue, memory, 64));
    first.sync();
    check(queue->sync());
    second->release(memory, 64);
}

TEST_F(Simulation, DevicesAreKnownBeforeTheyAreOpened) {
    DeviceSummary summary;
    check(backend().summarize(0, &summary));
    EXPECT_STREQ(summary.name, "Simulated \"GPU\" 0");
    EXPECT_EQ(summary.memory_bytes, 17179869184);
}

TEST_F(Simulation, TheDescriptionIsJson) {
    const TestDevice on(backend(), 1);
    const nlohmann::json description = nlohmann::json::parse(describe(on.device()));
    EXPECT_EQ(description.at("name"), "Simulated \"GPU\" 0");
    EXPECT_EQ(description.at("instruction_set"), "9.0");
    EXPECT_EQ(description.at("memory_bytes"), 17179869184);
    EXPECT_EQ(description.at("built_for"), "80 90 simulated");
    EXPECT_TRUE(description.contains("cublaslt"));
}

// ---- gemm --------------------------------------------------------------------------------------

// cuBLASLt says what it does not take; the next candidate takes it.
TEST_F(Simulation, CublasLtSaysWhatItDoesNotTake) {
    TestDevice on(backend(), 1);
    const CandidateList list = on.device().candidates(OpKind::gemm);
    ASSERT_EQ(list.count, 4);
    const auto reason = [&](const Options& options, int32_t candidate) {
        Reason text;
        const bool is_supported =
            list.items[candidate].supports(on.device(), make_case(options).desc, text);
        EXPECT_EQ(is_supported, text.empty());
        return std::string(text.c_str());
    };
    const Shape shape = {4, 5, 6};
    Options mixed = {shape, DType::fp32, DType::bf16};
    EXPECT_EQ(reason(mixed, 0), "no fp32 x fp32 into bf16");
    EXPECT_EQ(reason({{4, 5, 0}}, 0), "no empty products");
    for (const Options& options : {mixed, Options{{4, 5, 0}}}) {
        EXPECT_EQ(reason(options, 1), "fp8 x fp8 only, not " + std::string(dtype_name(options.in)) +
                                          " x " + dtype_name(options.in));
        EXPECT_EQ(reason(options, 2), "operands with scales or of fp8 only");
        EXPECT_EQ(reason(options, 3), "");
    }
    // 256 x 512 x 512, and one row more.
    EXPECT_EQ(reason({{{256, 512, 512}, DType::fp32, DType::bf16}}, 3), "");
    const Options large = {{{257, 512, 512}, DType::fp32, DType::bf16}};
    EXPECT_EQ(reason(large, 3), "it is slow, so at most 2^26 multiplications, not 6.74e+07, unless "
                                "it is asked for by its name");
    GemmDesc named = make_case(large).desc;
    named.is_chosen_by_name = true;
    Reason text;
    EXPECT_TRUE(list.items[3].supports(on.device(), named, text)) << text.c_str();
    EXPECT_EQ(reason({shape, DType::fp16, DType::fp32, DType::fp32}, 0), "");
}

// Weights and biases of fp32 beside activations of 16 bits are the usual mixture.
TEST_F(Simulation, ABiasOfAnotherTypeIsConverted) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[0];
    for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
        for (const DType bias : {DType::fp32, DType::bf16, DType::fp16}) {
            const Options o = {{{9, 20, 33}, out, out, bias}};
            const GemmCase c = make_case(o);
            HostArray result;
            ASSERT_TRUE(gemm(on, candidate, c, result)) << dtype_name(out) << dtype_name(bias);
            EXPECT_TRUE(within_bound(c, result, allowance_of(on, candidate, c.desc)));
            EXPECT_TRUE(padding_untouched(c, result));
        }
    }
}

// Where cuBLASLt has no algorithm for the rows as they lie, they are packed: odd rows with GELU in a batch, with C.
TEST_F(Simulation, WhatHasNoAlgorithmIsPacked) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[0];
    for (uint32_t bits = 0; bits < 16; ++bits) {
        Options o = {{{7, 13, 21}, DType::bf16, DType::bf16, DType::fp32}};
        o.trans_a = (bits & 1U) != 0;
        o.trans_b = (bits & 2U) != 0;
        o.beta = (bits & 4U) != 0 ? 0.5F : 0.0F;
        o.batch = (bits & 8U) != 0 ? 3 : 1;
        o.pad = 2;
        o.gelu = true;
        const GemmCase c = make_case(o);
        HostArray result;
        ASSERT_TRUE(gemm(on, candidate, c, result)) << bits;
        EXPECT_TRUE(within_bound(c, result, allowance_of(on, candidate, c.desc))) << bits;
        EXPECT_TRUE(padding_untouched(c, result)) << bits;
    }
}

// Rows and matrices of C at other distances than those of D.
TEST_F(Simulation, CHasAStrideOfItsOwn) {
    TestDevice on(backend(), 1);
    Options o;
    o.shape = {5, 7, 6};
    o.batch = 3;
    o.beta = 0.5F;
    GemmCase c = make_case(o);
    c.desc.ldc += 4;
    c.desc.batch_stride_c = c.desc.m * c.desc.ldc + 3;
    c.c = make_array(o.out, o.batch * c.desc.batch_stride_c, Content::normal, 45);
    HostArray result;
    ASSERT_TRUE(gemm(on, on.device().candidates(OpKind::gemm).items[0], c, result));
    EXPECT_TRUE(within_bound(c, result));
}

// One plan for buffers of every alignment, one after the other.
TEST_F(Simulation, APlanTakesBuffersOfAnyAlignment) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[0];
    Options o;
    o.shape = {7, 12, 9};
    o.in = o.out = o.bias = DType::bf16;
    o.gelu = true;
    const GemmCase c = make_case(o);
    Plan* plan = nullptr;
    check(candidate.prepare(on.device(), c.desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    for (const int64_t offset : {0, 96, 8, 1, 0}) { // DeviceArray begins 64 bytes past 256
        const DeviceArray a(on, c.a, offset);
        const DeviceArray b(on, c.b, offset);
        const DeviceArray bias(on, c.bias, offset);
        DeviceArray d(on, c.c, offset);
        check(candidate.run_plan(on.device(), on.queue(), *plan,
                                 {a.data(), b.data(), bias.data(), nullptr, d.data()}));
        EXPECT_TRUE(within_bound(c, d.download())) << offset;
    }
}

} // namespace
} // namespace mp::test
