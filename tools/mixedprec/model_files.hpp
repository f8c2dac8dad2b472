// SPDX-License-Identifier: Apache-2.0
// The safetensors files of a model, as they are handed around: one file, several, a folder of them, or an index.
#pragma once

#include <string>
#include <vector>

#include "safetensors.hpp"

namespace command {

struct ModelFile {
    std::string path;
    SafetensorsHeader header;
};

// Whether a path is one of these: a file, or a folder that is no checkpoint and has such files.
bool is_model(const std::string& path);
// The headers of all of their files, each once. Throws a Failure where a file is none, an index names what is not there, or a
// tensor is in two files.
std::vector<ModelFile> read_model(const std::vector<std::string>& paths);

} // namespace command
