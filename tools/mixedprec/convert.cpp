// SPDX-License-Identifier: Apache-2.0
// mixedprec convert and reshard: a checkpoint is loaded into an optimizer made from its manifest, and saved again: in another
// recipe, or by another number of ranks, which are threads here.
#include <cstring>
#include <deque>
#include <set>
#include <thread>
#include <unordered_map>

#include "checkpoint_files.hpp"
#include "frozen_weight.hpp"
#include "group_formats.hpp"
#include "program.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::string path, out, recipe;
    std::vector<std::string> settings;
    int ranks = 1;
};

constexpr int kMostRanks = 64;

// The numbers of a manifest, by name.
class Scalars {
  public:
    explicit Scalars(const Manifest& manifest) {
        for (const Json& entry : manifest.json.at("scalars")) {
            bits_[entry.at(0).get<std::string>()] =
                std::stoull(entry.at(1).get<std::string>(), nullptr, 16);
        }
    }
    [[nodiscard]] bool has(const std::string& name) const { return bits_.count(name) != 0; }
    [[nodiscard]] uint64_t bits(const std::string& name) const {
        const auto found = bits_.find(name);
        must<Failure>(found != bits_.end(), "the checkpoint has no '", name,
                      "': it has no optimizer, or is of an older format");
        return found->second;
    }
    [[nodiscard]] double number(const std::string& name) const {
        const uint64_t read = bits(name);
        double value = 0.0;
        std::memcpy(&value, &read, sizeof value);
        return value;
    }

  private:
    std::unordered_map<std::string, uint64_t> bits_;
};

// Whether anything has one scale for the tensor: by the recipe, or by what a group of the checkpoint keeps.
bool is_cut_by_tensor(const mixedprec::Recipe& recipe, const Manifest& manifest) {
    bool scaled = false;
    for (const Json& tensor : manifest.json.at("tensors")) {
        scaled = scaled || tensor.at("format").get<std::string>().ends_with("_scaled");
    }
    for (const char* key : {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                            MP_RECIPE_EXP_AVG_SQ_DTYPE, MP_RECIPE_LAYERS}) {
        scaled = scaled || recipe.get_string(key).find("_scaled") != std::string::npos;
    }
    return scaled;
}

// What one rank loads into and saves: the objects that the manifest lists.
class Training {
  public:
    Training(const Manifest& manifest, const mixedprec::Recipe& recipe,
             const mixedprec::Context& context, mixedprec::Comm* comm, bool converts,
             const mixedprec::Checkpoint::Progress& progress)
        : context_(context), recipe_(recipe), scalars_(manifest),
          saved_recipe_(
              mixedprec::Recipe::from_json(context, manifest.json.at("recipe").get<std::string>())),
          converts_(converts), checkpoint_(mixedprec::Checkpoint::create(
                                   context, comm != nullptr ? comm->get() : nullptr, 0, progress)),
          optimizer_(make_optimizer(manifest, comm)) {
        gathers_codes_ =
            comm != nullptr && recipe_.get_string(MP_RECIPE_WEIGHT_GATHER_CODES) == "on";
        add_groups(manifest);
        checkpoint_.add(optimizer_);
        for (const Json& tensor : manifest.json.at("tensors")) {
            add(tensor, manifest);
        }
        if (scalars_.has("scaler.scale")) {
            scaler_ = mixedprec::Scaler::create(context_, recipe_);
            checkpoint_.add(scaler_);
        }
        if (comm != nullptr) {
            train::check(mp_optimizer_shard(optimizer_.get(), nullptr), "mp_optimizer_shard");
        }
    }

    mixedprec::CheckpointInfo load(const std::string& path, bool converted) {
        return checkpoint_.load(path, MP_LOAD_VERIFY_ALL | (converted ? MP_LOAD_CONVERT : 0U));
    }
    void save(const std::string& folder, int64_t step) { checkpoint_.save(folder, step); }

