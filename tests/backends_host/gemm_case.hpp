// SPDX-License-Identifier: Apache-2.0
// Matrix products over arrays that end where readable memory ends, and what their results must be.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "../gemm_bound.hpp"
#include "host/gemm/host_gemm.hpp"
#include "numerics/codec.hpp"

namespace mp::test {

// Bytes that end at a page nobody may touch: reading or writing behind them ends the test.
class GuardedBytes {
  public:
    explicit GuardedBytes(std::size_t bytes) : bytes_(bytes) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t whole = (bytes + page - 1) / page * page;
        mapped_ = whole + page;
        base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(base_, MAP_FAILED);
        EXPECT_EQ(mprotect(static_cast<char*>(base_) + whole, page, PROT_NONE), 0);
        data_ = static_cast<unsigned char*>(base_) + whole - bytes;
    }
    GuardedBytes(const GuardedBytes&) = delete;
    GuardedBytes& operator=(const GuardedBytes&) = delete;
    ~GuardedBytes() { (void)munmap(base_, mapped_); }

    [[nodiscard]] unsigned char* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return bytes_; }

  private:
    std::size_t bytes_;
    std::size_t mapped_ = 0;
    void* base_ = nullptr;
    unsigned char* data_ = nullptr;
};

struct GemmOptions : ProductOptions {
    bool c_is_d = true;
};

// Elements an operand spans.
inline int64_t extent(int64_t rows, int64_t columns, int64_t stride, int64_t batch,
                      int64_t batch_stride) {
    return rows == 0 || columns == 0 ? 0
                                     : (batch - 1) * batch_stride + (rows - 1) * stride + columns;
}

class GemmCase {
  public:
    explicit GemmCase(const GemmOptions& o, uint32_t seed = 1)
        : desc(make_desc(o)), options(o), a_(bytes(extent_a(), o.in)), b_(bytes(extent_b(), o.in)),
          bias_(bytes(o.bias == DType::none ? 0 : desc.n, o.bias)), c_(bytes(extent_d(), o.out)),
          d_(bytes(extent_d(), o.out)) {
        fill(a_, o.in, extent_a(), seed);
        fill(b_, o.in, extent_b(), seed + 1);
        fill(c_, o.out, extent_d(), seed + 2);
        fill(bias_, o.bias, o.bias == DType::none ? 0 : desc.n, seed + 3);
        reset();
    }

    // D starts as a copy of C.
    void reset() {
        if (d_.size() != 0) {
            std::memcpy(d_.data(), c_.data(), d_.size());
        }
    }
    [[nodiscard]] GemmBuffers buffers() const {
        GemmBuffers all;
        all.a = a_.data();
        all.b = b_.data();
        all.bias = desc.dtype_bias == DType::none ? nullptr : bias_.data();
        all.c = desc.beta == 0.0F ? nullptr : (options.c_is_d ? d_.data() : c_.data());
        all.d = d_.data();
        return all;
    }
    [[nodiscard]] std::vector<unsigned char> result() const {
        return {d_.data(), d_.data() + d_.size()};
    }

    [[nodiscard]] float a(int64_t batch, int64_t row, int64_t k) const {
        const int64_t in = desc.trans_a ? k * desc.lda + row : row * desc.lda + k;
        return numerics::load_as_float(desc.dtype_a, a_.data(), batch * desc.batch_stride_a + in);
    }
    [[nodiscard]] float b(int64_t batch, int64_t k, int64_t column) const {
        const int64_t in = desc.trans_b ? column * desc.ldb + k : k * desc.ldb + column;
        return numerics::load_as_float(desc.dtype_b, b_.data(), batch * desc.batch_stride_b + in);
    }
    [[nodiscard]] float bias(int64_t column) const {
        return desc.dtype_bias == DType::none
                   ? 0.0F
                   : numerics::load_as_float(desc.dtype_bias, bias_.data(), column);
    }
    [[nodiscard]] float c(int64_t batch, int64_t row, int64_t column) const {
        return numerics::load_as_float(desc.dtype_d, c_.data(), at_d(batch, row, column));
    }
    [[nodiscard]] float d(int64_t batch, int64_t row, int64_t column) const {
        return numerics::load_as_float(desc.dtype_d, d_.data(), at_d(batch, row, column));
    }

    // What lies between the rows of D is as it was.
    [[nodiscard]] ::testing::AssertionResult padding_untouched() const {
        const int64_t size = dtype_size(desc.dtype_d);
        for (int64_t i = 0; i < extent_d(); ++i) {
            const auto byte = static_cast<std::size_t>(i * size);
            if (i % desc.batch_stride_d % desc.ldd >= desc.n &&
                std::memcmp(d_.data() + byte, c_.data() + byte, static_cast<std::size_t>(size)) !=
                    0) {
                return ::testing::AssertionFailure()
                       << "element " << i << " between rows was written";
            }
        }
        return ::testing::AssertionSuccess();
    }

    GemmDesc desc;
    GemmOptions options;

  private:
    [[nodiscard]] int64_t extent_a() const {
        return extent(desc.trans_a ? desc.k : desc.m, desc.trans_a ? desc.m : desc.k, desc.lda,
                      desc.batch_count, desc.batch_stride_a);
    }
    [[nodiscard]] int64_t extent_b() const {
        return extent(desc.trans_b ? desc.n : desc.k, desc.trans_b ? desc.k : desc.n, desc.ldb,
                      desc.batch_count, desc.batch_stride_b);
    }
    [[nodiscard]] int64_t extent_d() const {
        return extent(desc.m, desc.n, desc.ldd, desc.batch_count, desc.batch_stride_d);
    }
    [[nodiscard]] int64_t at_d(int64_t batch, int64_t row, int64_t column) const {
        return batch * desc.batch_stride_d + row * desc.ldd + column;
    }
    static std::size_t bytes(int64_t count, DType dtype) {
        return static_cast<std::size_t>(count * dtype_size(dtype));
    }
    static void fill(const GuardedBytes& to, DType dtype, int64_t count, uint32_t seed) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> value(-1.0F, 1.0F);
        for (int64_t i = 0; i < count; ++i) {
            numerics::store_from_float(dtype, to.data(), i, value(random), false);
        }
    }

    GuardedBytes a_, b_, bias_, c_, d_;
};

// Every element of D against a scalar product in double.
inline ::testing::AssertionResult within_bound(const GemmCase& x) {
    const GemmDesc& d = x.desc;
    for (int64_t batch = 0; batch < d.batch_count; ++batch) {
        for (int64_t row = 0; row < d.m; ++row) {
            for (int64_t column = 0; column < d.n; ++column) {
                Sum sum;
                for (int64_t k = 0; k < d.k; ++k) {
                    sum.add(static_cast<double>(x.a(batch, row, k)) *
                            static_cast<double>(x.b(batch, k, column)));
                }
                const Expected e =
                    expect_element(d, sum, d.k, x.c(batch, row, column), x.bias(column));
                const double bound = e.rounded_bound(d.dtype_d);
                const auto got = static_cast<double>(x.d(batch, row, column));
                if (!(std::abs(got - e.value) <= bound)) {
                    return ::testing::AssertionFailure()
                           << "batch " << batch << " [" << row << ", " << column << "]: " << got
                           << " instead of " << e.value << " +- " << bound;
                }
            }
        }
    }
    return ::testing::AssertionSuccess();
}

} // namespace mp::test
