// SPDX-License-Identifier: Apache-2.0
// One training with every option that must not change its bits: ranks, stages, transports, places, recomputed or kept
// inputs, micro-batches in flight, a stop and a start in between. What comes out is everything that training keeps.
//
// The model: an embedding of three chunks of 16384 elements, two layers and a third over the first's weight, a bias, and a
// scale like a norm's. Several micro-batches a step; one gradient of the second step is not finite, so that step is skipped.
#pragma once

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>

#include "floats.hpp"
#include "forwarded_comm.hpp"
#include "training.hpp"

namespace mp_test::bits {

using Bytes = std::vector<unsigned char>;

// ---- options ------------------------------------------------------------------------------------

enum Option : std::size_t {
    kRecipe,
    kRanks,
    kTransport,
    kOrder,
    kSlotCount,
    kWire,
    kGather,
    kGroups,
    kStage,
    kPlan,
    kBuckets,
    kReady,
    kProgress,
    kHash,
    kSavedOn,
    kSavedStage,
    kSaving,
    kThreads,
    kOffload,
    kInputs,
    kInFlight,
    kWorkspace,
    kCache,
    kLayers,
    kOptionCount
};

// Values of kTransport, kGroups and kInputs, by their place in the table below.
enum Transport { kNone, kSelf, kThreadRanks, kCallbacks };
enum Groups { kOneCopy, kTwoCopies, kManyCopies, kNodes };
enum Inputs { kInTheLayer, kSaved, kRecomputed, kLent };

struct OptionInfo {
    const char* name;
    std::vector<const char*> values; // the first is the plain one
};

inline const std::array<OptionInfo, kOptionCount>& options() {
    static const std::array<OptionInfo, kOptionCount> table = {{
        {"recipe",
         {"fp32", "bf16_mixed", "bf16_pure_sr", "bf16_pure_kahan", "bf16_pure_remainder",
          "fp16_mixed", "fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_block", "mxfp8",
          "msamp_o2", "msamp_o3", "int8_blocks", "lion", "fp8_gather"}},
        {"ranks", {"1", "2", "3", "4", "5", "6", "7", "8"}},
        {"transport", {"none", "self", "threads", "callbacks"}},
        {"order", {"rank", "tree", "exact"}}, // as MP_COMM_ORDER_* numbers them
        {"slots", {"8", "11"}},
        {"wire", {"the recipe's", "bf16", "fp8"}},
        {"weights gathered as", {"numbers", "codes"}},
        {"groups", {"one copy", "two copies or more", "most copies", "nodes"}},
        {"stage", {"0", "1", "2", "3"}},
        {"plan", {"flat", "per parameter", "greedy"}}, // as MP_SHARD_* numbers them
        {"buckets", {"one", "small"}},
        {"gradients leave", {"in the step", "when ready"}},
        {"progress thread", {"yes", "no"}},
        {"hash of weights", {"never", "every step"}},
        {"saved on ranks", {"never", "1", "2", "3", "4", "5", "6", "7", "8"}},
        {"saved in stage", {"0", "1", "2", "3"}},
        {"saved", {"at once", "in the background"}},
        {"threads", {"1", "2"}},
        {"states", {"on the device", "offloaded"}},
        {"inputs", {"in the layer", "saved", "recomputed", "in lent memory"}},
        {"micro-batches", {"one by one", "in flight together"}},
        {"workspace", {"the library's", "the caller's"}},
        {"weights", {"rounded each time", "cached"}},
        {"end of layers' step", {"a call", "the optimizer's"}},
    }};
    return table;
}

using Configuration = std::array<int32_t, kOptionCount>;

inline const char* value_of(const Configuration& c, Option option) {
    return options()[option].values[static_cast<std::size_t>(c[option])];
}
inline int32_t ranks_of(const Configuration& c) { return c[kRanks] + 1; }
inline int32_t slots_of(const Configuration& c) { return c[kSlotCount] == 0 ? 8 : 11; }

// Ranks that share a copy, or a node, of so many; 0 where all do.
inline int32_t group_ranks(const Configuration& c) {
    std::vector<int32_t> divisors;
    for (int32_t d = 1; d < ranks_of(c); ++d) {
        if (ranks_of(c) % d == 0) {
            divisors.push_back(d);
        }
    }
    if (c[kGroups] == kOneCopy || divisors.empty()) {
        return 0;
    }
    return c[kGroups] == kTwoCopies ? divisors.back() : divisors[divisors.size() > 1 ? 1 : 0];
}

// States and weights with one scale for a tensor.
inline bool is_scaled(const Configuration& c) {
    return std::string(value_of(c, kRecipe)).rfind("msamp", 0) == 0;
}
// Its owner keeps an fp32 weight exactly and everybody computes with a bf16 one, which stage 0 does not do.
inline bool rounds_gathered(const Configuration& c) {
    const std::string name = value_of(c, kRecipe);
    return name == "bf16_mixed" || name == "mxfp8" ||
           (name.rfind("fp8_", 0) == 0 && name != "fp8_gather");
}

inline std::string recipe_text(const Configuration& c) {
    const std::string name = value_of(c, kRecipe);
    if (name == "int8_blocks") {
        return R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
                   "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block128"})";
    }
    if (name == "fp16_mixed" || is_scaled(c)) { // a loss scale that moves both ways
        return R"({"recipe": ")" + name +
               R"(", "scaler.init_scale": 1024, "scaler.growth_interval": 2})";
    }
    if (name == "fp8_gather") {
        return std::string(R"({"recipe": "fp8_current", "weight.gather.dtype": "fp32",
                               "weight.gather.codes": ")") +
               (c[kGather] != 0 ? "on" : "off") + "\"}";
    }
    return name == "lion" ? "bf16_pure_sr" : name;
}

