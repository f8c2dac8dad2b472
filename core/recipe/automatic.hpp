// SPDX-License-Identifier: Apache-2.0
// The recipes "auto" and "auto_fp8": the preset that suits a device, with the reason in words.
#pragma once

#include <string>

#include "device/backend.hpp"
#include "recipe/recipe.hpp"

namespace mp::recipe {

struct PresetChoice {
    const Preset* preset = nullptr;
    std::string reason; // empty where the name was a preset's own
};

// A preset by name, or the choice for the device under "auto" (never fp8) and "auto_fp8" (an fp8 recipe even where
// its products are only emulated). Throws unknown_name with the nearest names.
PresetChoice resolve_preset(const std::string& name, const DeviceCapability& capability);

// A recipe as it was asked for.
struct NamedRecipe {
    Recipe recipe;
    std::string preset; // the name of the preset it began as
    std::string reason; // why this preset, where the device decided
};

// Reads {"recipe": preset, key: value, ...}.
NamedRecipe recipe_from_json(const char* text, std::size_t length,
                             const DeviceCapability& capability);

} // namespace mp::recipe
