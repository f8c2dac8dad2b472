// SPDX-License-Identifier: Apache-2.0
// The model of bits_training.hpp on one rank: its parameters, layers, optimizer and checkpoint, and what of them is compared.
#pragma once

#include <array>
#include <cstdlib>
#include <numeric>

#include "bits_options.hpp"
#include "bits_outcome.hpp"
#include "memory.hpp"
#include "training.hpp"

namespace mp_test::bits {

inline constexpr int32_t kMostSlots = 11; // micro-batches of a step, of all ranks together
inline constexpr int32_t kSteps = 5;
inline constexpr int32_t kSaveAfter = 3; // the loss scale counts good steps then
inline constexpr int32_t kSkippedStep = 1;
// MP_BITS_FACTOR: longer runs have larger products.
inline const int64_t kFactor =
    std::getenv("MP_BITS_FACTOR") != nullptr ? std::atoi(std::getenv("MP_BITS_FACTOR")) : 1;
inline const int64_t kRows = 32 * kFactor;
inline const int64_t kIn = 32 * kFactor;
inline const int64_t kOut = 64 * kFactor;
inline constexpr int64_t kTokens = 1250;
inline constexpr std::size_t kWorkspaceBytes = std::size_t{1} << 26; // used ones alone are touched

enum Param : int32_t { kEmbedding, kFirst, kSecond, kBias, kScale, kParamCount };
inline constexpr const char* kParamNames[] = {"embedding", "first", "second", "bias", "scale"};

inline constexpr const char* kLayerNames[] = {"first", "second", "third"};

class Model {
  public:
    // `seed`: of the first values, which a load replaces.
    Model(const Configuration& c, mp_comm* comm, uint64_t seed)
        : c_(c), comm_(comm), seed_(seed), context_(make_context(c[kThreads] + 1)),
          recipe_(recipe_of(context_, recipe_text(c))) {
        if (c[kRules] != 0) {
            check(mp_recipe_set_string(recipe_, MP_RECIPE_LAYERS,
                                       "second: optimizer.exp_avg.dtype=fp32"));
        }
        if (c[kWorkspace] != 0) {
            mp_queue* made = nullptr;
            check(mp_queue_create(context_, &made));
            queue_ = Queue(made);
            workspace_ = Block(kWorkspaceBytes);
            check(mp_queue_set_workspace(queue_, workspace_.memory.get(), workspace_.bytes));
        }
        make_optimizer();
        make_params();
        make_layers();
        mp_scaler* scaler = nullptr;
        check(mp_scaler_create_from_recipe(context_, recipe_, &scaler));
        scaler_ = Scaler(scaler);
        if (comm_ != nullptr) {
            check(mp_optimizer_shard(optimizer_, queue_));
        }
        fill_params();
    }
    void save(const char* folder) {
        check(mp_checkpoint_save(checkpoint(), folder, kSaveAfter,
                                 c_[kSaving] != 0 ? MP_SAVE_BACKGROUND : 0));
        check(mp_checkpoint_wait(checkpoint()));
    }
    void load(const char* folder) { check(mp_checkpoint_load(checkpoint(), folder, 0, nullptr)); }
    void collect(Collected& collected) {
        if (comm_ != nullptr) {
            gather();
        }
        for (int32_t p = 0; p < kParamCount; ++p) {
            const std::string name = kParamNames[p];
            mp_tensor* const param = params_[static_cast<std::size_t>(p)];
            const bool is_codes = name_is("fp8_gather") && (p == kFirst || p == kSecond);
            collected.add(name, is_codes && c_[kGather] == 0 ? codes_of(param) : bytes_of(param));
            if (is_coded(p)) {
                collected.add(name + "'s scales", bytes_of(scales_of(param)));
            }
            int64_t start = 0;
            int64_t count = 1;
            if (c_[kStage] > 0) {
                int32_t rank = 0;
                check(mp_comm_get_rank(comm_, &rank));
                check(mp_optimizer_get_slice(optimizer_, p, rank, &start, &count));
            }
            for (const char* state : {"exp_avg", "exp_avg_sq", "compensation", "master"}) {
                add_state(collected, p, state, start, count);
                add_state(collected, p, std::string(state) + "_scale_inv", start, count);
            }
            if (is_scaled(c_)) {
                add_state(collected, p, "param_scale_inv", 0, 1);
            }
        }
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            std::size_t bytes = 0;
            check(mp_linear_get_scaling(layers_[i], nullptr, 0, &bytes));
            Bytes scaling(bytes);
            check(mp_linear_get_scaling(layers_[i], scaling.data(), bytes, nullptr));
            collected.add("scales of layer " + std::to_string(i), scaling);
        }
        mp_scaler_state scaler = MP_SCALER_STATE_INIT;
        check(mp_scaler_get_state(scaler_, queue_, &scaler));
        collected.add("loss scale", raw_bytes(&scaler, 1));
        mp_optimizer_stats stats = MP_OPTIMIZER_STATS_INIT;
        check(mp_optimizer_get_stats(optimizer_, queue_, &stats));
        collected.add("last step", raw_bytes(&stats, 1));
    }

