// SPDX-License-Identifier: Apache-2.0
// Adapters with a magnitude (DoRA): the ways of a pass, what is refused; and merging weights.
#include <cmath>
#include <filesystem>

#include "adapters.hpp"
#include "coded.hpp"
#include "training.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

struct Dora : Model {
    Lora lora;
    Tensor m, dm;

    explicit Dora(const char* recipe_name, const char* backend = nullptr)
        : Model(recipe_name, backend), lora(context, layer, recipe, 24.0, 10),
          m(make_tensor(context, MP_DTYPE_FP32, {kOut}, numbers(kOut, 11))),
          dm(make_tensor(context, MP_DTYPE_FP32, {kOut})) {
        EXPECT_TRUE(succeeded(mp_adapter_set_magnitude(lora.adapter, m, dm)));
    }
    [[nodiscard]] std::vector<Bytes> all() const {
        const Outcome rest = outcome(lora);
        return {rest.y, rest.dx, rest.da, rest.db, bytes_of(dm)};
    }
};

std::vector<float> merged(mp_context* context, mp_linear* layer) {
    const Tensor target = make_tensor(context, MP_DTYPE_FP32, {kOut, kIn});
    EXPECT_TRUE(succeeded(mp_linear_merge_adapters(layer, nullptr, 0, target, 0, nullptr)));
    return values_of(context, target);
}

} // namespace

TEST(AdapterMagnitude, AllWaysHaveTheSameBits) {
    for (const char* const recipe : {"fp32", "bf16_mixed", "fp8_delayed"}) {
        SCOPED_TRACE(recipe);
        const Dora simple(recipe), halves(recipe), saved(recipe), again(recipe);
        (void)simple.pass(simple.lora);
        const std::vector<Bytes> expected = simple.all();
        MP_OK(mp_linear_forward(halves.layer, nullptr, halves.x, halves.y));
        MP_OK(mp_linear_backward_data(halves.layer, nullptr, halves.dy, halves.dx));
        EXPECT_TRUE(
            done(mp_linear_backward_weight(halves.layer, nullptr, halves.dy, nullptr, nullptr, 0)));
        EXPECT_EQ(halves.all(), expected);
        const Saved place = make_saved(saved.layer), other = make_saved(again.layer);
        (void)saved.pass(saved.lora, place);
        EXPECT_EQ(saved.all(), expected);
        MP_OK(mp_linear_forward_saved(again.layer, nullptr, again.x, again.y, other,
                                      MP_FORWARD_DROP));
        MP_FAILS(mp_linear_backward_saved(again.layer, nullptr, other, again.dy, again.dx, nullptr,
                                          nullptr, 0),
                 MP_STATUS_BAD_STATE, "forward");
        MP_OK(mp_linear_forward_saved(again.layer, nullptr, again.x, nullptr, other,
                                      MP_FORWARD_RECOMPUTE));
        EXPECT_TRUE(done(mp_linear_backward_saved(again.layer, nullptr, other, again.dy, again.dx,
                                                  nullptr, nullptr, 0)));
        EXPECT_EQ(again.all(), expected);
    }
}

// The norms of the rows of the merged weight make it what it was.
TEST(AdapterMagnitude, BeginsAsTheLayerWithout) {
    for (const char* backend : kHostBackends) {
        SCOPED_TRACE(backend);
        const Dora model("fp32", backend);
        MP_OK(mp_adapter_set_magnitude(model.lora.adapter, nullptr, nullptr));
        MP_FAILS(mp_adapter_init_magnitude(model.lora.adapter, nullptr), MP_STATUS_BAD_STATE,
                 "mp_adapter_set_magnitude");
        MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
        const std::vector<float> before = values_of(model.context, model.y);
        const std::vector<float> weight = merged(model.context, model.layer);
        MP_OK(mp_adapter_set_magnitude(model.lora.adapter, model.m, model.dm));
        MP_OK(mp_adapter_init_magnitude(model.lora.adapter, nullptr));
        const std::vector<float> norms = values_of(model.context, model.m);
        for (std::size_t row = 0; row < norms.size(); ++row) {
            double sum = 0;
            for (std::size_t i = 0; i < kIn; ++i) {
                const auto value = static_cast<double>(weight[row * kIn + i]);
                sum += value * value;
            }
            EXPECT_NEAR(static_cast<double>(norms[row]), std::sqrt(sum), 1e-6);
        }
        MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
        const std::vector<float> after = values_of(model.context, model.y);
        for (std::size_t i = 0; i < before.size(); ++i) {
            EXPECT_NEAR(after[i], before[i], 2e-5F);
        }
    }
}

