// SPDX-License-Identifier: Apache-2.0
#include "model_files.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "support.hpp"

namespace command {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexEnd = ".safetensors.index.json";
constexpr int64_t kMostIndex = 64 << 20; // bytes

// Names of a folder with an ending, sorted.
std::vector<std::string> names_with(const std::string& folder, const std::string& end) {
    std::error_code error;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(end)) {
            names.push_back(name);
        }
    }
    must<Failure>(!error, "cannot read '", folder, "': ", error.message());
    std::sort(names.begin(), names.end());
    return names;
}

// Tensor names and the files that have them.
using Index = std::map<std::string, std::string>;

// An index's text without all but its weight_map: whatever else it holds takes no memory. Null where it is not JSON.
Json weight_map_of(const std::string& text, const std::string& path) {
    constexpr int kDeepest = 3; // of metadata, say
    bool is_map = false;
    const auto keeps = [&](int depth, Json::parse_event_t event, const Json& parsed) {
        must<Failure>(depth <= kDeepest, "'", path, "' is no index: it is nested too deeply");
        if (event == Json::parse_event_t::key && depth == 1) {
            is_map = parsed == "weight_map";
        }
        return depth == 0 || is_map;
    };
    return Json::parse(text, keeps, false);
}

Index read_index(const std::string& path) {
    const ReadFile file(path);
    must<Failure>(file.bytes() <= kMostIndex, "'", path, "' has ", file.bytes(),
                  " bytes; an index has at most ", kMostIndex);
    std::string text(size(file.bytes()), '\0');
    file.read(0, text.data(), text.size());
    const Json json = text.find('\0') == std::string::npos ? weight_map_of(text, path) : Json();
    const bool good = json.is_object() && json.contains("weight_map") &&
                      json["weight_map"].is_object() && !json["weight_map"].empty();
    must<Failure>(good, "'", path, "' is no index: it must have a weight_map of tensors and files");
    Index index;
    for (const auto& [name, where] : json["weight_map"].items()) {
        const std::string in = where.is_string() ? where.get<std::string>() : "";
        const bool is_beside = !in.empty() && in[0] != '.' &&
                               in.find_first_of(std::string("/\0", 2)) == std::string::npos;
        must<Failure>(is_beside, "'", path, "': tensor '", name,
                      "' is not in a file beside the index");
        index[name] = in;
    }
    return index;
}

class Model {
  public:
    std::vector<ModelFile> files;

    void add(const std::string& path) {
        std::error_code error;
        if (fs::is_directory(path, error)) {
            add_folder(path);
        } else if (path.ends_with(".index.json")) {
            add_index(path);
        } else {
            add_file(path);
        }
    }

  private:
    void add_folder(const std::string& path) {
        must<Failure>(!fs::exists(path + "/manifest.json"), "'", path,
                      "' is a checkpoint, which has states beside weights: give a model's files");
        const std::vector<std::string> indexes = names_with(path, kIndexEnd),
                                       names = names_with(path, ".safetensors");
        must<Failure>(!names.empty(), "'", path, "' has no safetensors files");
        if (indexes.size() == 1) { // what else lies there is another form of the model
            add_index(path + "/" + indexes[0]);
            return;
        }
        for (const std::string& name : names) {
            add_file(path + "/" + name);
        }
    }

    void add_index(const std::string& path) {
        const Index index = read_index(path);
        const std::string folder = path.substr(0, path.rfind('/') + 1);
        std::map<std::string, std::string>
            names; // files of the index, by the name that it gives them
        for (const auto& [tensor, name] : index) {
            names.emplace(name, folder + name);
        }
        for (const auto& [name, file] : names) {
            add_file(file);
        }
        for (const auto& [tensor, name] : index) {
            const auto found = where_.find(tensor);
            must<Failure>(found != where_.end() && found->second == names[name], "'", path,
                          "' says that tensor '", tensor, "' is in '", name,
                          "', which does not have it");
        }
    }

    void add_file(const std::string& path) {
        const auto again = std::find_if(files.begin(), files.end(),
                                        [&](const ModelFile& file) { return file.path == path; });
        if (again != files.end()) {
            return;
        }
        files.push_back({path, read_safetensors_header(ReadFile(path))});
        for (const TensorEntry& tensor : files.back().header.tensors) {
            const auto [found, is_new] = where_.emplace(tensor.name, path);
            must<Failure>(is_new, "tensor '", tensor.name, "' is in both '", found->second,
                          "' and '", path, "'");
        }
    }

    std::map<std::string, std::string> where_; // tensors' files
};

} // namespace

bool is_model(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
        return fs::exists(path, error);
    }
    bool is_checkpoint = fs::exists(path + "/manifest.json", error);
    for (const auto& entry : fs::directory_iterator(path, error)) { // or has some
        is_checkpoint = is_checkpoint || entry.path().filename().string().starts_with("step-");
    }
    return !is_checkpoint && !error && !names_with(path, ".safetensors").empty();
}

std::vector<ModelFile> read_model(const std::vector<std::string>& paths) {
    Model model;
    for (const std::string& path : paths) {
        model.add(path);
    }
    return std::move(model.files);
}

} // namespace command
