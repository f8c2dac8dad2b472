// SPDX-License-Identifier: Apache-2.0
// A small model trained by ranks that are threads, with gradients that are functions of slot, step and element, so
// that every number of ranks sees the same global batch.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/core_context.hpp"
#include "numerics/philox.hpp"
#include "optim/optimizer.hpp"
#include "quant/quantize.hpp"
#include "ranks.hpp"

namespace mp::test {

// Sizes around and across whole chunks, and one that is empty.
inline const std::vector<Shape>& model() {
    static const std::vector<Shape> shapes = {
        {{300, 70}, 2}, {{1}, 1},   {{3 * kChunkElements + 5}, 1},
        {{0}, 1},       {{128}, 1}, {{200, 256}, 2},
    };
    return shapes;
}

// The same before there is one.
inline std::vector<optim::PlannedTensor> planned_model() {
    std::vector<optim::PlannedTensor> tensors;
    for (const Shape& shape : model()) {
        optim::PlannedTensor& tensor = tensors.emplace_back();
        tensor.count = shape.count();
        tensor.is_vector = shape.ndim == 1;
    }
    return tensors;
}

struct Training {
    recipe::Recipe recipe;
    shard::ShardingOptions sharding; // but for comm
    int32_t steps = 3;
    int32_t slots = 0; // the global batch's microbatches; 0: one a rank
    double max_grad_norm = 1.0;
    float first = 0.001F; // added to every initial value
    bool alone = false;   // an optimizer without a communicator
    int32_t threads = 1;  // of each rank's context
    numerics::RuleId rule = numerics::RuleId::adamw;
    bool as_codes = false; // matrices are codes for use; their owners keep the exact weights
};

// In (-1, 1), small integers over 2^7: exact in bf16, and their sums in fp32.
inline float noise(uint64_t slot, uint64_t step, uint64_t parameter, uint64_t i) {
    const uint64_t bits = numerics::splitmix64(i ^ (slot << 40) ^ (step << 48) ^ (parameter << 56));
    return static_cast<float>(static_cast<int32_t>(bits & 0xff) - 128) / 128.0F;
}

// What one rank ended with: every parameter's bytes, and the last step's statistics.
struct Outcome {
    std::vector<std::vector<unsigned char>> params;
    std::vector<std::vector<float>> values;
    numerics::OptimizerState state;
    optim::MemoryReport memory;
};

class TestModel {
  public:
    TestModel(const Training& run, std::shared_ptr<Communicator> comm)
        : run_(run), context_(make_context("", run.threads)), comm_(std::move(comm)) {
        optim::OptimizerOptions options;
        options.seed = 5;
        options.max_grad_norm = run.max_grad_norm;
        options.sharding = run.sharding;
        options.sharding.comm = run.alone ? nullptr : comm_;
        optimizer_ = std::make_unique<optim::Optimizer>(context_, run.recipe, options);
        numerics::GroupHyper hyper = numerics::usual_hyper(numerics::RuleId::adamw);
        hyper.lr = 0.01;
        hyper.weight_decay = 0.1;
        hyper.rule = run.rule;
        optimizer_->groups().add(hyper);
        for (std::size_t p = 0; p < model().size(); ++p) {
            add(p);
        }
    }

    void add(std::size_t p) {
        const Shape& shape = model()[p];
        const bool is_vector = shape.ndim == 1; // kept in high precision
        optim::NewParameter parameter;
        parameter.name = "p" + std::to_string(p);
        parameter.param =
            !is_vector && run_.as_codes
                ? std::make_shared<Tensor>(context_, stream(),
                                           recipe::operand_format(run_.recipe.fp8,
                                                                  recipe::GemmRole::fprop,
                                                                  recipe::Operand::weight),
                                           shape)
            : is_vector || !is_scaled(run_.recipe.weight)
                ? std::make_shared<Tensor>(context_, stream(),
                                           is_vector ? DType::fp32 : dtype_of(run_.recipe.weight),
                                           shape)
                : optim::make_state(context_, stream(), run_.recipe.weight, shape);
        parameter.init_fp32 = std::make_shared<Tensor>(context_, stream(), DType::fp32, shape);
        auto* init = static_cast<float*>(parameter.init_fp32->data());
        for (int64_t i = 0; i < shape.count(); ++i) {
            init[i] = 0.37F * noise(99, 0, p, static_cast<uint64_t>(i)) + run_.first;
        }
        params_.push_back(parameter.param);
        optimizer_->add_parameter(stream(), 0, parameter);
    }