// ---- what a training ends with -------------------------------------------------------------------

struct Outcome {
    std::map<std::string, Bytes> values;
    std::vector<std::string> errors;
    bool operator==(const Outcome&) const = default;
};

class Collected {
  public:
    // The same on every rank that has it.
    void add(const std::string& name, Bytes bytes) { add_piece(name, 0, std::move(bytes)); }
    // One piece of it, the same on every rank that has this piece.
    void add_piece(const std::string& name, int64_t start, Bytes bytes) {
        const std::lock_guard lock(mutex_);
        const auto [at, is_new] = pieces_[name].try_emplace(start, bytes);
        if (!is_new && at->second != bytes) {
            outcome_.errors.push_back(name + " is not the same on all ranks");
        }
    }
    void fail(const std::string& text) {
        const std::lock_guard lock(mutex_);
        outcome_.errors.push_back(text);
    }
    Outcome take() {
        for (auto& [name, pieces] : pieces_) {
            for (const auto& [start, bytes] : pieces) {
                outcome_.values[name].insert(outcome_.values[name].end(), bytes.begin(),
                                             bytes.end());
            }
        }
        return std::move(outcome_);
    }

  private:
    std::mutex mutex_;
    std::map<std::string, std::map<int64_t, Bytes>> pieces_;
    Outcome outcome_;
};

template <typename T> Bytes raw_bytes(const T* data, std::size_t count) {
    Bytes bytes(count * sizeof(T));
    std::memcpy(bytes.data(), data, bytes.size());
    return bytes;
}

// The floating-point environment that every rank's thread calls the library under, where it is not the default one: from the
// beginning, or from its second step on, when all threads of the library have begun.
inline const Floats* callers_floats = nullptr;
inline bool are_floats_late = false;
inline thread_local std::optional<FloatWords> this_threads_floats;

inline void set_floats() {
    if (callers_floats != nullptr) {
        callers_floats->set();
        this_threads_floats = FloatWords::read();
    }
}
inline void reset_floats() {
    this_threads_floats.reset();
    (void)std::fesetenv(FE_DFL_ENV);
}

inline void check(mp_status status) {
    if (this_threads_floats && *this_threads_floats != FloatWords::read()) {
        throw std::runtime_error("a call has changed its thread's floating-point environment");
    }
    if (status < 0) {
        throw std::runtime_error(std::string(mp_status_string(status)) + ": " +
                                 mp_last_error_message());
    }
}

// ---- one rank ------------------------------------------------------------------------------------

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

// Fixed numbers for a micro-batch; the same for every configuration.
inline const std::vector<float>& noise(int32_t step, int32_t slot) {
    static const auto all = [] {
        const OwnArithmetic floats;
        std::vector<std::vector<float>> made;
        for (uint64_t i = 0; i < uint64_t{kSteps} * kMostSlots; ++i) {
            made.push_back(numbers(kTokens * kIn, 1000 + i));
            for (float& value : made.back()) {
                value *= 0.01F;
            }
        }
        made[kSkippedStep * kMostSlots + 5][123] = std::numeric_limits<float>::infinity();
        return made;
    }();
    return all[static_cast<std::size_t>(step * kMostSlots + slot)];
}

// 256-aligned memory of the caller's.
struct Block {
    std::unique_ptr<unsigned char, decltype(&std::free)> memory{nullptr, &std::free};
    std::size_t bytes = 0;
    Block() = default;
    explicit Block(std::size_t size)
        : memory(static_cast<unsigned char*>(std::aligned_alloc(256, (size + 255) / 256 * 256)),
                 &std::free),
          bytes(size) {}
};

