// SPDX-License-Identifier: Apache-2.0
// A step after the first only enqueues kernels: it waits for nothing, allocates nothing and copies nothing between host
// and device, though the learning rate, the loss scale and the gradients' count change on the device. That is what
// can be captured in a graph. Seen on a device that counts what is asked of it.
#include <gtest/gtest.h>

#include "core_context.hpp"
#include "optim/optimizer.hpp"
#include "reference/backend.hpp"

using namespace mp;

namespace {

// What a captured stream must not be asked for.
struct Asked {
    int64_t waits = 0;
    int64_t allocations = 0;
    int64_t transfers = 0;

    [[nodiscard]] int64_t all() const { return waits + allocations + transfers; }
} asked;

class CountingQueue final : public Queue {
  public:
    Status sync() noexcept override {
        ++asked.waits;
        return {};
    }
};

// The reference device, whose work is done when a call returns, so that its queue does not matter.
class CountingDevice final : public Device {
  public:
    explicit CountingDevice(Device* inner) : inner_(inner) {}

    [[nodiscard]] DeviceKind kind() const noexcept override { return inner_->kind(); }
    [[nodiscard]] int32_t index() const noexcept override { return inner_->index(); }
    void describe(Properties& to) const noexcept override { inner_->describe(to); }
    [[nodiscard]] int32_t num_threads() const noexcept override { return 1; }
    Status allocate(std::size_t bytes, void** out) noexcept override {
        ++asked.allocations;
        return inner_->allocate(bytes, out);
    }
    void release(void* pointer, std::size_t bytes) noexcept override {
        inner_->release(pointer, bytes);
    }
    Status create_queue(void* /*native*/, Queue** out) noexcept override {
        *out = new (std::nothrow) CountingQueue;
        return {};
    }
    Status copy(Queue& queue, void* destination, const void* source, std::size_t bytes,
                CopyKind kind) noexcept override {
        asked.transfers += kind != CopyKind::device_to_device ? 1 : 0;
        return inner_->copy(queue, destination, source, bytes, kind);
    }
    Status zero(Queue& queue, void* destination, std::size_t bytes) noexcept override {
        return inner_->zero(queue, destination, bytes);
    }
    [[nodiscard]] CandidateList candidates(OpKind kind) const noexcept override {
        return inner_->candidates(kind);
    }

  private:
    std::unique_ptr<Device> inner_;
};

Status open(const DeviceConfig& config, Device** out) noexcept {
    Device* inner = nullptr;
    const Status status = backends::reference::backend()->open(config, &inner);
    *out = inner != nullptr ? new (std::nothrow) CountingDevice(inner) : nullptr;
    return status;
}

std::shared_ptr<Context> counting_context() {
    static Backend backend = *backends::reference::backend();
    backend.open = open;
    static const Backend* const list[] = {&backend};
    ContextOptions options = test::context_options();
    return std::make_shared<Context>(options, BackendList{list, 1}, nullptr);
}

std::shared_ptr<Tensor> scalar(const std::shared_ptr<Context>& context, float value) {
    auto tensor = std::make_shared<Tensor>(context, context->stream(), DType::fp32, Shape{{1}, 1});
    *static_cast<float*>(tensor->data()) = value;
    return tensor;
}

// Two groups, of which one has its learning rate on the device; clipping, and a scale that may skip.
class Trainer {
  public:
    explicit Trainer(const char* preset)
        : context_(counting_context()), recipe_(recipe::find_preset(preset).recipe),
          optimizer_(context_, recipe_, clipped()),
          scaler_(context_, scaler::scaler_preset("torch")), lr_(scalar(context_, 1e-2F)),
          count_(scalar(context_, 2.0F)) {
        for (const char* name : {"a", "b"}) {
            const int32_t group =
                optimizer_.groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
            optim::NewParameter p;
            p.name = name;
            const Shape shape = {{5000}, 1};
            p.param = optim::make_state(context_, stream(), recipe_.weight, shape);
            optimizer_.add_parameter(stream(), group, p);
        }
        optimizer_.groups().set_lr_tensor(0, lr_);
        optimizer_.set_grad_scale_tensor(count_);
    }

    [[nodiscard]] Stream& stream() const { return context_->stream(); }
    // What a captured step holds, and what writes to the device's numbers between its replays.
    void step(int64_t number) {
        *static_cast<float*>(lr_->data()) = 1e-2F / static_cast<float>(number);
        optimizer_.step(stream(), &scaler_);
        scaler_.update(stream());
    }
    [[nodiscard]] int64_t steps_taken() const {
        return optimizer_.tables().read_state(stream()).step;
    }

  private:
    static optim::OptimizerOptions clipped() {
        optim::OptimizerOptions options;
        options.max_grad_norm = 1.0;
        return options;
    }

    std::shared_ptr<Context> context_;
    recipe::Recipe recipe_;
    optim::Optimizer optimizer_;
    scaler::LossScaler scaler_;
    std::shared_ptr<Tensor> lr_;
    std::shared_ptr<Tensor> count_;
};

} // namespace

TEST(SteadyStep, OnlyEnqueuesKernels) {
    for (const char* preset : {"fp32", "fp16_mixed", "bf16_mixed_dual", "bf16_pure_kahan",
                               "bf16_pure_sr", "bf16_pure_remainder", "msamp_o2", "msamp_o3"}) {
        SCOPED_TRACE(preset);
        Trainer trainer(preset);
        trainer.step(1); // tables go to the device
        EXPECT_GT(asked.all(), 0);
        asked = {};
        for (int64_t number = 2; number <= 4; ++number) {
            trainer.step(number);
        }
        EXPECT_EQ(asked.waits, 0);
        EXPECT_EQ(asked.allocations, 0);
        EXPECT_EQ(asked.transfers, 0);
        EXPECT_EQ(trainer.steps_taken(), 4);
    }
}
