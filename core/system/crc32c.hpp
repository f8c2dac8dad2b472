// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected), as in iSCSI (RFC 3720, B.4): by the processor's own
// instruction where it has one, else by a table.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp::system {

// The checksum of what came before, `crc` (0 at first), followed by these bytes.
uint32_t crc32c(uint32_t crc, const void* data, std::size_t bytes) noexcept;

// The same by the table alone, for tests.
uint32_t crc32c_by_table(uint32_t crc, const void* data, std::size_t bytes) noexcept;
bool has_crc32c_instruction() noexcept;

} // namespace mp::system
