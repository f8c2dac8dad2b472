// SPDX-License-Identifier: Apache-2.0
// The backends compiled into this binary; the list is written by the build.
#pragma once

#include "device/backend.hpp"

namespace mp {

BackendList enabled_backends() noexcept;

} // namespace mp
