// SPDX-License-Identifier: Apache-2.0
// linear.h
#include "linear/linear.hpp"

#include <cstring>

#include "boundary.hpp"
#include "layer_list.hpp"
#include "layer_pass_of.hpp"
#include "linear/advice.hpp"
#include "linear/rank_amax.hpp"
#include "linear_desc.hpp"
#include "objects.hpp"
#include "system/name.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_OPERAND_COUNT == linear::kOperands);

namespace {

constexpr uint32_t kDescFlags = MP_LINEAR_INFERENCE | MP_LINEAR_CACHE_WEIGHT |
                                MP_LINEAR_FIRST_OR_LAST | MP_LINEAR_STATS | MP_LINEAR_FROZEN |
                                MP_LINEAR_COPY_INPUT;

std::shared_ptr<Tensor> optional_tensor(mp_tensor* tensor, const char* name) {
    return tensor == nullptr ? nullptr : object_of(tensor, name);
}

// Which gradients: of data alone, or of weights too.
enum class Part : uint8_t { data, all };

mp_status backward(Part part, mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                   mp_tensor* dx, mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    LinearObject& object = *object_of(linear, "linear");
    check_flags(flags, MP_BACKWARD_ACCUMULATE, "flags");
    const std::shared_ptr<Tensor> data_gradient = optional_tensor(dx, "dx");
    const std::shared_ptr<Tensor> weight_gradient = optional_tensor(dw, "dw");
    const std::shared_ptr<Tensor> bias_gradient = optional_tensor(dbias, "dbias");
    linear::LayerPass pass = own_pass(object);
    if (part == Part::data) {
        pass = without_gradients(std::move(pass));
    } else if (pass.adapters.empty()) {
        (void)object_of(dw, "dw");
    }
    check_wanted(pass, data_gradient.get(), weight_gradient.get(), bias_gradient.get());
    linear::backward(
        stream_of(queue, *object.layer.context()), pass, *object_of(dy, "dy"), data_gradient.get(),
        {weight_gradient.get(), bias_gradient.get(), (flags & MP_BACKWARD_ACCUMULATE) != 0});
    return warn_of_backward(pass);
}

linear::OperandState read_counts(const linear::Linear& layer, recipe::Operand operand) {
    if (!layer.options().with_stats) {
        fail(Code::bad_state,
             "linear: nothing is counted; create it with MP_LINEAR_STATS or set a monitor");
    }
    return layer.scaling().read(layer.context()->stream(), operand);
}

void end_step(const std::vector<std::shared_ptr<LinearObject>>& layers, mp_queue* queue) {
    for (const auto& object : layers) {
        Stream& stream = stream_of(queue, *object->layer.context());
        object->layer.end_step(stream);
        call_monitor(*object, stream);
    }
}

} // namespace

linear::LinearOptions mp::capi::options_of(const mp_linear_desc* desc) {
    const auto sizes = read_struct(desc, "desc");
    check_flags(sizes.flags, kDescFlags, "desc.flags");
    const auto has = [&](uint32_t flag) { return (sizes.flags & flag) != 0; };
    linear::LinearOptions options;
    options.in_features = sizes.in_features;
    options.out_features = sizes.out_features;
    options.inference = has(MP_LINEAR_INFERENCE);
    options.frozen = has(MP_LINEAR_FROZEN);
    options.cache_weight = has(MP_LINEAR_CACHE_WEIGHT);
    options.is_first_or_last = has(MP_LINEAR_FIRST_OR_LAST);
    options.with_stats = has(MP_LINEAR_STATS);
    options.copy_input = has(MP_LINEAR_COPY_INPUT);
    if (sizes.name != nullptr) {
        system::check_name("desc.name", sizes.name);
        options.name = sizes.name;
    }
    return options;
}

recipe::Operand mp::capi::operand_of(int32_t number) {
    if (number < 0 || number >= MP_OPERAND_COUNT) {
        fail(Code::invalid_argument, "operand is %d; it must be one of MP_OPERAND_*", number);
    }
    return static_cast<recipe::Operand>(number);
}

