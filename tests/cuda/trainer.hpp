// SPDX-License-Identifier: Apache-2.0
// A layer that is trained on a GPU, real or simulated: what a program captures into a graph.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "../backends/harness.hpp"
#include "../core/core_context.hpp"
#include "linear/layer_pass.hpp"
#include "optim/optimizer.hpp"

namespace mp::test {

// Recipes whose steps can be captured.
inline constexpr const char* kCaptured[] = {
    "fp32",        "bf16_mixed",  "bf16_pure_kahan", "bf16_pure_sr", "bf16_pure_remainder",
    "fp8_current", "fp8_delayed", "fp8_rowwise",     "fp8_block",    "mxfp8",
    "msamp_o2"};

// One layer and its optimizer on an accelerator, small.
class Trainer {
  public:
    Trainer(const Backend& backend, const char* preset, const optim::OptimizerOptions& options = {})
        : context_(std::make_shared<Context>(context_options(), enabled_backends(), &backend)),
          recipe_(recipe::find_preset(preset).recipe), weight_(state({kOut, kIn}, recipe_.weight)),
          bias_(make(DType::fp32, {{kOut}, 1})), x_(make(DType::bf16, {{kRows, kIn}, 2})),
          y_(make(DType::bf16, {{kRows, kOut}, 2})), dx_(make(DType::bf16, {{kRows, kIn}, 2})),
          linear_(context_, recipe_, layer(), weight_, bias_),
          optimizer_(context_, recipe_, options) {
        fill(*x_, 3);
        fill(*y_, 4); // as its own gradient
        fill(*bias_, 5);
        fill(*weight_, 6);
        optimizer_.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        optim::NewParameter parameter;
        parameter.name = "w";
        parameter.param = weight_;
        optimizer_.add_parameter(stream(), 0, parameter);
        stream().sync();
    }

    [[nodiscard]] Stream& stream() const { return context_->stream(); }
    [[nodiscard]] optim::Optimizer& optimizer() { return optimizer_; }
    void step() {
        const linear::LayerPass pass{&linear_, linear_.last(), {}};
        linear::forward(stream(), pass, x_, y_.get(), linear::Keep::input);
        linear::backward(stream(), pass, *y_, dx_.get(),
                         {optimizer_.parameters().state(0, "grad").get(), nullptr, false});
        optimizer_.step(stream(), nullptr);
        linear_.end_step(stream());
    }
    [[nodiscard]] std::vector<unsigned char> bytes() {
        std::vector<unsigned char> all;
        for (const Tensor* tensor : {weight_.get(), y_.get(), dx_.get()}) {
            const std::size_t first = all.size();
            all.resize(first + tensor->bytes());
            check(stream().device().copy(stream().queue(), all.data() + first, tensor->data(),
                                         tensor->bytes(), CopyKind::device_to_host));
            stream().sync();
        }
        return all;
    }

    [[nodiscard]] std::string layer_text() const { return linear_.describe(); }

  private:
    // Multiples of what every recipe's products want.
    static constexpr int64_t kIn = 64;
    static constexpr int64_t kOut = 96;
    static constexpr int64_t kRows = 32;

    static linear::LinearOptions layer() {
        linear::LinearOptions options;
        options.in_features = kIn;
        options.out_features = kOut;
        return options;
    }
    std::shared_ptr<Tensor> make(DType dtype, const mp::Shape& shape) {
        return std::make_shared<Tensor>(context_, stream(), dtype, shape);
    }
    std::shared_ptr<Tensor> state(std::array<int64_t, 2> shape, FormatId format) {
        return optim::make_state(context_, stream(), format, {{shape[0], shape[1]}, 2});
    }
    void fill(Tensor& tensor, uint64_t seed) {
        const HostArray values = make_array(tensor.dtype(), tensor.count(), Content::normal, seed);
        check(stream().device().copy(stream().queue(), tensor.data(), values.bytes.data(),
                                     tensor.bytes(), CopyKind::host_to_device));
        stream().sync();
    }

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    std::shared_ptr<Tensor> weight_, bias_, x_, y_, dx_;
    linear::Linear linear_;
    optim::Optimizer optimizer_;
};

// A whole step with its layer, captured once and done again: the bits of steps that are not captured. Capture holds what is
// enqueued on the queue it is made with, until its first replay().
template <class Capture> void expect_captured_steps(const Backend& backend) {
    for (const char* preset : kCaptured) {
        SCOPED_TRACE(preset);
        Trainer eager(backend, preset);
        Trainer captured(backend, preset);
        for (int i = 0; i < 2; ++i) {
            eager.step();
            captured.step();
        }
        Capture capture(captured.stream().queue());
        captured.step();
        for (int i = 0; i < 3; ++i) {
            eager.step();
            capture.replay();
        }
        EXPECT_EQ(eager.bytes(), captured.bytes());
    }
}

} // namespace mp::test
