// SPDX-License-Identifier: Apache-2.0
// saved.h
#include <array>
#include <memory>

#include "boundary.hpp"
#include "layer_pass_of.hpp"
#include "linear_desc.hpp"
#include "numerics/philox.hpp"
#include "objects.hpp"
#include "quant_format.hpp"
#include "rounding.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_PRODUCT_FPROP == static_cast<int32_t>(recipe::GemmRole::fprop) &&
              MP_PRODUCT_DGRAD == static_cast<int32_t>(recipe::GemmRole::dgrad) &&
              MP_PRODUCT_WGRAD == static_cast<int32_t>(recipe::GemmRole::wgrad));

namespace {

recipe::GemmRole role_of(int32_t product) {
    if (product < MP_PRODUCT_FPROP || product > MP_PRODUCT_WGRAD) {
        fail(Code::invalid_argument, "product is %d; it must be one of MP_PRODUCT_*", product);
    }
    return static_cast<recipe::GemmRole>(product);
}

// Of this layer; null for NULL.
SavedObject* saved_of(const mp_saved* handle, const LinearObject& linear) {
    if (handle == nullptr) {
        return nullptr;
    }
    SavedObject& object = *object_of(handle, "saved");
    if (object.linear.get() != &linear) {
        fail(Code::invalid_argument,
             "saved was made for another layer; each layer needs its own (mp_saved_create)");
    }
    return &object;
}

linear::Keep keep_of(uint32_t flags, const mp_saved* saved) {
    check_flags(flags, MP_FORWARD_DROP | MP_FORWARD_RECOMPUTE, "flags");
    if (flags == (MP_FORWARD_DROP | MP_FORWARD_RECOMPUTE)) {
        fail(Code::invalid_argument,
             "flags: MP_FORWARD_DROP and MP_FORWARD_RECOMPUTE exclude each other");
    }
    if (flags != 0 && saved == nullptr) {
        fail(Code::invalid_argument, "flags are 0x%x but saved is NULL; they say what it keeps",
             flags);
    }
    return flags == MP_FORWARD_DROP        ? linear::Keep::scale
           : flags == MP_FORWARD_RECOMPUTE ? linear::Keep::again
           : saved == nullptr              ? linear::Keep::nothing
                                           : linear::Keep::input;
}

std::shared_ptr<Tensor> tensor_or_null(mp_tensor* tensor, const char* name) {
    return tensor == nullptr ? nullptr : object_of(tensor, name);
}

} // namespace

mp_status mp_saved_create(mp_linear* linear, mp_saved** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<LinearObject> owner = object_of(linear, "linear");
        if (owner->layer.last() == nullptr &&
            (owner->layer.options().inference || adapters_of(*owner).empty())) {
            fail(Code::bad_state,
                 "linear: it was made with MP_LINEAR_INFERENCE or MP_LINEAR_FROZEN, has no "
                 "adapter that is trained, and keeps nothing of a forward");
        }
        const auto made = std::make_shared<SavedObject>(owner);
        make_places(*made);
        *out = make_handle<mp_saved>(made);
    });
}

mp_status mp_linear_forward_saved(mp_linear* linear, mp_queue* queue, mp_tensor* x, mp_tensor* y,
                                  mp_saved* saved, uint32_t flags) {
    return boundary([&] {
        LinearObject& object = *object_of(linear, "linear");
        SavedObject* const place = saved_of(saved, object);
        const linear::Keep keep = keep_of(flags, saved);
        const std::shared_ptr<Tensor> result =
            keep == linear::Keep::again ? tensor_or_null(y, "y") : object_of(y, "y");
        const std::shared_ptr<Tensor>& input = object_of(x, "x");
        Stream& stream = stream_of(queue, *object.layer.context());
        const linear::LayerPass pass = saved_pass(object, place);
        if (place == nullptr) {
            linear::forward(stream, pass, input, result.get(), keep);
            return;
        }
        const bool fits = input->columns() == object.layer.options().in_features;
        LentParts parts(*place, fits ? input->rows() : 0, keep != linear::Keep::scale);
        linear::forward(stream, pass, input, result.get(), keep);
        parts.commit();
        forget_others(object, place);
    });
}

mp_status mp_linear_backward_saved(mp_linear* linear, mp_queue* queue, const mp_saved* saved,
                                   const mp_tensor* dy, mp_tensor* dx, mp_tensor* dw,
                                   mp_tensor* dbias, uint32_t flags) {
    return boundary([&]() -> mp_status {
        LinearObject& object = *object_of(linear, "linear");
        check_flags(flags, MP_BACKWARD_ACCUMULATE, "flags");
        SavedObject* const place = saved_of(saved, object);
        const std::shared_ptr<Tensor> data = tensor_or_null(dx, "dx");
        const std::shared_ptr<Tensor> weight = tensor_or_null(dw, "dw");
        const std::shared_ptr<Tensor> bias = tensor_or_null(dbias, "dbias");
        check_saved_gradients(object, place);
        const linear::LayerPass pass = saved_pass(object, place);
        check_wanted(pass, data.get(), weight.get(), bias.get());
        if (weight != nullptr && place == nullptr) {
            fail(Code::null_argument,
                 "saved is NULL; dw needs what a forward kept (mp_linear_forward_saved)");
        }
        linear::backward(stream_of(queue, *object.layer.context()), pass, *object_of(dy, "dy"),
                         data.get(),
                         {weight.get(), bias.get(), (flags & MP_BACKWARD_ACCUMULATE) != 0});
        return warn_of_backward(pass);
    });
}