  protected:
    void gather() {
        constexpr int32_t kAll[] = {0, 1, 2, 3, 4};
        check(mp_optimizer_gather_begin(optimizer_, queue_, kAll, kParamCount));
        check(mp_optimizer_gather_wait(optimizer_, queue_, kAll, kParamCount));
    }
    [[nodiscard]] int32_t first_trained() const { return is_frozen_ ? kFirst : kEmbedding; }
    void change_frozen() {
        constexpr int32_t kOne = kEmbedding;
        is_frozen_ = c_[kFrozen] == kFrozenLater;
        check(mp_optimizer_set_frozen(optimizer_, queue_, &kOne, 1, is_frozen_ ? 1 : 0));
    }
    // Its numbers, whatever it is kept as.
    [[nodiscard]] std::vector<float> embedding() const {
        if (c_[kFrozen] < kFrozenInCodes) {
            return values_of(context_, params_[kEmbedding]);
        }
        const Tensor wide = make_tensor(context_, MP_DTYPE_FP32, shape_of(kEmbedding));
        check(mp_tensor_dequantize(params_[kEmbedding], nullptr, wide));
        return values_of(context_, wide);
    }
    Tensor grad(int32_t p) {
        mp_tensor* tensor = nullptr;
        check(mp_optimizer_get_state(optimizer_, p, "grad", &tensor));
        return Tensor(tensor);
    }
    Tensor activation(int64_t columns, const std::vector<float>& values) const {
        return make_tensor(context_, activations_, {kRows, columns}, values);
    }
    Tensor activation(int64_t columns) const {
        return make_tensor(context_, activations_, {kRows, columns});
    }

    Configuration c_;
    bool is_frozen_ = c_[kFrozen] != kNotFrozen && c_[kFrozen] != kFrozenLater; // the embedding
    mp_comm* comm_;
    uint64_t seed_;
    Context context_;
    Recipe recipe_;
    Block workspace_;           // outlives its queue
    std::vector<Block> arrays_; // outlive what is over them
    Queue queue_;
    int32_t activations_ = MP_DTYPE_FP32;
    Optimizer optimizer_;
    std::array<Tensor, kParamCount> params_;
    std::array<Linear, 3> layers_;
    Scaler scaler_;
    Checkpoint checkpoint_;

  private:
    void make_optimizer() {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 5;
        desc.max_grad_norm = 1.0;
        desc.flags = (c_[kOffload] != kOnTheDevice ? MP_OPTIMIZER_OFFLOAD : 0U) |
                     (c_[kOffload] == kGradientsToo ? MP_OPTIMIZER_OFFLOAD_GRADS : 0U);
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.flags |= c_[kProgress] != 0 ? MP_SHARDING_NO_PROGRESS_THREAD : 0;
        sharding.stage = c_[kStage] == 0 ? MP_SHARDING_STAGE_0 : c_[kStage];
        sharding.kind = c_[kPlan];
        sharding.bucket_elements = c_[kBuckets] != 0 ? 5000 : 0;
        const int32_t wires[] = {MP_DTYPE_NONE, MP_DTYPE_BF16, MP_DTYPE_FP8_E4M3};
        sharding.wire_dtype = wires[c_[kWire]];
        sharding.order = c_[kOrder];
        sharding.slots = c_[kOrder] == MP_COMM_ORDER_RANK ? 0 : slots_of(c_);
        sharding.check_every = c_[kHash];
        (c_[kGroups] == kNodes ? sharding.node_ranks : sharding.shard_ranks) = group_ranks(c_);
        mp_optimizer* made = nullptr;
        check(comm_ == nullptr
                  ? mp_optimizer_create(context_, recipe_, &desc, &made)
                  : mp_optimizer_create_sharded(context_, recipe_, &desc, comm_, &sharding, &made));
        optimizer_ = Optimizer(made);
        for (const bool is_second : {false, true}) {
            mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
            group.lr = is_second ? 3e-3 : 1e-2;
            group.weight_decay = is_second ? 0.0 : 0.1;
            group.rule = name_is("lion") ? MP_RULE_LION : MP_RULE_ADAMW;
            int32_t index = 0;
            check(mp_optimizer_add_group(optimizer_, &group, &index));
        }
    }

