// SPDX-License-Identifier: Apache-2.0
// mixedprec inspect and verify: what checkpoints hold, and whether every byte is as it was written.
#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint_files.hpp"
#include "model_files.hpp"
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::vector<std::string> paths;
    bool tensors = false;
};

std::string shape_text(const Json& shape) {
    std::string text;
    for (const Json& extent : shape) {
        text += (text.empty() ? "" : "x") + extent.dump();
    }
    return text.empty() ? "scalar" : text;
}

Json summary(const Manifest& manifest) {
    const auto& info = manifest.info;
    return {{"path", manifest.folder},
            {"step", info.step},
            {"sequence", info.sequence},
            {"ranks", info.world},
            {"tensors", info.tensor_count},
            {"bytes", info.bytes},
            {"applied_step", info.applied_step},
            {"seed", info.seed},
            {"recipe", manifest.json.value("preset", "")},
            {"device", manifest.json.value("device", "")},
            {"library", manifest.json.value("library", "")}};
}

void add_one(Result& result, const Manifest& manifest, bool tensors) {
    const auto& info = manifest.info;
    Pairs pairs;
    pairs.add("checkpoint", manifest.folder);
    pairs.add("step", join(info.step, " (", info.applied_step, " applied)"));
    pairs.add("recipe", manifest.json.value("preset", "-"));
    pairs.add("saved by", join(counted(size(info.world), "rank"), ", libmixedprec ",
                               manifest.json.value("library", "-")));
    pairs.add("device", manifest.json.value("device", "-"));
    pairs.add("size", join(bytes_text(real(info.bytes)), " in ",
                           counted(manifest.json.at("files").size(), "file"), ", ",
                           counted(size(info.tensor_count), "tensor")));
    result.text += pairs.text() + "\n";
    struct Sum {
        int64_t tensors = 0, elements = 0;
    };
    std::map<std::pair<std::string, std::string>, Sum> sums; // by state and format
    Table all({"tensor", "state", "format", "shape", ">slices"});
    for (const Json& tensor : manifest.json.at("tensors")) {
        const std::string state = tensor.at("state"), type = tensor.at("format");
        int64_t count = 1;
        for (const Json& extent : tensor.at("shape")) {
            count *= extent.get<int64_t>();
        }
        Sum& sum = sums[{state, type}];
        sum.tensors++;
        sum.elements += count;
        all.add({tensor.at("name"), state, type, shape_text(tensor.at("shape")),
                 std::to_string(tensor.at("pieces").size())});
    }
    Table table({"state", "format", ">tensors", ">elements"});
    for (const auto& [key, sum] : sums) {
        table.add(
            {key.first, key.second, std::to_string(sum.tensors), std::to_string(sum.elements)});
    }
    result.text += tensors ? all.text() : table.text();
    result.json["tensor_list"] = manifest.json.at("tensors");
    result.json["files"] = manifest.json.at("files");
    result.json["recipe_keys"] =
        Json::parse(manifest.json.at("recipe").get<std::string>(), nullptr, false);
}

std::vector<std::string> folders_of(const Options& options) {
    std::vector<std::string> folders;
    for (const std::string& path : options.paths) {
        const std::vector<std::string> more = checkpoints_in(path);
        folders.insert(folders.end(), more.begin(), more.end());
    }
    return folders;
}

// Of one that was given itself, or of one in a folder that was, where a link is none, as to a load.
Manifest manifest_of(const Options& options, const std::string& folder) {
    const bool given =
        std::find(options.paths.begin(), options.paths.end(), folder) != options.paths.end();
    std::error_code error;
    must<Failure>(given ||
                      std::filesystem::is_directory(std::filesystem::symlink_status(folder, error)),
                  "it is a link or a file, and no checkpoint");
    return read_manifest(folder);
}

// All of them are a model's files, or none is.
bool are_models(const Options& options) {
    const auto models = std::count_if(options.paths.begin(), options.paths.end(), is_model);
    must<UsageError>(models == 0 || models == static_cast<std::ptrdiff_t>(options.paths.size()),
                     "checkpoints and files of models are looked at one kind at a time");
    return models > 0;
}