std::string mp::capi::fallback_note(const linear::Linear& layer) {
    const std::string reason = layer.policy().fallback();
    if (reason.empty()) {
        return {};
    }
    const std::string& name = layer.options().name;
    const std::string note = (name.empty() ? "linear: it" : "linear '" + name + "':") +
                             " stays in high precision: " + reason;
    layer.context()->log(LogLevel::warning, [&] { return note; });
    return note;
}

mp_linear* mp::capi::made_layer(const std::shared_ptr<LinearObject>& object, std::string& note) {
    note = fallback_note(object->layer); // before the handle: nothing fails after it
    complete(object->layer.context()->stream());
    return make_handle<mp_linear>(object);
}

mp_status mp_linear_create(mp_context* context, mp_recipe* recipe, const mp_linear_desc* desc,
                           mp_tensor* weight, mp_tensor* bias, mp_linear** out) {
    return boundary([&]() -> mp_status {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const linear::LinearOptions options = options_of(desc);
        const auto layer = std::make_shared<LinearObject>(
            owner, use_recipe(recipe), options, shape_of(weight, "weight"),
            bias != nullptr ? shape_of(bias, "bias") : nullptr);
        std::string note;
        *out = made_layer(layer, note);
        return note.empty() ? MP_STATUS_OK : warn(note);
    });
}

mp_status mp_linear_forward(mp_linear* linear, mp_queue* queue, mp_tensor* x, mp_tensor* y) {
    return boundary([&] {
        LinearObject& object = *object_of(linear, "linear");
        linear::forward(stream_of(queue, *object.layer.context()), own_pass(object),
                        object_of(x, "x"), object_of(y, "y").get(), linear::Keep::input);
        forget_others(object, nullptr);
    });
}

mp_status mp_linear_backward_data(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                  mp_tensor* dx) {
    return boundary([&]() -> mp_status {
        (void)object_of(dx, "dx");
        return backward(Part::data, linear, queue, dy, dx, nullptr, nullptr, 0);
    });
}

mp_status mp_linear_backward_weight(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                    mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    return boundary(
        [&] { return backward(Part::all, linear, queue, dy, nullptr, dw, dbias, flags); });
}

mp_status mp_linear_backward(mp_linear* linear, mp_queue* queue, const mp_tensor* dy, mp_tensor* dx,
                             mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    return boundary([&] { return backward(Part::all, linear, queue, dy, dx, dw, dbias, flags); });
}

mp_status mp_linear_end_step(mp_linear* const* linears, int32_t count, mp_queue* queue,
                             mp_comm* comm) {
    return boundary([&] {
        const auto layers = with_adapters(listed_layers(linears, count));
        std::vector<linear::Linear*> plain;
        plain.reserve(layers.size());
        for (const auto& object : layers) {
            if (!object->optimizer.expired()) {
                fail(Code::bad_state, "linear: its step ends with its optimizer's "
                                      "(mp_optimizer_set_linears); scales would "
                                      "move twice");
            }
            object->layer.refuse_frozen_bits(stream_of(queue, *object->layer.context()));
            plain.push_back(&object->layer);
        }
        if (!layers.empty()) {
            check_monitors(layers, stream_of(queue, *layers[0]->layer.context()));
        }
        if (comm != nullptr) {
            mp::comm::Communicator& ranks = ready(*object_of(comm, "comm"));
            if (!layers.empty()) {
                linear::reduce_amaxes(stream_of(queue, *layers[0]->layer.context()), ranks, plain);
            }
        }
        if (!layers.empty()) {
            linear::settle_amaxes(stream_of(queue, *layers[0]->layer.context()), plain);
        }
        end_step(layers, queue);
    });
}

mp_status mp_linear_get_stats(const mp_linear* linear, int32_t operand, mp_linear_stats* stats) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        const recipe::Operand which = operand_of(operand);
        (void)size_of_struct(stats, "stats");
        write_struct(stats, public_stats(layer, which, read_counts(layer, which)), "stats");
    });
}

