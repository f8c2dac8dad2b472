// SPDX-License-Identifier: Apache-2.0
// The reference backend: every operation as plain scalar C++, one thread, one element at a time with
// a switch on the dtype. The oracle that the tests compare every other backend with, and a choice for
// a user who suspects one of them. Not meant to be fast.
#pragma once

#include "device/backend.hpp"

namespace mp::backends::reference {

const Backend* backend() noexcept;

} // namespace mp::backends::reference
