// SPDX-License-Identifier: Apache-2.0
#include "optim/exact_weight.hpp"

#include "numerics/codec.hpp"
#include "numerics/remainder.hpp"
#include "optim/host_values.hpp"
#include "quant/read_floats.hpp"

namespace mp::optim {
namespace {

TensorRef elements_of(const ArrayRef& array, int64_t first, int64_t count) {
    return {static_cast<unsigned char*>(array.data) + bytes_of(array.dtype(), first), count,
            array.dtype()};
}

void read_joined(Stream& stream, const ArrayRef& param, const Tensor& remainder, int64_t first,
                 std::span<float> values) {
    const auto count = static_cast<int64_t>(values.size());
    const Bytes upper = download(stream, elements_of(param, first, count));
    const Bytes lower = download(stream, elements_of(remainder.array(), first, count));
    for (int64_t i = 0; i < count; ++i) {
        values[static_cast<std::size_t>(i)] =
            numerics::join_master(numerics::detail::load_element<uint16_t>(upper.data(), i),
                                  numerics::detail::load_element<int16_t>(lower.data(), i));
    }
}

// `first` begins a block.
StoredState part_of(const StoredState& state, int64_t first, int64_t count) {
    const auto move = [](void* data, std::size_t bytes) -> void* {
        return data == nullptr ? nullptr : static_cast<unsigned char*>(data) + bytes;
    };
    StoredState part = state;
    part.array.data =
        move(state.array.data, static_cast<std::size_t>(code_bytes(state.format, first)));
    part.array.columns = count;
    if (has_blocks(state.format)) {
        part.array.scale_inv =
            move(state.array.scale_inv, static_cast<std::size_t>(scale_bytes(state.format, first)));
    }
    return part;
}

} // namespace

void read_exact_weight(Stream& stream, const ParamStates& states, const ArrayRef& param,
                       int64_t first, std::span<float> values) {
    const Tensor* master = states.master().get();
    if (master != nullptr && states.has_remainder()) {
        read_joined(stream, param, *master, first, values);
        return;
    }
    quant::read_floats(stream, master != nullptr ? slice_of(*master) : param, first, values);
    if (master == nullptr &&
        states.has_compensation()) { // Kahan's sum, which the weight stands for
        const std::vector<float> lost =
            read_stored(stream, part_of(states.find("compensation"), first,
                                        static_cast<int64_t>(values.size())));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] += lost[i];
        }
    }
}

void read_param(Stream& stream, const Parameters& parameters, int32_t index, bool is_exact,
                int64_t first, std::span<float> values) {
    if (values.empty()) {
        return;
    }
    const StatesPlace place = states_place(parameters, index);
    Stream& on = parameters.state_stream(index, stream);
    if (is_exact && place.states != nullptr) {
        read_exact_weight(on, *place.states, place.param, first, values);
    } else {
        quant::read_floats(on, place.param, first, values);
    }
}

} // namespace mp::optim