mp_status mp_linear_get_desc(const mp_linear* linear, mp_linear_desc* desc) {
    return boundary([&] {
        const linear::LinearOptions& options = object_of(linear, "linear")->layer.options();
        mp_linear_desc result{};
        result.in_features = options.in_features;
        result.out_features = options.out_features;
        result.flags = (options.inference ? MP_LINEAR_INFERENCE : 0U) |
                       (options.frozen ? MP_LINEAR_FROZEN : 0U) |
                       (options.cache_weight ? MP_LINEAR_CACHE_WEIGHT : 0U) |
                       (options.is_first_or_last ? MP_LINEAR_FIRST_OR_LAST : 0U) |
                       (options.with_stats ? MP_LINEAR_STATS : 0U) |
                       (options.copy_input ? MP_LINEAR_COPY_INPUT : 0U);
        result.name = options.name.empty() ? nullptr : options.name.c_str();
        write_struct(desc, result, "desc");
    });
}

mp_status mp_linear_clear_stats(mp_linear* linear, mp_queue* queue) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        layer.scaling().clear_stats(stream_of(queue, *layer.context()));
    });
}

mp_status mp_linear_get_advice(const mp_linear* linear, int32_t operand, char* buffer,
                               size_t capacity, size_t* needed) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        const recipe::Operand which = operand_of(operand);
        copy_text(
            linear::advice_for(layer.policy().recipe().fp8, which, read_counts(layer, which).stats),
            buffer, capacity, needed);
    });
}

mp_status mp_linear_set_monitor(mp_linear* linear, const char* name, int32_t every,
                                mp_linear_monitor_fn monitor, void* payload) {
    return boundary([&] {
        LinearObject& object = *object_of(linear, "linear");
        if (every < 0) {
            fail(Code::invalid_argument, "every is %d; it must be >= 0", every);
        }
        if (every > 0) {
            (void)required(name, "name");
            if (monitor == nullptr) {
                fail(Code::null_argument, "monitor is NULL; pass every 0 to end the monitoring");
            }
        }
        object.layer.context()->stream().refuse_capture("linear: counts are to be cleared");
        ++object.monitor_setting;
        object.name = every > 0 ? name : "";
        object.monitor = every > 0 ? monitor : nullptr;
        object.payload = payload;
        object.every = every;
        object.steps = 0;
        object.layer.collect_stats(every > 0);
        object.layer.scaling().clear_stats(object.layer.context()->stream());
        complete(object.layer.context()->stream());
    });
}

mp_status mp_linear_get_scaling(const mp_linear* linear, void* buffer, size_t capacity,
                                size_t* needed) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        const std::vector<unsigned char> saved = layer.scaling().save(layer.context()->stream());
        if (needed != nullptr) {
            *needed = saved.size();
        }
        if (capacity >= saved.size()) {
            std::memcpy(required(buffer, "buffer"), saved.data(), saved.size());
        }
    });
}

mp_status mp_linear_set_scaling(mp_linear* linear, const void* data, size_t bytes) {
    return boundary([&] {
        linear::Linear& layer = object_of(linear, "linear")->layer;
        layer.load_scaling(layer.context()->stream(),
                           static_cast<const unsigned char*>(required(data, "data")), bytes);
        complete(layer.context()->stream());
    });
}

mp_status mp_linear_describe(const mp_linear* linear, char* buffer, size_t capacity,
                             size_t* needed) {
    return boundary([&] {
        const LinearObject& object = *object_of(linear, "linear");
        std::string text = object.layer.describe();
        for (const auto& adapter : adapters_of(object)) {
            text += "; adapter '" + adapter->options.name + "'" +
                    (adapter->is_active ? "" : ", switched off") + ", of rank " +
                    std::to_string(adapter->options.rank) + ": a, " + adapter->a->layer.describe() +
                    "; b, " + adapter->b->layer.describe();
        }
        copy_text(text, buffer, capacity, needed);
    });
}

void mp_linear_destroy(mp_linear* linear) { destroy_handle(linear); }
