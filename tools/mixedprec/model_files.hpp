// SPDX-License-Identifier: Apache-2.0
// The safetensors files of a model, as they are handed around: one file, several, a folder of them, or an index.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "support.hpp"

namespace command {

struct ModelTensor {
    std::string name, type, path;
    std::vector<int64_t> shape;
    int64_t count = 0, bytes = 0;
    const mixedprec::ModelFile* file = nullptr;
    int64_t index = 0; // in it
    int32_t dtype = 0; // MP_DTYPE_*
};

struct ModelFiles {
    std::deque<mixedprec::ModelFile> opened;
    std::vector<std::string> paths; // of all files, each once
    std::vector<ModelTensor> tensors;
};

// Whether a path is one of these: a file, or a folder that is no checkpoint and has such files.
bool is_model(const std::string& path);
// The headers of all of their files. Throws what the library says of a file or an index, and a Failure where a tensor is in two.
ModelFiles read_model(const std::vector<std::string>& paths);
// Numbers that training moves, also where a file has them as blocks (GGUF). Integers and booleans are counters, positions or
// packed codes.
bool is_trained(const ModelTensor& tensor);
// Scales among a file's tensors (F32, named ..._scale_inv) must be finite and not negative. "" or what is wrong.
std::string bad_scale(const ModelFiles& model, const std::string& path);

} // namespace command
