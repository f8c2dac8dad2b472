// SPDX-License-Identifier: Apache-2.0
// What a plan is made for: the tensors of a model, from numbers, shapes or files.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "support.hpp"

namespace command {

struct ModelOptions {
    std::string parameters, shapes, keep_fp32, rule = "adamw";
    std::vector<std::string> safetensors;
    bool keep_vectors = false;
};

struct Model {
    std::vector<mp_planned_tensor> tensors;
    std::deque<std::string> names;           // of them
    int64_t parameters = 0, kept = 0;        // kept: tensors in fp32
    std::vector<std::string> passed, unused; // tensors that nothing trains, patterns that fit none
};
Model model_of(const ModelOptions& options);

} // namespace command
