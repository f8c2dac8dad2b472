// SPDX-License-Identifier: Apache-2.0
// mixedprec inspect and verify: what checkpoints hold, and whether every byte is as it was written.
#include <map>

#include "checkpoint_files.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::string path;
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
    pairs.add("saved by",
              join(info.world, " rank(s), libmixedprec ", manifest.json.value("library", "-")));
    pairs.add("device", manifest.json.value("device", "-"));
    pairs.add("size", join(bytes_text(real(info.bytes)), " in ", manifest.json.at("files").size(),
                           " file(s), ", info.tensor_count, " tensors"));
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

// A checkpoint, or a table of those in a folder; damaged ones are a failed check.
Result inspect(const Options& options) {
    Result result;
    const std::vector<std::string> folders = checkpoints_in(options.path);
    Table table({"checkpoint", ">step", ">ranks", ">size", "recipe", "manifest"});
    result.json["checkpoints"] = Json::array();
    const bool alone = folders.size() == 1 && folders[0] == options.path;
    for (const std::string& folder : folders) {
        try {
            const Manifest manifest = read_manifest(folder);
            result.json["checkpoints"].push_back(summary(manifest));
            table.add({folder, std::to_string(manifest.info.step),
                       std::to_string(manifest.info.world), bytes_text(real(manifest.info.bytes)),
                       manifest.json.value("preset", "-"), "intact"});
            if (alone) {
                add_one(result, manifest, options.tensors);
            }
        } catch (const mixedprec::Error& error) {
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

Result verify(const Options& options) {
    Result result;
    Table table({"checkpoint", ">size", "verdict"});
    result.json["checkpoints"] = Json::array();
    for (const std::string& folder : checkpoints_in(options.path)) {
        std::vector<std::string> problems;
        int64_t bytes = 0;
        try {
            const Manifest manifest = read_manifest(folder);
            Bar bar("verify");
            bytes = manifest.info.bytes;
            problems = problems_of(manifest, bar);
        } catch (const mixedprec::Error& error) {
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
    CLI::App* app =
        program.add(program.app, "inspect",
                    "what a checkpoint holds, or the checkpoints of a folder", options, inspect);
    app->add_option("path", options->path, "a checkpoint, or a folder of them")->required();
    app->add_flag("--tensors", options->tensors, "list every tensor");
    app = program.add(program.app, "verify",
                      "read every byte of checkpoints and compare the checksums", options, verify);
    app->add_option("path", options->path, "a checkpoint, or a folder of them: all of them")
        ->required();
}

} // namespace command