  private:
    mixedprec::Optimizer make_optimizer(const Manifest& manifest, mixedprec::Comm* comm) {
        mixedprec::OptimizerOptions options;
        options.seed = manifest.info.seed;
        if (comm == nullptr) {
            return mixedprec::Optimizer::create(context_, recipe_, options);
        }
        mixedprec::ShardingOptions sharding;
        sharding.kind = is_cut_by_tensor(recipe_, manifest) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
        return mixedprec::Optimizer::create_sharded(context_, recipe_, *comm, sharding, options);
    }

    // Which group a parameter is in. Before minor version 3 a manifest did not say.
    [[nodiscard]] int32_t group_of(const std::string& parameter) const {
        const uint64_t groups = scalars_.bits("optimizer.groups");
        const std::string name = join("optimizer.", parameter, ".group");
        must<Failure>(groups <= 1 || scalars_.has(name),
                      "the checkpoint does not say which of its ", groups, " groups '", parameter,
                      "' is in: an earlier version saved it; load it where it was saved, and save "
                      "it again");
        const uint64_t group = scalars_.has(name) ? scalars_.bits(name) : 0;
        must<Failure>(group < groups, "'", parameter, "' is in a group that the checkpoint lacks");
        return static_cast<int32_t>(group);
    }

    void add_groups(const Manifest& manifest) {
        const uint64_t count = scalars_.bits("optimizer.groups");
        must<Failure>(count <= manifest.json.at("scalars").size(),
                      "the checkpoint's number of groups cannot be");
        GroupFormats formats(saved_recipe_, count);
        for (const Json& tensor : manifest.json.at("tensors")) {
            const std::string state = tensor.at("state");
            if (is_rule_state(state)) {
                trained_.insert(tensor.at("name").get<std::string>());
            }
            if (state == "param" || is_rule_state(state)) {
                formats.add(group_of(tensor.at("name")), tensor);
            }
        }
        for (uint64_t i = 0; i < count; i++) {
            add_group(i, formats);
        }
    }

    void add_group(uint64_t number, const GroupFormats& formats) {
        const std::string name = join("optimizer.group", number, ".");
        const uint64_t flags = scalars_.bits(name + "flags");
        mixedprec::GroupOptions group;
        group.rule = static_cast<int32_t>(scalars_.bits(name + "rule"));
        group.flags |= ((flags & 2U) != 0 ? MP_RULE_MAXIMIZE : 0U) |
                       ((flags & 4U) == 0 ? MP_RULE_NO_BIAS_CORRECTION : 0U);
        mp_rule_info rule = MP_RULE_INFO_INIT;
        train::check(mp_rule_get_info(group.rule, &rule), "mp_rule_get_info");
        std::vector<mp_hyper> hypers;
        for (int32_t i = 0; i < rule.hyper_count; ++i) {
            mp_rule_hyper hyper = MP_RULE_HYPER_INIT;
            train::check(mp_rule_get_hyper(group.rule, i, &hyper), "mp_rule_get_hyper");
            hypers.push_back({hyper.name, scalars_.number(name + hyper.name)});
        }
        group.hypers = hypers.data();
        group.hyper_count = rule.hyper_count;
        std::array<std::string, MP_MAX_RULE_STATES> kept;
        for (int32_t k = 0; k < rule.state_count; ++k) {
            mp_rule_state state = MP_RULE_STATE_INIT;
            train::check(mp_rule_get_state(group.rule, k, &state), "mp_rule_get_state");
            kept.at(size(k)) = formats.find(number, state.name); // empty where it is the recipe's
            group.state_formats[k] = kept.at(size(k)).empty() ? nullptr : kept.at(size(k)).c_str();
        }
        optimizer_.add_group(group);
    }

