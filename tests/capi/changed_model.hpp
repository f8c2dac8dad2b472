// SPDX-License-Identifier: Apache-2.0
// A model whose parameters are frozen, trained again and added while it is trained, on any number of ranks.
#pragma once

#include <string>
#include <utility>

#include "optimizers.hpp"
#include "sharded_model.hpp"

namespace mp_test {

struct ChangedKind {
    const char* recipe;
    int32_t stage = 1; // as people count them
    int32_t plan = MP_SHARD_FLAT;
    uint32_t flags = 0; // of the optimizer
    int64_t bucket_elements = 0;
    bool has_exact = true;  // first values with all their bits
    bool has_codes = false; // matrices are codes that ranks gather
    int32_t shard_ranks = 0;
    int32_t node_ranks = 0;
    int32_t order = MP_COMM_ORDER_RANK;
};

struct ChangedParam {
    const char* name;
    std::vector<int64_t> shape;
    uint32_t flags = 0;
    bool is_deferred = false;
};

// The first ones, of one chunk and of several; and those that come later.
inline const std::vector<ChangedParam>& first_params() {
    static const std::vector<ChangedParam> params = {
        {"a", {200, 200}}, {"b", {7}},        {"c", {130, 160}, MP_PARAM_FROZEN},
        {"d", {0}},        {"e", {100, 500}}, {"f", {17000}, MP_PARAM_FROZEN},
    };
    return params;
}
inline const std::vector<ChangedParam>& late_params() {
    static const std::vector<ChangedParam> params = {
        {"g", {300, 70}}, {"h", {5}, MP_PARAM_FROZEN}, {"i", {60, 600}, 0, true}};
    return params;
}

struct ChangedModel {
    Context context;
    Recipe recipe;
    Optimizer optimizer;
    ChangedKind kind;
    std::vector<Tensor> params;
    mp_status status = MP_STATUS_OK; // of the first call that failed
    std::string said;
    int32_t rank = 0;
    int32_t ranks = 1;

    // `comm` NULL: an ordinary optimizer. `adds`: the first parameters.
    ChangedModel(mp_comm* comm, const ChangedKind& of, Context made = make_context(1),
                 bool adds = true)
        : context(std::move(made)), recipe(recipe_of(context, of.recipe)), kind(of) {
        mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
        desc.max_grad_norm = (kind.flags & MP_OPTIMIZER_GRADS_GIVEN) != 0U ? 0.0 : 1.0;
        desc.flags = kind.flags;
        const mp_sharding_desc sharding = sharding_of(kind);
        optimizer = make_optimizer_on(comm, context, recipe, &desc, &sharding);
        add_group(optimizer, 0x1p-7, 0x1p-3);
        add_group(optimizer, 0x1p-6, 0.0);
        if (comm != nullptr) {
            EXPECT_TRUE(succeeded(mp_comm_get_rank(comm, &rank)));
            EXPECT_TRUE(succeeded(mp_comm_get_size(comm, &ranks)));
        }
        if (adds) {
            add(first_params(), 0);
            ok(comm != nullptr ? mp_optimizer_shard(optimizer, nullptr) : MP_STATUS_OK);
        }
    }
    static mp_sharding_desc sharding_of(const ChangedKind& kind) {
        mp_sharding_desc sharding = stage_desc(kind.stage);
        sharding.kind = kind.plan;
        sharding.bucket_elements = kind.bucket_elements;
        sharding.flags = MP_SHARDING_SUM_GRADIENTS;
        sharding.shard_ranks = kind.shard_ranks;
        sharding.node_ranks = kind.node_ranks;
        sharding.order = kind.order;
        return sharding;
    }
    bool ok(mp_status next) {
        if (status == MP_STATUS_OK && next != MP_STATUS_OK) {
            status = next;
            said = mp_last_error_message();
        }
        return next == MP_STATUS_OK;
    }

