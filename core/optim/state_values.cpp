// SPDX-License-Identifier: Apache-2.0
#include "optim/state_values.hpp"

#include <algorithm>

#include "numerics/block_state.hpp"
#include "numerics/codec.hpp"
#include "numerics/remainder.hpp"

namespace mp {
namespace {

using Bytes = std::vector<unsigned char>;

std::size_t byte_count(const TensorRef& ref) {
    return static_cast<std::size_t>(bytes_of(ref.dtype, ref.count));
}

Bytes download(Stream& stream, const void* data, std::size_t bytes) {
    Bytes host(bytes);
    if (bytes > 0) {
        stream.copy(host.data(), data, bytes, CopyKind::device_to_host);
        stream.sync();
    }
    return host;
}

void upload(Stream& stream, void* data, const Bytes& host) {
    if (!host.empty()) {
        stream.copy(data, host.data(), host.size(), CopyKind::host_to_device);
        stream.sync();
    }
}

std::vector<float> download_floats(Stream& stream, const TensorRef& ref) {
    const Bytes bytes = download(stream, ref.data, byte_count(ref));
    std::vector<float> values(static_cast<std::size_t>(ref.count));
    for (int64_t i = 0; i < ref.count; ++i) {
        values[static_cast<std::size_t>(i)] = numerics::load_as_float(ref.dtype, bytes.data(), i);
    }
    return values;
}

void upload_floats(Stream& stream, const TensorRef& ref, const std::vector<float>& values) {
    Bytes bytes(byte_count(ref));
    for (int64_t i = 0; i < ref.count; ++i) {
        numerics::store_from_float(ref.dtype, bytes.data(), i, values[static_cast<std::size_t>(i)],
                                   false);
    }
    upload(stream, ref.data, bytes);
}

// ---- states in blocks -------------------------------------------------------------------------

// The half of a byte that has the code of element i: the upper one for even elements.
int32_t shift_of(int64_t i) { return i % 2 == 0 ? 4 : 0; }

float decode(const StoredState& m, const Bytes& codes, int64_t i, float scale) {
    if (m.format.coding == Coding::block) {
        return numerics::load_as_float(m.format.dtype, codes.data(), i) * scale;
    }
    const bool is_pair = m.format.coding == Coding::dynamic4;
    const int32_t byte = codes[static_cast<std::size_t>(is_pair ? i / 2 : i)];
    const int32_t code = is_pair ? (byte >> shift_of(i)) & 15 : byte;
    return numerics::dynamic_value(m.format.coding, m.is_signed, code, scale);
}

void encode(const StoredState& m, Bytes& codes, int64_t i, float value, float scale) {
    if (m.format.coding == Coding::block) {
        numerics::store_from_float(m.format.dtype, codes.data(), i,
                                   numerics::e4m3_quotient(m.is_signed, value, scale), false);
        return;
    }
    const int32_t code = numerics::dynamic_code(m.format.coding, m.is_signed, value, scale);
    if (m.format.coding == Coding::dynamic4) {
        unsigned char& byte = codes[static_cast<std::size_t>(i / 2)];
        byte = static_cast<unsigned char>(byte | code << shift_of(i));
    } else {
        codes[static_cast<std::size_t>(i)] = static_cast<unsigned char>(code);
    }
}

std::vector<float> read_blocks(Stream& stream, const StoredState& m) {
    const int64_t count = m.piece.ref.count;
    const Bytes codes =
        download(stream, m.piece.ref.data,
                 static_cast<std::size_t>(code_bytes(m.format.coding, m.format.dtype, count)));
    const std::vector<float> scales =
        download_floats(stream, {m.block_scales, scale_count(m.format, count), DType::fp32});
    std::vector<float> values(static_cast<std::size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
        const auto block = static_cast<std::size_t>(i / block_size(m.format.coding));
        values[static_cast<std::size_t>(i)] = decode(m, codes, i, scales[block]);
    }
    return values;
}

void write_blocks(Stream& stream, const StoredState& m, const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const int64_t size = block_size(m.format.coding);
    Bytes codes(static_cast<std::size_t>(code_bytes(m.format.coding, m.format.dtype, count)));
    std::vector<float> scales(static_cast<std::size_t>(scale_count(m.format, count)));
    for (int64_t first = 0; first < count; first += size) {
        const int64_t end = std::min(first + size, count);
        uint32_t amax = 0; // as bits, so that NaN beats infinity beats numbers
        for (int64_t i = first; i < end; ++i) {
            amax = std::max(amax, numerics::bits_from_float(values[static_cast<std::size_t>(i)]) &
                                      numerics::kFloatMagnitudeMask);
        }
        const float scale =
            numerics::moment_scale(m.format.coding, numerics::float_from_bits(amax));
        scales[static_cast<std::size_t>(first / size)] = scale;
        for (int64_t i = first; i < end; ++i) {
            encode(m, codes, i, values[static_cast<std::size_t>(i)], scale);
        }
    }
    upload(stream, m.piece.ref.data, codes);
    upload_floats(stream, {m.block_scales, scale_count(m.format, count), DType::fp32}, scales);
}

// ---- weights -----------------------------------------------------------------------------------

std::vector<float> joined_weight(Stream& stream, const TensorRef& param,
                                 const TensorRef& remainder) {
    const Bytes upper = download(stream, param.data, byte_count(param));
    const Bytes lower = download(stream, remainder.data, byte_count(remainder));
    std::vector<float> values(static_cast<std::size_t>(param.count));
    for (int64_t i = 0; i < param.count; ++i) {
        values[static_cast<std::size_t>(i)] =
            numerics::join_master(numerics::detail::load_element<uint16_t>(upper.data(), i),
                                  numerics::detail::load_element<int16_t>(lower.data(), i));
    }
    return values;
}

// Kahan's sum, which is what the weight stands for.
std::vector<float> compensated_weight(Stream& stream, const TensorRef& param,
                                      const TensorRef& compensation) {
    std::vector<float> values = download_floats(stream, param);
    const std::vector<float> lost = download_floats(stream, compensation);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] += lost[i];
    }
    return values;
}

