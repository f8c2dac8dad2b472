// SPDX-License-Identifier: Apache-2.0
// mixedprec plan: the memory that recipes need for a model, and the bytes that ranks send for it, before anything is allocated.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plan_model.hpp"
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    ModelOptions model;
    std::string memory, recipes, stages;
    std::vector<std::string> settings;
    int64_t ranks = 1;
    bool offload = false;
    bool offload_grads = false;
};

using Report = mixedprec::MemoryReport;

// ---- Ranks

bool has_scaled_states(const mixedprec::Recipe& recipe) {
    for (const char* key : {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                            MP_RECIPE_EXP_AVG_SQ_DTYPE, MP_RECIPE_LAYERS}) {
        if (recipe.get_string(key).find("_scaled") != std::string::npos) {
            return true; // cannot be cut
        }
    }
    return false;
}

mixedprec::ShardingOptions sharding_of(const mixedprec::Recipe& recipe, int32_t stage) {
    mixedprec::ShardingOptions sharding;
    sharding.stage = stage == 0 ? MP_SHARDING_STAGE_0 : stage;
    sharding.kind = has_scaled_states(recipe) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
    return sharding;
}

// ---- The plan

struct Row {
    std::string recipe, note;
    int32_t stage = -1; // -1: one rank
    Report report;
    mp_comm_traffic traffic; // the mean over the ranks
};

constexpr int64_t kMostRanks = 4096;
constexpr int64_t kLargestRank = -1; // the library finds the one that holds most

// What the library plans for one rank.
void plan_rank(const mixedprec::Recipe& recipe, const std::vector<mp_planned_tensor>& tensors,
               const Options& options, const mp_sharding_desc* sharding, int64_t rank,
               int64_t ranks, Report& memory, mp_comm_traffic* traffic) {
    mixedprec::OptimizerOptions optimizer;
    optimizer.flags = (options.offload ? MP_OPTIMIZER_OFFLOAD : 0U) |
                      (options.offload_grads ? MP_OPTIMIZER_OFFLOAD_GRADS : 0U);
    train::check(mp_recipe_plan_tensors(recipe.get(), &optimizer, tensors.data(),
                                        static_cast<int64_t>(tensors.size()), sharding,
                                        static_cast<int32_t>(rank), static_cast<int32_t>(ranks),
                                        &memory, traffic),
                 "mp_recipe_plan_tensors");
}

// What must fit: all of it, or with offload what the device has.
double needed(const Report& report) { return train::real(report.total_bytes - report.host_bytes); }

// Of the rank that holds most.
Row plan_stage(const mixedprec::Recipe& recipe, const Options& options, const Model& model,
               const std::string& name, int32_t stage) {
    mixedprec::ShardingOptions sharding = sharding_of(recipe, stage);
    Row row{name, "", stage, {}, MP_COMM_TRAFFIC_INIT};
    plan_rank(recipe, model.tensors, options, &sharding, kLargestRank, options.ranks, row.report,
              &row.traffic);
    if (model.tensors.size() == 1 && has_scaled_states(recipe)) {
        row.note = "its tensors are never cut, and this model is given as one: give --shapes";
    }
    return row;
}

void plan_recipe(std::vector<Row>& rows, const mixedprec::Context& context, const Options& options,
                 const Model& model, const std::string& name, const std::vector<int32_t>& stages) {
    const auto recipe = open_recipe(context, name, options.settings);
    if (stages.empty()) {
        Row row{name, "", -1, {}, MP_COMM_TRAFFIC_INIT};
        plan_rank(recipe, model.tensors, options, nullptr, 0, 1, row.report, nullptr);
        rows.push_back(row);
    }
    for (const int32_t stage : stages) {
        rows.push_back(plan_stage(recipe, options, model, name, stage));
    }
}

std::vector<int32_t> stages_of(const Options& options, size_t recipes) {
    must<UsageError>(options.ranks >= 1 && options.ranks <= kMostRanks,
                     "--ranks must be from 1 to ", kMostRanks, ", not ", options.ranks);
    if (options.ranks == 1) {
        must<UsageError>(options.stages.empty(), "--stage wants --ranks: one rank shares nothing");
        return {};
    }
    if (options.stages.empty()) {
        const std::vector<int32_t> all = options.offload_grads ? std::vector<int32_t>{1, 2, 3}
                                                               : std::vector<int32_t>{0, 1, 2, 3};
        return recipes == 1 ? all : std::vector<int32_t>{1};
    }
    std::vector<int32_t> stages;
    for (const std::string& stage : split(options.stages, ',')) {
        must<UsageError>(stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3',
                         "--stage is 0, 1, 2 or 3, or several with commas, not '", options.stages,
                         "'");
        stages.push_back(stage[0] - '0');
    }
    return stages;
}

