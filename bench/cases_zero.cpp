// SPDX-License-Identifier: Apache-2.0
// A step of an optimizer that two ranks share, each a thread with one thread of its own, against the step of one rank
// with both threads that holds everything. The ratio says what sending gradients and weights costs beside the step;
// both ranks have all gradients and weights in the same memory, so it is the worst case for the shared one.
// Then a backward pass of work in the caches, in which buckets leave, and the step; against the same without the
// thread that moves the buckets on. Both cores are busy, so the thread can only show what it costs.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

// One rank's optimizer over one large parameter.
class Model {
  public:
    // `comm` null: nobody shares it.
    Model(const char* recipe, mp_comm* comm, const mp_sharding_desc& zero, int64_t elements,
          int32_t threads) {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = threads;
        check(mp_context_create(&desc, &context_));
        check(mp_recipe_create(context_, recipe, &recipe_));
        if (comm == nullptr) {
            check(mp_optimizer_create(context_, recipe_, nullptr, &optimizer_));
        } else {
            check(
                mp_optimizer_create_sharded(context_, recipe_, nullptr, comm, &zero, &optimizer_));
        }
        int32_t group = 0;
        check(mp_optimizer_add_group(optimizer_, nullptr, &group));
        const int64_t layer = std::min<int64_t>(elements, 1 << 22);
        const char* weight = nullptr;
        check(mp_recipe_get_string(recipe_, MP_RECIPE_WEIGHT_DTYPE, &weight));
        for (int64_t i = 0; i < elements / layer; ++i) {
            add(group, i, layer, weight[0] == 'b' ? MP_DTYPE_BF16 : MP_DTYPE_FP32);
        }
        if (comm != nullptr) {
            check(mp_optimizer_shard(optimizer_, nullptr));
        }
        work_ = make_tensor(context_, MP_DTYPE_FP32, {kWork});
        result_ = make_tensor(context_, MP_DTYPE_BF16, {kWork});
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() {
        for (mp_tensor* param : params_) {
            mp_tensor_destroy(param);
        }
        mp_tensor_destroy(work_);
        mp_tensor_destroy(result_);
        mp_optimizer_destroy(optimizer_);
        mp_recipe_destroy(recipe_);
        mp_context_destroy(context_);
    }

    void step() { check(mp_optimizer_step(optimizer_, nullptr, nullptr)); }
    void backward() {
        for (auto layer = static_cast<int32_t>(params_.size()); layer-- > 0;) {
            for (int i = 0; i < kWorkOfALayer; ++i) {
                check(mp_tensor_cast(work_, nullptr, result_, nullptr));
            }
            check(mp_optimizer_grad_ready(optimizer_, nullptr, layer));
        }
    }

  private:
    static constexpr int64_t kWork = 1 << 17;
    static constexpr int kWorkOfALayer = 128; // a few milliseconds

    void add(int32_t group, int64_t index, int64_t elements, int32_t dtype) {
        mp_tensor* param = make_tensor(context_, dtype, {elements});
        params_.push_back(param);
        const std::string name = "layer" + std::to_string(index);
        mp_param_desc added = MP_PARAM_DESC_INIT;
        added.name = name.c_str();
        added.param = param;
        check(mp_optimizer_add_param(optimizer_, group, &added, nullptr));
    }

    mp_context* context_ = nullptr;
    mp_recipe* recipe_ = nullptr;
    mp_optimizer* optimizer_ = nullptr;
    std::vector<mp_tensor*> params_;
    mp_tensor* work_ = nullptr;
    mp_tensor* result_ = nullptr;
};

// The optimizer of two ranks.
class SharedModel {
  public:
    SharedModel(const char* recipe, int32_t stage, uint32_t flags, const Options& options) {
        mp_sharding_desc zero = MP_SHARDING_DESC_INIT;
        zero.flags |= flags;
        zero.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
        zero.bucket_elements = 1 << 22;
        check(mp_comm_create_threads(nullptr, kRanks, comms_));
        const auto elements = static_cast<int64_t>(options.elements);
        on_ranks([&](int r) { // making one waits for the other
            models_[r] = std::make_unique<Model>(recipe, comms_[r], zero, elements, 1);
        });
    }
    SharedModel(const SharedModel&) = delete;
    SharedModel& operator=(const SharedModel&) = delete;
    ~SharedModel() {
        for (int r = 0; r < kRanks; ++r) {
            models_[r].reset();
        }
        for (mp_comm* comm : comms_) {
            mp_comm_destroy(comm);
        }
    }

    void step() {
        on_ranks([&](int r) { models_[r]->step(); });
    }
    void backward_and_step() {
        on_ranks([&](int r) {
            models_[r]->backward();
            models_[r]->step();
        });
    }

  private:
    mp_comm* comms_[kRanks] = {};
    std::unique_ptr<Model> models_[kRanks];
};

} // namespace

std::vector<Row> zero_rows(mp_context* /*context*/, const Options& options) {
    std::vector<Row> rows;
    const auto elements = static_cast<double>(options.elements);
    for (const char* recipe : {"fp32", "bf16_pure_kahan", "bf16_pure"}) {
        for (const int32_t stage : {0, 1}) {
            const std::string name =
                std::string("zero ") + std::to_string(stage) + ", 2 ranks, " + recipe;
            if (is_wanted(options, name)) {
                SharedModel shared(recipe, stage, 0, options);
                Model alone(recipe, nullptr, MP_SHARDING_DESC_INIT,
                            static_cast<int64_t>(options.elements), kRanks);
                rows.push_back({name,
                                compare(
                                    {"one rank, which sends nothing", [&] { alone.step(); }},
                                    [&] { shared.step(); }, options.turns),
                                0.0, "GB/s", elements});
            }
        }
        const std::string name = std::string("zero 1, 2 ranks, backward and step, ") + recipe;
        if (is_wanted(options, name)) {
            SharedModel shared(recipe, 1, 0, options);
            SharedModel without(recipe, 1, MP_SHARDING_NO_PROGRESS_THREAD, options);
            rows.push_back(
                {name,
                 compare(
                     {"without the progress thread", [&] { without.backward_and_step(); }},
                     [&] { shared.backward_and_step(); }, options.turns),
                 0.0, "GB/s", elements});
        }
    }
    return rows;
}

} // namespace mp_bench
