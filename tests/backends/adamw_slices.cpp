// SPDX-License-Identifier: Apache-2.0
// A parameter that is cut into slices of whole chunks, as ranks share it: each slice is updated as it would be in
// the whole, random bits included, and the norm's two halves give the bits of the norm in one.
#include <cstring>

#include "step_case.hpp"

namespace mp::test {
namespace {

HostArray slice_of(const HostArray& whole, int64_t begin, int64_t end) {
    if (whole.dtype == DType::none) {
        return {};
    }
    HostArray part(whole.dtype, end - begin);
    const auto size = static_cast<std::size_t>(dtype_size(whole.dtype));
    std::memcpy(part.bytes.data(), whole.bytes.data() + static_cast<std::size_t>(begin) * size,
                part.bytes.size());
    return part;
}

ParamArrays slice_of(const ParamArrays& whole, int64_t begin, int64_t end) {
    ParamArrays part = whole;
    for (HostArray ParamArrays::*array :
         {&ParamArrays::param, &ParamArrays::grad, &ParamArrays::exp_avg, &ParamArrays::exp_avg_sq,
          &ParamArrays::compensation, &ParamArrays::master}) {
        part.*array = slice_of(whole.*array, begin, end);
    }
    const auto scales_of = [&](const HostArray& scales, Coding coding) {
        const int64_t size = has_blocks(coding) ? block_size(coding) : 1;
        return slice_of(scales, begin / size, (end + size - 1) / size);
    };
    part.exp_avg_scales = scales_of(whole.exp_avg_scales, whole.exp_avg_coding);
    part.exp_avg_sq_scales = scales_of(whole.exp_avg_sq_scales, whole.exp_avg_sq_coding);
    part.first = begin;
    return part;
}

// Whole chunks, as ranks share a parameter; or others, as a caller of pointers may cut it.
std::vector<ParamArrays> slices_of(const ParamArrays& whole, int64_t a = kChunkElements,
                                   int64_t b = 3 * kChunkElements) {
    return {slice_of(whole, 0, a), slice_of(whole, a, b), slice_of(whole, b, whole.count())};
}

constexpr int64_t kCount = 3 * kChunkElements + 77;

class AdamwSlices : public AdamwStep {
  protected:
    void compare(const Layout& layout, uint32_t flags, int64_t a = kChunkElements,
                 int64_t b = 3 * kChunkElements) {
        StepCase whole = with_flags(flags);
        whole.params = {make_param(layout, kCount, Content::normal, 50 + flags)};
        StepCase cut = whole;
        cut.params = slices_of(whole.params[0], a, b);
        const std::vector<ParamArrays> expected = slices_of(step(whole)[0], a, b);
        const std::vector<ParamArrays> result = step(cut);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE("slice " + std::to_string(i) + ": " + describe(cut.params[i]));
            expect_same(expected[i], result[i]);
        }
    }
};

TEST_P(AdamwSlices, AreUpdatedAsInTheWhole) {
    Layout pure;
    pure.param = pure.grad = pure.exp_avg = pure.exp_avg_sq = DType::bf16;
    Layout kahan = pure;
    kahan.compensation = DType::bf16;
    Layout master;
    master.param = DType::bf16;
    master.master = DType::fp32;
    for (uint32_t flags = 0; flags < 8; ++flags) {
        compare(pure, flags);
        compare(kahan, flags);
        compare(master, flags);
        compare(pure, flags, kSliceUnit, 1000); // multiples of a block of random numbers
        compare(kahan, flags, 1000, kChunkElements + 5 * kSliceUnit);
    }
}

TEST_P(AdamwSlices, KeepTheirBlocks) {
    Layout blocks;
    blocks.exp_avg = blocks.exp_avg_sq = DType::uint8;
    blocks.exp_avg_coding = blocks.exp_avg_sq_coding = Coding::dynamic8;
    compare(blocks, 0);
    compare(blocks, 0, 256, 7 * 256);
}

MP_ALL_BACKENDS(AdamwSlices);

class NormOfSlices : public BackendTest {
  protected:
    // The chunks' sums of each slice by itself, put beside each other, then summed.
    double in_halves(const std::vector<ParamArrays>& slices) {
        std::vector<double> sums;
        for (const ParamArrays& slice : slices) {
            Launch launch(device(), {slice});
            const std::vector<double> own = run_stage(launch.table(), {}, launch.chunk_count());
            sums.insert(sums.end(), own.begin(), own.end());
        }
        (void)run_stage({}, sums, static_cast<int64_t>(sums.size()));
        return sum_squares_;
    }

    std::vector<double> run_stage(const SegmentTable& table, std::vector<double> sums,
                                  int64_t count) {
        GradStatsDesc op{};
        op.kind = OpKind::grad_stats;
        op.stage = sums.empty() ? StatsStage::chunks : StatsStage::tree;
        sums.resize(static_cast<std::size_t>(8), -1.0); // for four chunks
        DeviceBytes device_sums(device(), sums.data(), sums.size() * sizeof(double));
        DeviceValue<numerics::OptimizerState> state(device(), {});
        op.table = table;
        op.chunk_sums = device_sums.as<double>();
        op.sum_count = count;
        op.state = state.data();
        const Candidate& candidate = device().device().candidates(OpKind::grad_stats).items[0];
        EXPECT_TRUE(supports(device(), candidate, op));
        run(device(), candidate, op);
        sum_squares_ = state.download().sum_squares;
        device_sums.download(sums.data());
        sums.resize(static_cast<std::size_t>(count));
        return sums;
    }

    double sum_squares_ = 0.0;
};

TEST_P(NormOfSlices, HasTheBitsOfTheWhole) {
    Layout layout;
    layout.grad = DType::bf16;
    const ParamArrays whole = make_param(layout, kCount, Content::normal, 60);
    Launch launch(device(), {whole});
    std::vector<double> scratch(4, 0.0);
    DeviceBytes sums(device(), scratch.data(), scratch.size() * sizeof(double));
    DeviceValue<numerics::OptimizerState> state(device(), {});
    GradStatsDesc op{};
    op.kind = OpKind::grad_stats;
    op.table = launch.table();
    op.chunk_sums = sums.as<double>();
    op.state = state.data();
    run(device(), device().device().candidates(OpKind::grad_stats).items[0], op);
    EXPECT_EQ(numerics::bits_from_double(in_halves(slices_of(whole))),
              numerics::bits_from_double(state.download().sum_squares));
}

MP_ALL_BACKENDS(NormOfSlices);

} // namespace
} // namespace mp::test