// A micro-batch between its forward and its backward.
struct Micro {
    int32_t slot = 0;
    std::array<Saved, 3> saved;
    std::array<Block, 3> lent;
    std::array<Tensor, 3> inputs; // in the simple way a layer may refer to them
    std::vector<float> first;     // of the first layer
    Tensor dy;
};

class Trainer {
  public:
    // `seed`: of the first values, which a load replaces.
    Trainer(const Configuration& c, int32_t rank, mp_comm* comm, uint64_t seed)
        : c_(c), comm_(comm), seed_(seed), context_(make_context(c[kThreads] + 1)),
          recipe_(recipe_of(context_, recipe_text(c))),
          first_slot_(rank * slots_of(c) / ranks_of(c)),
          end_slot_((rank + 1) * slots_of(c) / ranks_of(c)) {
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
    }

    void train(int32_t first, int32_t end, Collected& collected) {
        for (int32_t step = first; step < end; ++step) {
            if (step == first + 1 && are_floats_late) {
                set_floats();
            }
            if (comm_ != nullptr) {
                gather();
            }
            backward(step, collected);
            check(mp_optimizer_step(optimizer_, queue_, scaler_));
            check(mp_scaler_update(scaler_, queue_));
            if (c_[kLayers] == 0) {
                mp_linear* const layers[] = {layers_[0], layers_[1], layers_[2]};
                check(mp_linear_end_step(layers, 3, queue_, comm_));
            }
            check(mp_optimizer_zero_grad(optimizer_, queue_));
        }
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

  private:
    void make_optimizer() {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.seed = 5;
        desc.max_grad_norm = 1.0;
        desc.flags = c_[kOffload] != 0 ? MP_OPTIMIZER_OFFLOAD : 0;
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

    // Matrices as the recipe wants them; vectors and the embedding too, where that is without scales; the scale in fp32.
    void make_params() {
        const std::vector<int64_t> shapes[] = {
            {kTokens, kIn}, {kOut, kIn}, {kIn, kOut}, {kOut}, {kOut}};
        for (int32_t p = 0; p < kParamCount; ++p) {
            const std::vector<int64_t>& shape = shapes[p];
            const auto count = static_cast<std::size_t>(std::accumulate(
                shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>()));
            const std::vector<float> values = first_values(count, p);
            const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, shape, values);
            const bool is_matrix = p == kFirst || p == kSecond;
            if (p == kScale || (is_scaled(c_) && !is_matrix)) {
                params_[static_cast<std::size_t>(p)] =
                    make_tensor(context_, MP_DTYPE_FP32, shape, values);
            } else if (is_matrix && c_[kGather] != 0) {
                params_[static_cast<std::size_t>(p)] =
                    make_quantized(context_, MP_DTYPE_FP8_E4M3, shape, nullptr);
            } else {
                mp_tensor* made = nullptr;
                check(mp_recipe_create_weight(context_, recipe_, static_cast<int32_t>(shape.size()),
                                              shape.data(), values.data(), &made));
                params_[static_cast<std::size_t>(p)] = Tensor(made);
            }
            mp_param_desc desc = MP_PARAM_DESC_INIT;
            desc.name = kParamNames[p];
            desc.param = params_[static_cast<std::size_t>(p)];
            desc.init_fp32 = exact;
            check(mp_optimizer_add_param(optimizer_, p < kBias ? 0 : 1, &desc, nullptr));
        }
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

    void gather() {
        constexpr int32_t kAll[] = {0, 1, 2, 3, 4};
        check(mp_optimizer_gather_begin(optimizer_, queue_, kAll, kParamCount));
        check(mp_optimizer_gather_wait(optimizer_, queue_, kAll, kParamCount));
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
        for (int32_t p = 0; p < kParamCount; ++p) {
            check(mp_optimizer_acquire_grad(optimizer_, queue_, p));
        }
        const Tensor first_grad = grad(kFirst);
        const Tensor dz = activation(kIn), dh = activation(kOut), dx = activation(kIn);
        backward_layer(micro, 2, micro.dy, dz, first_grad, nullptr);
        backward_layer(micro, 1, dz, dh, grad(kSecond), nullptr);
        const std::vector<float> dfirst = values_of(context_, dh);
        backward_layer(micro, 0, activation(kOut, scaled(dfirst)), dx, first_grad, grad(kBias));
        add_to_grad(kScale, scale_grad(dfirst, micro.first));
        add_to_grad(kEmbedding, embedding_grad(step, micro.slot, values_of(context_, dx),
                                               values_of(context_, dz)));
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
        if (comm_ == nullptr || (!is_slot && micro.slot + 1 < end_slot_)) {
            return;
        }
        for (int32_t p = kParamCount; p-- > 0 && c_[kReady] != 0;) {
            check(mp_optimizer_grad_ready(optimizer_, queue_, p));
        }
        if (is_slot && c_[kReady] == 0) {
            check(mp_optimizer_end_microbatch(optimizer_, queue_));
        }
    }

    void backward(int32_t step, Collected& collected) {
        check(mp_scaler_get_scale(scaler_, queue_, &loss_scale_));
        embedding_ = values_of(context_, params_[kEmbedding]);
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

    Configuration c_;
    mp_comm* comm_;
    uint64_t seed_;
    Context context_;
    Recipe recipe_;
    Block workspace_; // outlives its queue
    Queue queue_;
    int32_t first_slot_, end_slot_;
    int32_t activations_ = MP_DTYPE_FP32;
    Optimizer optimizer_;
    std::array<Tensor, kParamCount> params_;
    std::array<Linear, 3> layers_;
    Scaler scaler_;
    Checkpoint checkpoint_;
    std::vector<Micro> micros_;
    double loss_scale_ = 1.0;
    std::vector<float> embedding_, scale_;
};

// ---- all ranks -----------------------------------------------------------------------------------

// The body of each rank in a thread of its own, with the communicator that the configuration asks for.
inline void on_ranks(const Configuration& c, Collected& collected,
                     const std::function<void(int32_t, mp_comm*)>& body) {
    const int32_t ranks = ranks_of(c);
    std::vector<mp_comm*> raw(static_cast<std::size_t>(ranks));
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    desc.deadline_ms = 20000;
    if (c[kTransport] == kSelf) {
        check(mp_comm_create_self(&desc, raw.data()));
    } else if (c[kTransport] != kNone) {
        check(mp_comm_create_threads(&desc, ranks, raw.data()));
    }
    const auto run = [&](int32_t rank) {
        try {
            if (!are_floats_late) {
                set_floats();
            }
            Comm comm(
                raw[static_cast<std::size_t>(rank)]); // a rank that gives up is lost to others
            Forward forward;
            if (c[kTransport] == kCallbacks) {
                forward.comm = std::move(comm);
                forward.flags = c[kProgress] == 0 ? MP_COMM_TAKES_ANY_THREAD : 0;
                const mp_comm_callbacks table = forward.table();
                mp_comm* made = nullptr;
                check(mp_comm_create_callbacks(&desc, &table, &made));
                comm = Comm(made);
            }
            body(rank, comm);
            if (comm != nullptr) {
                check(mp_comm_barrier(comm, nullptr)); // nobody leaves before the others are done
            }
        } catch (const std::runtime_error& error) {
            collected.fail("rank " + std::to_string(rank) + ": " + error.what());
        }
        reset_floats();
    };
    std::vector<std::thread> threads;
    for (int32_t rank = 1; rank < ranks; ++rank) {
        threads.emplace_back(run, rank);
    }
    run(0);
    for (std::thread& thread : threads) {
        thread.join();
    }
}

// The ranks, stage and nothing else of what a configuration's first half ran on.
inline Configuration first_half(const Configuration& c) {
    Configuration half{};
    for (const Option same : {kRecipe, kOrder, kSlotCount, kWire, kThreads, kSaving}) {
        half[same] = c[same];
    }
    if (c[kTransport] != kNone) {
        half[kRanks] = c[kSavedOn] - 1;
        half[kTransport] = half[kRanks] == 0 ? kSelf : kThreadRanks;
        half[kStage] = c[kSavedStage];
        half[kGather] = half[kStage] > 0 ? c[kGather] : 0;
        half[kPlan] = is_scaled(c) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
        half[kGroups] = c[kOrder] == MP_COMM_ORDER_RANK ? c[kGroups] : 0;
    }
    return half;
}

inline Outcome run(const Configuration& c) {
    Collected collected;
    const bool is_resumed = c[kSavedOn] != 0;
    const Folder folder("equal_bits");
    if (is_resumed) {
        const Configuration half = first_half(c);
        on_ranks(half, collected, [&](int32_t rank, mp_comm* comm) {
            Trainer trainer(half, rank, comm, 50);
            trainer.train(0, kSaveAfter, collected);
            trainer.save(folder.c_str());
        });
    }
    on_ranks(c, collected, [&](int32_t rank, mp_comm* comm) {
        Trainer trainer(c, rank, comm, is_resumed ? 70 : 50);
        if (is_resumed) {
            trainer.load(folder.c_str());
        }
        trainer.train(is_resumed ? kSaveAfter : 0, kSteps, collected);
        trainer.collect(collected);
    });
    return collected.take();
}

} // namespace mp_test::bits
