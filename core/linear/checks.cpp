// SPDX-License-Identifier: Apache-2.0
#include "linear/checks.hpp"

namespace mp::linear {

void check_dtype(const Tensor& tensor, const char* name, bool may_be_quantized) {
    if (tensor.scales() != nullptr) {
        if (!may_be_quantized) {
            fail(Code::invalid_dtype, "linear: %s is quantized; it must be fp32, fp16 or bf16",
                 name);
        }
        return;
    }
    if (!is_high_precision(tensor.dtype())) {
        fail(Code::invalid_dtype, "linear: %s is %s; it must be fp32, fp16 or bf16", name,
             dtype_name(tensor.dtype()));
    }
}

void check_shape_is(const Tensor& tensor, const Shape& wanted, const char* name) {
    if (tensor.shape() != wanted) {
        fail(Code::invalid_shape, "linear: %s is %s; it must be %s", name,
             tensor.shape().text().c_str(), wanted.text().c_str());
    }
}

void check_codes(const Tensor& codes, const Format& format, const Device& device,
                 const char* name) {
    if (!has_format(codes, format)) {
        fail(Code::invalid_dtype, "linear: %s is %s; it must be %s (mp_linear_get_operand_format)",
             name, format_text(codes.format()).c_str(), format_text(format).c_str());
    }
    if (&codes.device() != &device) {
        fail(Code::invalid_argument, "linear: %s is not on the layer's device", name);
    }
}

int64_t rows_of(const Tensor& tensor, int64_t columns, const Device& device, const char* name,
                bool may_be_quantized) {
    check_dtype(tensor, name, may_be_quantized);
    if (tensor.shape().ndim < 1 || tensor.shape().last() != columns) {
        fail(Code::invalid_shape, "linear: %s is %s; its last dimension must be %lld", name,
             tensor.shape().text().c_str(), static_cast<long long>(columns));
    }
    if (&tensor.device() != &device) {
        fail(Code::invalid_argument, "linear: %s is not on the layer's device", name);
    }
    return tensor.count() / columns;
}

void check_rows(const Tensor& from, const char* from_name, int64_t rows, const Tensor& to,
                const char* to_name, int64_t to_rows) {
    if (rows != to_rows) {
        fail(Code::invalid_shape, "linear: %s is %s but %s is %s; both must have the same rows",
             from_name, from.shape().text().c_str(), to_name, to.shape().text().c_str());
    }
}

void check_again(const Saved* saved, const Tensor& x, int64_t rows) {
    if (saved == nullptr || saved->rows() < 0) {
        fail(Code::bad_state,
             "linear: MP_FORWARD_RECOMPUTE before any forward that kept the scale");
    }
    if (rows != saved->rows()) {
        fail(Code::invalid_shape,
             "linear: x is %s but the forward that is computed again had %lld rows",
             x.shape().text().c_str(), static_cast<long long>(saved->rows()));
    }
}

void check_kept(const Saved* saved, const Tensor& dy, int64_t rows) {
    if (saved == nullptr) {
        fail(Code::bad_state,
             "linear: the weight's gradient needs what a forward kept; this layer was "
             "made with MP_LINEAR_INFERENCE or MP_LINEAR_FROZEN");
    }
    if (saved->rows() < 0) {
        fail(Code::bad_state,
             "linear: backward_weight before any forward; call mp_linear_forward first");
    }
    if (!saved->has_input()) {
        fail(Code::bad_state, "linear: x is not kept: the forward was told to drop it, or dx was "
                              "written over it; run mp_linear_forward_saved with "
                              "MP_FORWARD_RECOMPUTE first, or a forward");
    }
    if (rows != saved->rows()) {
        fail(Code::invalid_shape, "linear: dy is %s but the forward had %lld rows",
             dy.shape().text().c_str(), static_cast<long long>(saved->rows()));
    }
}

} // namespace mp::linear
