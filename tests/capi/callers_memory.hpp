// SPDX-License-Identifier: Apache-2.0
// A program that has its arrays already, and computes on them by their addresses, layer by layer.
#pragma once

#include <cstring>
#include <numeric>

#include "memory.hpp"
#include "sharded_model.hpp"

namespace mp_test {

enum class Arrays {
    library, // the library's tensors
    wrapped, // weights in one piece of the program's memory, gradients in another
    views,   // likewise, each piece one tensor
    shared, // two layers' worth of both, which layers use in turn: weights in stage 3, gradients from stage 2 on
};

inline const std::vector<std::vector<int64_t>>& program_layers() { // elements of their parameters
    static const std::vector<std::vector<int64_t>> layers = {
        {30000}, {7, 20000}, {33000}, {16500}, {0, 100}};
    return layers;
}

struct Program {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    std::vector<Tensor> params;
    int32_t stage, rank = 0;

    Program(mp_comm* comm, int32_t of_stage, int32_t plan, Arrays of_arrays, int32_t prefetch = 1,
            Counter* counter = nullptr)
        : context(make_counted_context(counter)), recipe(make_recipe(context, "fp32")),
          stage(of_stage), arrays_(of_arrays) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = 1.0;
        desc.flags = MP_OPTIMIZER_ZERO_GRAD;
        mp_sharding_desc sharding = stage_desc(stage);
        sharding.kind = plan;
        sharding.bucket_elements = 1; // a gradient leaves with its layer
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        add_group(optimizer, 1e-2);
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_comm_get_rank(comm, &rank)));
        }
        lay_out();
        make_params();
        EXPECT_TRUE(
            succeeded(comm != nullptr ? mp_optimizer_shard(optimizer, nullptr) : MP_STATUS_OK));
        fill();
        std::vector<int32_t> counts, indices(params.size());
        for (const std::vector<int64_t>& layer : program_layers()) {
            counts.push_back(static_cast<int32_t>(layer.size()));
        }
        std::iota(indices.begin(), indices.end(), 0);
        EXPECT_TRUE(
            succeeded(mp_optimizer_set_layer_params(optimizer, static_cast<int32_t>(counts.size()),
                                                    counts.data(), indices.data(), prefetch)));
    }

    void train(int32_t first, int32_t end) {
        const auto layers = static_cast<int32_t>(program_layers().size());
        for (int32_t step = first; step < end; ++step) {
            float loss = 0.0F;
            for (int32_t layer = 0; layer < layers; ++layer) {
                pass(layer, MP_PASS_FORWARD, [&](int32_t i) {
                    for (int64_t k = 0; k < count_of(i); k += 97) {
                        loss += weight(i)[k];
                    }
                });
            }
            for (int32_t layer = layers; layer-- > 0;) {
                pass(layer, MP_PASS_BACKWARD, [&](int32_t i) {
                    for (int64_t k = 0; k < count_of(i); ++k) {
                        const auto noise =
                            static_cast<float>((k * 7 + step + i + 3 * rank) % 15 - 7);
                        gradient(i)[k] += weight(i)[k] * 0.5F + noise + loss * 0x1p-20F;
                    }
                });
            }
            ok(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
    }
    // Each for itself, as all together may have no room.
    std::vector<std::vector<unsigned char>> weights() {
        std::vector<std::vector<unsigned char>> all;
        for (int32_t i = 0; i < static_cast<int32_t>(params.size()); ++i) {
            ok(mp_optimizer_gather_begin(optimizer, nullptr, &i, 1));
            ok(mp_optimizer_gather_wait(optimizer, nullptr, &i, 1));
            const auto* const bytes = reinterpret_cast<const unsigned char*>(weight(i));
            all.emplace_back(bytes, bytes + count_of(i) * 4);
            ok(mp_optimizer_gather_free(optimizer, nullptr, &i, 1));
        }
        return all;
    }
    // By the program's own addresses, where it has them.
    [[nodiscard]] float* weight(int32_t i) const {
        return arrays_ == Arrays::library
                   ? static_cast<float*>(data_of(params[static_cast<std::size_t>(i)]))
                   : weights_[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] float* gradient(int32_t i) const {
        return arrays_ == Arrays::library
                   ? static_cast<float*>(data_of(state_of(optimizer, i, "grad")))
                   : gradients_[static_cast<std::size_t>(i)];
    }
    [[nodiscard]] static int64_t count_of(int32_t i) {
        for (const std::vector<int64_t>& layer : program_layers()) {
            if (i < static_cast<int32_t>(layer.size())) {
                return layer[static_cast<std::size_t>(i)];
            }
            i -= static_cast<int32_t>(layer.size());
        }
        return 0;
    }
    static void ok(mp_status status) { EXPECT_TRUE(succeeded(status)); }

  private:
    [[nodiscard]] bool shares_weights() const { return arrays_ == Arrays::shared && stage == 3; }
    [[nodiscard]] bool shares_gradients() const { return arrays_ == Arrays::shared && stage >= 2; }

    // Aligned, one behind the other; or of layers in turn.
    void lay_out() {
        constexpr int64_t kLayerFloats = 33024;
        weight_memory_ = Block(std::size_t{4} * 120000);
        gradient_memory_ = Block(std::size_t{4} * 120000);
        for (const auto& [memory, is_shared, places] :
             {std::tuple{&weight_memory_, shares_weights(), &weights_},
              std::tuple{&gradient_memory_, shares_gradients(), &gradients_}}) {
            std::memset(memory->memory.get(), is_shared ? 0xff : 0, memory->bytes);
            auto* const base = reinterpret_cast<float*>(memory->memory.get());
            int64_t at = 0, layer = 0;
            for (const std::vector<int64_t>& counts : program_layers()) {
                at = is_shared ? layer++ % 2 * kLayerFloats : at;
                for (const int64_t count : counts) {
                    places->push_back(base + at);
                    at += (count + 15) / 16 * 16;
                }
            }
        }
    }
    Tensor tensor_at(float* place, int64_t count, const Tensor& whole, bool is_shared) const {
        mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {count});
        mp_tensor* made = nullptr;
        if (whole != nullptr && !is_shared) {
            ok(mp_tensor_create_view(whole, place - static_cast<float*>(data_of(whole)), 1, &count,
                                     &made));
        } else {
            desc.flags = is_shared ? MP_TENSOR_DEFERRED : 0U;
            ok(mp_tensor_wrap(context, &desc, place, nullptr, nullptr, &made));
        }
        return Tensor(made);
    }
    void make_params() {
        Tensor whole[2];
        if (arrays_ == Arrays::views) {
            for (const bool is_gradient : {false, true}) {
                const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {120000});
                Block& memory = is_gradient ? gradient_memory_ : weight_memory_;
                mp_tensor* made = nullptr;
                ok(mp_tensor_wrap(context, &desc, memory.memory.get(), nullptr, nullptr, &made));
                whole[is_gradient ? 1 : 0] = Tensor(made);
            }
        }
        for (int32_t i = 0; i < static_cast<int32_t>(weights_.size()); ++i) {
            const auto place = static_cast<std::size_t>(i);
            const std::vector<float> values = values_of_param(i);
            Tensor grad;
            if (arrays_ == Arrays::library) {
                params.push_back(make_tensor(context, MP_DTYPE_FP32, {count_of(i)}, values));
            } else {
                if (!shares_weights()) {
                    std::copy(values.begin(), values.end(), weights_[place]);
                }
                params.push_back(
                    tensor_at(weights_[place], count_of(i), whole[0], shares_weights()));
                grad = tensor_at(gradients_[place], count_of(i), whole[1], shares_gradients());
            }
            const std::string name = 'p' + std::to_string(i);
            ok(add_param(optimizer, 0, name.c_str(), params.back(), grad));
        }
    }
    void fill() {
        if (!shares_weights()) {
            return;
        }
        const mp_fill_fn values = [](int32_t i, int64_t first, int64_t count, float* to,
                                     void*) -> mp_status {
            const std::vector<float> all = values_of_param(i);
            std::copy_n(all.begin() + first, count, to);
            return MP_STATUS_OK;
        };
        std::vector<int32_t> all(params.size());
        std::iota(all.begin(), all.end(), 0);
        ok(mp_optimizer_fill_params(optimizer, nullptr, all.data(),
                                    static_cast<int32_t>(all.size()), values, nullptr, -1));
    }
    static std::vector<float> values_of_param(int32_t i) {
        return numbers(static_cast<std::size_t>(count_of(i)), static_cast<uint64_t>(i + 1));
    }
    // What is given back is the program's to use: it writes something else there.
    template <typename Body> void pass(int32_t layer, int32_t which, const Body& body) {
        ok(mp_optimizer_layer_begin(optimizer, nullptr, layer, which));
        int32_t first = 0;
        for (int32_t l = 0; l < layer; ++l) {
            first += static_cast<int32_t>(program_layers()[static_cast<std::size_t>(l)].size());
        }
        const auto end =
            first + static_cast<int32_t>(program_layers()[static_cast<std::size_t>(layer)].size());
        for (int32_t i = first; i < end; ++i) {
            body(i);
        }
        ok(mp_optimizer_layer_end(optimizer, nullptr, layer, which));
        for (int32_t i = first; i < end && arrays_ != Arrays::library; ++i) {
            const auto bytes = static_cast<std::size_t>(count_of(i)) * 4;
            if (stage == 3) {
                std::memset(weight(i), 0xff, bytes);
            }
            if (shares_gradients() && which == MP_PASS_BACKWARD) {
                std::memset(gradient(i), 0xff, bytes);
            }
        }
    }

    Arrays arrays_;
    Block weight_memory_, gradient_memory_; // outlive what is over them
    std::vector<float*> weights_, gradients_;
};

} // namespace mp_test
