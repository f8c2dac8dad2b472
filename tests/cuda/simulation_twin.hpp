// SPDX-License-Identifier: Apache-2.0
// Two small layers and their optimizer, made and trained through the C ABI on the simulated device. Two of these that are told
// the same have the same bits, though one of them does its steps by graphs.
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "../capi/support.hpp"
#include "simulated/api.hpp"

namespace mp::test {

using namespace mp_test;

inline constexpr int64_t kTwinIn = 32;
inline constexpr int64_t kTwinOut = 64;
inline constexpr std::array<int64_t, 4> kTwinRows = {8, 32, 48, 160};
inline constexpr std::size_t kTwinLayers = 2;
inline constexpr std::size_t kTwinQueues = 3;

// A forward of a layer, and what follows it. `recompute` takes memory at each use, so no graph can have it; _lent has it.
struct Pass {
    enum Kind { evaluate, train, in_two_calls, recompute_lent, recompute };
    Kind kind = evaluate;
    std::size_t layer = 0;
    std::size_t rows = 0; // which of kTwinRows
    bool overflows = false;
};

// What is done on one queue up to the end of a step; or evaluations alone, which end none.
struct Step {
    std::size_t queue = 0;
    std::vector<Pass> passes;
    bool ends = false;
};

inline void must(mp_status status) {
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

class Twin {
  public:
    explicit Twin(const char* recipe) {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.device_kind = MP_DEVICE_CUDA;
        mp_context* context = nullptr;
        must(mp_context_create(&desc, &context));
        context_ = Context(context);
        recipe_ = make_recipe(context_, recipe);
        make_optimizer();
        for (std::size_t i = 0; i < kTwinLayers; ++i) {
            make_weights(i);
            renew_layer(i);
        }
        for (std::size_t i = 0; i < kTwinQueues; ++i) {
            renew_queue(i);
            for (std::size_t rows = 0; rows < kTwinRows.size(); ++rows) {
                batches_[i][rows] = make_batch(kTwinRows[rows], 10 * i + rows);
            }
        }
        sync();
    }

    // Objects that graphs use go, and others come in their place.
    void renew_layer(std::size_t index) {
        sync();
        Layer& layer = layers_[index];
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.flags = index == 0 ? 0 : MP_LINEAR_CACHE_WEIGHT;
        desc.in_features = kTwinIn;
        desc.out_features = kTwinOut;
        mp_linear* linear = nullptr;
        must(mp_linear_create(context_, recipe_, &desc, layer.weight, layer.bias, &linear));
        layer.saved = Saved();
        layer.lent = Saved();
        layer.linear = Linear(linear);
        for (Saved* saved : {&layer.saved, &layer.lent}) {
            mp_saved* place = nullptr;
            must(mp_saved_create(layer.linear, &place));
            *saved = Saved(place);
        }
        std::size_t bytes = 0;
        must(mp_linear_get_saved_bytes(layer.linear, kTwinRows.back(), &bytes));
        layer.memory = make_tensor(context_, MP_DTYPE_FP32, {static_cast<int64_t>(bytes / 4 + 1)});
        void* memory = nullptr;
        must(mp_tensor_get_data(layer.memory, &memory));
        must(mp_saved_set_memory(layer.lent, memory, bytes));
        std::array<mp_linear*, kTwinLayers> all{};
        for (std::size_t i = 0; i < kTwinLayers; ++i) {
            all[i] = layers_[i].linear;
        }
        must(mp_optimizer_set_linears(optimizer_, all.data(), static_cast<int32_t>(kTwinLayers)));
    }
    void renew_queue(std::size_t index) {
        sync();
        queues_[index] = {};
        mp_queue* queue = nullptr;
        must(mp_queue_create(context_, &queue));
        queues_[index].queue = Queue(queue);
        must(mp_queue_get_native(queue, &queues_[index].stream, sizeof(cudaStream_t)));
        mp_event* event = nullptr;
        must(mp_event_create(context_, &event));
        queues_[index].done = Event(event);
    }

    // What is put on this queue from now on comes after all before.
    void take_turn(std::size_t queue) {
        if (last_ != queue && last_ != kTwinQueues) {
            must(mp_event_record(queues_[last_].done, queues_[last_].queue));
            must(mp_queue_wait_event(queues_[queue].queue, queues_[last_].done));
        }
        last_ = queue;
    }
    void run(const Step& step) {
        std::array<bool, kTwinLayers> has_gradient{};
        for (const Pass& pass : step.passes) {
            run(step.queue, pass, has_gradient[pass.layer]);
            has_gradient[pass.layer] = has_gradient[pass.layer] || pass.kind != Pass::evaluate;
        }
        if (step.ends) {
            must(mp_optimizer_step(optimizer_, queue(step.queue), scaler_));
            must(mp_scaler_update(scaler_, queue(step.queue)));
        }
    }
    void sync() {
        must(mp_context_sync(context_));
        for (const QueueOfTwin& one : queues_) {
            if (one.queue != nullptr) {
                must(mp_queue_sync(one.queue));
            }
        }
        last_ = kTwinQueues;
    }

    [[nodiscard]] mp_queue* queue(std::size_t index) const { return queues_[index].queue; }
    [[nodiscard]] cudaStream_t stream(std::size_t index) const { return queues_[index].stream; }

    using Bits = std::map<std::string, std::vector<unsigned char>>;
    // Everything that steps write, by name. Waits.
    [[nodiscard]] Bits bits() {
        sync();
        Bits all;
        for (std::size_t i = 0; i < kTwinLayers; ++i) {
            add_layer(all, i);
        }
        for (std::size_t i = 0; i < kTwinQueues; ++i) {
            for (std::size_t rows = 0; rows < kTwinRows.size(); ++rows) {
                const std::string name = "queue " + std::to_string(i) + ", " +
                                         std::to_string(kTwinRows[rows]) + " rows: ";
                all[name + "y"] = bytes_of(batches_[i][rows].y);
                all[name + "dx"] = bytes_of(batches_[i][rows].dx);
            }
        }
        mp_scaler_state state = MP_SCALER_STATE_INIT;
        must(mp_scaler_get_state(scaler_, nullptr, &state));
        all["scaler"].resize(sizeof state);
        std::memcpy(all["scaler"].data(), &state, sizeof state);
        return all;
    }

  private:
    struct Layer {
        Tensor weight, bias, dbias, gradient, memory;
        Linear linear;
        Saved saved, lent; // the second keeps x in `memory`
    };
    struct Batch {
        Tensor x, dy, y, dx;
        Tensor infinite; // as dy
    };
    struct QueueOfTwin {
        Queue queue;
        cudaStream_t stream = nullptr;
        Event done;
    };

    void make_optimizer() {
        mp_optimizer* optimizer = nullptr;
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 5;
        desc.max_grad_norm = 10.0;
        must(mp_optimizer_create(context_, recipe_, &desc, &optimizer));
        optimizer_ = Optimizer(optimizer);
        mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
        int32_t index = 0;
        must(mp_optimizer_add_group(optimizer_, &group, &index));
        mp_scaler_desc scaling = MP_SCALER_DESC_INIT;
        scaling.growth_interval = 3;
        scaling.init_scale = 4.0;
        scaling.max_scale = 64.0;
        mp_scaler* scaler = nullptr;
        must(mp_scaler_create(context_, &scaling, &scaler));
        scaler_ = Scaler(scaler);
    }
    [[nodiscard]] Tensor filled(int32_t dtype, const std::vector<int64_t>& shape, uint64_t seed) {
        std::size_t count = 1;
        for (const int64_t size : shape) {
            count *= static_cast<std::size_t>(size);
        }
        return make_tensor(context_, dtype, shape, numbers(count, seed));
    }
    [[nodiscard]] int32_t weight_dtype() const {
        const char* name = nullptr;
        must(mp_recipe_get_string(recipe_, MP_RECIPE_WEIGHT_DTYPE, &name));
        const std::string text = name;
        return text == "fp32" ? MP_DTYPE_FP32 : text == "fp16" ? MP_DTYPE_FP16 : MP_DTYPE_BF16;
    }
    void make_weights(std::size_t index) {
        Layer& layer = layers_[index];
        const Tensor init = filled(MP_DTYPE_FP32, {kTwinOut, kTwinIn}, 100 + index);
        layer.weight = make_tensor(context_, weight_dtype(), {kTwinOut, kTwinIn});
        layer.bias = filled(MP_DTYPE_FP32, {kTwinOut}, 200 + index);
        layer.dbias = make_tensor(context_, MP_DTYPE_FP32, {kTwinOut});
        const std::string name = std::to_string(index);
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.name = name.c_str();
        desc.param = layer.weight;
        desc.init_fp32 = init;
        must(mp_optimizer_add_param(optimizer_, 0, &desc, nullptr));
        layer.gradient = state(index, "grad");
    }
    [[nodiscard]] Batch make_batch(int64_t rows, uint64_t seed) {
        std::vector<float> gradient = numbers(static_cast<std::size_t>(rows * kTwinOut), seed + 1);
        Batch batch;
        batch.x = filled(MP_DTYPE_BF16, {rows, kTwinIn}, seed);
        batch.dy = make_tensor(context_, MP_DTYPE_BF16, {rows, kTwinOut}, gradient);
        gradient.back() = INFINITY;
        batch.infinite = make_tensor(context_, MP_DTYPE_BF16, {rows, kTwinOut}, gradient);
        batch.y = make_tensor(context_, MP_DTYPE_BF16, {rows, kTwinOut});
        batch.dx = make_tensor(context_, MP_DTYPE_BF16, {rows, kTwinIn});
        return batch;
    }

    // The state of a layer's weight; none where the recipe has none.
    [[nodiscard]] Tensor state(std::size_t index, const char* name) const {
        mp_tensor* tensor = nullptr;
        const mp_status status =
            mp_optimizer_get_state(optimizer_, static_cast<int32_t>(index), name, &tensor);
        if (status != MP_STATUS_UNKNOWN_NAME) {
            must(status);
        }
        return Tensor(tensor);
    }
    void add_layer(Bits& all, std::size_t index) const {
        const std::string name = "layer " + std::to_string(index) + " ";
        const Layer& layer = layers_[index];
        all[name + "weight"] = bytes_of(layer.weight);
        all[name + "bias gradient"] = bytes_of(layer.dbias);
        for (const char* kind : {"grad", "exp_avg", "exp_avg_sq", "compensation", "master"}) {
            if (const Tensor tensor = state(index, kind); tensor != nullptr) {
                all[name + kind] = bytes_of(tensor);
            }
        }
        std::size_t bytes = 0;
        must(mp_linear_get_scaling(layer.linear, nullptr, 0, &bytes));
        auto& scales = all[name + "scales"];
        scales.resize(bytes);
        must(mp_linear_get_scaling(layer.linear, scales.data(), bytes, nullptr));
    }

    void run(std::size_t on, const Pass& pass, bool accumulates) {
        const Layer& layer = layers_[pass.layer];
        const Batch& batch = batches_[on][pass.rows];
        mp_queue* const q = queue(on);
        const uint32_t flags = accumulates ? MP_BACKWARD_ACCUMULATE : 0;
        mp_tensor* const dy = pass.overflows ? batch.infinite : batch.dy;
        switch (pass.kind) {
        case Pass::evaluate:
            must(mp_linear_forward(layer.linear, q, batch.x, batch.y));
            return;
        case Pass::train:
            must(mp_linear_forward(layer.linear, q, batch.x, batch.y));
            must(mp_linear_backward(layer.linear, q, dy, batch.dx, layer.gradient, layer.dbias,
                                    flags));
            return;
        case Pass::in_two_calls:
            must(mp_linear_forward(layer.linear, q, batch.x, batch.y));
            must(mp_linear_backward_data(layer.linear, q, dy, batch.dx));
            must(
                mp_linear_backward_weight(layer.linear, q, dy, layer.gradient, layer.dbias, flags));
            return;
        case Pass::recompute_lent:
        case Pass::recompute:
            mp_saved* const saved = pass.kind == Pass::recompute ? layer.saved : layer.lent;
            must(
                mp_linear_forward_saved(layer.linear, q, batch.x, batch.y, saved, MP_FORWARD_DROP));
            must(mp_linear_forward_saved(layer.linear, q, batch.x, nullptr, saved,
                                         MP_FORWARD_RECOMPUTE));
            must(mp_linear_backward_saved(layer.linear, q, saved, dy, batch.dx, layer.gradient,
                                          layer.dbias, flags));
            return;
        }
    }

    Context context_;
    Recipe recipe_;
    Optimizer optimizer_;
    Scaler scaler_;
    std::array<Layer, kTwinLayers> layers_;
    std::array<QueueOfTwin, kTwinQueues> queues_;
    std::array<std::array<Batch, kTwinRows.size()>, kTwinQueues> batches_;
    std::size_t last_ = kTwinQueues; // the queue of the last work; none
};

} // namespace mp::test
