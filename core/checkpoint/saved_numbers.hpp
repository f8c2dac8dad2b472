// SPDX-License-Identifier: Apache-2.0
// Numbers of a manifest by name.
#pragma once

#include <bit>
#include <string>

#include "checkpoint/manifest.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {

// Throws corrupt_data where one is missing.
class Numbers {
  public:
    Numbers(const Manifest& manifest, std::string prefix)
        : manifest_(manifest), prefix_(std::move(prefix)) {}
    [[nodiscard]] bool has(const std::string& name) const {
        return manifest_.find_scalar(prefix_ + name) != nullptr;
    }
    [[nodiscard]] uint64_t bits(const std::string& name) const {
        const Scalar* scalar = manifest_.find_scalar(prefix_ + name);
        if (scalar == nullptr) {
            fail(Code::corrupt_data, "checkpoint: the number '%s%s' is missing", prefix_.c_str(),
                 name.c_str());
        }
        return scalar->bits;
    }
    [[nodiscard]] int64_t integer(const std::string& name) const {
        return static_cast<int64_t>(bits(name));
    }
    [[nodiscard]] double number(const std::string& name) const {
        return std::bit_cast<double>(bits(name));
    }

  private:
    const Manifest& manifest_;
    std::string prefix_;
};

} // namespace mp::checkpoint
