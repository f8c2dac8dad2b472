// SPDX-License-Identifier: Apache-2.0
// recipe.h
#include <cstring>
#include <span>

#include "boundary.hpp"
#include "memory_report.hpp"
#include "objects.hpp"
#include "optim/param_states.hpp"
#include "quant/quantize.hpp"
#include "recipe/automatic.hpp"
#include "recipe/keys.hpp"
#include "recipe/layer_rules.hpp"
#include "rule_number.hpp"
#include "system/file.hpp"
#include "system/name.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_RECIPE_TYPE_STRING == static_cast<int32_t>(recipe::KeyType::string));
static_assert(MP_RECIPE_TYPE_FLOAT == static_cast<int32_t>(recipe::KeyType::floating));
static_assert(MP_RECIPE_TYPE_INT == static_cast<int32_t>(recipe::KeyType::integer));

namespace {

constexpr int64_t kMaxRecipeFile = int64_t{1} << 20;

mp_recipe* make_recipe(recipe::NamedRecipe named) {
    auto object = std::make_shared<RecipeObject>();
    object->recipe = named.recipe;
    object->name = std::move(named.preset);
    object->reason = std::move(named.reason);
    return make_handle<mp_recipe>(std::move(object));
}

DeviceCapability capability_of(const Context& context) {
    return context.stream().device().capability();
}

// Sets a key of a recipe that nothing has used yet.
template <typename Set> mp_status change(mp_recipe* recipe, const char* key, Set set) {
    return boundary([&] {
        RecipeObject& object = *object_of(recipe, "recipe");
        if (object.frozen.load()) {
            fail(Code::bad_state,
                 "recipe: it is in use and can no longer change; make another one");
        }
        set(object.recipe, recipe::find_key(required(key, "key")));
    });
}

template <typename Get>
mp_status inspect(const mp_recipe* recipe, const char* key, recipe::KeyType type, Get get) {
    return boundary([&] {
        const RecipeObject& object = *object_of(recipe, "recipe");
        const recipe::Key& found = recipe::find_key(required(key, "key"));
        if (found.type != type) {
            fail(Code::invalid_argument, "recipe key '%s' holds another type of value (%s)",
                 found.name, found.allowed);
        }
        get(object.recipe, found);
    });
}

void report_memory(const mp_recipe* recipe, int32_t rule, const int64_t* counts,
                   int64_t tensor_count, mp_memory_report* report) {
    const recipe::Recipe& source = object_of(recipe, "recipe")->recipe;
    write_report(optim::planned_memory(source, checked_counts(counts, tensor_count), rule_of(rule)),
                 report);
}

// From host memory; null: left as it is.
void fill(const std::shared_ptr<Context>& context, const Tensor& weight, const float* values) {
    if (values == nullptr || weight.count() == 0) {
        return;
    }
    Stream& stream = context->stream();
    const Tensor exact(context, stream, DType::fp32, weight.shape());
    stream.copy(exact.data(), values, exact.bytes(), CopyKind::host_to_device);
    quant::convert(stream, slice_of(exact), slice_of(weight));
    stream.sync();
}

} // namespace

mp_status mp_recipe_create(mp_context* context, const char* name, mp_recipe** out) {
    return boundary([&] {
        output(out);
        const Context& owner = *object_of(context, "context");
        const recipe::PresetChoice choice =
            recipe::resolve_preset(required(name, "name"), capability_of(owner));
        *out = make_recipe({choice.preset->recipe, choice.preset->name, choice.reason});
    });
}

mp_status mp_recipe_create_from_json(mp_context* context, const char* json, size_t length,
                                     mp_recipe** out) {
    return boundary([&] {
        output(out);
        const Context& owner = *object_of(context, "context");
        (void)required(json, "json");
        *out = make_recipe(recipe::recipe_from_json(
            json, length == SIZE_MAX ? std::strlen(json) : length, capability_of(owner)));
    });
}

mp_status mp_recipe_create_from_file(mp_context* context, const char* path, mp_recipe** out) {
    return boundary([&] {
        output(out);
        const Context& owner = *object_of(context, "context");
        const std::string text =
            system::read_text(system::posix_files(), required(path, "path"), kMaxRecipeFile);
        *out =
            make_recipe(recipe::recipe_from_json(text.data(), text.size(), capability_of(owner)));
    });
}

