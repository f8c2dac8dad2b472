// SPDX-License-Identifier: Apache-2.0
// What nearly every file of the command includes, read by the compiler once.
#pragma once

#include <mixedprec.hpp>
#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
