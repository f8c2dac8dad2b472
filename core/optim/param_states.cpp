// SPDX-License-Identifier: Apache-2.0
#include "optim/param_states.hpp"

#include "numerics/remainder.hpp"
#include "optim/host_values.hpp"
#include "quant/quantize.hpp"

namespace mp::optim {
namespace {

Format one_scale(DType codes) {
    return {codes, kTensorScale, numerics::scale_policy(numerics::ScaleRule::msamp, codes)};
}

std::size_t byte_count(const TensorRef& ref) {
    return static_cast<std::size_t>(bytes_of(ref.dtype, ref.count));
}

// compensation = round(init - param): what the parameter's rounding lost. At creation only, so on the host.
void store_lost_part(Stream& stream, const TensorRef& init, const TensorRef& param,
                     const StoredState& compensation) {
    std::vector<float> lost = download_floats(stream, init);
    const std::vector<float> kept = download_floats(stream, param);
    for (std::size_t i = 0; i < lost.size(); ++i) {
        lost[i] -= kept[i];
    }
    write_stored(stream, compensation, lost);
}

// param = the bf16 number nearest to the exact value, halves away from zero. At creation only, so on the host.
void store_half_away(Stream& stream, const TensorRef& init, const TensorRef& param) {
    const auto count = static_cast<std::size_t>(init.count);
    std::vector<float> exact(count);
    std::vector<uint16_t> rounded(count);
    stream.copy(exact.data(), init.data, byte_count(init), CopyKind::device_to_host);
    stream.sync();
    for (std::size_t i = 0; i < count; ++i) {
        rounded[i] = numerics::bf16_half_away(exact[i]);
    }
    stream.copy(param.data, rounded.data(), byte_count(param), CopyKind::host_to_device);
    stream.sync();
}

// param and remainder of an exact fp32 value; without one the parameter is exact, and its remainder zero. At
// creation only, so on the host.
void store_remainder(Stream& stream, const TensorRef& init, const TensorRef& param,
                     const TensorRef& remainder) {
    const auto count = static_cast<std::size_t>(init.count);
    std::vector<float> exact(count);
    std::vector<uint16_t> upper(count);
    std::vector<int16_t> lower(count);
    stream.copy(exact.data(), init.data, byte_count(init), CopyKind::device_to_host);
    stream.sync();
    for (std::size_t i = 0; i < count; ++i) {
        const numerics::SplitMaster split = numerics::split_master(exact[i]);
        upper[i] = split.param;
        lower[i] = split.remainder;
    }
    stream.copy(param.data, upper.data(), byte_count(param), CopyKind::host_to_device);
    stream.copy(remainder.data, lower.data(), byte_count(remainder), CopyKind::host_to_device);
    stream.sync();
}

void set_zero(Stream& stream, const Tensor* tensor) {
    if (tensor != nullptr && tensor->count() > 0) {
        stream.zero(tensor->data(), tensor->bytes());
    }
}

} // namespace

std::shared_ptr<Tensor> make_state(const std::shared_ptr<Context>& context, Stream& stream,
                                   FormatId format, const Shape& shape) {
    if (format == FormatId::none) {
        return nullptr;
    }
    const DType codes = dtype_of(format);
    if (is_scaled(format)) {
        return std::make_shared<Tensor>(context, stream, one_scale(codes), shape);
    }
    const Shape bytes = {{code_bytes(format, shape.count())}, 1};
    return std::make_shared<Tensor>(context, stream, codes,
                                    block_layout(coding_of(format)).bits == 4 ? bytes : shape);
}

// Scales of zero: so codes of zero are numbers of zero, also in a map whose code 0 is something else.
ParamStates::Kept ParamStates::make_kept(const std::shared_ptr<Context>& context, Stream& stream,
                                         FormatId format, const Shape& shape) const {
    return {make_state(context, stream, format, shape),
            has_blocks(format)
                ? std::make_shared<Tensor>(context, stream, scale_grid(format).dtype,
                                           Shape{{scale_count(format, shape.count())}, 1})
                : nullptr};
}

ParamStates::ParamStates(const std::shared_ptr<Context>& context, Stream& stream,
                         const StateFormats& formats, const Shape& shape)
    : count_(shape.count()), formats_(formats),
      compensation_(make_kept(context, stream, formats.compensation, shape)),
      master_(make_state(context, stream, formats.master, shape)) {
    for (int k = 0; k < rule().state_count; ++k) {
        states_[static_cast<std::size_t>(k)] = make_kept(context, stream, formats.states[k], shape);
    }
}

// A parameter beside a master weight is the master weight as it is stored, rounded; from the first moment on.
void ParamStates::initialize(Stream& stream, const ArrayRef& param,
                             const TensorRef* init_fp32) const {
    const bool has_init = init_fp32 != nullptr && init_fp32->data != param.data;
    const ArrayRef init = plain_array(has_init ? *init_fp32 : param.elements());
    if (master_ != nullptr && has_remainder()) {
        if (has_init) { // otherwise the remainder is zero already
            store_remainder(stream, init.elements(), param.elements(), master_->ref());
        }
    } else if (master_ != nullptr) {
        quant::convert(stream, has_init ? init : param, slice_of(*master_));
        if (has_init && formats_.half_away) {
            store_half_away(stream, init.elements(), param.elements());
        } else if (has_init) {
            quant::convert(stream, slice_of(*master_), param);
        }
    } else if (has_init) {
        quant::convert(stream, init, param);
    }
    if (has_compensation() && has_init) {
        store_lost_part(stream, init.elements(), param.elements(), find("compensation"));
    }
}

void ParamStates::sync_master(Stream& stream, const ArrayRef& param) const {
    if (master_ != nullptr && !has_remainder()) {
        quant::convert(stream, param, slice_of(*master_));
    }
    set_zero(stream, has_remainder() ? master_.get() : nullptr);
    set_zero(stream, compensation_.codes.get());
    set_zero(stream, compensation_.block_scales.get());
}

void ParamStates::fill(UpdateSegment& s) const noexcept {
    const auto array = [](const std::shared_ptr<Tensor>& tensor) {
        return tensor == nullptr ? StepArray{}
                                 : StepArray{tensor->data(), slice_of(*tensor).scale_inv,
                                             tensor->dtype(), Coding::plain};
    };
    const auto kept = [&array](const Kept& of, FormatId format) {
        StepArray a = array(of.codes);
        if (of.block_scales != nullptr) {
            a.coding = coding_of(format);
            a.scale_inv = of.block_scales->data();
        }
        return a;
    };
    for (int k = 0; k < rule().state_count; ++k) {
        s.states[k] = kept(states_[static_cast<std::size_t>(k)], formats_.states[k]);
    }
    s.compensation = kept(compensation_, formats_.compensation);
    s.master = array(master_);
    s.master.coding = has_remainder() ? Coding::remainder : Coding::plain;
    s.param_half_away = formats_.half_away ? 1 : 0;
}

StoredState ParamStates::stored(const Kept& kept, FormatId format, bool is_signed) const {
    StoredState state = {format, slice_of(*kept.codes), is_signed};
    state.array.columns = count_;
    if (kept.block_scales != nullptr) {
        state.array.scale_inv = kept.block_scales->data();
        state.array.format.grid = scale_grid(format);
    }
    return state;
}

StoredState ParamStates::find(std::string_view name) const noexcept {
    for (int k = 0; k < rule().state_count; ++k) {
        if (const numerics::StateSpec& state = rule().state(k); name == state.name) {
            return stored(states_[static_cast<std::size_t>(k)], formats_.states[k],
                          state.is_signed);
        }
    }
    return name == "compensation" && has_compensation()
               ? stored(compensation_, formats_.compensation, true)
               : StoredState{};
}

std::vector<NamedTensor> ParamStates::list() const {
    std::vector<NamedTensor> list;
    const auto add = [&list](const std::string& name, const std::shared_ptr<Tensor>& tensor) {
        if (tensor != nullptr) {
            list.emplace_back(name, tensor);
        }
    };
    const auto add_kept = [&add](const std::string& name, const Kept& kept) {
        add(name, kept.codes);
        add(name + "_scale_inv",
            kept.block_scales != nullptr ? kept.block_scales : scale_of(kept.codes));
    };
    for (int k = 0; k < rule().state_count; ++k) {
        add_kept(rule().state(k).name, states_[static_cast<std::size_t>(k)]);
    }
    add_kept("compensation", compensation_);
    add("master", master_);
    add("master_scale_inv", scale_of(master_));
    return list;
}

void ParamStates::add_bytes(MemoryReport& report) const noexcept {
    report.master += bytes_of(master_);
    for (int k = 0; k < rule().state_count; ++k) {
        report.of(rule().states[k]) += bytes_of(states_[static_cast<std::size_t>(k)].codes) +
                                       bytes_of(states_[k].block_scales);
    }
    report.compensation += bytes_of(compensation_.codes) + bytes_of(compensation_.block_scales);
}

} // namespace mp::optim