Json json_of(const Row& row, double memory) {
    const Report& r = row.report;
    Json bytes{{"weights", r.weight_bytes}, {"master", r.master_bytes}, {"grads", r.grad_bytes}};
    for (const auto& [name, held] : states_of(r)) {
        bytes[name] = held;
    }
    bytes.update({{"compensation", r.compensation_bytes},
                  {"reduced_grads", r.reduced_grad_bytes},
                  {"offload", r.offload_bytes},
                  {"on_host", r.host_bytes},
                  {"total", r.total_bytes}});
    Json json{{"recipe", row.recipe}, {"bytes", bytes}, {"fits", needed(r) <= memory}};
    if (row.stage >= 0) {
        json["stage"] = row.stage;
        json["step_bytes_sent_computed"] = {{"gradients", row.traffic.all_to_all_bytes},
                                            {"weights", row.traffic.all_gather_bytes},
                                            {"total", row.traffic.total_bytes}};
    }
    if (!row.note.empty()) {
        json["note"] = row.note;
    }
    return json;
}

std::string table_of(const std::vector<Row>& rows, double parameters, double memory) {
    const bool shared = rows.front().stage >= 0;
    std::vector<std::string> headings{"recipe", ">weights", ">master", ">grads"};
    for (const auto& [name, held] : states_of(rows.front().report)) {
        headings.push_back(join(">", name));
    }
    headings.emplace_back(">compens.");
    const bool is_offloaded = rows.front().report.host_bytes > 0;
    if (is_offloaded) {
        headings.insert(headings.end(), {">offload", ">on the host"});
    }
    if (shared) {
        headings.insert(headings.begin() + 1, ">stage");
        headings.insert(headings.end(), {">summed", ">a rank", ">sends a step"});
    } else {
        headings.insert(headings.end(), {">total", ">bytes a param"});
    }
    headings.emplace_back("fits");
    Table table(headings);
    const auto bytes = [](int64_t value) {
        return value == 0 ? std::string("-") : bytes_text(real(value));
    };
    std::string notes;
    for (const Row& row : rows) {
        const Report& r = row.report;
        std::vector<std::string> cells{row.recipe};
        if (shared) {
            cells.push_back(std::to_string(row.stage));
        }
        cells.insert(cells.end(),
                     {bytes(r.weight_bytes), bytes(r.master_bytes), bytes(r.grad_bytes)});
        for (const auto& [name, held] : states_of(r)) {
            cells.push_back(bytes(held));
        }
        cells.push_back(bytes(r.compensation_bytes));
        if (is_offloaded) {
            cells.insert(cells.end(), {bytes(r.offload_bytes), bytes(r.host_bytes)});
        }
        if (shared) {
            cells.insert(cells.end(), {bytes(r.reduced_grad_bytes), bytes(r.total_bytes),
                                       bytes_text(real(row.traffic.total_bytes))});
        } else {
            cells.insert(
                cells.end(),
                {bytes(r.total_bytes),
                 parameters > 0.0 ? format("%.4g", real(r.total_bytes) / parameters) : "-"});
        }
        cells.emplace_back(needed(r) <= memory ? "yes" : "no");
        table.add(cells);
        const std::string note = row.recipe + ": " + row.note + "\n";
        notes += row.note.empty() || notes.find(note) != std::string::npos ? "" : note;
    }
    return table.text() + (notes.empty() ? "" : "\n" + notes);
}

// Presets for models that are used, not trained: a plan of gradients and moments says nothing of them.
constexpr std::array kNotTrained{"fp8_inference", "bf16_full"};

bool trains(const std::string& recipe) {
    return std::find(kNotTrained.begin(), kNotTrained.end(), recipe) == kNotTrained.end();
}

std::vector<std::string> names_of(const Options& options) {
    std::vector<std::string> names =
        recipe_names(options.recipes.empty() ? "all" : options.recipes);
    if (options.recipes.empty()) {
        names.erase(std::remove_if(names.begin(), names.end(),
                                   [](const std::string& name) { return !trains(name); }),
                    names.end());
    }
    return names;
}

// What a reader of the table is to know besides.
std::string notes_of(const Options& options, const Model& model,
                     const std::vector<std::string>& names) {
    std::string text;
    if (options.recipes.empty()) {
        text += "Left out, as they are not for training: fp8_inference, bf16_full.\n";
    }
    for (const std::string& name : names) {
        text += trains(name) ? "" : name + " is not for training: weights are all that it needs.\n";
    }
    if (!model.passed.empty()) {
        constexpr size_t kShown = 5;
        text += "Not counted, as nothing trains them: ";
        for (size_t i = 0; i < std::min(kShown, model.passed.size()); i++) {
            text += (i > 0 ? ", " : "") + clean(model.passed[i]);
        }
        text += model.passed.size() > kShown
                    ? join(" and ", model.passed.size() - kShown, " more.\n")
                    : ".\n";
    }
    for (const std::string& pattern : model.unused) {
        text += "No tensor's name is --keep-fp32 '" + clean(pattern) +
                "': patterns are of whole names, as in a shell: '*norm*'.\n";
    }
    return text;
}

