// SPDX-License-Identifier: Apache-2.0
// What tells a checkpoint's folder from one of a model's files.
#pragma once

namespace mp::model {
inline constexpr const char* kManifestName = "manifest.json";
} // namespace mp::model
