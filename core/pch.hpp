// SPDX-License-Identifier: Apache-2.0
// What nearly every file of core and capi includes, read by the compiler once. A file still includes what it uses.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/context.hpp"
#include "device/backend.hpp"
#include "status/status.hpp"
#include "tensor/tensor.hpp"
