// SPDX-License-Identifier: Apache-2.0
// A rank's training of a model with a frozen base, from an allocator that has a limit. What it should need: memory_limit.cpp.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "optimizers.hpp"
#include "sharded_model.hpp"

namespace mp_test {

inline constexpr int32_t kRanks = 8;
inline constexpr int32_t kLarge = 80; // layers
inline constexpr int32_t kSmall = 8;
inline constexpr int32_t kSteps = 2;
// A layer: a frozen matrix of which each rank has a slice, and a trained one of a single chunk, which one rank owns.
inline constexpr int64_t kBaseSide = 512;
inline constexpr int64_t kAdapterSide = 128;
inline constexpr int64_t kBase = kBaseSide * kBaseSide;
inline constexpr int64_t kAdapter = kAdapterSide * kAdapterSide;
inline constexpr int64_t kLayerBytes = (kBase + kAdapter) * 2; // its weights, in bf16
inline constexpr int64_t kGradBytes = kAdapter * 4;
inline constexpr int64_t kLentBytes = (kBase / kRanks + kAdapter) * 2; // of its slices
// No array of the model is smaller, nor a piece of scratch memory. What is smaller is a table of the optimizer's.
inline constexpr int64_t kSmallestArray = kAdapter * 2;
inline constexpr const char* kRecipe = "bf16_mixed_dual";

// A rank's allocator. As Counter, but it gives nothing beyond the limit, and counts tables by themselves.
class LimitedMemory {
  public:
    explicit LimitedMemory(int64_t limit = INT64_MAX) : limit_(limit) {}
    static void* allocate(std::size_t size, std::size_t alignment, void* payload) {
        return static_cast<LimitedMemory*>(payload)->take(static_cast<int64_t>(size), alignment);
    }
    static void release(void* pointer, std::size_t size, std::size_t /*alignment*/, void* payload) {
        static_cast<LimitedMemory*>(payload)->add(-static_cast<int64_t>(size));
        std::free(pointer);
    }
    int64_t live = 0;
    int64_t peak = 0;       // of everything
    int64_t array_peak = 0; // of all but tables
    int64_t table_peak = 0;
    int64_t refused = 0; // calls

  private:
    void* take(int64_t size, std::size_t alignment) {
        if (!add(size)) {
            return nullptr;
        }
        const auto bytes = static_cast<std::size_t>(size);
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    bool add(int64_t size) {
        const std::lock_guard lock(mutex_);
        if (size > limit_ - live) {
            ++refused;
            return false;
        }
        live += size;
        const bool is_table = std::abs(size) < kSmallestArray;
        tables_ += is_table ? size : 0;
        peak = std::max(peak, live);
        table_peak = std::max(table_peak, tables_);
        array_peak = std::max(array_peak, live - tables_);
        return true;
    }
    std::mutex mutex_; // an optimizer has a thread, too
    int64_t limit_;
    int64_t tables_ = 0;
};

inline mp_sharding_desc sharding_of_each() {
    mp_sharding_desc sharding = stage_desc(3);
    sharding.kind = MP_SHARD_PER_PARAMETER;
    sharding.bucket_elements = 1; // each gradient leaves as soon as it is ready
    return sharding;
}

using Weights = std::vector<std::vector<unsigned char>>;

// One rank's training, up to the first failure. Without `comm`: everything on one rank, nothing offloaded.
class LimitedTraining {
  public:
    // `workspace` 0: the queue's own scratch memory, else so much of the rank's.
    LimitedTraining(mp_comm* comm, int32_t rank, int32_t layers, LimitedMemory& memory,
                    int64_t workspace, int32_t steps = kSteps)
        : comm_(comm), rank_(rank), layers_(layers), memory_(memory),
          workspace_bytes_(static_cast<std::size_t>(workspace)) {
        (void)(make() && give_workspace() && add_parameters() && fill() && train(steps));
    }
    LimitedTraining(const LimitedTraining&) = delete;
    LimitedTraining& operator=(const LimitedTraining&) = delete;
    ~LimitedTraining() {
        optimizer_ = Optimizer();
        queue_ = Queue();
        if (workspace_ != nullptr) {
            LimitedMemory::release(workspace_, workspace_bytes_, kWorkspaceAlignment, &memory_);
        }
    }
    mp_status status = MP_STATUS_OK;
    std::string said; // of the failure

