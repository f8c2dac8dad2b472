// SPDX-License-Identifier: Apache-2.0
// The hand-written kernels on the machine for blocks, with the arrays and comparisons of tests/backends.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "backends/harness.hpp"
#include "cuda/codes.hpp"
#include "cuda/lt_addend.hpp"
#include "machine/device.hpp"
#include "machine/machine.hpp"

namespace mp::blocks {

inline test::TestDevice& machine() {
    static test::TestDevice device(backend(), 1);
    return device;
}

inline const Candidate& kernel(OpKind kind) { return machine().device().candidates(kind).items[0]; }

// Fails the test if any launch since the last call had a fault. What they counted, in all.
inline Counters expect_no_fault() {
    Counters sum;
    for (const Report& report : take_reports()) {
        EXPECT_EQ(report.text(), "");
        sum.add(report.counters);
    }
    return sum;
}

// What a launch that failed has to say is said in the test that made it.
class BlocksTest : public ::testing::Test {
  protected:
    void TearDown() override { (void)expect_no_fault(); }
};

// Sizes around every border a kernel has: groups, warps, blocks, and the grid, which takes 65,536 elements in a turn.
inline constexpr int64_t kBlockSizes[] = {0, 1, 7, 8, 9, 255, 256, 257, 2048, 4097};
inline constexpr int64_t kSeveralTurns = 65536 + 2048 + 3;

// ---- one operation, on any device; source and destination begin `offset` elements past an aligned address ------

struct CastCase {
    DType from = DType::fp32;
    DType to = DType::bf16;
    int64_t count = 0;
    int64_t offset = 0;
    bool saturate = false;
    bool stochastic = false;
};

inline test::HostArray cast(test::TestDevice& on, const Candidate& candidate, const CastCase& c,
                            const test::HostArray& values) {
    const test::DeviceArray source(on, values, c.offset);
    test::DeviceArray destination(on, test::HostArray(c.to, c.count), c.offset);
    CastDesc op{};
    op.kind = OpKind::cast;
    op.source = source.ref();
    op.destination = destination.ref();
    op.saturate = c.saturate;
    op.rounding.stochastic = c.stochastic;
    op.rounding.seed = 0x123456789abcdefU;
    op.rounding.uid = 77;
    op.rounding.step = 0x300000002U;
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return destination.download();
}

inline float amax(test::TestDevice& on, const Candidate& candidate, const test::HostArray& values,
                  int64_t offset) {
    const test::DeviceArray source(on, values, offset);
    test::DeviceValue<float> result(on, -1.0F);
    AmaxDesc op{};
    op.kind = OpKind::amax;
    op.source = source.ref();
    op.result = result.data();
    EXPECT_TRUE(supports(on, candidate, op));
    run(on, candidate, op);
    return result.download();
}

struct CodesCase {
    int64_t rows = 0;
    int64_t columns = 0;
    bool transposed = false;
    int64_t gap = 0;    // codes between rows of the source
    int64_t offset = 0; // of the source from an aligned address
    int64_t more_rows = 0;

    [[nodiscard]] int64_t lines() const { return transposed ? columns : rows; } // of the source
    [[nodiscard]] int64_t stride() const { return (transposed ? rows : columns) + gap; }
    [[nodiscard]] int64_t padded_rows() const { return rows + more_rows; }
    [[nodiscard]] int64_t padded_columns() const { return (columns + 15) / 16 * 16; }
};

inline test::HostArray codes_source(const CodesCase& c) {
    return test::make_array(DType::fp8_e4m3, c.lines() * c.stride() - c.gap,
                            test::Content::patterns, 3);
}

// The codes in cuBLASLt's order.
inline test::HostArray arrange(const CodesCase& c, const test::HostArray& source) {
    const int64_t size = c.padded_rows() * c.padded_columns();
    const test::DeviceArray codes(machine(), source, c.offset);
    test::DeviceArray arranged(machine(), test::HostArray(DType::fp8_e4m3, size));
    use_array("codes", codes.data(), source.bytes.size(), Use::read);
    use_array("arranged", arranged.data(), static_cast<std::size_t>(size), Use::write);
    backends::cuda::CodesWork work;
    work.source = static_cast<const uint8_t*>(codes.data());
    work.stride = c.stride();
    work.transposed = c.transposed;
    work.rows = c.rows;
    work.columns = c.columns;
    work.destination = static_cast<uint8_t*>(arranged.data());
    work.padded_rows = c.padded_rows();
    work.padded_columns = c.padded_columns();
    check(backends::cuda::arrange_codes(
        static_cast<const backends::cuda::CudaDevice&>(machine().device()),
        static_cast<backends::cuda::CudaQueue&>(machine().queue()), work));
    return arranged.download();
}

struct AddendCase {
    int64_t rows = 0;
    int64_t columns = 0;
    float beta = 0.0F;
    int64_t gap = 0; // numbers between rows of C
    bool in_place = false;

    [[nodiscard]] int64_t c_stride() const { return columns + gap; }
    [[nodiscard]] int64_t padded_columns() const { return (columns + 15) / 16 * 16; }
    [[nodiscard]] int64_t d_stride() const { return in_place ? c_stride() : padded_columns(); }
};

inline test::HostArray addend_c(const AddendCase& c) {
    return test::make_array(DType::fp32, c.rows * c.c_stride(), test::Content::normal, 4);
}
inline test::HostArray addend_bias(const AddendCase& c) {
    return test::make_array(DType::fp32, c.padded_columns(), test::Content::normal, 5);
}

// beta * C + bias, before a product of fp8 codes.
inline test::HostArray addend(const AddendCase& c) {
    test::DeviceArray old(machine(), addend_c(c));
    const test::DeviceArray bias(machine(), addend_bias(c));
    test::DeviceArray apart(machine(), test::HostArray(DType::fp32, c.rows * c.d_stride()));
    const auto bytes = [](int64_t count) { return static_cast<std::size_t>(count) * 4; };
    use_array("bias", bias.data(), bytes(c.padded_columns()), Use::read);
    use_array("C", old.data(), bytes(c.rows * c.c_stride()), Use::read);
    use_array("D", apart.data(), bytes(c.rows * c.d_stride()), Use::write);
    backends::cuda::AddendWork work;
    work.bias = static_cast<const float*>(bias.data());
    work.c = static_cast<const float*>(old.data());
    work.c_stride = c.c_stride();
    work.beta = c.beta;
    work.rows = c.rows;
    work.columns = c.columns;
    work.d = static_cast<float*>(c.in_place ? old.data() : apart.data());
    work.d_stride = c.d_stride();
    work.padded_columns = c.padded_columns();
    check(backends::cuda::write_addend(
        static_cast<const backends::cuda::CudaDevice&>(machine().device()),
        static_cast<backends::cuda::CudaQueue&>(machine().queue()), work));
    return c.in_place ? old.download() : apart.download();
}

} // namespace mp::blocks