TEST(AdapterMagnitude, IsAloneAndRefusesTheRest) {
    const Dora model("fp32");
    const Lora other(model.context, model.layer, model.recipe, 8.0, 40, "other");
    MP_FAILS(mp_linear_forward(model.layer, nullptr, model.x, model.y), MP_STATUS_UNSUPPORTED,
             "mp_adapter_set_active");
    MP_OK(mp_adapter_set_active(other.adapter, 0));
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    MP_FAILS(mp_adapter_set_magnitude(model.lora.adapter, nullptr, model.dm),
             MP_STATUS_INVALID_ARGUMENT, "without magnitude");
    MP_FAILS(mp_adapter_set_magnitude(model.lora.adapter, model.x, nullptr),
             MP_STATUS_INVALID_SHAPE, "magnitude is");
    const Tensor over = wrap_tensor(model.context, MP_DTYPE_FP32, {kOut}, data_of(model.m));
    MP_OK(mp_adapter_set_magnitude(model.lora.adapter, model.m, over));
    MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
    MP_FAILS(mp_linear_backward(model.layer, nullptr, model.dy, model.dx, nullptr, nullptr, 0),
             MP_STATUS_INVALID_ARGUMENT, "magnitude's gradient");
}

// The merged weight computes what layer and adapters do; by slices it is the same; over codes too.
TEST(AdapterMerge, IsWhatTheLayerComputes) {
    for (const bool has_magnitude : {false, true}) {
        SCOPED_TRACE(has_magnitude ? "DoRA" : "LoRA");
        const Dora model("fp32");
        if (!has_magnitude) {
            MP_OK(mp_adapter_set_magnitude(model.lora.adapter, nullptr, nullptr));
        }
        MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
        const std::vector<float> y = values_of(model.context, model.y);
        const std::vector<float> whole = merged(model.context, model.layer);
        for (const int64_t rows : {1, 7, 16}) {
            std::vector<float> pieces;
            for (int64_t first = 0; first < kOut; first += rows) {
                const Tensor part =
                    make_tensor(model.context, MP_DTYPE_FP32, {std::min(rows, kOut - first), kIn});
                MP_OK(mp_linear_merge_adapters(model.layer, nullptr, first, part, 0, nullptr));
                const std::vector<float> values = values_of(model.context, part);
                pieces.insert(pieces.end(), values.begin(), values.end());
            }
            for (std::size_t i = 0; i < whole.size(); ++i) {
                EXPECT_NEAR(pieces[i], whole[i], 1e-6F); // products of few rows may sum otherwise
            }
        }
        mp_merge_report report = MP_MERGE_REPORT_INIT;
        MP_OK(mp_linear_merge_adapters(model.layer, nullptr, 0, model.w, 0, &report));
        EXPECT_EQ(report.elements, kOut * kIn);
        EXPECT_GT(report.rms_change, 0.0);
        EXPECT_EQ(report.rms_error, 0.0); // fp32 holds it
        EXPECT_EQ(values_of(model.context, model.w), whole);
        MP_OK(mp_adapter_set_active(model.lora.adapter, 0));
        MP_OK(mp_linear_forward(model.layer, nullptr, model.x, model.y));
        const std::vector<float> after = values_of(model.context, model.y);
        for (std::size_t i = 0; i < y.size(); ++i) {
            EXPECT_NEAR(after[i], y[i], 2e-5F);
        }
    }
}