    // With tensors and exact values, which are no part of a call.
    struct Prepared {
        std::vector<mp_param_desc> descs;
        std::vector<Tensor> exact;
        std::vector<Tensor> params;
    };
    Prepared prepare(const std::vector<ChangedParam>& list) {
        Prepared made;
        for (const ChangedParam& param : list) {
            mp_param_desc desc = MP_PARAM_DESC_INIT;
            const std::vector<float> values =
                numbers(static_cast<std::size_t>(elements(param.shape)), seed_++);
            made.params.emplace_back(make_weight(param, values));
            if (kind.has_exact && !param.is_deferred && (param.flags & MP_PARAM_FROZEN) == 0U) {
                made.exact.push_back(make_tensor(context, MP_DTYPE_FP32, param.shape, values));
                desc.init_fp32 = made.exact.back();
            }
            desc.name = param.name;
            desc.param = made.params.back();
            desc.flags = param.flags;
            made.descs.push_back(desc);
        }
        return made;
    }
    // All in one call. After a failure it may be called again.
    void add(Prepared& made, int32_t group) {
        int32_t first = -1;
        if (ok(mp_optimizer_add_params(optimizer, group, made.descs.data(),
                                       static_cast<int32_t>(made.descs.size()), &first))) {
            EXPECT_EQ(first, static_cast<int32_t>(params.size()));
            for (Tensor& tensor : made.params) {
                params.push_back(std::move(tensor));
            }
        }
    }
    void add(const std::vector<ChangedParam>& list, int32_t group) {
        Prepared made = prepare(list);
        add(made, group);
    }
    void set_frozen(const std::vector<int32_t>& indices, int32_t frozen) {
        ok(mp_optimizer_set_frozen(optimizer, nullptr, indices.data(),
                                   static_cast<int32_t>(indices.size()), frozen));
    }
    [[nodiscard]] bool is_frozen(int32_t index) const {
        int32_t frozen = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_frozen(optimizer, index, &frozen)));
        return frozen == 1;
    }
    // So that the next ones have others.
    void skip_values(uint64_t count) { seed_ += count; }
    [[nodiscard]] int32_t count() const { return static_cast<int32_t>(params.size()); }

    // Whole numbers, whose sum over the ranks is the same for any number of them.
    void step(int64_t number) {
        for (int32_t i = count(); i-- > 0 && status == MP_STATUS_OK;) {
            mp_tensor* raw = nullptr;
            if (is_frozen(i) || !ok(mp_optimizer_acquire_grad(optimizer, nullptr, i)) ||
                !ok(mp_optimizer_get_state(optimizer, i, "grad", &raw))) {
                continue;
            }
            const Tensor grad(raw);
            mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
            ok(mp_tensor_get_desc(params[static_cast<std::size_t>(i)], &desc));
            const std::vector<int64_t> shape(desc.shape, desc.shape + desc.ndim);
            std::vector<float> values(static_cast<std::size_t>(elements(shape)));
            for (std::size_t k = 0; k < values.size(); ++k) {
                const auto all =
                    static_cast<int32_t>((k * 7 + static_cast<uint64_t>(number + i)) % 15) - 7;
                const auto others = static_cast<int32_t>(k % 3);
                values[k] = static_cast<float>(rank != 0 ? others : all - (ranks - 1) * others);
            }
            const Tensor exact = make_tensor(context, MP_DTYPE_FP32, shape, values);
            mp_tensor_desc of_grad = MP_TENSOR_DESC_INIT;
            ok(mp_tensor_get_desc(grad, &of_grad));
            if (of_grad.dtype == MP_DTYPE_FP8_E4M3) {
                ok(mp_tensor_quantize(exact, nullptr, grad, nullptr, nullptr, nullptr));
            } else {
                round_into(exact, grad);
            }
        }
        if (status == MP_STATUS_OK) {
            ok(mp_optimizer_step(optimizer, nullptr, nullptr));
        }
    }
    void steps(int64_t first, int64_t end) {
        for (; first < end; ++first) {
            step(first);
        }
    }
    void init_deferred(int32_t index) {
        mp_param_init rule = MP_PARAM_INIT_INIT;
        rule.index = index;
        rule.kind = MP_INIT_NORMAL;
        rule.b = 1.0;
        ok(mp_optimizer_init_params(optimizer, nullptr, 17, &rule, 1));
    }

    // The bytes of all weights, gathered and given back.
    std::vector<std::vector<unsigned char>> weights() {
        std::vector<int32_t> all;
        for (int32_t i = 0; i < count(); ++i) {
            all.push_back(i);
        }
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer, nullptr, all.data(), count())));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer, nullptr, all.data(), count())));
        std::vector<std::vector<unsigned char>> bytes;
        for (const Tensor& param : params) {
            bytes.push_back(bytes_of(param));
        }
        EXPECT_TRUE(succeeded(mp_optimizer_gather_free(optimizer, nullptr, all.data(), count())));
        return bytes;
    }
    [[nodiscard]] int64_t t(int32_t group) const {
        int64_t step = -1;
        EXPECT_TRUE(succeeded(mp_optimizer_get_group_step(optimizer, nullptr, group, &step)));
        return step;
    }
    [[nodiscard]] mp_memory_report memory() const {
        mp_memory_report report = MP_MEMORY_REPORT_INIT;
        EXPECT_TRUE(succeeded(mp_optimizer_get_memory(optimizer, &report)));
        return report;
    }

    static int64_t elements(const std::vector<int64_t>& shape) {
        int64_t count = 1;
        for (const int64_t size : shape) {
            count *= size;
        }
        return count;
    }

  private:
    mp_tensor* make_weight(const ChangedParam& param, const std::vector<float>& values) {
        const auto ndim = static_cast<int32_t>(param.shape.size());
        mp_tensor* raw = nullptr;
        if (param.is_deferred) {
            const bool is_scaled = std::string(kind.recipe).find("msamp") == 0;
            mp_tensor_desc of =
                tensor_desc(is_scaled ? MP_DTYPE_FP32 : weight_dtype(recipe), param.shape);
            of.flags = MP_TENSOR_DEFERRED;
            ok(mp_tensor_create(context, &of, &raw));
        } else {
            const auto make = kind.has_codes && ndim == 2 ? mp_recipe_create_weight_codes
                                                          : mp_recipe_create_weight;
            ok(make(context, recipe, ndim, param.shape.data(), values.data(), &raw));
        }
        return raw;
    }

    uint64_t seed_ = 1;
};

} // namespace mp_test
