// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/backend.hpp"

namespace mp::backends::host {

const Backend* backend();

} // namespace mp::backends::host
