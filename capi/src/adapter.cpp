// SPDX-License-Identifier: Apache-2.0
// adapter.h
#include <atomic>

#include "adapter_object.hpp"
#include "boundary.hpp"
#include "layer_pass_of.hpp"
#include "linear/checks.hpp"
#include "linear/merge.hpp"
#include "linear_desc.hpp"
#include "objects.hpp"
#include "system/name.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

void check_new_name(const LinearObject& base, const std::string& name) {
    for (const auto& adapter : adapters_of(base)) {
        if (adapter->options.name == name) {
            fail(Code::invalid_argument,
                 "adapter: the layer already has one with the name '%s'; set desc.name",
                 name.c_str());
        }
    }
}

// Those that are gone leave the list when a new one comes.
void attach(LinearObject& base, const std::shared_ptr<AdapterObject>& adapter) {
    std::vector<std::weak_ptr<AdapterObject>> all;
    for (const auto& other : base.adapters) {
        if (!other.expired()) {
            all.push_back(other);
        }
    }
    all.push_back(adapter);
    base.adapters = std::move(all);
}

void require_training(const AdapterObject& adapter) {
    if (adapter.base->layer.options().inference) {
        fail(Code::bad_state, "adapter: its layer was made with MP_LINEAR_INFERENCE, so it is not "
                              "trained; make it with MP_LINEAR_FROZEN");
    }
}

// Null is fine.
void check_tensor(const Tensor* tensor, const Shape& shape, const char* name,
                  const AdapterObject& adapter, bool may_be_quantized) {
    if (tensor == nullptr) {
        return;
    }
    linear::check_dtype(*tensor, name, may_be_quantized);
    linear::check_shape_is(*tensor, shape, name);
    if (&tensor->device() != &adapter.base->layer.context()->stream().device()) {
        fail(Code::invalid_argument, "adapter: %s must be on the context's device", name);
    }
}

std::shared_ptr<Tensor> tensor_or_null(mp_tensor* tensor, const char* name) {
    return tensor == nullptr ? nullptr : shape_of(tensor, name);
}

} // namespace

linear::AdapterOptions mp::capi::options_of(const mp_adapter_desc* desc) {
    const auto given = read_optional_struct(desc, "desc");
    check_flags(given.flags, MP_ADAPTER_RANK_STABILIZED, "desc.flags");
    linear::AdapterOptions options;
    options.is_rank_stabilized = (given.flags & MP_ADAPTER_RANK_STABILIZED) != 0;
    options.alpha = given.alpha;
    options.dropout = given.dropout;
    options.rank = given.rank;
    if (given.name != nullptr) {
        system::check_name("desc.name", given.name);
        options.name = given.name;
    }
    return options;
}

mp_status mp::capi::make_adapter(const std::shared_ptr<LinearObject>& base, mp_recipe* recipe,
                                 linear::AdapterOptions options, const std::shared_ptr<Tensor>& a,
                                 const std::shared_ptr<Tensor>& b, mp_adapter** out) {
    if (base->is_of_adapter) {
        fail(Code::invalid_argument,
             "adapter: linear is itself a half of an adapter (mp_adapter_get_linears); give its "
             "layer another one");
    }
    if (a->shape().ndim != 2 || a->rows() <= 0 ||
        (options.rank != 0 && options.rank != a->rows())) {
        fail(Code::invalid_shape, "adapter: a is %s; it must be [r, in]%s",
             a->shape().text().c_str(), options.rank != 0 ? " with the r of desc.rank" : "");
    }
    options.rank = a->rows();
    options.alpha = options.alpha == 0.0 ? static_cast<double>(options.rank) : options.alpha;
    const linear::LinearOptions& sizes = base->layer.options();
    linear::check_shape_is(*a, {{options.rank, sizes.in_features}, 2}, "a");
    linear::check_shape_is(*b, {{sizes.out_features, options.rank}, 2}, "b");
    check_new_name(*base, options.name);
    const std::shared_ptr<Context>& context = base->layer.context();
    const recipe::Recipe& rules = use_recipe(recipe);
    const auto object = std::make_shared<AdapterObject>();
    object->base = base;
    object->a = std::make_shared<LinearObject>(
        context, rules, linear::options_of_a(base->layer, options), a, nullptr);
    object->b = std::make_shared<LinearObject>(
        context, rules, linear::options_of_b(base->layer, options), b, nullptr);
    const bool is_random = object->a->layer.policy().rounds_stochastically() ||
                           object->b->layer.policy().rounds_stochastically();
    if (is_random && sizes.name.empty()) {
        fail(Code::invalid_argument,
             "adapter: the recipe rounds its operands stochastically (gemm.*.rounding), by random "
             "bits that follow from the layer's name, but it has none; set mp_linear_desc.name");
    }
    object->options = std::move(options);
    static std::atomic<uint64_t> made{0};
    object->number = ++made;
    std::string note;
    for (const auto& layer : {object->a, object->b}) {
        layer->is_of_adapter = true;
        if (const std::string reason = fallback_note(layer->layer); !reason.empty()) {
            note += (note.empty() ? "" : "; ") + reason;
        }
    }
    complete(context->stream());
    mp_adapter* const handle = make_handle<mp_adapter>(object);
    try {
        attach(*base, object);
    } catch (...) {
        destroy_handle(handle);
        throw;
    }
    *out = handle;
    return note.empty() ? MP_STATUS_OK : warn(note);
}