TEST(AdapterMerge, CodesAreWrittenWhereThatIsMeant) {
    const Model model("bf16_mixed");
    const Lora lora(model.context, model.layer, model.recipe, 24.0, 10);
    const Tensor codes = make_quantized(model.context, MP_DTYPE_FP8_E4M3, {kOut, kIn}, nullptr);
    mp_merge_report report = MP_MERGE_REPORT_INIT;
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, 0, codes, 0, &report),
             MP_STATUS_INVALID_DTYPE, "MP_MERGE_REQUANTIZE");
    MP_OK(mp_linear_merge_adapters(model.layer, nullptr, 0, codes, MP_MERGE_REQUANTIZE, &report));
    const Tensor values = coded::numbers_of(model.context, codes, MP_DTYPE_FP32, kOut, kIn);
    const std::vector<float> exact = merged(model.context, model.layer),
                             stored = values_of(model.context, values);
    double squares = 0, largest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const double error = static_cast<double>(stored[i]) - static_cast<double>(exact[i]);
        squares += error * error;
        largest = std::max(largest, std::fabs(error));
    }
    EXPECT_DOUBLE_EQ(report.rms_error, std::sqrt(squares / (kOut * kIn)));
    EXPECT_EQ(report.max_error, largest);
    EXPECT_GT(report.rms_error, 0.0);
    const Tensor two = make_tensor(model.context, MP_DTYPE_FP32, {2, kIn});
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, kOut - 1, two, 0, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "rows 47 to 49", "48");
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, -1, two, 0, nullptr),
             MP_STATUS_INVALID_ARGUMENT, "rows -1");
    MP_FAILS(mp_linear_merge_adapters(model.layer, nullptr, 0, model.bias, 0, nullptr),
             MP_STATUS_INVALID_SHAPE, "target");
}

// Q8_0 and Q4_0 are those of a model file that is written of the same numbers; other blocks nobody makes.
TEST(AdapterMerge, BlocksAreThoseOfModelFiles) {
    const Model model("bf16_mixed");
    const Lora lora(model.context, model.layer, model.recipe, 24.0, 10);
    const std::vector<float> exact = merged(model.context, model.layer);
    for (const coded::Blocks& type : coded::block_types()) {
        SCOPED_TRACE(mp_dtype_name(type.dtype));
        if (kIn % type.elements != 0) {
            continue;
        }
        const Tensor target = coded::make_blocks(model.context, type, kOut, kIn, 1);
        mp_merge_report report = MP_MERGE_REPORT_INIT;
        const auto merge = [&](uint32_t flags) {
            return mp_linear_merge_adapters(model.layer, nullptr, 0, target, flags, &report);
        };
        MP_FAILS(merge(0), MP_STATUS_INVALID_DTYPE, "MP_MERGE_REQUANTIZE");
        if (type.dtype != MP_DTYPE_Q8_0 && type.dtype != MP_DTYPE_Q4_0) {
            MP_FAILS(merge(MP_MERGE_REQUANTIZE), MP_STATUS_INVALID_DTYPE, "q8_0");
            continue;
        }
        MP_OK(merge(MP_MERGE_REQUANTIZE));
        const Folder folder("mp_merged_blocks");
        std::filesystem::create_directory(folder.path);
        const std::string path = (folder.path / "w.gguf").string();
        mp_model_writer* writer = nullptr;
        const int64_t shape[] = {kOut, kIn};
        int64_t index = -1;
        MP_OK(mp_model_writer_create(path.c_str(), nullptr, &writer));
        MP_OK(mp_model_writer_set_text(writer, "general.architecture", "llama"));
        MP_OK(mp_model_writer_add_tensor(writer, "w", type.dtype, 2, shape, &index));
        MP_OK(mp_model_writer_write_floats(writer, index, 0, exact.data(), kOut * kIn));
        MP_OK(mp_model_writer_finish(writer));
        mp_model_writer_destroy(writer);
        mp_model_file* file = nullptr;
        MP_OK(mp_model_file_open(path.c_str(), 0, &file));
        Bytes written(mp_dtype_bytes(type.dtype, kOut * kIn));
        MP_OK(mp_model_file_read(file, 0, 0, written.data(), written.size()));
        mp_model_file_destroy(file);
        EXPECT_EQ(bytes_of(target), written);
        EXPECT_GT(report.rms_error, 0.0);
    }
}