// A million and more in millions, a billion and more in billions.
std::string parameters_text(double count) {
    return count >= 1e9   ? format("%.6g billion parameters", count / 1e9)
           : count >= 1e6 ? format("%.6g million parameters", count / 1e6)
                          : format("%.0f parameters", count);
}

Result plan(const Options& options) {
    const Model model = model_of(options.model);
    const std::vector<std::string> names = names_of(options);
    const std::vector<int32_t> stages = stages_of(options, names.size());
    const double memory = options.memory.empty()
                              ? real(sysconf(_SC_PHYS_PAGES)) * real(sysconf(_SC_PAGESIZE))
                              : parse_size(options.memory, false, "--memory");
    const auto context = host_context(1);
    std::vector<Row> rows;
    for (const std::string& name : names) {
        plan_recipe(rows, context, options, model, name, stages);
    }
    Result result;
    result.json = {{"parameters", model.parameters}, {"tensors", model.tensors.size()},
                   {"kept_in_fp32", model.kept},     {"ranks", options.ranks},
                   {"rule", options.model.rule},     {"memory_bytes", memory},
                   {"plans", Json::array()}};
    for (const Row& row : rows) {
        result.json["plans"].push_back(json_of(row, memory));
    }
    result.json["not_counted"] = model.passed;
    result.text =
        join(parameters_text(real(model.parameters)), " in ",
             counted(model.tensors.size(), "tensor"), ", ",
             model.kept == 0 ? "" : join(model.kept, " of them kept in fp32, "), options.model.rule,
             ", ", counted(size(options.ranks), "rank"), ". Fits: into ", bytes_text(memory),
             options.memory.empty() ? ", this machine's memory" : "", ".\n\n") +
        table_of(rows, real(model.parameters), memory) +
        "\nWeights, gradients and states; activations and scratch memory come on top.\n" +
        (!options.offload ? ""
         : options.offload_grads
             ? "States and gradients on the host; fits: what is left for the device.\n"
             : "States on the host; fits: what is left for the device.\n") +
        notes_of(options, model, names);
    if (!stages.empty()) {
        result.text += "A rank: the one that holds most. Sends a step: computed, not measured; one "
                       "reduction of the gradients, and in\n"
                       "stage 3 weights gathered once for forward and once for backward.\n";
    }
    const bool none_fits = std::none_of(
        rows.begin(), rows.end(), [&](const Row& row) { return needed(row.report) <= memory; });
    result.code = !options.memory.empty() && none_fits ? kFailed : kFine;
    return result;
}

} // namespace

void add_plan(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand app = program.add(
        "plan", "memory and bytes on the wire of a model under recipes, and whether it fits",
        options, plan);
    app.add("--params", options->model.parameters, "number of parameters, such as 124M or 7B");
    app.add("--shapes", options->model.shapes, "tensors, such as 4096x4096*32,50257x768");
    app.add("--safetensors", options->model.safetensors,
            "a model's files, its folder or its index; headers alone are read",
            {.shown_as = "PATH ..."});
    app.add("--recipe", options->recipes,
            "recipes with commas: presets or .json files; all: every preset (those that train)");
    app.add("--set", options->settings, "KEY=VALUE in all of them; may be repeated",
            {.may_repeat = true});
    app.add("--rule", options->model.rule, "adamw, adam or lion", {.shows_default = true});
    app.add("--keep-fp32", options->model.keep_fp32,
            "patterns as in a shell, with commas: tensors of such names (of --shapes: such "
            "shapes) stay "
            "in fp32, such as '*norm*,*.bias'");
    app.add_flag("--keep-fp32-vectors", options->model.keep_vectors,
                 "tensors of less than two dimensions stay in fp32");
    app.add("--ranks", options->ranks, "ranks that share the optimizer", {.shows_default = true});
    app.add("--stage,--zero", options->stages,
            "of ZeRO: 0 to 3, several with commas (of one recipe all, else 1)");
    app.add_flag("--offload", options->offload,
                 "states and the step on the host (MP_OPTIMIZER_OFFLOAD)");
    app.add_flag("--offload-grads", options->offload_grads,
                 "with it: gradients, or ranks' sums of them, too (MP_OPTIMIZER_OFFLOAD_GRADS)");
    app.add("--memory", options->memory,
            "what a rank has, such as 80G; exit code 1 where nothing fits (this machine's)");
}

} // namespace command
