// SPDX-License-Identifier: Apache-2.0
// linear.h
#include "boundary.hpp"
#include "objects.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

std::shared_ptr<Tensor> optional_tensor(mp_tensor* tensor, const char* name) {
    return tensor == nullptr ? nullptr : object_of(tensor, name);
}

// Both gradients; dx NULL or dw NULL where one is not wanted.
void backward(mp_linear* linear, mp_queue* queue, const mp_tensor* dy, mp_tensor* dx, mp_tensor* dw,
              mp_tensor* dbias, uint32_t flags) {
    Linear& layer = *object_of(linear, "linear");
    check_flags(flags, MP_LINEAR_ACCUMULATE, "flags");
    const std::shared_ptr<Tensor> data_gradient = optional_tensor(dx, "dx");
    const std::shared_ptr<Tensor> weight_gradient = optional_tensor(dw, "dw");
    const std::shared_ptr<Tensor> bias_gradient = optional_tensor(dbias, "dbias");
    layer.backward(
        stream_of(queue, *layer.context()), *object_of(dy, "dy"), data_gradient.get(),
        {weight_gradient.get(), bias_gradient.get(), (flags & MP_LINEAR_ACCUMULATE) != 0});
}

} // namespace

mp_status mp_linear_desc_init(mp_linear_desc* desc, size_t size) {
    return boundary([&] { init_struct(desc, size, mp_linear_desc MP_LINEAR_DESC_INIT); });
}

mp_status mp_linear_create(mp_context* context, mp_recipe* recipe, const mp_linear_desc* desc,
                           mp_tensor* weight, mp_tensor* bias, mp_linear** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const auto sizes = read_struct(desc, "desc");
        check_flags(sizes.flags, MP_LINEAR_INFERENCE, "desc.flags");
        const LinearOptions options{sizes.in_features, sizes.out_features,
                                    (sizes.flags & MP_LINEAR_INFERENCE) != 0};
        *out = make_handle<mp_linear>(std::make_shared<Linear>(owner, use_recipe(recipe), options,
                                                               object_of(weight, "weight"),
                                                               optional_tensor(bias, "bias")));
    });
}

mp_status mp_linear_forward(mp_linear* linear, mp_queue* queue, mp_tensor* x, mp_tensor* y) {
    return boundary([&] {
        Linear& layer = *object_of(linear, "linear");
        layer.forward(stream_of(queue, *layer.context()), object_of(x, "x"), *object_of(y, "y"));
    });
}

mp_status mp_linear_backward_data(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                  mp_tensor* dx) {
    return boundary([&] {
        (void)object_of(dx, "dx");
        backward(linear, queue, dy, dx, nullptr, nullptr, 0);
    });
}

mp_status mp_linear_backward_weight(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                    mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    return boundary([&] {
        (void)object_of(dw, "dw");
        backward(linear, queue, dy, nullptr, dw, dbias, flags);
    });
}

mp_status mp_linear_backward(mp_linear* linear, mp_queue* queue, const mp_tensor* dy, mp_tensor* dx,
                             mp_tensor* dw, mp_tensor* dbias, uint32_t flags) {
    return boundary([&] {
        (void)object_of(dw, "dw");
        backward(linear, queue, dy, dx, dw, dbias, flags);
    });
}

mp_status mp_linear_describe(const mp_linear* linear, char* buffer, size_t capacity,
                             size_t* needed) {
    return boundary(
        [&] { copy_text(object_of(linear, "linear")->describe(), buffer, capacity, needed); });
}

void mp_linear_destroy(mp_linear* linear) { destroy_handle(linear); }
