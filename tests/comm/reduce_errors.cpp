// SPDX-License-Identifier: Apache-2.0
// How far sums over ranks are from the exact ones: in the orders and types offered here, and as collective libraries
// add, rounding to the wire's type at every hop. Gaussian gradients of 1e-3; the left half of the array has a
// mean of 1e-3 besides (they agree), the right half has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "comm/sum.hpp"
#include "comm/wire.hpp"
#include "numerics/fp16.hpp"
#include "numerics/fp8.hpp"
#include "rank_device.hpp"
#include "wire_formats.hpp"

namespace mp::test {
namespace {

constexpr int64_t kCount = 16384;

double uniform(uint64_t key) {
    return (static_cast<double>(numerics::splitmix64(key) >> 11) + 0.5) * 0x1p-53;
}

float gaussian(int32_t rank, int64_t i) {
    const auto key = 2 * (static_cast<uint64_t>(rank) * kCount + static_cast<uint64_t>(i));
    const double radius = std::sqrt(-2.0 * std::log(uniform(key)));
    const double z = radius * std::cos(6.283185307179586 * uniform(key + 1));
    return static_cast<float>(1e-3 * z + (i < kCount / 2 ? 1e-3 : 0.0));
}

// Of the halves, as the root of the mean square over that of the exact sums.
struct Errors {
    double left;
    double right;
};

class Ranks {
  public:
    Ranks(int32_t ranks, bool in_bf16) : stream_(make_stream()) {
        for (int32_t r = 0; r < ranks; ++r) {
            arrays_.emplace_back(in_bf16 ? DType::bf16 : DType::fp32, kCount);
            for (int64_t i = 0; i < kCount; ++i) {
                arrays_.back().set(i, gaussian(r, i));
            }
        }
        for (int64_t i = 0; i < kCount; ++i) {
            double sum = 0;
            for (const Values& array : arrays_) {
                sum += static_cast<double>(array.get(i));
            }
            exact_.push_back(sum);
        }
    }

    [[nodiscard]] Errors errors(const std::function<double(int64_t)>& sum) const {
        double error[2] = {};
        double size[2] = {};
        for (int64_t i = 0; i < kCount; ++i) {
            const int half = i < kCount / 2 ? 0 : 1;
            const double exact = exact_[static_cast<std::size_t>(i)];
            const double off = sum(i) - exact;
            error[half] += off * off;
            size[half] += exact * exact;
        }
        return {std::sqrt(error[0] / size[0]), std::sqrt(error[1] / size[1])};
    }

    // All contributions in the wire's form, added by rank in fp32, and what is published after.
    Errors all_to_all(const Format& wire, const Format& out) {
        std::vector<std::vector<char>> forms;
        std::vector<SumPart> parts;
        for (Values& array : arrays_) {
            forms.emplace_back(static_cast<std::size_t>(comm::wire_bytes(kCount, wire)));
            char* form = forms.back().data();
            comm::pack(*stream_, plain_array(array.ref()), 0, kCount, wire, form);
            const bool has_scale = wire.is_quantized();
            parts.push_back({form + comm::wire_scale_bytes(kCount, wire),
                             has_scale ? form : nullptr, wire.dtype, parts.empty() ? 0 : 1});
        }
        Values sum(DType::fp32, kCount);
        SumPartsDesc op{};
        op.count = kCount;
        op.grid = comm::wire_grid(wire);
        op.destination = sum.ref();
        comm::sum_parts(*stream_, parts, op);
        std::vector<char> published(static_cast<std::size_t>(comm::wire_bytes(kCount, out)));
        comm::pack(*stream_, plain_array(sum.ref()), 0, kCount, out, published.data());
        comm::unpack(*stream_, published.data(), kCount, out, sum.ref());
        return errors([&](int64_t i) { return static_cast<double>(sum.get(i)); });
    }

    // A ring of bf16: each rank adds its own and rounds.
    [[nodiscard]] Errors bf16_ring() const {
        return errors([&](int64_t i) {
            Values sum(DType::bf16, 1);
            sum.set(0, arrays_[0].get(i));
            for (std::size_t r = 1; r < arrays_.size(); ++r) {
                sum.set(0, sum.get(0) + arrays_[r].get(i));
            }
            return static_cast<double>(sum.get(0));
        });
    }

    [[nodiscard]] Errors bf16_tree() const {
        return errors([&](int64_t i) {
            std::vector<float> level;
            for (const Values& array : arrays_) {
                level.push_back(array.get(i));
            }
            Values one(DType::bf16, 1);
            for (; level.size() > 1; level.resize(level.size() / 2)) {
                for (std::size_t k = 0; k < level.size() / 2; ++k) {
                    one.set(0, level[2 * k] + level[2 * k + 1]);
                    level[k] = one.get(0);
                }
            }
            return static_cast<double>(level[0]);
        });
    }