mp_status mp_linear_get_saved_bytes(const mp_linear* linear, int64_t rows, size_t* bytes) {
    return boundary([&] {
        const LinearObject& object = *object_of(linear, "linear");
        *required(bytes, "bytes") = saved_bytes(object, rows);
    });
}

mp_status mp_saved_set_memory(mp_saved* saved, void* memory, size_t bytes) {
    return boundary([&] {
        SavedObject& object = *object_of(saved, "saved");
        if (has_kept(object) && object.lent == nullptr) {
            fail(Code::bad_state, "saved: x is kept in %s; name the memory before the forward",
                 borrows(object) ? "the caller's own tensor" : "the library's memory");
        }
        check_lent(memory, bytes);
        const std::size_t kept = kept_bytes(object);
        if (memory != nullptr && bytes < kept) {
            fail(Code::invalid_argument, "memory has %zu bytes, but %zu are kept", bytes, kept);
        }
        move_parts(object, memory, bytes);
    });
}

mp_status mp_saved_get_memory(const mp_saved* saved, void** memory, size_t* bytes) {
    return boundary([&] {
        const SavedObject& object = *object_of(saved, "saved");
        *required(memory, "memory") = object.lent;
        if (bytes != nullptr) {
            *bytes = object.lent_bytes;
        }
    });
}

void mp_saved_destroy(mp_saved* saved) { destroy_handle(saved); }

mp_status mp_linear_set_gradient_rounding(mp_linear* linear, const mp_cast_desc* desc) {
    return boundary([&] {
        linear::Linear& layer = object_of(linear, "linear")->layer;
        const auto options = read_optional_struct(desc, "desc");
        check_flags(options.flags, 0, "desc.flags");
        layer.set_rounding(rounding_of(options, "linear"));
    });
}

mp_status mp_linear_get_gradient_rounding(const mp_linear* linear, mp_cast_desc* desc) {
    return boundary([&] {
        const numerics::Rounding& rounding = object_of(linear, "linear")->layer.rounding();
        mp_cast_desc result = MP_CAST_DESC_INIT;
        result.rounding = rounding.stochastic ? MP_ROUND_STOCHASTIC : MP_ROUND_NEAREST;
        result.seed = rounding.seed;
        result.uid = rounding.uid;
        result.step = rounding.step % numerics::kStepEnd;
        result.microbatch = static_cast<int32_t>(rounding.step / numerics::kStepEnd);
        write_struct(desc, result, "desc");
    });
}

mp_status mp_linear_get_operand_format(const mp_linear* linear, int32_t product, int32_t operand,
                                       int32_t* dtype, mp_quant_desc* quant) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        const Format& format = layer.policy().resolve(role_of(product), operand_of(operand)).format;
        (void)size_of_struct(quant, "quant");
        *required(dtype, "dtype") = static_cast<int32_t>(format.dtype);
        write_struct(quant,
                     format.is_quantized() ? desc_of(format) : mp_quant_desc(MP_QUANT_DESC_INIT),
                     "quant");
    });
}

mp_status mp_linear_quantize(mp_linear* linear, mp_queue* queue, int32_t product, int32_t operand,
                             const mp_tensor* source, mp_tensor* codes) {
    return boundary([&] {
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        linear::quantize_operand(stream_of(queue, *layer.context()), layer, role_of(product),
                                 operand_of(operand), *object_of(source, "source"),
                                 *object_of(codes, "codes"));
    });
}

mp_status mp_linear_set_weight_codes(mp_linear* linear, mp_tensor* fprop, mp_tensor* dgrad) {
    return boundary([&] {
        object_of(linear, "linear")
            ->layer.weight()
            .set_codes({tensor_or_null(fprop, "fprop"), tensor_or_null(dgrad, "dgrad")});
    });
}

mp_status mp_linear_get_weight_codes(const mp_linear* linear, int32_t product, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const linear::Linear& layer = object_of(linear, "linear")->layer;
        const recipe::GemmRole role = role_of(product);
        (void)layer.policy().resolve(role, recipe::Operand::weight);
        const auto& codes = layer.weight().codes()[static_cast<std::size_t>(role)];
        if (codes != nullptr) {
            *out = make_handle<mp_tensor>(codes);
        }
    });
}

mp_status mp_linear_get_multiply_tensor(const mp_linear* linear, int32_t operand, mp_tensor** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<LinearObject> owner = object_of(linear, "linear");
        const linear::Linear& layer = owner->layer;
        const Tracking tracking = layer.scaling().tracking(operand_of(operand), false);
        if (tracking.delayed == nullptr) {
            fail(Code::bad_state,
                 "linear: %s has no delayed scale; its scale follows from each tensor itself",
                 recipe::operand_name(operand_of(operand)));
        }
        *out = device_number(layer.context(), owner, &tracking.delayed->multiply);
    });
}
