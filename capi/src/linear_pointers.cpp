// SPDX-License-Identifier: Apache-2.0
// mp_linear and mp_adapter over plain memory: linear.h, adapter.h.
#include <memory>

#include "adapter_object.hpp"
#include "boundary.hpp"
#include "layer_pass_of.hpp"
#include "linear_desc.hpp"
#include "objects.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

// Matrices of a call, as tensors over the caller's memory.
class Memory {
  public:
    explicit Memory(const std::shared_ptr<Context>& context) : context_(context) {}

    // Null for NULL.
    [[nodiscard]] std::shared_ptr<Tensor> tensor(const void* data, int32_t number,
                                                 const Shape& shape, const char* name) const {
        if (data == nullptr) {
            return nullptr;
        }
        const DType dtype = dtype_of(number, name);
        check_shape(shape, dtype, name);
        if (!is_aligned(data, dtype)) {
            fail(Code::invalid_argument, "%s at %p is not aligned to its elements (%s)", name, data,
                 dtype_name(dtype));
        }
        return std::make_shared<Tensor>(context_, context_->stream(), dtype, shape,
                                        const_cast<void*>(data), Deleter{});
    }
    [[nodiscard]] std::shared_ptr<Tensor>
    required_tensor(const void* data, int32_t number, const Shape& shape, const char* name) const {
        if (data == nullptr && shape.count() > 0) {
            fail(Code::null_argument, "%s is NULL", name);
        }
        // An empty matrix needs no address.
        alignas(64) static const unsigned char nothing[64] = {};
        return tensor(data == nullptr ? nothing : data, number, shape, name);
    }

  private:
    const std::shared_ptr<Context>& context_;
};

Shape matrix(int64_t rows, int64_t columns) { return {{rows, columns}, 2}; }

// What the program keeps itself no recipe can decide. Said once a recipe.
std::string note_of_weights(mp_recipe* handle, const recipe::Recipe& recipe, int32_t dtype) {
    if (dtype != MP_DTYPE_FP32 || recipe.weight == FormatId::fp32 ||
        object_of(handle, "recipe")->has_noted_weights.load()) {
        return {};
    }
    return std::string("linear: the recipe's weight.dtype is ") + format_name(recipe.weight) +
           ", but this weight is the program's own, in fp32: of the recipe only the products apply "
           "here; what it says of weights, gradients, states and the loss scale is for "
           "mp_optimizer "
           "and mp_scaler";
}

void check_rows(int64_t rows) {
    if (rows < 0) {
        fail(Code::invalid_shape, "rows is %lld; it must be >= 0", static_cast<long long>(rows));
    }
}

} // namespace

mp_status mp_linear_create_pointers(mp_context* context, mp_recipe* recipe,
                                    const mp_linear_desc* desc, const void* weight,
                                    int32_t weight_dtype, const void* bias, int32_t bias_dtype,
                                    mp_linear** out) {
    return boundary([&]() -> mp_status {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const linear::LinearOptions options = options_of(desc);
        const Memory memory(owner);
        const recipe::Recipe& rules = use_recipe(recipe);
        const std::string products_only = note_of_weights(recipe, rules, weight_dtype);
        const Shape shape = matrix(options.out_features, options.in_features);
        const auto layer = std::make_shared<LinearObject>(
            owner, rules, options, memory.required_tensor(weight, weight_dtype, shape, "weight"),
            memory.tensor(bias, bias_dtype, {{options.out_features}, 1}, "bias"));
        std::string note;
        *out = made_layer(layer, note);
        if (!products_only.empty()) {
            object_of(recipe, "recipe")->has_noted_weights.store(true);
            note += (note.empty() ? "" : "; ") + products_only;
        }
        return note.empty() ? MP_STATUS_OK : warn(note);
    });
}

