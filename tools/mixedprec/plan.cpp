// SPDX-License-Identifier: Apache-2.0
// mixedprec plan: the memory that recipes need for a model, and the bytes that ranks send for it, before anything is allocated.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "safetensors.hpp"
#include "support.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::string parameters, shapes, safetensors, memory;
    std::string recipes = "all", stages, rule = "adamw", keep_fp32;
    std::vector<std::string> settings;
    bool keep_vectors = false;
    int64_t ranks = 1;
};

struct Tensor {
    std::string name;
    int64_t count;
    size_t dims;
};

// ---- What there is to plan for

constexpr size_t kMostTensors = 1'000'000;

int64_t extent_of(const std::string& text, const std::string& part) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    must<UsageError>(!text.empty() && *end == '\0' && errno == 0 && value > 0, "--shapes: '", part,
                     "' is no shape such as 4096x4096 or 4096x4096*32");
    return value;
}

// "4096x4096*32,50257x768"
std::vector<Tensor> parse_shapes(const std::string& list) {
    std::vector<Tensor> tensors;
    for (const std::string& part : split(list, ',')) {
        const std::vector<std::string> halves = split(part, '*');
        must<UsageError>(halves.size() <= 2, "--shapes: '", part,
                         "' is no shape such as 4096x4096*32");
        const std::vector<std::string> extents = split(halves[0], 'x');
        must<UsageError>(extents.size() <= MP_MAX_DIMS, "--shapes: '", part, "' has more than ",
                         MP_MAX_DIMS, " dimensions");
        int64_t count = 1;
        for (const std::string& extent : extents) {
            must<UsageError>(!__builtin_mul_overflow(count, extent_of(extent, part), &count) &&
                                 count <= int64_t{1} << 55,
                             "--shapes: '", part, "' is above 2^55 elements");
        }
        const int64_t times = halves.size() == 2 ? extent_of(halves[1], part) : 1;
        must<UsageError>(tensors.size() + size(times) <= kMostTensors, "--shapes: more than ",
                         kMostTensors, " tensors");
        tensors.insert(tensors.end(), size(times), Tensor{halves[0], count, extents.size()});
    }
    return tensors;
}

std::vector<Tensor> tensors_of(const Options& options) {
    const int given =
        !options.parameters.empty() + !options.shapes.empty() + !options.safetensors.empty();
    must<UsageError>(given == 1, "plan wants one of --params, --shapes and --safetensors");
    if (!options.shapes.empty()) {
        return parse_shapes(options.shapes);
    }
    if (!options.parameters.empty()) {
        const double count = parse_size(options.parameters, true, "--params");
        must<UsageError>(count >= 1.0, "--params must be at least 1");
        return {{"all", static_cast<int64_t>(count), 2}};
    }
    std::vector<Tensor> tensors;
    for (const TensorEntry& entry : read_safetensors_header(options.safetensors).tensors) {
        tensors.push_back({entry.name, entry.count, entry.shape.size()});
    }
    must<Failure>(!tensors.empty() && tensors.size() <= kMostTensors, "'", options.safetensors,
                  "' has ", tensors.size(), " tensors: a plan takes 1 to ", kMostTensors);
    return tensors;
}

// ---- Memory

using Report = mixedprec::MemoryReport;

int32_t rule_of(const std::string& name) {
    const std::map<std::string, int32_t> known{
        {"adamw", MP_RULE_ADAMW}, {"adam", MP_RULE_ADAM}, {"lion", MP_RULE_LION}};
    const auto found = known.find(name);
    must<UsageError>(found != known.end(), "--rule is adamw, adam or lion, not '", name, "'");
    return found->second;
}

// ---- Ranks

bool has_scaled_states(const mixedprec::Recipe& recipe) {
    for (const char* key : {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                            MP_RECIPE_EXP_AVG_SQ_DTYPE}) {
        if (recipe.get_string(key).find("_scaled") != std::string::npos) {
            return true; // cannot be cut
        }
    }
    return false;
}

