// SPDX-License-Identifier: Apache-2.0
// mixedprec convert and reshard: a checkpoint is loaded into an optimizer made from its manifest, and saved again: in another
// recipe, or by another number of ranks, which are threads here.
#include <cstring>
#include <deque>
#include <thread>

#include "checkpoint_files.hpp"
#include "table.hpp"

namespace command {
namespace {

struct Options {
    std::string path, out, recipe;
    std::vector<std::string> settings;
    int ranks = 1;
};

constexpr int kMostRanks = 64;

const Json* find_scalar(const Manifest& manifest, const std::string& name) {
    for (const Json& entry : manifest.json.at("scalars")) {
        if (entry.at(0) == name) {
            return &entry.at(1);
        }
    }
    return nullptr;
}

uint64_t bits_of(const Manifest& manifest, const std::string& name) {
    const Json* found = find_scalar(manifest, name);
    must<Failure>(found != nullptr, "the checkpoint has no '", name,
                  "': it has no optimizer, or is of an older format");
    return std::stoull(found->get<std::string>(), nullptr, 16);
}

double number_of(const Manifest& manifest, const std::string& name) {
    const uint64_t bits = bits_of(manifest, name);
    double value = 0.0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool is_cut_by_tensor(const mixedprec::Recipe& recipe) {
    bool scaled = false;
    for (const char* key : {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE, MP_RECIPE_EXP_AVG_DTYPE,
                            MP_RECIPE_EXP_AVG_SQ_DTYPE}) {
        scaled = scaled || recipe.get_string(key).find("_scaled") != std::string::npos;
    }
    return scaled;
}

// What one rank loads into and saves: the objects that the manifest lists.
class Training {
  public:
    Training(const Manifest& manifest, const mixedprec::Recipe& recipe,
             const mixedprec::Context& context, mixedprec::Comm* comm,
             const mixedprec::Checkpoint::Progress& progress)
        : context_(context), recipe_(recipe), saved_weight_(saved_weight_type(manifest)),
          checkpoint_(mixedprec::Checkpoint::create(
              context, comm != nullptr ? comm->get() : nullptr, 0, progress)),
          optimizer_(make_optimizer(manifest, comm)) {
        add_groups(manifest);
        checkpoint_.add(optimizer_);
        for (const Json& tensor : manifest.json.at("tensors")) {
            add(tensor);
        }
        if (find_scalar(manifest, "scaler.scale") != nullptr) {
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
    static std::string saved_weight_type(const Manifest& manifest) {
        return Json::parse(manifest.json.at("recipe").get<std::string>())
            .at(MP_RECIPE_WEIGHT_DTYPE);
    }

    mixedprec::Optimizer make_optimizer(const Manifest& manifest, mixedprec::Comm* comm) {
        mixedprec::OptimizerOptions options;
        options.seed = manifest.info.seed;
        if (comm == nullptr) {
            return mixedprec::Optimizer::create(context_, recipe_, options);
        }
        mixedprec::ShardingOptions sharding;
        sharding.kind = is_cut_by_tensor(recipe_) ? MP_SHARD_GREEDY : MP_SHARD_FLAT;
        return mixedprec::Optimizer::create_sharded(context_, recipe_, *comm, sharding, options);
    }

    // The manifest does not say whose group a parameter is in, nor does a load ask: here all are in the first.
    void add_groups(const Manifest& manifest) {
        const uint64_t count = bits_of(manifest, "optimizer.groups");
        for (uint64_t i = 0; i < count; i++) {
            const std::string name = join("optimizer.group", i, ".");
            const uint64_t flags = bits_of(manifest, name + "flags");
            mixedprec::GroupOptions group;
            group.lr = number_of(manifest, name + "lr");
            group.beta1 = number_of(manifest, name + "beta1");
            group.beta2 = number_of(manifest, name + "beta2");
            group.eps = number_of(manifest, name + "eps");
            group.weight_decay = number_of(manifest, name + "weight_decay");
            group.rule = static_cast<int32_t>(bits_of(manifest, name + "rule"));
            group.flags |= ((flags & 2U) != 0 ? MP_RULE_MAXIMIZE : 0U) |
                           ((flags & 4U) == 0 ? MP_RULE_NO_BIAS_CORRECTION : 0U);
            optimizer_.add_group(group);
        }
    }

    void add(const Json& tensor) {
        const std::string name = tensor.at("name"), state = tensor.at("state"),
                          type = tensor.at("format");
        const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
        if (state == "param") {
            const bool kept = type == "fp32" && saved_weight_ != "fp32"; // and so it stays
            optimizer_.add_param(name,
                                 kept ? mixedprec::Tensor::create(context_, MP_DTYPE_FP32, shape)
                                      : recipe_.weight(context_, shape));
        } else if (state ==
                   "scaling") { // which depends on the recipe alone, not on the layer's size
            const auto weight = recipe_.weight(context_, {16, 16});
            checkpoint_.add(name, layers_.emplace_back(mixedprec::Linear::create(context_, recipe_,
                                                                                 16, 16, weight)));
        } else if (state == "data") {
            std::vector<std::byte>& bytes = data_.emplace_back(size(shape.at(0)));
            checkpoint_.add_data(name, mixedprec::span<std::byte>(bytes));
        }
    }

    const mixedprec::Context& context_;
    const mixedprec::Recipe& recipe_;
    std::string saved_weight_;
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
        Training training(manifest, recipe, context, comm, progress);
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
    const Manifest manifest = read_manifest(checkpoints_in(options.path).front());
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
    const Manifest made = read_manifest(checkpoints_in(options.out).front());
    const auto& info = ranks[0].info;
    Result result;
    result.json = {{"from", manifest.folder},         {"to", made.folder},
                   {"step", made.info.step},          {"ranks", made.info.world},
                   {"bytes", made.info.bytes},        {"recipe", made.json.value("preset", "")},
                   {"converted", info.converted != 0}};
    Pairs pairs;
    pairs.add("from", manifest.folder);
    pairs.add("to", made.folder);
    pairs.add("recipe", made.json.value("preset", "-"));
    pairs.add("size", join(bytes_text(real(made.info.bytes)), " by ", made.info.world, " rank(s)"));
    if (info.converted != 0) {
        pairs.add("lost of weights", format("%.3g at most, %.3g rms", info.weight_largest_error,
                                            info.weight_rms_error));
        pairs.add("of exp_avg", format("%.3g at most, %.3g rms", info.exp_avg_largest_error,
                                       info.exp_avg_rms_error));
        pairs.add("of exp_avg_sq", format("%.3g at most, %.3g rms", info.exp_avg_sq_largest_error,
                                          info.exp_avg_sq_rms_error));
        result.json["errors"] = {{"weight_largest", info.weight_largest_error},
                                 {"weight_rms", info.weight_rms_error},
                                 {"exp_avg_largest", info.exp_avg_largest_error},
                                 {"exp_avg_rms", info.exp_avg_rms_error},
                                 {"exp_avg_sq_largest", info.exp_avg_sq_largest_error},
                                 {"exp_avg_sq_rms", info.exp_avg_sq_rms_error}};
    }
    result.text = pairs.text();
    return result;
}

} // namespace

void add_checkpoint_writers(Program& program) {
    auto options = std::make_shared<Options>();
    CLI::App* convert = program.add(program.app, "convert",
                                    "a checkpoint in another recipe, with what the rounding lost",
                                    options, rewrite);
    CLI::App* reshard =
        program.add(program.app, "reshard", "a checkpoint in the files of another number of ranks",
                    options, rewrite);
    for (CLI::App* app : {convert, reshard}) {
        app->add_option("path", options->path, "a checkpoint, or a folder of them: the newest")
            ->required();
        app->add_option("out", options->out,
                        "folder for the new checkpoint; nothing in it is overwritten")
            ->required();
    }
    convert->add_option("--recipe", options->recipe, "the new recipe: a preset or a .json file")
        ->required();
    convert->add_option("--set", options->settings, "KEY=VALUE of it; may be repeated")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    convert->add_option("--ranks", options->ranks, "ranks that write it")->capture_default_str();
    reshard->add_option("--ranks", options->ranks, "ranks that write it")->required();
}

} // namespace command