mp_status mp_recipe_get_reason(const mp_recipe* recipe, char* buffer, size_t capacity,
                               size_t* needed) {
    return boundary(
        [&] { copy_text(object_of(recipe, "recipe")->reason, buffer, capacity, needed); });
}

mp_status mp_recipe_clone(const mp_recipe* recipe, mp_recipe** out) {
    return boundary([&] {
        output(out);
        const RecipeObject& object = *object_of(recipe, "recipe");
        *out = make_recipe({object.recipe, object.name, object.reason});
    });
}

namespace {

// As something of this name has it.
mp_status clone_for(const mp_recipe* recipe, const char* name, mp_recipe** out,
                    recipe::Recipe (*resolve)(const recipe::Recipe&, const std::string&)) {
    return boundary([&] {
        output(out);
        const RecipeObject& object = *object_of(recipe, "recipe");
        system::check_name("name", required(name, "name"));
        *out = make_recipe({resolve(object.recipe, name), object.name, object.reason});
    });
}

} // namespace

mp_status mp_recipe_clone_for_layer(const mp_recipe* recipe, const char* name, mp_recipe** out) {
    return clone_for(recipe, name, out, recipe::for_layer);
}

mp_status mp_recipe_clone_for_param(const mp_recipe* recipe, const char* name, mp_recipe** out) {
    return clone_for(recipe, name, out, recipe::for_parameter);
}

mp_status mp_recipe_create_weight(mp_context* context, const mp_recipe* recipe, int32_t ndim,
                                  const int64_t* shape, const float* values, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const FormatId format = object_of(recipe, "recipe")->recipe.weight;
        const Shape sizes = checked_shape(ndim, shape, DType::fp32, "weight");
        const auto weight = optim::make_state(owner, owner->stream(), format, sizes);
        fill(owner, *weight, values);
        complete(owner->stream());
        *out = make_handle<mp_tensor>(weight);
    });
}

mp_status mp_recipe_create_weight_codes(mp_context* context, const mp_recipe* recipe, int32_t ndim,
                                        const int64_t* shape, const float* values,
                                        mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const recipe::Fp8Policy& policy = object_of(recipe, "recipe")->recipe.fp8;
        const Shape sizes = checked_shape(ndim, shape, DType::fp32, "weight");
        const Format format =
            recipe::operand_format(policy, recipe::GemmRole::fprop, recipe::Operand::weight);
        if (!recipe::is_fp8(policy, recipe::GemmRole::fprop) || format.grid != kTensorScale) {
            fail(Code::unsupported,
                 "recipe: codes of a weight need fp8 products with one scale for it; gemm.scaling "
                 "must be delayed or tensorwise, and gemm.fprop.quantized on");
        }
        const auto weight = std::make_shared<Tensor>(owner, owner->stream(), format, sizes);
        fill(owner, *weight, values);
        complete(owner->stream());
        *out = make_handle<mp_tensor>(weight);
    });
}

mp_status mp_recipe_get_frozen(const mp_recipe* recipe, int32_t* frozen) {
    return boundary(
        [&] { *required(frozen, "frozen") = object_of(recipe, "recipe")->frozen.load() ? 1 : 0; });
}

void mp_recipe_destroy(mp_recipe* recipe) { destroy_handle(recipe); }

mp_status mp_recipe_set_string(mp_recipe* recipe, const char* key, const char* value) {
    return change(recipe, key, [&](recipe::Recipe& target, const recipe::Key& found) {
        recipe::set_key(target, found, std::string(required(value, "value")));
    });
}

mp_status mp_recipe_set_float(mp_recipe* recipe, const char* key, double value) {
    return change(recipe, key, [&](recipe::Recipe& target, const recipe::Key& found) {
        recipe::set_key(target, found, value, recipe::KeyType::floating);
    });
}

mp_status mp_recipe_set_int(mp_recipe* recipe, const char* key, int64_t value) {
    return change(recipe, key, [&](recipe::Recipe& target, const recipe::Key& found) {
        recipe::set_key(target, found, static_cast<double>(value), recipe::KeyType::integer);
    });
}

