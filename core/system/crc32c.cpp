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

// Reflected: x^0 is the highest bit.
constexpr uint32_t kPolynomial = 0x82F63B78U;

constexpr uint32_t times_x(uint32_t value) {
    return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0U);
}

constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = times_x(value);
        }
        table[byte] = value;
    }
    return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; --bit, b = times_x(b)) {
        product ^= ((a >> bit) & 1) != 0 ? b : 0U;
    }
    return product;
}

// What so many bytes multiply a register by that stands before them: x^(8 bytes).
constexpr uint32_t factor_of(std::size_t bytes) {
    uint32_t factor = 1U << 31;
    for (uint32_t square = 1U << 23; bytes > 0; bytes >>= 1, square = multiply(square, square)) {
        factor = (bytes & 1) != 0 ? multiply(factor, square) : factor;
    }
    return factor;
}

#if defined(__x86_64__)
#define MP_CRC32C_TARGET __attribute__((target("sse4.2")))
MP_CRC32C_TARGET uint32_t add_word(uint32_t value, uint64_t word) noexcept {
    return static_cast<uint32_t>(_mm_crc32_u64(value, word));
}
MP_CRC32C_TARGET uint32_t add_byte(uint32_t value, unsigned char byte) noexcept {
    return _mm_crc32_u8(value, byte);
}
bool can_use_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__) && defined(__linux__)
#define MP_CRC32C_TARGET __attribute__((target("+crc")))
MP_CRC32C_TARGET uint32_t add_word(uint32_t value, uint64_t word) noexcept {
    return __crc32cd(value, word);
}
MP_CRC32C_TARGET uint32_t add_byte(uint32_t value, unsigned char byte) noexcept {
    return __crc32cb(value, byte);
}
bool can_use_instruction() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#ifdef MP_CRC32C_TARGET
uint64_t word_at(const unsigned char* data) noexcept {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
}

// The instruction waits three cycles for its result but can begin in each: three runs of bytes keep it busy.
constexpr std::size_t kRun = 8192;
constexpr uint32_t kRunFactor = factor_of(kRun);

MP_CRC32C_TARGET uint32_t by_instruction(uint32_t crc, const unsigned char* data,
                                         std::size_t bytes) noexcept {
    uint32_t value = ~crc;
    for (; bytes >= 3 * kRun; bytes -= 3 * kRun, data += 3 * kRun) {
        uint32_t second = 0;
        uint32_t third = 0;
        for (std::size_t i = 0; i < kRun; i += 8) {
            value = add_word(value, word_at(data + i));
            second = add_word(second, word_at(data + kRun + i));
            third = add_word(third, word_at(data + 2 * kRun + i));
        }
        value = multiply(multiply(value, kRunFactor) ^ second, kRunFactor) ^ third;
    }
    for (; bytes >= 8; bytes -= 8, data += 8) {
        value = add_word(value, word_at(data));
    }
    for (; bytes > 0; --bytes, ++data) {
        value = add_byte(value, *data);
    }
    return ~value;
}
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
