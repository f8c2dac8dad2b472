/* SPDX-License-Identifier: Apache-2.0
 * The borders of fast_exp, kept away from its users on purpose: see vector.h. */
#include "vector.h"

const float fast_exp_low = -87.0f;
const float fast_exp_high = 88.0f;
