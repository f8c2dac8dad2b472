// SPDX-License-Identifier: Apache-2.0
// One rank of a training of bits_training.hpp: its micro-batches forward and backward, and its steps.
#pragma once

#include <array>
#include <limits>

#include "bits_model.hpp"

namespace mp_test::bits {

// Fixed numbers for a micro-batch; the same for every configuration.
inline const std::vector<float>& noise(int32_t step, int32_t slot) {
    static const auto all = [] {
        const OwnArithmetic floats;
        std::vector<std::vector<float>> made;
        for (uint64_t i = 0; i < uint64_t{kSteps} * kMostSlots; ++i) {
            made.push_back(numbers(kTokens * kIn, 1000 + i, 0.01F));
        }
        made[kSkippedStep * kMostSlots + 5][123] = std::numeric_limits<float>::infinity();
        return made;
    }();
    return all[static_cast<std::size_t>(step * kMostSlots + slot)];
}

// A micro-batch between its forward and its backward.
struct Micro {
    int32_t slot = 0;
    std::array<Saved, 3> saved;
    std::array<Block, 3> lent;
    std::array<Tensor, 3> inputs; // in the simple way a layer may refer to them
    std::vector<float> first;     // of the first layer
    Tensor dy;
};

class Trainer : public Model {
  public:
    Trainer(const Configuration& c, int32_t rank, mp_comm* comm, uint64_t seed)
        : Model(c, comm, seed), first_slot_(rank * slots_of(c) / ranks_of(c)),
          end_slot_((rank + 1) * slots_of(c) / ranks_of(c)) {}

    void train(int32_t first, int32_t end, Collected& collected) {
        for (int32_t step = first; step < end; ++step) {
            if (step == first + 1 && are_floats_late) {
                set_floats();
            }
            if (step == kSaveAfter &&
                (c_[kFrozen] == kFrozenAtFirst || c_[kFrozen] == kFrozenLater)) {
                change_frozen();
            }
            if (comm_ != nullptr) {
                gather();
            }
            backward(step, collected);
            mark_unused(step);
            check(mp_optimizer_step(optimizer_, queue_, scaler_));
            check(mp_scaler_update(scaler_, queue_));
            if (c_[kLayers] == 0) {
                mp_linear* const layers[] = {layers_[0], layers_[1], layers_[2]};
                check(mp_linear_end_step(layers, 3, queue_, comm_));
            }
            check(mp_optimizer_zero_grad(optimizer_, queue_));
        }
    }

