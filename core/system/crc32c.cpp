// SPDX-License-Identifier: Apache-2.0
#include "system/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace mp::system {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
        }
        table[byte] = value;
    }
    return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const unsigned char* data,
                                                          std::size_t bytes) noexcept {
    uint64_t wide = ~crc;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    auto value = static_cast<uint32_t>(wide);
    for (; bytes > 0; --bytes, ++data) {
        value = _mm_crc32_u8(value, *data);
    }
    return ~value;
}
bool can_use_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) uint32_t by_instruction(uint32_t crc, const unsigned char* data,
                                                        std::size_t bytes) noexcept {
    uint32_t value = ~crc;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data, sizeof word);
        value = __crc32cd(value, word);
    }
    for (; bytes > 0; --bytes, ++data) {
        value = __crc32cb(value, *data);
    }
    return ~value;
}
bool can_use_instruction() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
uint32_t by_instruction(uint32_t crc, const unsigned char* data, std::size_t bytes) noexcept {
    return crc32c_by_table(crc, data, bytes);
}
bool can_use_instruction() noexcept { return false; }
#endif

} // namespace

bool has_crc32c_instruction() noexcept {
    static const bool has = can_use_instruction();
    return has;
}

uint32_t crc32c_by_table(uint32_t crc, const void* data, std::size_t bytes) noexcept {
    const auto* cursor = static_cast<const unsigned char*>(data);
    uint32_t value = ~crc;
    for (std::size_t i = 0; i < bytes; ++i) {
        value = (value >> 8) ^ kTable[(value ^ cursor[i]) & 0xFFU];
    }
    return ~value;
}

uint32_t crc32c(uint32_t crc, const void* data, std::size_t bytes) noexcept {
    return has_crc32c_instruction()
               ? by_instruction(crc, static_cast<const unsigned char*>(data), bytes)
               : crc32c_by_table(crc, data, bytes);
}

} // namespace mp::system
