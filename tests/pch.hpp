// SPDX-License-Identifier: Apache-2.0
// What nearly every test includes, compiled once. Only what never changes: a change compiles all tests again. Each test
// includes what it needs all the same; clang-tidy reads them without this.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>
