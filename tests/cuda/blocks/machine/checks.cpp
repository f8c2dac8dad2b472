// SPDX-License-Identifier: Apache-2.0
#include "checks.hpp"

#include <algorithm>
#include <bit>

#include "block.hpp"

thread_local unsigned char mp_dynamic_shared[mp::blocks::kMostShared];

namespace mp::blocks {

namespace {

// Of the barriers of all launches, so that what an earlier one left in memory is older.
uint32_t interval = 0;

constexpr std::size_t kWidestAccess = 16;

std::string verb(Access how) {
    return how == Access::load ? "loads " : (how == Access::store ? "stores " : "changes ");
}

std::string bytes_text(std::size_t bytes) {
    return std::to_string(bytes) + (bytes == 1 ? " byte at " : " bytes at ");
}

// The address `offset` bytes into something, or before it.
std::string offset_text(const std::string& name, uintptr_t begin, uintptr_t address) {
    return address < begin ? name + "-" + std::to_string(begin - address)
                           : name + "+" + std::to_string(address - begin);
}

} // namespace

Checks::Checks(const Launch& launch, Report& report)
    : report_(report), parameters_{reinterpret_cast<uintptr_t>(launch.parameters),
                                   launch.parameter_bytes},
      shared_(Image::of_program().thread_storage().size),
      orders_((launch.threads + kWarp - 1) / kWarp), launch_first_(interval + 1),
      block_first_(launch_first_) {
    const Image& image = Image::of_program();
    arrays_ = image.arrays_of(*image.function_at(reinterpret_cast<uintptr_t>(launch.kernel)));
    if (launch.dynamic_shared_bytes != 0) {
        arrays_.push_back(
            {{reinterpret_cast<uintptr_t>(mp_dynamic_shared), launch.dynamic_shared_bytes},
             "mp_dynamic_shared"});
    }
}

void Checks::begin_block() {
    block_first_ = ++interval;
    std::fill(orders_.begin(), orders_.end(), WarpOrder());
    for (std::size_t i = shared_begin_; i < shared_end_; ++i) {
        shared_[i] = {};
    }
    shared_begin_ = shared_.size();
    shared_end_ = 0;
}

void Checks::pass_barrier() {
    ++interval;
    std::fill(orders_.begin(), orders_.end(), WarpOrder());
}

void Checks::report(Fault fault, const Accessor& by, const std::string& text) {
    const auto [known, is_new] =
        found_.try_emplace({fault, by.instruction}, report_.findings.size());
    if (is_new || by.instruction == 0) {
        report_.findings.push_back({fault, by.block, by.thread, text});
    } else {
        ++report_.findings[known->second].times;
    }
}

void Checks::refuse(Fault fault, const Accessor& by, Access how, const Range& range,
                    const std::string& why) {
    report(fault, by,
           verb(how) + bytes_text(range.size) + name_of(range.begin) + ", " + why + ", in " +
               Image::of_program().instruction_text(by.instruction));
}

std::string Checks::name_of(uintptr_t address) const {
    if (const Region* region = device_memory().find(address)) {
        return offset_text(region->name, region->valid.begin, address);
    }
    const Symbol* const array = array_before(address);
    if (array != nullptr && Image::of_program().thread_storage().has(address)) {
        return offset_text("shared " + short_name(*array), array->range.begin, address);
    }
    char text[24];
    (void)std::snprintf(text, sizeof text, "%#zx", static_cast<std::size_t>(address));
    return text;
}

// The last of the kernel's that begins there or before; null: none does.
const Symbol* Checks::array_before(uintptr_t address) const {
    const Symbol* last = nullptr;
    for (const Symbol& array : arrays_) {
        if (array.range.begin <= address &&
            (last == nullptr || array.range.begin > last->range.begin)) {
            last = &array;
        }
    }
    return last;
}

// Null outside of every array of the kernel's.
ByteHistory* Checks::find_shared(const Range& range) {
    const Symbol* const array = array_before(range.begin);
    if (array == nullptr || !array->range.has(range.begin, range.size)) {
        return nullptr;
    }
    const std::size_t at = range.begin - Image::of_program().thread_storage().begin;
    shared_begin_ = std::min(shared_begin_, at);
    shared_end_ = std::max(shared_end_, at + range.size);
    return &shared_[at];
}

Checks::Space Checks::find(const Accessor& by, Access how, const Range& range,
                           ByteHistory** bytes) {
    if (Region* region = device_memory().find(range.begin)) {
        if (region->valid.has(range.begin, range.size)) {
            *bytes = &region->at(range.begin);
            return Space::device;
        }
        refuse(Fault::out_of_bounds, by, how, range,
               "where " + region->name + " has " + std::to_string(region->valid.size) + " bytes");
        return Space::forbidden;
    }
    const Image& image = Image::of_program();
    if (image.thread_storage().has(range.begin)) {
        *bytes = find_shared(range);
        if (*bytes != nullptr) {
            return Space::shared;
        }
        refuse(Fault::out_of_bounds, by, how, range, "which is in no shared array of the kernel's");
        return Space::forbidden;
    }
    const bool is_constant = parameters_.has(range.begin) || image.program().has(range.begin);
    if (is_constant && how == Access::load) {
        return Space::own;
    }
    refuse(is_constant ? Fault::read_only : Fault::out_of_bounds, by, how, range,
           is_constant ? "which is a parameter or the program's" : "which is in no array");
    return Space::forbidden;
}

Checks::Space Checks::access(const Accessor& by, Access how, uintptr_t address, std::size_t bytes) {
    const Range range{address, bytes};
    if (fiber_stacks().has(address)) {
        return Space::own;
    }
    ByteHistory* histories = nullptr;
    const Space space = find(by, how, range, &histories);
    if (histories == nullptr) {
        return space;
    }
    if (bytes <= kWidestAccess && std::has_single_bit(bytes) && address % bytes != 0) {
        refuse(Fault::misaligned, by, how, range, "which is no multiple of that");
        return Space::forbidden;
    }
    check_bytes(by, how, range, histories);
    return space;
}

void Checks::check_bytes(const Accessor& by, Access how, const Range& range, ByteHistory* bytes) {
    const ByteHistory* unwritten = nullptr;
    Stamp unordered;
    for (std::size_t i = 0; i < range.size; ++i) {
        ByteHistory& byte = bytes[i];
        if (how != Access::store && !byte.is_written) {
            unwritten = &byte;
        }
        const Stamp* other = find_unordered(by, how, byte);
        if (other != nullptr) {
            unordered = *other;
        }
        remember(by, how, byte);
    }
    if (unwritten != nullptr) {
        refuse(Fault::unwritten, by, how, range, "which nobody wrote");
    }
    if (unordered.interval != 0) {
        refuse(Fault::race, by, how, range,
               unordered.block == by.block
                   ? "which thread " + std::to_string(unordered.thread) +
                         " accesses too, and no barrier is between"
                   : "which block " + std::to_string(unordered.block) + ", thread " +
                         std::to_string(unordered.thread) + " accesses too");
    }
}

bool Checks::is_ordered(const Accessor& by, const Stamp& stamp) const {
    if (stamp.interval < launch_first_) {
        return true;
    }
    if (stamp.interval < block_first_) {
        return false; // of another block
    }
    if (stamp.interval < interval || stamp.thread == by.thread) {
        return true;
    }
    return stamp.thread / kWarp == by.warp() &&
           orders_[by.warp()].knows(by.lane(), stamp.thread % kWarp, stamp.time);
}

bool Checks::are_reads_ordered(const Accessor& by, const ByteHistory& byte) const {
    if (byte.read.interval != interval) {
        return is_ordered(by, byte.read);
    }
    if (byte.by_warps || byte.read.thread / kWarp != by.warp()) {
        return false;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
        if ((byte.lanes >> lane & 1U) != 0 && lane != by.lane() &&
            !orders_[by.warp()].knows(by.lane(), lane, byte.read.time)) {
            return false;
        }
    }
    return true;
}

const Stamp* Checks::find_unordered(const Accessor& by, Access how, const ByteHistory& byte) const {
    const bool both_atomic = how == Access::atomic && byte.write.is_atomic;
    if (!both_atomic && !is_ordered(by, byte.write)) {
        return &byte.write;
    }
    if (how == Access::load) {
        return nullptr;
    }
    if (!are_reads_ordered(by, byte)) {
        return &byte.read;
    }
    return is_ordered(by, byte.read_elsewhere) ? nullptr : &byte.read_elsewhere;
}

void Checks::remember(const Accessor& by, Access how, ByteHistory& byte) const {
    const Stamp now{interval, orders_[by.warp()].time(), by.block, static_cast<uint16_t>(by.thread),
                    how == Access::atomic};
    if (how != Access::load) {
        byte.write = now;
        byte.is_written = true;
        return;
    }
    if (byte.read.interval != interval) {
        if (byte.read.interval >= launch_first_ && byte.read.interval < block_first_) {
            byte.read_elsewhere = byte.read;
        }
        byte.lanes = 0;
        byte.by_warps = false;
    } else if (byte.read.thread / kWarp != by.warp()) {
        byte.by_warps = true;
    }
    byte.lanes |= 1U << by.lane();
    byte.read = now;
}

} // namespace mp::blocks