    void add(const Json& tensor, const Manifest& manifest) {
        const std::string name = tensor.at("name"), state = tensor.at("state"),
                          type = tensor.at("format");
        const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
        if (state == "param") {
            const bool kept = // and so it stays
                type == "fp32" && saved_recipe_.get_string(MP_RECIPE_WEIGHT_DTYPE) != "fp32";
            mixedprec::ParamOptions options;
            options.group = group_of(name);
            // What has no states is frozen.
            options.flags = trained_.count(name) == 0 ? MP_PARAM_FROZEN : 0U;
            optimizer_.add_param(name,
                                 options.flags != 0
                                     ? frozen_weight(context_, manifest, name, type, shape)
                                 : kept ? mixedprec::Tensor::create(context_, MP_DTYPE_FP32, shape)
                                 : gathers_codes_ && shape.size() == 2 // in the file they are none
                                     ? recipe_.weight_codes(context_, shape)
                                     : recipe_.weight(context_, shape),
                                 options);
        } else if (state == "scaling") {
            checkpoint_.add(name, layers_.emplace_back(layer_of(name, shape.at(0))));
        } else if (state == "data") {
            std::vector<std::byte>& bytes = data_.emplace_back(size(shape.at(0)));
            checkpoint_.add_data(name, mixedprec::span<std::byte>(bytes));
        } else {
            must<Failure>(is_state_of_a_parameter(state), "the checkpoint has '", name, "' (",
                          state, "), which this version does not know, so it would be lost");
        }
    }

    mixedprec::Linear layer_by(const mixedprec::Recipe& recipe) const {
        return mixedprec::Linear::create(context_, recipe, 16, 16,
                                         recipe.weight(context_, {16, 16}));
    }
    mixedprec::Linear delayed_layer(int64_t history_len) const {
        auto recipe = mixedprec::Recipe::create(context_, "fp8_delayed");
        recipe.set(MP_RECIPE_GEMM_AMAX_HISTORY_LEN, history_len);
        return layer_by(recipe);
    }
    // A layer with a state of so many bytes: without delayed scales, or with a history of that length.
    mixedprec::Linear layer_of(const std::string& name, int64_t bytes) const {
        if (converts_) {
            return layer_by(recipe_.for_layer(name.c_str()));
        }
        mixedprec::Linear layer = layer_by(mixedprec::Recipe::create(context_, "fp32"));
        if (layer.scaling().size() == size(bytes)) {
            return layer;
        }
        const auto one = static_cast<int64_t>(delayed_layer(1).scaling().size());
        const auto two = static_cast<int64_t>(delayed_layer(2).scaling().size());
        return delayed_layer(1 + (bytes - one) / (two - one));
    }

    const mixedprec::Context& context_;
    const mixedprec::Recipe& recipe_;
    Scalars scalars_;
    std::set<std::string> trained_; // parameters that have states
    mixedprec::Recipe saved_recipe_;
    bool converts_;
    bool gathers_codes_ = false;
    std::deque<std::vector<std::byte>> data_;
    mixedprec::Checkpoint checkpoint_;
    mixedprec::Optimizer optimizer_;
    mixedprec::Scaler scaler_;
    std::deque<mixedprec::Linear> layers_;
};

struct Rank {
    mixedprec::CheckpointInfo info;
    std::string failure;
    bool is_consequence = false; // of another rank's
};

void work(const Manifest& manifest, const Options& options, mixedprec::Comm* comm, Bar* bar,
          Rank& rank) {
    try {
        const auto context = host_context(1);
        const bool converted = !options.recipe.empty();
        const auto recipe = converted ? open_recipe(context, options.recipe, options.settings)
                                      : mixedprec::Recipe::from_json(
                                            context, manifest.json.at("recipe").get<std::string>());
        const mixedprec::Checkpoint::Progress progress =
            bar == nullptr ? mixedprec::Checkpoint::Progress()
                           : [bar](int64_t done, int64_t total) { bar->update(done, total); };
        Training training(manifest, recipe, context, comm, converted, progress);
        rank.info = training.load(manifest.folder, converted);
        training.save(options.out, manifest.info.step);
    } catch (const mixedprec::Error& error) {
        rank.failure = error.what();
        rank.is_consequence = error.status() == MP_STATUS_PEER_LOST;
    } catch (const std::exception& error) {
        rank.failure = error.what();
    }
    if (comm != nullptr && !rank.failure.empty()) {
        mp_comm_abort(comm->get(), rank.failure.c_str());
    }
}