mixedprec::ShardingOptions sharding_of(const mixedprec::Recipe& recipe, int32_t stage) {
    mixedprec::ShardingOptions sharding;
    sharding.stage = stage;
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

// What the library plans for one rank.
void plan_rank(const mixedprec::Recipe& recipe, const std::vector<mp_planned_tensor>& tensors,
               const mp_sharding_desc* sharding, int64_t rank, int64_t ranks, Report& memory,
               mp_comm_traffic* traffic) {
    train::check(mp_recipe_plan_tensors(
                     recipe.get(), tensors.data(), static_cast<int64_t>(tensors.size()), sharding,
                     static_cast<int32_t>(rank), static_cast<int32_t>(ranks), &memory, traffic),
                 "mp_recipe_plan_tensors");
}

struct Model {
    std::vector<mp_planned_tensor> tensors;
    int64_t parameters = 0, kept = 0; // kept: tensors in fp32
};

Model model_of(const Options& options) {
    Model model;
    std::regex pattern;
    try {
        pattern = std::regex(options.keep_fp32);
    } catch (const std::regex_error& error) {
        throw UsageError("--keep-fp32: '", options.keep_fp32,
                         "' is no regular expression: ", error.what());
    }
    const int32_t rule = rule_of(options.rule);
    for (const Tensor& tensor : tensors_of(options)) {
        const bool kept = (options.keep_vectors && tensor.dims < 2) ||
                          (!options.keep_fp32.empty() && tensor.name.size() < 1000 &&
                           std::regex_search(tensor.name, pattern));
        mp_planned_tensor planned = MP_PLANNED_TENSOR_INIT;
        planned.count = tensor.count;
        planned.rule = rule;
        planned.weight_dtype = kept ? MP_DTYPE_FP32 : MP_DTYPE_NONE;
        planned.ndim = tensor.dims < 2 ? 1 : 2;
        model.tensors.push_back(planned);
        model.kept += kept ? 1 : 0;
        must<UsageError>(
            !__builtin_add_overflow(model.parameters, tensor.count, &model.parameters) &&
                model.parameters <= int64_t{1} << 55,
            "the model has more than 2^55 parameters");
    }
    return model;
}

// Of the rank that holds most.
Row plan_stage(const mixedprec::Recipe& recipe, const Model& model, const std::string& name,
               int32_t stage, int64_t ranks) {
    mixedprec::ShardingOptions sharding = sharding_of(recipe, stage);
    Row row{name, "", stage, {}, MP_COMM_TRAFFIC_INIT};
    for (int64_t rank = 0; rank < ranks; rank++) {
        Report one;
        plan_rank(recipe, model.tensors, &sharding, rank, ranks, one,
                  rank == 0 ? &row.traffic : nullptr);
        if (rank == 0 || one.total_bytes > row.report.total_bytes) {
            row.report = one;
        }
    }
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
        plan_rank(recipe, model.tensors, nullptr, 0, 1, row.report, nullptr);
        rows.push_back(row);
    }
    for (const int32_t stage : stages) {
        rows.push_back(plan_stage(recipe, model, name, stage, options.ranks));
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
        return recipes == 1 ? std::vector<int32_t>{0, 1, 2, 3} : std::vector<int32_t>{1};
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
    Json json{{"recipe", row.recipe},
              {"bytes",
               {{"weights", r.weight_bytes},
                {"master", r.master_bytes},
                {"grads", r.grad_bytes},
                {"exp_avg", r.exp_avg_bytes},
                {"exp_avg_sq", r.exp_avg_sq_bytes},
                {"compensation", r.compensation_bytes},
                {"reduced_grads", r.reduced_grad_bytes},
                {"total", r.total_bytes}}},
              {"fits", real(r.total_bytes) <= memory}};
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
    std::vector<std::string> headings{"recipe",   ">weights",    ">master",  ">grads",
                                      ">exp_avg", ">exp_avg_sq", ">compens."};
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
        cells.insert(cells.end(), {bytes(r.weight_bytes), bytes(r.master_bytes),
                                   bytes(r.grad_bytes), bytes(r.exp_avg_bytes),
                                   bytes(r.exp_avg_sq_bytes), bytes(r.compensation_bytes)});
        if (shared) {
            cells.insert(cells.end(), {bytes(r.reduced_grad_bytes), bytes(r.total_bytes),
                                       bytes_text(real(row.traffic.total_bytes))});
        } else {
            cells.insert(cells.end(),
                         {bytes(r.total_bytes), format("%.4g", real(r.total_bytes) / parameters)});
        }
        cells.emplace_back(real(r.total_bytes) <= memory ? "yes" : "no");
        table.add(cells);
        const std::string note = row.recipe + ": " + row.note + "\n";
        notes += row.note.empty() || notes.find(note) != std::string::npos ? "" : note;
    }
    return table.text() + (notes.empty() ? "" : "\n" + notes);
}