    // A ring of E4M3 whose scale leaves `room` times the largest element.
    [[nodiscard]] Errors e4m3_ring(float room) const {
        float amax = 0.0F;
        for (const Values& array : arrays_) {
            for (int64_t i = 0; i < kCount; ++i) {
                amax = std::max(amax, std::fabs(array.get(i)));
            }
        }
        const float multiply = numerics::kE4m3Max / (amax * room);
        return errors([&](int64_t i) {
            uint8_t sum = numerics::float_to_e4m3_sat(arrays_[0].get(i) * multiply);
            for (std::size_t r = 1; r < arrays_.size(); ++r) {
                const uint8_t own = numerics::float_to_e4m3_sat(arrays_[r].get(i) * multiply);
                // As libraries of collectives do it: through fp16, rounded at every hop.
                const float hop = numerics::e4m3_to_float(sum) + numerics::e4m3_to_float(own);
                sum = numerics::float_to_e4m3_sat(
                    numerics::fp16_to_float(numerics::float_to_fp16(hop)));
            }
            return static_cast<double>(numerics::e4m3_to_float(sum) / multiply);
        });
    }

  private:
    std::shared_ptr<Stream> stream_;
    std::vector<Values> arrays_;
    std::vector<double> exact_;
};

void print(const Errors& found, const char* what) {
    std::printf("%-40s %.2e %.2e\n", what, found.left, found.right);
}

// Sums as they are here are no worse than the figure, which has two digits.
void at_most(const Errors& found, const Errors& figure, const char* what) {
    EXPECT_LE(found.left, 1.05 * figure.left) << what << ", left";
    EXPECT_LE(found.right, 1.05 * figure.right) << what << ", right";
    print(found, what);
}

// Other libraries' sums are as bad as the figure, or the comparison would prove nothing. Theirs hang on the largest
// element of all, and so on the draw.
void about(const Errors& found, const Errors& figure, const char* what) {
    EXPECT_NEAR(found.left, figure.left, 0.2 * figure.left) << what << ", left";
    EXPECT_NEAR(found.right, figure.right, 0.2 * figure.right) << what << ", right";
    print(found, what);
}

TEST(ReduceErrors, OfBf16) {
    Ranks eight(8, true);
    Ranks many(64, true);
    about(eight.bf16_ring(), {3.2e-3, 3.7e-3}, "bf16 ring, 8");
    about(many.bf16_ring(), {7.6e-3, 9.6e-3}, "bf16 ring, 64");
    about(eight.bf16_tree(), {2.6e-3, 3.1e-3}, "bf16 tree, 8");
    about(many.bf16_tree(), {2.8e-3, 4.2e-3}, "bf16 tree, 64");
    at_most(eight.all_to_all(kBf16, kBf16), {1.7e-3, 1.7e-3}, "bf16, fp32 sum, bf16 out, 8");
    at_most(many.all_to_all(kBf16, kBf16), {1.8e-3, 1.7e-3}, "bf16, fp32 sum, bf16 out, 64");
    const Errors kept = eight.all_to_all(kBf16, kFp32);
    EXPECT_LE(kept.left, 1e-9);
    EXPECT_LE(kept.right, 1e-9);
    const Errors kept_many = many.all_to_all(kBf16, kFp32);
    EXPECT_LE(kept_many.left, 1e-8);
    EXPECT_LE(kept_many.right, 1e-8);
}

TEST(ReduceErrors, OfFp8) {
    Ranks eight(8, false);
    Ranks many(64, false);
    about(eight.e4m3_ring(8.0F), {0.052, 0.063}, "e4m3 ring with room for 8");
    about(many.e4m3_ring(64.0F), {0.27, 0.15}, "e4m3 ring with room for 64");
    about(eight.e4m3_ring(1.0F), {0.47, 0.17}, "e4m3 ring, tight, 8");
    about(many.e4m3_ring(1.0F), {0.92, 0.74}, "e4m3 ring, tight, 64");
    at_most(eight.all_to_all(kBlocks, kBlocks), {0.029, 0.038}, "e4m3 blocks in and out, 8");
    at_most(many.all_to_all(kBlocks, kBlocks), {0.029, 0.038}, "e4m3 blocks in and out, 64");
    at_most(eight.all_to_all(kBlocks, kBf16), {0.012, 0.026}, "e4m3 blocks, bf16 out, 8");
    at_most(many.all_to_all(kBlocks, kBf16), {0.005, 0.026}, "e4m3 blocks, bf16 out, 64");
}

} // namespace
} // namespace mp::test