    // Gathered one after another.
    [[nodiscard]] Weights weights() {
        Weights bytes;
        for (int32_t i = 0; i < 2 * layers_ && gather({i}); ++i) {
            bytes.push_back(bytes_of(params_[static_cast<std::size_t>(i)]));
            ok(mp_optimizer_gather_free(optimizer_, queue_, &i, 1));
        }
        return bytes;
    }
    [[nodiscard]] int64_t workspace_peak() const {
        std::size_t bytes = 0;
        EXPECT_TRUE(succeeded(mp_queue_get_workspace_peak(queue_, &bytes)));
        return static_cast<int64_t>(bytes);
    }
    [[nodiscard]] mp_memory_report held() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer_, &report)));
        return report;
    }

  private:
    static constexpr std::size_t kWorkspaceAlignment = 256;

    bool ok(mp_status now) {
        if (status == MP_STATUS_OK && now != MP_STATUS_OK) {
            status = now;
            said = mp_last_error_message();
        }
        return status == MP_STATUS_OK;
    }
    // What `create` makes, or a failure.
    template <class Handle, class Create> bool made(Handle& handle, const Create& create) {
        decltype(handle.owned.get()) raw = nullptr;
        const bool is_made = ok(create(&raw));
        handle = Handle(raw);
        return is_made;
    }
    bool make() {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = 1;
        desc.allocate = LimitedMemory::allocate;
        desc.release = LimitedMemory::release;
        desc.allocator_payload = &memory_;
        mp_optimizer_desc of_optimizer = MP_OPTIMIZER_DESC_INIT;
        of_optimizer.max_grad_norm = 1.0;
        of_optimizer.flags = comm_ != nullptr ? MP_OPTIMIZER_OFFLOAD : 0U;
        const mp_sharding_desc sharding = sharding_of_each();
        return made(context_, [&](auto** out) { return mp_context_create(&desc, out); }) &&
               made(recipe_,
                    [&](auto** out) { return mp_recipe_create(context_, kRecipe, out); }) &&
               made(queue_, [&](auto** out) { return mp_queue_create(context_, out); }) &&
               made(optimizer_,
                    [&](auto** out) {
                        return comm_ == nullptr
                                   ? mp_optimizer_create(context_, recipe_, &of_optimizer, out)
                                   : mp_optimizer_create_sharded(context_, recipe_, &of_optimizer,
                                                                 comm_, &sharding, out);
                    }) &&
               ok(mp_optimizer_add_group(optimizer_, nullptr, nullptr));
    }
    bool give_workspace() {
        if (workspace_bytes_ == 0) {
            return true;
        }
        workspace_ = LimitedMemory::allocate(workspace_bytes_, kWorkspaceAlignment, &memory_);
        return ok(workspace_ == nullptr
                      ? MP_STATUS_OUT_OF_MEMORY
                      : mp_queue_set_workspace(queue_, workspace_, workspace_bytes_));
    }
    // First all of the base: the owners of adapters then follow one another.
    bool add_parameters() {
        for (int32_t i = 0; i < 2 * layers_ && status == MP_STATUS_OK; ++i) {
            const bool is_base = i < layers_;
            const int64_t side = is_base ? kBaseSide : kAdapterSide;
            params_.push_back(make_deferred(context_, MP_DTYPE_BF16, {side, side}));
            const std::string name = (is_base ? "base." : "adapter.") + std::to_string(i % layers_);
            mp_param_desc param = MP_PARAM_DESC_INIT;
            param.name = name.c_str();
            param.param = params_.back();
            param.flags = is_base ? MP_PARAM_FROZEN : 0U;
            ok(mp_optimizer_add_param(optimizer_, 0, &param, nullptr));
        }
        return status == MP_STATUS_OK;
    }
    bool fill() {
        std::vector<mp_param_init> inits;
        for (int32_t i = 0; i < 2 * layers_; ++i) {
            mp_param_init init = MP_PARAM_INIT_INIT;
            init.index = i;
            init.kind = MP_INIT_UNIFORM;
            init.a = -0.1;
            init.b = 0.1;
            inits.push_back(init);
        }
        return (comm_ == nullptr || ok(mp_optimizer_shard(optimizer_, queue_))) &&
               ok(mp_optimizer_init_params(optimizer_, queue_, 7, inits.data(), 2 * layers_));
    }
    bool train(int32_t steps) {
        for (int32_t step = 0; step < steps && status == MP_STATUS_OK; ++step) {
            for (int32_t layer = layers_; layer-- > 0 && backward(layer);) {
            }
            if (status == MP_STATUS_OK) {
                ok(mp_optimizer_step(optimizer_, queue_, nullptr));
            }
        }
        return status == MP_STATUS_OK;
    }
    bool gather(const std::vector<int32_t>& indices) {
        const auto count = static_cast<int32_t>(indices.size());
        return ok(mp_optimizer_gather_begin(optimizer_, queue_, indices.data(), count)) &&
               ok(mp_optimizer_gather_wait(optimizer_, queue_, indices.data(), count));
    }
    bool backward(int32_t layer) {
        const std::vector<int32_t> both = {layer, layers_ + layer};
        if (!gather(both) || !ok(mp_optimizer_acquire_grad(optimizer_, queue_, both[1]))) {
            return false;
        }
        write_gradient(layer);
        return ok(mp_optimizer_gather_free(optimizer_, queue_, both.data(), 2)) &&
               ok(mp_optimizer_grad_ready(optimizer_, queue_, both[1])) && wait_for_messages();
    }
    // Whole numbers that follow from every bit of the layer's weights. Each rank has others; their mean is what one rank alone
    // has, exactly.
    void write_gradient(int32_t layer) {
        constexpr int32_t kOfRank[kRanks] = {-4, -3, -2, -1, 1, 2, 3, 4};
        const auto values = [this](int32_t index) {
            return static_cast<const uint16_t*>(data_of(params_[static_cast<std::size_t>(index)]));
        };
        const uint16_t* const base = values(layer);
        const uint16_t* const adapter = values(layers_ + layer);
        const Tensor grad = state_of(optimizer_, layers_ + layer, "grad");
        auto* const to = static_cast<float*>(data_of(grad));
        constexpr int64_t kEach = kBase / kAdapter;
        for (int64_t k = 0; k < kAdapter; ++k) {
            uint32_t bits = adapter[k];
            for (int64_t j = 0; j < kEach; ++j) {
                bits = bits * 31 + base[k * kEach + j];
            }
            const auto common = static_cast<int32_t>(bits % 15) - 7;
            to[k] = static_cast<float>(common + (comm_ != nullptr ? kOfRank[rank_] : 0));
        }
    }
    // Else up to three gradients were under way, and how many a matter of time. What went wrong with them comes out of a call
    // that moves things, here of a gather of nothing; mp_optimizer_get_progress does not say it.
    bool wait_for_messages() {
        while (comm_ != nullptr && ok(mp_optimizer_gather_begin(optimizer_, queue_, nullptr, 0))) {
            const mp_sharding_progress progress = progress_of(optimizer_);
            if (progress.begun == progress.finished) {
                return true;
            }
            std::this_thread::yield();
        }
        return status == MP_STATUS_OK;
    }

    mp_comm* comm_;
    int32_t rank_, layers_;
    LimitedMemory& memory_;
    std::size_t workspace_bytes_;
    void* workspace_ = nullptr;
    Context context_;
    Recipe recipe_;
    Queue queue_;
    std::vector<Tensor> params_;
    Optimizer optimizer_;
};

} // namespace mp_test
