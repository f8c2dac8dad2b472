// SPDX-License-Identifier: Apache-2.0
// Recipes: dtypes, rounding and scaling by name, by key or as JSON, and what memory they need.
#pragma once

#include "tensor.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

/** Dtypes, rounding and scaling of every class of tensor. */
class Recipe : public Handle<mp_recipe, mp_recipe_destroy> {
  public:
    using Handle::Handle;
    struct Preset {
        const char* name;
        const char* text;
    };

    static result<Recipe> create(const Context& context, const std::string& name) {
        return detail::make<Recipe>(mp_recipe_create, context, name);
    }
    static result<Recipe> from_json(const Context& context, std::string_view json) {
        return detail::make<Recipe>(mp_recipe_create_from_json, context, json.data(), json.size());
    }
    static result<Recipe> from_file(const Context& context, const std::string& path) {
        return detail::make<Recipe>(mp_recipe_create_from_file, context, path);
    }
    static std::vector<Preset> presets() {
        std::vector<Preset> all(static_cast<std::size_t>(mp_recipe_preset_count()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            static_cast<void>(mp_recipe_get_preset_info(static_cast<std::int32_t>(i), &all[i].name,
                                                        &all[i].text));
        }
        return all;
    }
    static std::vector<RecipeKey> keys() {
        std::vector<RecipeKey> all(static_cast<std::size_t>(mp_recipe_key_count()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            static_cast<void>(mp_recipe_get_key_info(static_cast<std::int32_t>(i), &all[i]));
        }
        return all;
    }

    /** Keys are the MP_RECIPE_* of recipe_keys.h; the value's type must be the key's. */
    result<void> set(const char* key, const char* value) {
        return call(mp_recipe_set_string, key, value);
    }
    result<void> set(const char* key, const std::string& value) { return set(key, value.c_str()); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    result<void> set(const char* key, T value) {
        if constexpr (std::is_integral_v<T>)
            return call(mp_recipe_set_int, key, static_cast<std::int64_t>(value));
        else
            return call(mp_recipe_set_float, key, static_cast<double>(value));
    }
    result<std::string> get_string(const char* key) const {
        const char* value = "";
        const mp_status status = mp_recipe_get_string(raw_, key, &value);
        std::string text = status >= 0 ? value : "";
        return detail::give(status, text);
    }
    result<double> get_float(const char* key) const {
        return value<double>(mp_recipe_get_float, key);
    }
    result<std::int64_t> get_int(const char* key) const {
        return value<std::int64_t>(mp_recipe_get_int, key);
    }
    result<std::string> to_json() const { return text(mp_recipe_to_json); }
    /** Why the device's choice fell on it; empty for a recipe not made by "auto". */
    result<std::string> reason() const { return text(mp_recipe_get_reason); }
    /** The error names every problem; advice is in note(). */
    result<void> validate() const { return call(mp_recipe_validate); }
    result<Recipe> clone() const { return make<Recipe>(mp_recipe_clone); }
    /** The recipe as a layer of this name has it: the rules of key "layers" resolved. */
    result<Recipe> for_layer(const char* name) const {
        return make<Recipe>(mp_recipe_clone_for_layer, name);
    }
    /** Likewise as a parameter of this name has it. */
    result<Recipe> for_param(const char* name) const {
        return make<Recipe>(mp_recipe_clone_for_param, name);
    }
    result<bool> frozen() const { return value<bool>(mp_recipe_get_frozen); }

    /** The weight that the recipe wants, from its values in fp32; without values zeros. */
    result<Tensor> weight(const Context& context, const Shape& shape,
                          span<const float> values = {}) const {
        return make_weight(mp_recipe_create_weight, context, shape, values);
    }
    /** The weight as the codes that its fp8 products take. */
    result<Tensor> weight_codes(const Context& context, const Shape& shape,
                                span<const float> values = {}) const {
        return make_weight(mp_recipe_create_weight_codes, context, shape, values);
    }

    /** Bytes by class of tensor, before anything is allocated. */
    result<MemoryReport> plan_memory(std::int32_t rule, std::int64_t parameter_count) const {
        return value<MemoryReport>(mp_recipe_plan_memory, rule, parameter_count);
    }
    result<MemoryReport> plan_memory(std::int32_t rule,
                                     const std::vector<std::int64_t>& counts) const {
        return value<MemoryReport>(mp_recipe_plan_memory_of_tensors, rule, counts.data(),
                                   detail::count_of(counts));
    }
    result<MemoryReport> plan_memory(std::int32_t rule, const std::vector<std::int64_t>& counts,
                                     const ShardingOptions& sharding, int rank, int ranks) const {
        return value<MemoryReport>(mp_recipe_plan_memory_sharded, rule, counts.data(),
                                   detail::count_of(counts), &sharding, rank, ranks);
    }
    /** The same tensor by tensor, each with formats and a rule of its own, and what a rank sends a step. */
    struct Plan {
        MemoryReport memory;
        CommTraffic traffic;
    };
    result<Plan> plan_tensors(span<const PlannedTensor> tensors,
                              const ShardingOptions& sharding = {}, int rank = 0, int ranks = 1,
                              const OptimizerOptions& optimizer = {}) const {
        static_assert(sizeof(PlannedTensor) == sizeof(mp_planned_tensor));
        Plan plan;
        return detail::give(mp_recipe_plan_tensors(raw_, &optimizer, tensors.data(),
                                                   detail::count_of(tensors), &sharding, rank,
                                                   ranks, &plan.memory, &plan.traffic),
                            plan);
    }

  private:
    template <class Function>
    result<Tensor> make_weight(Function function, const Context& context, const Shape& shape,
                               span<const float> values) const {
        if (values.data() != nullptr && shape.elements() != detail::count_of(values)) {
            return detail::fail<Tensor>(
                MP_STATUS_INVALID_SHAPE,
                "weight: the shape has " + std::to_string(shape.elements()) +
                    " elements, but there are " + std::to_string(values.size()) + " values");
        }
        return detail::make<Tensor>(function, context, raw_, shape.ndim(), shape.data(),
                                    values.data());
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
