// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/catalog.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "numerics/block_state.hpp"
#include "numerics/codec.hpp"
#include "runtime/memory_watch.hpp"
#include "system/name.hpp"

namespace mp::checkpoint {
namespace {

void check_slices(const Entry& entry) {
    const int64_t count = entry.count();
    const int64_t block = block_size(entry.format);
    int64_t end = 0;
    for (const LocalSlice& slice : entry.slices) {
        if (slice.start < end || slice.length < 0 || slice.length > count - slice.start) {
            fail(Code::invalid_argument,
                 "checkpoint: a slice of %s, elements %lld to %lld of %lld, overlaps another or "
                 "goes "
                 "beyond the tensor",
                 entry.text().c_str(), static_cast<long long>(slice.start),
                 static_cast<long long>(slice.start + slice.length), static_cast<long long>(count));
        }
        end = slice.start + slice.length;
        if (slice.start % block != 0 || (end % block != 0 && end != count)) {
            fail(Code::invalid_argument,
                 "checkpoint: a slice of %s does not begin and end at blocks of %lld elements",
                 entry.text().c_str(), static_cast<long long>(block));
        }
    }
    if (entry.replicated && (entry.slices.size() != 1 || entry.slices[0].length != count)) {
        fail(Code::invalid_argument, "checkpoint: %s must be whole on every rank",
             entry.text().c_str());
    }
}

bool is_power_of_two(float value) noexcept {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t exponent = bits >> 23; // with the sign
    return (bits & 0x7FFFFFU) == 0 && exponent >= 1 && exponent <= 254;
}

float value_at(const Entry& entry, const unsigned char* at) noexcept {
    return entry.format == FormatId::fp16 // of a block's scale, whose sign is no sign
               ? numerics::BlockScale16::decode(numerics::detail::load_element<uint16_t>(at, 0))
               : numerics::load_as_float(dtype_of(entry.format), at, 0);
}

} // namespace

int64_t Entry::count() const noexcept {
    int64_t product = 1;
    for (const int64_t size : shape) {
        product *= size;
    }
    return product;
}

std::size_t Entry::bytes(const LocalSlice& slice) const noexcept {
    return static_cast<std::size_t>(offset(slice.start + slice.length) - offset(slice.start));
}

ValueRule value_rule(const std::string& state) noexcept {
    return state.ends_with("_scale_inv") || state.ends_with("_amax") ? ValueRule::scale
                                                                     : ValueRule::any;
}

std::string wrong_value(const Entry& entry, const unsigned char* values, std::size_t bytes) {
    const auto size = static_cast<std::size_t>(dtype_size(dtype_of(entry.format)));
    if (entry.rule == ValueRule::any || size == 0) {
        return "";
    }
    const bool is_power = entry.rule == ValueRule::power_of_two;
    for (std::size_t at = 0; at + size <= bytes; at += size) {
        const float value = value_at(entry, values + at);
        if (is_power ? is_power_of_two(value) : std::isfinite(value) && !std::signbit(value)) {
            continue;
        }
        char number[32];
        (void)std::snprintf(number, sizeof number, "%g", static_cast<double>(value));
        return entry.text() + " has the scale " + number + "; it must be " +
               (is_power ? "a power of two" : "finite and not negative");
    }
    return "";
}

void check_catalog(const Catalog& catalog) {
    std::set<std::pair<std::string, std::string>> seen;
    for (const Entry& entry : catalog.entries) {
        system::check_name("checkpoint: a name", entry.name);
        if (entry.state.empty() || entry.state.find_first_of(".@") != std::string::npos) {
            fail(Code::invalid_argument, "checkpoint: state '%.64s' must have neither dot nor @",
                 entry.state.c_str());
        }
        if (!seen.emplace(entry.name, entry.state).second) {
            fail(Code::invalid_argument, "checkpoint: there are two of %s", entry.text().c_str());
        }
        const DType dtype = dtype_of(entry.format);
        if (entry.format == FormatId::none || (dtype_bits(dtype) < 8 && !is_packed(dtype))) {
            fail(Code::invalid_dtype, "checkpoint: %s is of no type that can be saved",
                 entry.text().c_str());
        }
        check_slices(entry);
    }
}

void copy_out(const Entry& entry, const LocalSlice& slice, std::size_t offset, void* host,
              std::size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(slice.data) + offset;
    if (bytes == 0) {
        return;
    }
    if (entry.stream == nullptr) {
        std::memcpy(host, from, bytes);
    } else {
        entry.stream->copy(host, from, bytes, CopyKind::device_to_host);
    }
}

void copy_in(const Entry& entry, const LocalSlice& slice, const void* host) {
    const std::size_t bytes = entry.bytes(slice);
    if (bytes == 0) {
        return;
    }
    if (entry.stream == nullptr) {
        std::memcpy(slice.data, host, bytes);
        note_write(slice.data, bytes);
    } else {
        entry.stream->copy(slice.data, host, bytes, CopyKind::host_to_device);
    }
}

// Without a set of streams: it is called where nothing may fail any more, and neighbours have the same one.
void wait_for(const Catalog& catalog) {
    const Stream* before = nullptr;
    for (const Entry& entry : catalog.entries) {
        if (entry.stream != nullptr && entry.stream != before) {
            entry.stream->sync();
            before = entry.stream;
        }
    }
}

Snapshot::Snapshot(const Catalog& live) : catalog_(live) {
    for (Entry& entry : catalog_.entries) {
        for (LocalSlice& slice : entry.slices) {
            memory_.emplace_back(entry.bytes(slice));
            copy_out(entry, slice, 0, memory_.back().data(), memory_.back().size());
            slice.data = memory_.back().data(); // stays where it is when the outer vector grows
        }
    }
    wait_for(live);
    for (Entry& entry : catalog_.entries) {
        entry.stream = nullptr;
    }
}

} // namespace mp::checkpoint
