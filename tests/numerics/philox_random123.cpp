// SPDX-License-Identifier: Apache-2.0
// Philox against Random123, the authors' own implementation, over random counters and keys.
// Built only where its headers are installed (Debian: librandom123-dev).
#include <gtest/gtest.h>

#include <Random123/philox.h>

#include <cstdint>

#include "numerics/philox.hpp"

namespace mp::test {
namespace {

TEST(PhiloxRandom123, AgreesOnTenThousandCountersAndKeys) {
    uint64_t state = 2024;
    const auto next = [&state] {
        return static_cast<uint32_t>(numerics::splitmix64(state++) >> 32);
    };
    for (int i = 0; i < 10000; ++i) {
        const numerics::Philox4x32 ctr = {{next(), next(), next(), next()}};
        const numerics::PhiloxKey key = {{next(), next()}};
        const philox4x32_ctr_t their_ctr = {{ctr.v[0], ctr.v[1], ctr.v[2], ctr.v[3]}};
        const philox4x32_key_t their_key = {{key.v[0], key.v[1]}};
        const philox4x32_ctr_t theirs = philox4x32_R(10, their_ctr, their_key);
        const numerics::Philox4x32 ours = numerics::philox4x32_10(ctr, key);
        for (unsigned j = 0; j < 4; ++j) {
            ASSERT_EQ(ours.v[j], theirs.v[j]) << i;
        }
    }
}

} // namespace
} // namespace mp::test