void mp::capi::set_magnitude(AdapterObject& adapter, std::shared_ptr<Tensor> magnitude,
                             std::shared_ptr<Tensor> gradient) {
    if (magnitude == nullptr && gradient != nullptr) {
        fail(Code::invalid_argument, "adapter: gradient is given without magnitude");
    }
    if (gradient != nullptr) {
        require_training(adapter);
    }
    const Shape shape = {{adapter.base->layer.options().out_features}, 1};
    check_tensor(magnitude.get(), shape, "magnitude", adapter, false);
    check_tensor(gradient.get(), shape, "gradient", adapter, false);
    adapter.magnitude = std::move(magnitude);
    adapter.dmagnitude = std::move(gradient);
}

void mp::capi::set_grads(AdapterObject& adapter, std::shared_ptr<Tensor> da,
                         std::shared_ptr<Tensor> db) {
    require_training(adapter);
    check_tensor(da.get(), adapter.a->layer.weight().tensor().shape(), "da", adapter, true);
    check_tensor(db.get(), adapter.b->layer.weight().tensor().shape(), "db", adapter, true);
    adapter.da = std::move(da);
    adapter.db = std::move(db);
}

mp_status mp_adapter_create(mp_linear* linear, mp_recipe* recipe, const mp_adapter_desc* desc,
                            mp_tensor* a, mp_tensor* b, mp_adapter** out) {
    return boundary([&]() -> mp_status {
        output(out);
        const std::shared_ptr<LinearObject> base = object_of(linear, "linear");
        return make_adapter(base, recipe, options_of(desc), shape_of(a, "a"), shape_of(b, "b"),
                            out);
    });
}

mp_status mp_adapter_set_grads(mp_adapter* adapter, mp_tensor* da, mp_tensor* db) {
    return boundary([&] {
        set_grads(*object_of(adapter, "adapter"), tensor_or_null(da, "da"),
                  tensor_or_null(db, "db"));
    });
}

mp_status mp_adapter_set_magnitude(mp_adapter* adapter, mp_tensor* magnitude, mp_tensor* gradient) {
    return boundary([&] {
        set_magnitude(*object_of(adapter, "adapter"), tensor_or_null(magnitude, "magnitude"),
                      tensor_or_null(gradient, "gradient"));
    });
}

mp_status mp_adapter_init_magnitude(mp_adapter* adapter, mp_queue* queue) {
    return boundary([&] {
        AdapterObject& object = *object_of(adapter, "adapter");
        if (object.magnitude == nullptr) {
            fail(Code::bad_state, "adapter: it has no magnitude (mp_adapter_set_magnitude)");
        }
        linear::LayerPass pass;
        pass.base = &object.base->layer;
        pass.adapters.emplace_back();
        pass.adapters.back().a = &object.a->layer;
        pass.adapters.back().b = &object.b->layer;
        linear::measure(stream_of(queue, *object.base->layer.context()), pass, *object.magnitude);
    });
}

mp_status mp_adapter_set_active(mp_adapter* adapter, int32_t active) {
    return boundary([&] { object_of(adapter, "adapter")->is_active = active != 0; });
}

mp_status mp_adapter_get_active(const mp_adapter* adapter, int32_t* active) {
    return boundary(
        [&] { *required(active, "active") = object_of(adapter, "adapter")->is_active ? 1 : 0; });
}

mp_status mp_adapter_get_desc(const mp_adapter* adapter, mp_adapter_desc* desc) {
    return boundary([&] {
        const linear::AdapterOptions& options = object_of(adapter, "adapter")->options;
        mp_adapter_desc result = MP_ADAPTER_DESC_INIT;
        result.flags = options.is_rank_stabilized ? MP_ADAPTER_RANK_STABILIZED : 0;
        result.alpha = options.alpha;
        result.dropout = options.dropout;
        result.rank = options.rank;
        result.name = options.name.c_str();
        write_struct(desc, result, "desc");
    });
}

mp_status mp_adapter_get_linears(const mp_adapter* adapter, mp_linear** a, mp_linear** b) {
    return boundary([&] {
        output(a);
        output(b);
        const AdapterObject& object = *object_of(adapter, "adapter");
        mp_linear* const first = make_handle<mp_linear>(object.a);
        try {
            *b = make_handle<mp_linear>(object.b);
        } catch (...) {
            destroy_handle(first);
            throw;
        }
        *a = first;
    });
}

void mp_adapter_destroy(mp_adapter* adapter) { destroy_handle(adapter); }