// A model's files: tensors by type, or each.
Result inspect_model(const Options& options) {
    struct Sum {
        int64_t tensors = 0, elements = 0, bytes = 0;
    };
    std::map<std::string, Sum> sums; // by type
    Table all({"tensor", "type", "shape", ">bytes", "file"});
    Result result;
    result.json = {{"files", Json::array()}, {"tensor_list", Json::array()}};
    int64_t trained = 0;
    const ModelFiles model = read_model(options.paths);
    for (const std::string& path : model.paths) {
        result.json["files"].push_back(
            {{"path", path},
             {"tensors", std::count_if(model.tensors.begin(), model.tensors.end(),
                                       [&](const auto& tensor) { return tensor.path == path; })}});
    }
    for (const ModelTensor& tensor : model.tensors) {
        Sum& sum = sums[tensor.type];
        sum.tensors++;
        sum.elements += tensor.count;
        sum.bytes += tensor.bytes;
        trained += is_trained(tensor) ? tensor.count : 0;
        result.json["tensor_list"].push_back(
            {{"name", tensor.name}, {"dtype", tensor.type}, {"shape", tensor.shape}});
        all.add({tensor.name, tensor.type, shape_text(Json(tensor.shape)),
                 std::to_string(tensor.bytes), tensor.path});
    }
    result.json["parameters"] = trained;
    Table table({"type", ">tensors", ">elements", ">bytes"});
    for (const auto& [type, sum] : sums) {
        table.add({type, std::to_string(sum.tensors), std::to_string(sum.elements),
                   bytes_text(real(sum.bytes))});
    }
    result.text = counted(result.json["files"].size(), "file") + " of a model, " +
                  format("%.6g million parameters\n\n", real(trained) / 1e6) +
                  (options.tensors ? all.text() : table.text());
    return result;
}

// A checkpoint, or a table of those in a folder; damaged ones are a failed check.
Result inspect(const Options& options) {
    if (are_models(options)) {
        return inspect_model(options);
    }
    Result result;
    const std::vector<std::string> folders = folders_of(options);
    Table table({"checkpoint", ">step", ">ranks", ">size", "recipe", "manifest"});
    result.json["checkpoints"] = Json::array();
    const bool alone = folders.size() == 1 && folders == options.paths;
    for (const std::string& folder : folders) {
        try {
            const Manifest manifest = manifest_of(options, folder);
            result.json["checkpoints"].push_back(summary(manifest));
            table.add({folder, std::to_string(manifest.info.step),
                       std::to_string(manifest.info.world), bytes_text(real(manifest.info.bytes)),
                       manifest.json.value("preset", "-"), "intact"});
            if (alone) {
                add_one(result, manifest, options.tensors);
            }
        } catch (const std::exception& error) {
            result.code = kFailed;
            result.json["checkpoints"].push_back({{"path", folder}, {"problem", error.what()}});
            table.add({folder, "-", "-", "-", "-", error.what()});
        }
    }
    if (!alone || result.code != kFine) {
        result.text = table.text();
    }
    return result;
}

// There are no checksums in such files: their headers, and that scales are numbers.
Result verify_model(const Options& options) {
    Result result;
    Table table({"file", ">size", "verdict"});
    result.json["files"] = Json::array();
    const ModelFiles model = read_model(options.paths);
    for (const std::string& path : model.paths) {
        const std::string problem = bad_scale(model, path);
        const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
        result.code = problem.empty() ? result.code : kFailed;
        result.json["files"].push_back(
            {{"path", path}, {"bytes", bytes}, {"good", problem.empty()}, {"problem", problem}});
        table.add({path, bytes_text(real(bytes)),
                   problem.empty() ? "header and sizes agree; it has no checksums"
                                   : "DAMAGED: " + problem});
    }
    result.text = table.text();
    return result;
}

Result verify(const Options& options) {
    if (are_models(options)) {
        return verify_model(options);
    }
    Result result;
    Table table({"checkpoint", ">size", "verdict"});
    result.json["checkpoints"] = Json::array();
    const std::vector<std::string> folders = folders_of(options);
    for (const std::string& folder : folders) {
        std::vector<std::string> problems;
        int64_t bytes = 0;
        try {
            const Manifest manifest = manifest_of(options, folder);
            Bar bar("verify");
            bytes = manifest.info.bytes;
            problems = problems_of(manifest, bar);
        } catch (const std::exception& error) {
            problems.emplace_back(error.what());
        }
        result.code = problems.empty() ? result.code : kFailed;
        result.json["checkpoints"].push_back({{"path", folder},
                                              {"bytes", bytes},
                                              {"good", problems.empty()},
                                              {"problems", problems}});
        table.add({folder, bytes_text(real(bytes)),
                   problems.empty() ? "every byte as written" : "DAMAGED: " + problems.front()});
        for (size_t i = 1; i < problems.size(); i++) {
            table.add({"", "", problems[i]});
        }
    }
    result.text = table.text();
    return result;
}

} // namespace

void add_checkpoint_readers(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app = program.add(
        "inspect", "what a checkpoint holds, or the checkpoints of a folder", options, inspect);
    app.add(
        "paths", options->paths,
        "checkpoints, or folders of them; or a model's safetensors or GGUF files, its folder or "
        "its index",
        {.required = true});
    app.add_flag("--tensors", options->tensors, "list every tensor");
    app = program.add("verify", "read every byte of checkpoints and compare the checksums", options,
                      verify);
    app.add("paths", options->paths,
            "checkpoints, or folders of them: all of them; or a model's safetensors or GGUF files, "
            "its folder or its index",
            {.required = true});
}

} // namespace command
