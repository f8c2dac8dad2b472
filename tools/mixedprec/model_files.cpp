// SPDX-License-Identifier: Apache-2.0
#include "model_files.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

namespace command {

namespace fs = std::filesystem;

bool is_model(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        return fs::exists(path, error);
    }
    bool has_files = false;
    for (const auto& entry : fs::directory_iterator(path, error)) {
        const std::string name = entry.path().filename().string();
        if (name == "manifest.json" || name.starts_with("step-")) { // a checkpoint, or some
            return false;
        }
        has_files = has_files || name.ends_with(".safetensors") || name.ends_with(".gguf");
    }
    return has_files && !error;
}

ModelFiles read_model(const std::vector<std::string>& paths) {
    ModelFiles model;
    std::map<std::string, std::string> where; // tensors' files
    std::set<std::string> seen;
    for (const std::string& path : paths) {
        model.opened.push_back(mixedprec::ModelFile::open(path));
        const mixedprec::ModelFile& file = model.opened.back();
        const std::set<std::string> before = seen;
        for (int64_t i = 0; i < file.count(); i++) {
            const mixedprec::FileTensor found = file.tensor(i);
            if (before.count(found.path) > 0) {
                continue;
            }
            if (seen.insert(found.path).second) {
                model.paths.emplace_back(found.path);
            }
            const auto [other, is_new] = where.emplace(found.name, found.path);
            must<Failure>(is_new, "tensor '", found.name, "' is in both '", other->second,
                          "' and '", found.path, "'");
            model.tensors.push_back({found.name, found.type_name, found.path,
                                     std::vector<int64_t>(found.shape, found.shape + found.ndim),
                                     found.count, found.bytes, &file, i, found.dtype});
        }
    }
    return model;
}

bool is_trained(const ModelTensor& tensor) {
    return (tensor.type[0] == 'F' && tensor.type != "F8_E8M0") || tensor.type == "BF16" ||
           tensor.dtype >= MP_DTYPE_Q4_0;
}

std::string bad_scale(const ModelFiles& model, const std::string& path) {
    constexpr int64_t kPart = 1 << 16;
    std::vector<float> values;
    for (const ModelTensor& tensor : model.tensors) {
        if (tensor.path != path || tensor.type != "F32" || !tensor.name.ends_with("_scale_inv")) {
            continue;
        }
        for (int64_t at = 0; at < tensor.count; at += kPart) {
            values.resize(size(std::min(kPart, tensor.count - at)));
            tensor.file->read(tensor.index, 4 * at,
                              {reinterpret_cast<std::byte*>(values.data()), 4 * values.size()});
            for (const float value : values) {
                if (!std::isfinite(value) || std::signbit(value)) {
                    return join("tensor '", tensor.name, "' has the scale ", value,
                                "; it must be finite and not negative");
                }
            }
        }
    }
    return "";
}

} // namespace command
