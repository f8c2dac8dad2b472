// SPDX-License-Identifier: Apache-2.0
// The parts of a GGUF that is split over files: "<name>-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mp::model {

struct GgufPart {
    std::string name; // of the whole, with its folder
    int32_t part = 0; // from 1
    int32_t parts = 0;

    bool operator==(const GgufPart&) const = default;
};

// Nothing where the path is of no such form, or of a part that cannot be.
std::optional<GgufPart> gguf_part(const std::string& path);
std::string gguf_path(const GgufPart& part);

} // namespace mp::model
