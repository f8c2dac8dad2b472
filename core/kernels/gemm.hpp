// SPDX-License-Identifier: Apache-2.0
// gemm as a Kokkos kernel: tiles of the product, sums in fp32. The fallback where no vendor library
// serves.
#pragma once

#include "device/gemm_scales.hpp"
#include "kernels/array.hpp"
#include "kernels/exec.hpp"

namespace mp::kernels {

// A team computes kSide x kSide elements from tiles of the operands in its scratch memory.
template <class Exec> struct GemmTeams {
    static constexpr int kSide = 16;
    static constexpr int kTileElements = kSide * kSide;
    static constexpr int kThreads = kTileElements;
    static constexpr std::size_t kScratch = 4 * kTileElements * sizeof(float);

    GemmDesc op;
    GemmBuffers buffers;
    int64_t row_tiles;
    int64_t column_tiles;

    // D. Hendrycks, K. Gimpel: "Gaussian error linear units", the tanh form; in double, rounded
    // once.
    static KOKKOS_INLINE_FUNCTION float gelu(float z) {
        constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
        const auto x = static_cast<double>(z);
        return static_cast<float>(
            0.5 * x * (1.0 + Kokkos::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x))));
    }

    // Matrices as stored: up to the last element of the last batch.
    KOKKOS_INLINE_FUNCTION TensorRef matrix(DType dtype, const void* data, int64_t rows,
                                            int64_t columns, int64_t leading,
                                            int64_t batch_stride) const {
        const int64_t count = (op.batch_count - 1) * batch_stride + (rows - 1) * leading + columns;
        return {const_cast<void*>(data), rows == 0 || columns == 0 ? 0 : count, dtype};
    }
    KOKKOS_INLINE_FUNCTION TensorRef a() const {
        return matrix(op.dtype_a, buffers.a, op.trans_a ? op.k : op.m, op.trans_a ? op.m : op.k,
                      op.lda, op.batch_stride_a);
    }
    KOKKOS_INLINE_FUNCTION TensorRef b() const {
        return matrix(op.dtype_b, buffers.b, op.trans_b ? op.n : op.k, op.trans_b ? op.k : op.n,
                      op.ldb, op.batch_stride_b);
    }
    KOKKOS_INLINE_FUNCTION TensorRef c() const {
        return matrix(op.dtype_d, buffers.c, op.m, op.n, op.ldc, op.batch_stride_c);
    }
    KOKKOS_INLINE_FUNCTION TensorRef d() const {
        return matrix(op.dtype_d, buffers.d, op.m, op.n, op.ldd, op.batch_stride_d);
    }
    KOKKOS_INLINE_FUNCTION TensorRef bias() const {
        return {const_cast<void*>(buffers.bias), op.n, op.dtype_bias};
    }

    // A tile of each operand: a by row and k, b by k and column; 0 beyond the edges.
    KOKKOS_INLINE_FUNCTION void load_a(const TeamOf<Exec>& team, float* tile, int64_t batch,
                                       int64_t first_row, int64_t first_k) const {
        visit_array(a(), [&](const auto& array) MP_INLINED {
            for_each_in_team(team, kTileElements, [&](int item) {
                const int64_t row = first_row + item / kSide;
                const int64_t k = first_k + item % kSide;
                const int64_t at = op.trans_a ? k * op.lda + row : row * op.lda + k;
                tile[item] = row < op.m && k < op.k ? array(batch * op.batch_stride_a + at) : 0.0F;
            });
        });
    }
    KOKKOS_INLINE_FUNCTION void load_b(const TeamOf<Exec>& team, float* tile, int64_t batch,
                                       int64_t first_k, int64_t first_column) const {
        visit_array(b(), [&](const auto& array) MP_INLINED {
            for_each_in_team(team, kTileElements, [&](int item) {
                const int64_t k = first_k + item / kSide;
                const int64_t column = first_column + item % kSide;
                const int64_t at = op.trans_b ? column * op.ldb + k : k * op.ldb + column;
                tile[item] =
                    column < op.n && k < op.k ? array(batch * op.batch_stride_b + at) : 0.0F;
            });
        });
    }

    KOKKOS_INLINE_FUNCTION void finish(int64_t batch, int64_t row, int64_t column,
                                       float sum) const {
        float z = op.alpha * sum;
        if (op.beta != 0.0F) {
            z += op.beta * load_element(c(), batch * op.batch_stride_c + row * op.ldc + column);
        }
        if (op.dtype_bias != DType::none) {
            z += load_element(bias(), column);
        }
        z = op.gelu ? gelu(z) : z;
        if (is_fp8(op.dtype_d)) {
            const uint32_t magnitude = numerics::bits_from_float(z) & numerics::kFloatMagnitudeMask;
            if (buffers.amax_d != nullptr) {
                Kokkos::atomic_max(reinterpret_cast<uint32_t*>(buffers.amax_d), magnitude);
            }
            z = before_fp8(z, buffers.multiply_d == nullptr ? 1.0F : *buffers.multiply_d,
                           op.dtype_d);
        }
        store_element(d(), batch * op.batch_stride_d + row * op.ldd + column, z);
    }

    KOKKOS_INLINE_FUNCTION float scaled(int64_t row, int64_t column, int64_t k, float sum) const {
        if (row >= op.m || column >= op.n) {
            return 0.0F;
        }
        return sum * scale_of_a(op, buffers.scale_a, row, k) *
               scale_of_b(op, buffers.scale_b, k, column);
    }

    // What an element has been given so far: inside a block of k, and in blocks that are scaled already.
    struct Sums {
        float block, total;
    };

    KOKKOS_INLINE_FUNCTION void multiply(const float* a, const float* b, int64_t row,
                                         int64_t column, int64_t first, int64_t block_k,
                                         Sums& sums) const {
        for (int k = 0; k < kSide; ++k) {
            sums.block += a[k] * b[k * kSide];
            const int64_t last = first + k;
            if (block_k != 0 && last < op.k && (last + 1 == op.k || (last + 1) % block_k == 0)) {
                sums.total += scaled(row, column, last, sums.block);
                sums.block = 0.0F;
            }
        }
    }

    KOKKOS_INLINE_FUNCTION void operator()(const TeamOf<Exec>& team) const {
        auto* tile_a = static_cast<float*>(team.team_shmem().get_shmem(std::size_t{kScratch}));
        float* tile_b = tile_a + kTileElements;
        auto* sums = reinterpret_cast<Sums*>(tile_b + kTileElements);
        const int64_t tile = team.league_rank();
        const int64_t first_row = tile % row_tiles * kSide;
        const int64_t first_column = tile / row_tiles % column_tiles * kSide;
        const int64_t batch = tile / row_tiles / column_tiles;
        const int64_t block_k = scale_block_k(op);
        for_each_in_team(team, kTileElements, [&](int item) { sums[item] = {0.0F, 0.0F}; });
        for (int64_t first = 0; first < op.k; first += kSide) {
            load_a(team, tile_a, batch, first_row, first);
            load_b(team, tile_b, batch, first, first_column);
            team.team_barrier();
            for_each_in_team(team, kTileElements, [&](int item) {
                const int x = item % kSide;
                const int y = item / kSide;
                Sums so_far = sums[item]; // in registers
                multiply(tile_a + y * kSide, tile_b + x, first_row + y, first_column + x, first,
                         block_k, so_far);
                sums[item] = so_far;
            });
            team.team_barrier();
        }
        for_each_in_team(team, kTileElements, [&](int item) {
            const int64_t row = first_row + item / kSide;
            const int64_t column = first_column + item % kSide;
            float total = sums[item].total;
            if (block_k == 0) {
                total =
                    has_scales(op) ? scaled(row, column, 0, sums[item].block) : sums[item].block;
            }
            if (row < op.m && column < op.n) {
                finish(batch, row, column, total);
            }
        });
    }
};

template <class Exec> void gemm(const Exec& exec, const GemmDesc& op, const GemmBuffers& buffers) {
    using Teams = GemmTeams<Exec>;
    const int64_t rows = divide_up(op.m, Teams::kSide);
    const int64_t columns = divide_up(op.n, Teams::kSide);
    for_each_team(exec, "mp::gemm", rows * columns * op.batch_count, Teams::kThreads,
                  Teams::kScratch, Teams{op, buffers, rows, columns});
}

} // namespace mp::kernels