mp_status mp_linear_forward_pointers(mp_linear* linear, mp_queue* queue, int64_t rows,
                                     const void* x, void* y, int32_t dtype) {
    return boundary([&] {
        LinearObject& object = *object_of(linear, "linear");
        const linear::Linear& layer = object.layer;
        check_rows(rows);
        const Memory memory(layer.context());
        const auto& sizes = layer.options();
        const auto input = memory.required_tensor(x, dtype, matrix(rows, sizes.in_features), "x");
        const auto result = memory.required_tensor(y, dtype, matrix(rows, sizes.out_features), "y");
        linear::forward(stream_of(queue, *layer.context()), own_pass(object), input, result.get(),
                        linear::Keep::input);
        forget_others(object, nullptr);
    });
}

mp_status mp_linear_backward_pointers(mp_linear* linear, mp_queue* queue, int64_t rows,
                                      const void* dy, void* dx, int32_t dtype, void* dw,
                                      void* dbias, int32_t grad_dtype, uint32_t flags) {
    return boundary([&]() -> mp_status {
        LinearObject& object = *object_of(linear, "linear");
        const linear::Linear& layer = object.layer;
        check_flags(flags, MP_BACKWARD_ACCUMULATE, "flags");
        check_rows(rows);
        const Memory memory(layer.context());
        const auto& sizes = layer.options();
        const auto gradient =
            memory.required_tensor(dy, dtype, matrix(rows, sizes.out_features), "dy");
        const auto data = memory.tensor(dx, dtype, matrix(rows, sizes.in_features), "dx");
        const auto weight =
            memory.tensor(dw, grad_dtype, matrix(sizes.out_features, sizes.in_features), "dw");
        const auto bias = memory.tensor(dbias, grad_dtype, {{sizes.out_features}, 1}, "dbias");
        const linear::LayerPass pass = own_pass(object);
        check_wanted(pass, data.get(), weight.get(), bias.get());
        linear::backward(stream_of(queue, *layer.context()), pass, *gradient, data.get(),
                         {weight.get(), bias.get(), (flags & MP_BACKWARD_ACCUMULATE) != 0});
        return warn_of_backward(pass);
    });
}

mp_status mp_adapter_create_pointers(mp_linear* linear, mp_recipe* recipe,
                                     const mp_adapter_desc* desc, const void* a, const void* b,
                                     int32_t dtype, mp_adapter** out) {
    return boundary([&]() -> mp_status {
        output(out);
        const std::shared_ptr<LinearObject> base = object_of(linear, "linear");
        const linear::AdapterOptions options = options_of(desc);
        if (options.rank <= 0) {
            fail(Code::invalid_shape, "adapter: desc.rank is %lld; it must be > 0",
                 static_cast<long long>(options.rank));
        }
        const Memory memory(base->layer.context());
        const auto& sizes = base->layer.options();
        return make_adapter(
            base, recipe, options,
            memory.required_tensor(a, dtype, matrix(options.rank, sizes.in_features), "a"),
            memory.required_tensor(b, dtype, matrix(sizes.out_features, options.rank), "b"), out);
    });
}

mp_status mp_adapter_set_grads_pointers(mp_adapter* adapter, void* da, void* db, int32_t dtype) {
    return boundary([&] {
        AdapterObject& object = *object_of(adapter, "adapter");
        const Memory memory(object.base->layer.context());
        set_grads(object, memory.tensor(da, dtype, object.a->layer.weight().tensor().shape(), "da"),
                  memory.tensor(db, dtype, object.b->layer.weight().tensor().shape(), "db"));
    });
}

mp_status mp_adapter_set_magnitude_pointers(mp_adapter* adapter, void* magnitude, void* gradient,
                                            int32_t dtype) {
    return boundary([&] {
        AdapterObject& object = *object_of(adapter, "adapter");
        const Memory memory(object.base->layer.context());
        const Shape shape = {{object.base->layer.options().out_features}, 1};
        set_magnitude(object, memory.tensor(magnitude, dtype, shape, "magnitude"),
                      memory.tensor(gradient, dtype, shape, "gradient"));
    });
}