Result plan(const Options& options) {
    const Model model = model_of(options);
    const std::vector<std::string> names = recipe_names(options.recipes);
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
                   {"rule", options.rule},           {"memory_bytes", memory},
                   {"plans", Json::array()}};
    for (const Row& row : rows) {
        result.json["plans"].push_back(json_of(row, memory));
    }
    result.text =
        join(format("%.6g million parameters in ", real(model.parameters) / 1e6),
             model.tensors.size(), " tensor(s), ",
             model.kept == 0 ? "" : join(model.kept, " of them kept in fp32, "), options.rule, ", ",
             options.ranks, " rank(s). Fits: into ", bytes_text(memory),
             options.memory.empty() ? ", this machine's memory" : "", ".\n\n") +
        table_of(rows, real(model.parameters), memory) +
        "\nWeights, gradients and states; activations and scratch memory come on top.\n";
    if (!stages.empty()) {
        result.text += "A rank: the one that holds most. Sends a step: computed, not measured; one "
                       "reduction of the gradients, and in\n"
                       "stage 3 weights gathered once for forward and once for backward.\n";
    }
    const bool none_fits = std::none_of(rows.begin(), rows.end(), [&](const Row& row) {
        return real(row.report.total_bytes) <= memory;
    });
    result.code = !options.memory.empty() && none_fits ? kFailed : kFine;
    return result;
}

} // namespace

void add_plan(Program& program) {
    auto options = std::make_shared<Options>();
    CLI::App* app =
        program.add(program.app, "plan",
                    "memory and bytes on the wire of a model under recipes, and whether it fits",
                    options, plan);
    app->add_option("--params", options->parameters, "number of parameters, such as 124M or 7B");
    app->add_option("--shapes", options->shapes, "tensors, such as 4096x4096*32,50257x768");
    app->add_option("--safetensors", options->safetensors, "a file, of which the header is read")
        ->option_text("FILE");
    app->add_option("--recipe", options->recipes,
                    "recipes with commas: presets or .json files (all)");
    app->add_option("--set", options->settings, "KEY=VALUE in all of them; may be repeated")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app->add_option("--rule", options->rule, "adamw, adam or lion")->capture_default_str();
    app->add_option(
        "--keep-fp32", options->keep_fp32,
        "regular expression: tensors of such names (of --shapes: such shapes) stay in fp32");
    app->add_flag("--keep-fp32-vectors", options->keep_vectors,
                  "tensors of less than two dimensions stay in fp32");
    app->add_option("--ranks", options->ranks, "ranks that share the optimizer")
        ->capture_default_str();
    app->add_option("--stage", options->stages,
                    "of ZeRO: 0 to 3, several with commas (of one recipe all, else 1)");
    app->add_option(
        "--memory", options->memory,
        "what a rank has, such as 80G; exit code 1 where nothing fits (this machine's)");
}

} // namespace command