    static std::vector<int64_t> shape_of(int32_t p) {
        const std::vector<int64_t> shapes[] = {
            {kTokens, kIn}, {kOut, kIn}, {kIn, kOut}, {kOut}, {kOut}};
        return shapes[p];
    }
    static std::size_t count_of(int32_t p) {
        const std::vector<int64_t> shape = shape_of(p);
        return static_cast<std::size_t>(
            std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()));
    }
    static bool is_matrix(int32_t p) { return p == kFirst || p == kSecond; }
    // Codes are made whole.
    [[nodiscard]] bool is_deferred(int32_t p) const {
        return c_[kDeferred] != 0 && !(is_matrix(p) && (is_scaled(c_) || c_[kGather] != 0));
    }

    // A frozen embedding in blocks.
    [[nodiscard]] bool is_coded(int32_t p) const {
        return p == kEmbedding && c_[kFrozen] >= kFrozenInCodes;
    }
    // In memory of the caller's, with the values of a plain one that is not deferred.
    Tensor wrapped(const mp_tensor_desc& desc, mp_tensor* values) {
        int64_t count = 1;
        for (int32_t i = 0; i < desc.ndim; ++i) {
            count *= desc.shape[i];
        }
        arrays_.emplace_back(static_cast<std::size_t>(count) * sizeof(float));
        void* const data = arrays_.back().memory.get();
        std::memset(data, 0, arrays_.back().bytes);
        if (values != nullptr && desc.flags == 0) {
            const Bytes bytes = bytes_of(values);
            std::memcpy(data, bytes.data(), bytes.size());
        }
        mp_tensor* made = nullptr;
        check(mp_tensor_wrap(context_, &desc, data, nullptr, nullptr, &made));
        return Tensor(made);
    }
    Tensor in_its_memory(int32_t p, Tensor param) {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        check(mp_tensor_get_desc(param, &desc));
        const bool is_plain = !is_coded(p) && desc.dtype != MP_DTYPE_FP8_E4M3;
        return c_[kArrays] != 0 && is_plain ? wrapped(desc, param) : std::move(param);
    }
    // None: the optimizer makes one.
    Tensor make_grad(int32_t p) {
        const bool is_the_hosts = comm_ == nullptr && c_[kOffload] == kGradientsToo;
        if (c_[kArrays] == 0 || p < first_trained() || is_the_hosts) {
            return {};
        }
        mp_tensor_desc desc = tensor_desc(recipe_dtype(recipe_, MP_RECIPE_GRAD_DTYPE), shape_of(p));
        desc.flags = is_deferred(p) ? MP_TENSOR_DEFERRED : 0U;
        return wrapped(desc, nullptr);
    }
    Tensor make_coded(int32_t p, const std::vector<float>& values) {
        const FrozenCodes& codes = kFrozenCodes[c_[kFrozen] - kFrozenInCodes];
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = codes.scaling;
        Tensor made = make_quantized(context_, codes.dtype, shape_of(p), &quant,
                                     is_deferred(p) ? MP_TENSOR_DEFERRED : 0U);
        if (!is_deferred(p)) {
            const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, shape_of(p), values);
            check(mp_tensor_quantize(exact, nullptr, made, nullptr, nullptr, nullptr));
        }
        return made;
    }

    // Matrices as the recipe wants them; vectors and the embedding too, where that is without scales; the scale in fp32.
    Tensor make_param(int32_t p, const std::vector<float>& values) {
        const std::vector<int64_t> shape = shape_of(p);
        const bool is_fp32 = p == kScale || (is_scaled(c_) && !is_matrix(p));
        if (is_coded(p)) {
            return make_coded(p, values);
        }
        if (is_deferred(p)) {
            return make_deferred(context_, is_fp32 ? MP_DTYPE_FP32 : weight_dtype(recipe_), shape);
        }
        if (is_fp32) {
            return make_tensor(context_, MP_DTYPE_FP32, shape, values);
        }
        if (is_matrix(p) && c_[kGather] != 0) {
            return make_quantized(context_, MP_DTYPE_FP8_E4M3, shape, nullptr);
        }
        mp_tensor* made = nullptr;
        check(mp_recipe_create_weight(context_, recipe_, static_cast<int32_t>(shape.size()),
                                      shape.data(), values.data(), &made));
        return Tensor(made);
    }

    void make_params() {
        for (int32_t p = 0; p < kParamCount; ++p) {
            const std::vector<float> values = first_values(count_of(p), p);
            const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, shape_of(p), values);
            params_[static_cast<std::size_t>(p)] = in_its_memory(p, make_param(p, values));
            const Tensor grad = make_grad(p);
            const bool has_init = p >= first_trained() && !is_deferred(p);
            mp_param_desc desc = MP_PARAM_DESC_INIT;
            desc.name = kParamNames[p];
            desc.param = params_[static_cast<std::size_t>(p)];
            desc.grad = grad;
            desc.init_fp32 = has_init ? static_cast<mp_tensor*>(exact) : nullptr;
            desc.flags = p >= first_trained() ? 0U : MP_PARAM_FROZEN;
            check(mp_optimizer_add_param(optimizer_, p < kBias ? 0 : 1, &desc, nullptr));
        }
    }

    // Those that were deferred: read by each rank, or by the last one for all.
    void fill_params() {
        std::vector<int32_t> deferred;
        for (int32_t p = 0; p < kParamCount; ++p) {
            if (is_deferred(p)) {
                deferred.push_back(p);
            }
        }
        if (deferred.empty()) {
            return;
        }
        const mp_fill_fn fill = [](int32_t p, int64_t first, int64_t count, float* values,
                                   void* payload) -> mp_status {
            const std::vector<float> all =
                static_cast<const Model*>(payload)->first_values(count_of(p), p);
            std::copy_n(all.begin() + first, count, values);
            return MP_STATUS_OK;
        };
        const bool is_sent = c_[kDeferred] == 2 && comm_ != nullptr;
        check(mp_optimizer_fill_params(optimizer_, queue_, deferred.data(),
                                       static_cast<int32_t>(deferred.size()), fill, this,
                                       is_sent ? ranks_of(c_) - 1 : -1));
    }

    [[nodiscard]] std::vector<float> first_values(std::size_t count, int32_t p) const {
        const OwnArithmetic floats;
        std::vector<float> values = numbers(count, seed_ + static_cast<uint64_t>(p));
        for (float& value : values) {
            value = 0.3F * value + (p == kScale ? 1.0F : 0.0F);
        }
        return values;
    }

    void make_layers() {
        const Param weights[] = {kFirst, kSecond, kFirst};
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            mp_linear_desc desc = MP_LINEAR_DESC_INIT;
            desc.in_features = i == 1 ? kOut : kIn;
            desc.out_features = i == 1 ? kIn : kOut;
            desc.name = kLayerNames[i];
            desc.flags = c_[kCache] != 0 ? MP_LINEAR_CACHE_WEIGHT : 0;
            mp_linear* made = nullptr;
            const mp_status status =
                mp_linear_create(context_, recipe_, &desc, params_[weights[i]],
                                 i == 0 ? static_cast<mp_tensor*>(params_[kBias]) : nullptr, &made);
            check(status);
            layers_[i] = Linear(made);
            EXPECT_EQ(status, MP_STATUS_OK) << "in high precision: " << mp_last_error_message();
        }
        if (c_[kLayers] != 0) {
            mp_linear* const layers[] = {layers_[0], layers_[1], layers_[2]};
            check(mp_optimizer_set_linears(optimizer_, layers, 3));
        }
        // What is trained in 16 bits has activations in 16 bits, which layers keep by reference.
        const std::string name = value_of(c_, kRecipe);
        activations_ = name.rfind("bf16_pure", 0) == 0 || name == "int8_blocks" || name == "lion"
                           ? MP_DTYPE_BF16
                       : name == "fp16_mixed" || is_scaled(c_) ? MP_DTYPE_FP16
                                                               : MP_DTYPE_FP32;
    }

    mp_checkpoint* checkpoint() {
        if (checkpoint_ == nullptr) {
            mp_checkpoint* made = nullptr;
            check(mp_checkpoint_create(context_, comm_, nullptr, &made));
            checkpoint_ = Checkpoint(made);
            check(mp_checkpoint_add_optimizer(made, optimizer_));
            check(mp_checkpoint_add_scaler(made, scaler_));
            for (std::size_t i = 0; i < layers_.size(); ++i) {
                const std::string name = "layer" + std::to_string(i);
                check(mp_checkpoint_add_linear(made, name.c_str(), layers_[i]));
            }
        }
        return checkpoint_;
    }

    void add_state(Collected& collected, int32_t p, const std::string& state, int64_t start,
                   int64_t count) {
        mp_tensor* tensor = nullptr;
        if (count > 0 &&
            mp_optimizer_get_state(optimizer_, p, state.c_str(), &tensor) == MP_STATUS_OK) {
            const Tensor owned(tensor);
            collected.add_piece(kParamNames[p] + ("." + state), start, bytes_of(tensor));
        }
    }

    [[nodiscard]] bool name_is(const char* name) const {
        return std::strcmp(value_of(c_, kRecipe), name) == 0;
    }
    // What everybody computes with where weights are gathered as codes.
    Bytes codes_of(mp_tensor* param) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        check(mp_tensor_get_desc(param, &desc));
        const Tensor codes =
            make_quantized(context_, MP_DTYPE_FP8_E4M3, {desc.shape[0], desc.shape[1]}, nullptr);
        check(mp_tensor_quantize(param, queue_, codes, nullptr, nullptr, nullptr));
        return bytes_of(codes);
    }
};

} // namespace mp_test::bits