Result rewrite(const Options& options) {
    must<UsageError>(options.ranks >= 1 && options.ranks <= kMostRanks,
                     "--ranks must be from 1 to ", kMostRanks);
    const Manifest manifest = read_manifest(options.path);
    check_sizes(manifest); // memory is made for what the files have, not for what is claimed
    std::vector<Rank> ranks(size(options.ranks));
    {
        Bar bar(options.recipe.empty() ? "reshard" : "convert");
        if (options.ranks == 1) {
            work(manifest, options, nullptr, &bar, ranks[0]);
        } else {
            auto comms = mixedprec::Comm::threads(options.ranks);
            std::vector<std::thread> threads;
            for (size_t i = 0; i < ranks.size(); i++) {
                threads.emplace_back([&, i] {
                    work(manifest, options, &comms[i], i == 0 ? &bar : nullptr, ranks[i]);
                });
            }
            for (std::thread& thread : threads) {
                thread.join();
            }
        }
    }
    for (const bool consequence : {false, true}) {
        for (const Rank& rank : ranks) {
            must<Failure>(rank.failure.empty() || rank.is_consequence != consequence, rank.failure);
        }
    }
    const Manifest made = read_manifest(options.out);
    const auto& info = ranks[0].info;
    Result result;
    result.json = {{"from", manifest.folder},         {"to", made.folder},
                   {"step", made.info.step},          {"ranks", made.info.world},
                   {"bytes", made.info.bytes},        {"recipe", made.json.value("preset", "")},
                   {"converted", info.converted != 0}};
    Pairs pairs;
    pairs.add("from", manifest.folder);
    if (!manifest.passed_over.empty()) {
        pairs.add("note", manifest.passed_over);
        result.json["note"] = manifest.passed_over;
    }
    pairs.add("to", made.folder);
    pairs.add("recipe", made.json.value("preset", "-"));
    pairs.add("size", join(bytes_text(real(made.info.bytes)), " by ",
                           counted(size(made.info.world), "rank")));
    if (info.converted != 0) {
        pairs.add("lost of weights", format("%.3g at most, %.3g rms", info.weight_largest_error,
                                            info.weight_rms_error));
        result.json["errors"] = {{"weight_largest", info.weight_largest_error},
                                 {"weight_rms", info.weight_rms_error}};
        for (int32_t k = 0; mp_rule_state_name(k) != nullptr; ++k) {
            const std::string name = mp_rule_state_name(k);
            const double largest = info.state_largest_error[k], rms = info.state_rms_error[k];
            pairs.add(join("of ", name), format("%.3g at most, %.3g rms", largest, rms));
            result.json["errors"].update({{name + "_largest", largest}, {name + "_rms", rms}});
        }
    }
    result.text = pairs.text();
    return result;
}

} // namespace

void add_checkpoint_writers(Program& program) {
    auto options = std::make_shared<Options>();
    Subcommand convert = program.add(
        "convert", "a checkpoint in another recipe, with what the rounding lost", options, rewrite);
    Subcommand reshard = program.add(
        "reshard", "a checkpoint in the files of another number of ranks", options, rewrite);
    for (Subcommand app : {convert, reshard}) {
        app.add("path", options->path, "a checkpoint, or a folder of them: the newest",
                {.required = true});
        app.add("out", options->out, "folder for the new checkpoint; nothing in it is overwritten",
                {.required = true});
    }
    convert.add("--recipe", options->recipe, "the new recipe: a preset or a .json file",
                {.required = true});
    convert.add("--set", options->settings, "KEY=VALUE of it; may be repeated",
                {.may_repeat = true});
    convert.add("--ranks", options->ranks, "ranks that write it", {.shows_default = true});
    reshard.add("--ranks", options->ranks, "ranks that write it", {.required = true});
}

} // namespace command