  private:
    // Before the training is saved, and in its last step.
    [[nodiscard]] bool is_unused(int32_t step, int32_t p) const {
        return c_[kUnused] != 0 && (step == kSaveAfter - 1 ? p == kEmbedding || p == kScale
                                                           : step == kSteps - 1 && p == kSecond);
    }
    void mark_unused(int32_t step) {
        for (int32_t p = 0; p < kParamCount; ++p) {
            check(is_unused(step, p) ? mp_optimizer_mark_unused(optimizer_, queue_, &p, 1)
                                     : MP_STATUS_OK);
        }
    }
    static void add(const std::vector<float>& values, std::vector<float>& to) {
        const OwnArithmetic floats;
        for (std::size_t i = 0; i < to.size(); ++i) {
            to[i] += values[i];
        }
    }
    // Rows of kOut elements, times the norm's scale.
    [[nodiscard]] std::vector<float> scaled(std::vector<float> values) const {
        const OwnArithmetic floats;
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] *= scale_[i % kOut];
        }
        return values;
    }
    // In fp32, rounded once into the gradient.
    void add_to_grad(int32_t p, const std::vector<float>& values) {
        const Tensor sum = grad(p);
        std::vector<float> wide = values_of(context_, sum);
        add(values, wide);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        check(mp_tensor_get_desc(sum, &desc));
        const Tensor rounded = make_tensor(
            context_, desc.dtype, std::vector<int64_t>(desc.shape, desc.shape + desc.ndim), wide);
        check(mp_tensor_copy(rounded, queue_, sum));
    }

    void forward_layer(Micro& micro, std::size_t layer, mp_tensor* y, uint32_t flags) {
        mp_tensor* const x = micro.inputs[layer];
        if (c_[kInputs] == kInTheLayer) {
            check(mp_linear_forward(layers_[layer], queue_, x, y));
            return;
        }
        mp_saved* const saved = micro.saved[layer];
        if (c_[kInputs] == kLent && micro.lent[layer].bytes == 0) {
            std::size_t bytes = 0;
            check(mp_linear_get_saved_bytes(layers_[layer], kRows, &bytes));
            micro.lent[layer] = Block(bytes);
            check(mp_saved_set_memory(saved, micro.lent[layer].memory.get(), bytes));
        }
        check(mp_linear_forward_saved(layers_[layer], queue_, x, y, saved, flags));
        if (c_[kInputs] == kLent) { // away, and back to another place
            Block& old = micro.lent[layer];
            Block moved(old.bytes);
            std::memcpy(moved.memory.get(), old.memory.get(), old.bytes);
            std::memset(old.memory.get(), 0xff, old.bytes);
            check(mp_saved_set_memory(saved, moved.memory.get(), moved.bytes));
            old = std::move(moved);
        }
    }

    // All layers from the input on; `flags` as mp_linear_forward_saved has them. Returns the output.
    std::vector<float> forward(Micro& micro, const std::vector<float>& x, uint32_t flags) {
        micro.inputs[0] = activation(kIn, x);
        const Tensor first = activation(kOut);
        forward_layer(micro, 0, first, flags);
        micro.first = values_of(context_, first);
        micro.inputs[1] = activation(kOut, scaled(micro.first));
        const Tensor second = activation(kIn);
        forward_layer(micro, 1, second, flags);
        std::vector<float> residual = values_of(context_, second);
        add(x, residual);
        micro.inputs[2] = activation(kIn, residual);
        const bool wants_y = (flags & MP_FORWARD_RECOMPUTE) == 0;
        const Tensor third = activation(kOut);
        forward_layer(micro, 2, wants_y ? static_cast<mp_tensor*>(third) : nullptr, flags);
        return values_of(context_, third);
    }

    static std::vector<std::size_t> tokens_of(int32_t step, int32_t slot) {
        std::vector<std::size_t> tokens(kRows);
        for (std::size_t row = 0; row < tokens.size(); ++row) {
            tokens[row] = (row * 389 + static_cast<std::size_t>(step * kMostSlots + slot) * 97) %
                          static_cast<std::size_t>(kTokens);
        }
        return tokens;
    }
    [[nodiscard]] std::vector<float> input_of(int32_t step, int32_t slot) const {
        std::vector<float> x;
        for (const std::size_t token : tokens_of(step, slot)) {
            const auto row = embedding_.begin() + static_cast<std::ptrdiff_t>(token * kIn);
            x.insert(x.end(), row, row + kIn);
        }
        return x;
    }

    // The gradient of the loss by the output, times the loss scale.
    [[nodiscard]] std::vector<float> loss_grad(const std::vector<float>& y, int32_t step,
                                               int32_t slot, double& loss) const {
        const OwnArithmetic floats;
        std::vector<float> dy(y.size());
        const auto factor =
            static_cast<float>(2.0 * loss_scale_ /
                               (static_cast<double>(slots_of(c_)) * static_cast<double>(y.size())));
        for (std::size_t i = 0; i < y.size(); ++i) {
            const float error = y[i] - 50.0F * noise(step, slot)[y.size() + i]; // in (-0.5, 0.5)
            loss += static_cast<double>(error) * static_cast<double>(error);
            dy[i] = error * factor;
        }
        return dy;
    }
    // Forward, the loss and its gradient.
    void forward_micro(Micro& micro, int32_t step, Collected& collected) {
        const uint32_t flags = c_[kInputs] == kRecomputed ? MP_FORWARD_DROP : 0;
        const std::vector<float> y = forward(micro, input_of(step, micro.slot), flags);
        if (flags != 0) { // so that nothing can be read that was not computed again
            micro.inputs = {};
            micro.first.clear();
        }
        double loss = 0.0;
        micro.dy = activation(kOut, loss_grad(y, step, micro.slot, loss));
        collected.add("loss " + std::to_string(step) + "." + std::to_string(micro.slot),
                      raw_bytes(&loss, 1));
    }

    void backward_layer(const Micro& micro, std::size_t layer, mp_tensor* dy, mp_tensor* dx,
                        mp_tensor* dw, mp_tensor* dbias) {
        check(c_[kInputs] == kInTheLayer
                  ? mp_linear_backward(layers_[layer], queue_, dy, dx, dw, dbias,
                                       MP_BACKWARD_ACCUMULATE)
                  : mp_linear_backward_saved(layers_[layer], queue_, micro.saved[layer], dy, dx, dw,
                                             dbias, MP_BACKWARD_ACCUMULATE));
    }

    void backward_micro(Micro& micro, int32_t step) {
        if (c_[kInputs] == kRecomputed) {
            (void)forward(micro, input_of(step, micro.slot), MP_FORWARD_RECOMPUTE);
        }
        for (int32_t p = first_trained(); p < kParamCount; ++p) {
            check(mp_optimizer_acquire_grad(optimizer_, queue_, p));
        }
        const Tensor first_grad = grad(kFirst);
        const Tensor dz = activation(kIn), dh = activation(kOut), dx = activation(kIn);
        backward_layer(micro, 2, micro.dy, dz, first_grad, nullptr);
        backward_layer(micro, 1, dz, dh, grad(kSecond), nullptr);
        const std::vector<float> dfirst = values_of(context_, dh);
        backward_layer(micro, 0, activation(kOut, scaled(dfirst)), dx, first_grad, grad(kBias));
        if (!is_unused(step, kScale)) {
            add_to_grad(kScale, scale_grad(dfirst, micro.first));
        }
        if (first_trained() == kEmbedding && !is_unused(step, kEmbedding)) {
            add_to_grad(kEmbedding, embedding_grad(step, micro.slot, values_of(context_, dx),
                                                   values_of(context_, dz)));
        }
    }
    static std::vector<float> scale_grad(const std::vector<float>& dscaled,
                                         const std::vector<float>& first) {
        const OwnArithmetic floats;
        std::vector<float> dscale(kOut);
        for (std::size_t i = 0; i < dscaled.size(); ++i) {
            dscale[i % kOut] += dscaled[i] * first[i];
        }
        return dscale;
    }
    [[nodiscard]] std::vector<float> embedding_grad(int32_t step, int32_t slot,
                                                    const std::vector<float>& through,
                                                    const std::vector<float>& around) const {
        std::vector<float> dembedding = noise(step, slot);
        const OwnArithmetic floats;
        for (float& value : dembedding) {
            value *= static_cast<float>(loss_scale_);
        }
        const std::vector<std::size_t> tokens = tokens_of(step, slot);
        for (std::size_t i = 0; i < through.size(); ++i) {
            dembedding[tokens[i / kIn] * kIn + i % kIn] += through[i] + around[i];
        }
        return dembedding;
    }

    // One contribution of this rank is whole, or in the order of ranks all it has.
    void end_micro(const Micro& micro) {
        const bool is_slot = c_[kOrder] != MP_COMM_ORDER_RANK;
        const bool leaves_alone = comm_ == nullptr && c_[kOffload] == kGradientsToo;
        if (!leaves_alone && (comm_ == nullptr || (!is_slot && micro.slot + 1 < end_slot_))) {
            return;
        }
        for (int32_t p = kParamCount; p-- > first_trained() && c_[kReady] != 0;) {
            check(mp_optimizer_grad_ready(optimizer_, queue_, p));
        }
        if (is_slot && c_[kReady] == 0) {
            check(mp_optimizer_end_microbatch(optimizer_, queue_));
        }
    }

    void backward(int32_t step, Collected& collected) {
        check(mp_scaler_get_scale(scaler_, queue_, &loss_scale_));
        embedding_ = embedding();
        scale_ = values_of(context_, params_[kScale]);
        const bool together = c_[kInFlight] != 0;
        micros_.resize(together ? static_cast<std::size_t>(end_slot_ - first_slot_) : 1);
        for (Micro& micro : micros_) {
            for (std::size_t i = 0; i < layers_.size() && micro.saved[i] == nullptr; ++i) {
                mp_saved* saved = nullptr;
                check(mp_saved_create(layers_[i], &saved));
                micro.saved[i] = Saved(saved);
            }
        }
        for (int32_t slot = first_slot_; slot < end_slot_; ++slot) {
            Micro& micro = micros_[together ? static_cast<std::size_t>(slot - first_slot_) : 0];
            micro.slot = slot;
            forward_micro(micro, step, collected);
            if (!together) {
                backward_micro(micro, step);
                end_micro(micro);
            }
        }
        for (Micro& micro : micros_) {
            if (together) {
                backward_micro(micro, step);
                end_micro(micro);
            }
        }
    }
    int32_t first_slot_, end_slot_;
    std::vector<Micro> micros_;
    double loss_scale_ = 1.0;
    std::vector<float> embedding_, scale_;
};

} // namespace mp_test::bits