mp_status mp_recipe_get_string(const mp_recipe* recipe, const char* key, const char** value) {
    return inspect(recipe, key, recipe::KeyType::string,
                   [&](const recipe::Recipe& source, const recipe::Key& found) {
                       *required(value, "value") = found.get_string(source);
                   });
}

mp_status mp_recipe_get_float(const mp_recipe* recipe, const char* key, double* value) {
    return inspect(recipe, key, recipe::KeyType::floating,
                   [&](const recipe::Recipe& source, const recipe::Key& found) {
                       *required(value, "value") = found.get_number(source);
                   });
}

mp_status mp_recipe_get_int(const mp_recipe* recipe, const char* key, int64_t* value) {
    return inspect(recipe, key, recipe::KeyType::integer,
                   [&](const recipe::Recipe& source, const recipe::Key& found) {
                       *required(value, "value") = static_cast<int64_t>(found.get_number(source));
                   });
}

mp_status mp_recipe_validate(const mp_recipe* recipe) {
    return boundary([&]() -> mp_status {
        const recipe::Recipe& source = object_of(recipe, "recipe")->recipe;
        recipe::check_recipe(source);
        const char* warning = recipe::recipe_warning(source);
        return warning != nullptr ? warn(warning) : MP_STATUS_OK;
    });
}

mp_status mp_recipe_to_json(const mp_recipe* recipe, char* buffer, size_t capacity,
                            size_t* needed) {
    return boundary([&] {
        const RecipeObject& object = *object_of(recipe, "recipe");
        copy_text(recipe::recipe_to_json(object.recipe, object.name), buffer, capacity, needed);
    });
}

int32_t mp_recipe_preset_count(void) {
    try {
        return static_cast<int32_t>(recipe::presets().size());
    } catch (...) {
        return 0;
    }
}

mp_status mp_recipe_get_preset_info(int32_t index, const char** name, const char** text) {
    return boundary([&] {
        (void)required(name, "name");
        if (index < 0 || index >= static_cast<int32_t>(recipe::presets().size())) {
            fail(Code::invalid_argument, "index is %d; there are %zu presets", index,
                 recipe::presets().size());
        }
        const recipe::Preset& preset = recipe::presets()[static_cast<std::size_t>(index)];
        *name = preset.name;
        if (text != nullptr) {
            *text = preset.text;
        }
    });
}

int32_t mp_recipe_key_count(void) { return static_cast<int32_t>(recipe::recipe_keys().size()); }

mp_status mp_recipe_get_key_info(int32_t index, mp_recipe_key_desc* desc) {
    return boundary([&] {
        if (index < 0 || index >= mp_recipe_key_count()) {
            fail(Code::invalid_argument, "index is %d; there are %d keys", index,
                 mp_recipe_key_count());
        }
        // The fp32 preset's values as static text, made once.
        static const std::vector<std::string> values = [] {
            std::vector<std::string> texts;
            for (const recipe::Key& key : recipe::recipe_keys()) {
                texts.push_back(recipe::key_text(recipe::find_preset("fp32").recipe, key));
            }
            return texts;
        }();
        const recipe::Key& key = recipe::recipe_keys()[static_cast<std::size_t>(index)];
        mp_recipe_key_desc result{};
        result.type = static_cast<int32_t>(key.type);
        result.name = key.name;
        result.allowed = key.allowed;
        result.text = key.text;
        result.fp32_value = values[static_cast<std::size_t>(index)].c_str();
        write_struct(desc, result, "desc");
    });
}

mp_status mp_recipe_plan_memory(const mp_recipe* recipe, int32_t rule, int64_t parameter_count,
                                mp_memory_report* report) {
    return boundary([&] { report_memory(recipe, rule, &parameter_count, 1, report); });
}

mp_status mp_recipe_plan_memory_of_tensors(const mp_recipe* recipe, int32_t rule,
                                           const int64_t* counts, int64_t tensor_count,
                                           mp_memory_report* report) {
    return boundary([&] { report_memory(recipe, rule, counts, tensor_count, report); });
}