    // The gradient of one slot; `bad` where something is not finite.
    void write_gradient(std::size_t p, int32_t slot, int32_t step, bool bad = false) {
        const auto grad = optimizer_->parameters().state(static_cast<int32_t>(p), "grad");
        grad->restore_memory(stream());
        std::vector<float> values(static_cast<std::size_t>(grad->count()));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = noise(static_cast<uint64_t>(slot), static_cast<uint64_t>(step), p, i);
        }
        if (bad && !values.empty()) {
            values.back() = INFINITY;
        }
        const TensorRef source = {values.data(), grad->count(), DType::fp32};
        if (grad->scales() != nullptr) {
            const Tensor wide(context_, stream(), DType::fp32, grad->shape(), values.data(), {});
            quant::quantize_tensor(stream(), wide, *grad, nullptr);
        } else if (grad->count() > 0) {
            cast_tensor(stream(), source, grad->ref());
        }
    }

    // Gradients of all slots of this rank, the last parameter's first, as a backward pass makes them.
    void backward(int32_t step, bool says_ready, bool bad = false) {
        const int32_t rank = run_.alone ? 0 : comm_->rank();
        const int32_t ranks = run_.alone ? 1 : comm_->size();
        const comm::SlotRun slots =
            comm::slots_of(rank, ranks, run_.slots == 0 ? ranks : run_.slots);
        for (int32_t slot = slots.first; slot < slots.end; ++slot) {
            for (std::size_t p = model().size(); p-- > 0;) {
                write_gradient(p, slot, step, bad && p == 2);
                if (says_ready) {
                    optimizer_->sharding()->grad_ready(stream(), static_cast<int32_t>(p));
                }
            }
            if (optimizer_->sharding() != nullptr && !says_ready && run_.slots > 0) {
                optimizer_->sharding()->end_microbatch(stream());
            }
        }
    }

    Outcome outcome() {
        Outcome outcome;
        outcome.memory = optimizer_->parameters().memory();
        std::vector<int32_t> all;
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            all.push_back(i);
        }
        if (optimizer_->sharding() != nullptr) {
            optimizer_->sharding()->begin_gather(stream(), all);
            optimizer_->sharding()->wait_gather(stream(), all);
        }
        for (const auto& param : params_) {
            const auto* bytes = static_cast<const unsigned char*>(param->data());
            outcome.params.emplace_back(bytes, bytes + param->bytes());
        }
        outcome.state = optimizer_->tables().read_state(stream());
        return outcome;
    }

    [[nodiscard]] optim::Optimizer& optimizer() { return *optimizer_; }
    void release_all() {
        std::vector<int32_t> all;
        for (int32_t i = 0; i < optimizer_->parameters().count(); ++i) {
            all.push_back(i);
        }
        optimizer_->sharding()->release(stream(), all);
    }

    [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }
    [[nodiscard]] Stream& stream() { return context_->stream(); }
    [[nodiscard]] Communicator& comm() { return *comm_; }
    [[nodiscard]] const std::shared_ptr<Tensor>& param(std::size_t i) const { return params_[i]; }

  private:
    Training run_;
    std::shared_ptr<Context> context_;
    std::shared_ptr<Communicator> comm_;
    std::unique_ptr<optim::Optimizer> optimizer_;
    std::vector<std::shared_ptr<Tensor>> params_;
};

} // namespace mp::test
