// SPDX-License-Identifier: Apache-2.0
// RoundingMode: what recipes say of roundings.
#pragma once

#include <cstdint>

namespace mp::recipe {

// nearest: halves to even. nearest_away: halves away from zero, for weights made from fp32 masters.
enum class RoundingMode : int32_t { nearest = 0, stochastic = 1, nearest_away = 2 };

} // namespace mp::recipe