void read_weight(Stream& stream, const ParamStates& states, const TensorPiece& param,
                 const TensorRef& destination) {
    const Tensor* master = states.master().get();
    if (master != nullptr && states.has_remainder()) {
        upload_floats(stream, destination, joined_weight(stream, param.ref, master->ref()));
    } else if (master != nullptr) {
        convert(stream, piece_of(*master), {destination, nullptr, nullptr, {}});
    } else if (states.compensation() != nullptr) {
        upload_floats(stream, destination,
                      compensated_weight(stream, param.ref, states.compensation()->ref()));
    } else {
        convert(stream, param, {destination, nullptr, nullptr, {}});
    }
}

void write_weight(Stream& stream, const ParamStates& states, const TensorPiece& param,
                  const TensorRef& source) {
    if (source.dtype == DType::fp32) {
        states.initialize(stream, param, &source);
        return;
    }
    const Buffer wide(stream.shared_device(),
                      static_cast<std::size_t>(source.count) * sizeof(float));
    const TensorRef exact = {wide.data(), source.count, DType::fp32};
    convert(stream, {source, nullptr, nullptr, {}}, {exact, nullptr, nullptr, {}});
    states.initialize(stream, param, &exact);
    stream.sync(); // before the memory goes
}

[[noreturn]] void fail_unknown(const ParamStates& states, const std::string& name,
                               const std::string& owner) {
    std::string names;
    const numerics::RuleInfo rule = numerics::rule_info(states.formats().rule);
    for (int k = 0; k < rule.state_count; ++k) {
        names += std::string(rule.states[k].name) + ", ";
    }
    fail(Code::unknown_name,
         "optimizer: parameter '%s' has no values of '%.64s'; it has: %sfp32_param%s",
         owner.c_str(), name.c_str(), names.c_str(),
         states.compensation() != nullptr ? ", compensation" : "");
}

} // namespace

void read_values(Stream& stream, const ParamStates& states, const TensorPiece& param,
                 const std::string& name, const TensorRef& destination, const std::string& owner) {
    const StoredState state = states.find(name);
    const TensorPiece plain = {destination, nullptr, nullptr, {}};
    if (state.block_scales != nullptr) {
        upload_floats(stream, destination, read_blocks(stream, state));
    } else if (state.format.exists()) {
        convert(stream, state.piece, plain);
    } else if (name == "fp32_param") {
        read_weight(stream, states, param, destination);
    } else if (name == "compensation" && states.compensation() != nullptr) {
        convert(stream, piece_of(*states.compensation()), plain);
    } else {
        fail_unknown(states, name, owner);
    }
    stream.sync();
}

void write_values(Stream& stream, const ParamStates& states, const TensorPiece& param,
                  const std::string& name, const TensorRef& source, const std::string& owner) {
    const StoredState state = states.find(name);
    const TensorPiece plain = {source, nullptr, nullptr, {}};
    if (state.block_scales != nullptr) {
        write_blocks(stream, state, download_floats(stream, source));
    } else if (state.format.exists()) {
        convert(stream, plain, state.piece);
    } else if (name == "fp32_param") {
        write_weight(stream, states, param, source);
    } else if (name == "compensation" && states.compensation() != nullptr) {
        convert(stream, plain, piece_of(*states.compensation()));
    } else {
        fail_unknown(states, name, owner);
    }
    stream.sync();
}

} // namespace mp
