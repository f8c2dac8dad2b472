// SPDX-License-Identifier: Apache-2.0
// The command line, read by CLI11, and checks that say what was expected, what came, and what to do.
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "empty_values.hpp"
#include "support.hpp"
#include "text.hpp"

namespace train {
namespace {

constexpr size_t kMaxRecipes = 64;
constexpr const char* kOwnText = "build/corpus.txt";
constexpr std::array kAutomatic{"auto", "auto_fp8"}; // choose a preset by the device
constexpr std::array kOrders{"rank", "tree", "exact"};

template <typename... Parts> void demand(bool good, const Parts&... parts) {
    must<UsageError>(good, parts...);
}

std::vector<std::string> presets() {
    std::vector<std::string> names;
    for (int32_t i = 0; i < mp_recipe_preset_count(); i++) {
        const char* name = nullptr;
        MP_CHECK(mp_recipe_get_preset_info(i, &name, nullptr));
        names.emplace_back(name);
    }
    return names;
}

void print_recipes() {
    for (int32_t i = 0; i < mp_recipe_preset_count(); i++) {
        const char *name = nullptr, *text = nullptr;
        MP_CHECK(mp_recipe_get_preset_info(i, &name, &text));
        print(stdout, format("%-26s %s\n", name, text));
    }
    std::puts("auto, auto_fp8             the preset that suits the device, without and with fp8 "
              "products");
}

void check_recipe_name(const std::string& name) {
    const std::vector<std::string> known = presets();
    const bool is_file = name.size() > 5 && name.ends_with(".json");
    if (!is_file && std::find(kAutomatic.begin(), kAutomatic.end(), name) == kAutomatic.end() &&
        std::find(known.begin(), known.end(), name) == known.end()) {
        throw UsageError("unknown recipe '", name,
                         "': expected a name of --list-recipes or a .json file");
    }
}

std::vector<std::string> parse_list(const std::string& list) {
    if (list == "all") {
        return presets();
    }
    std::vector<std::string> names;
    for (size_t start = 0; start <= list.size();) {
        const size_t comma = std::min(list.find(',', start), list.size());
        names.push_back(list.substr(start, comma - start));
        demand(!names.back().empty(),
               "--compare has an empty name: expected names with single commas between them");
        check_recipe_name(names.back());
        start = comma + 1;
    }
    demand(names.size() <= kMaxRecipes, "--compare has more than ", kMaxRecipes, " names");
    return names;
}

template <typename T>
T parse_number(const std::string& option, const std::string& word, double low, double high) {
    constexpr bool kWhole = std::is_integral_v<T>;
    char* end = nullptr;
    T value{};
    errno = 0;
    if constexpr (kWhole) {
        value = std::strtoll(word.c_str(), &end, 10);
    } else {
        value = std::strtod(word.c_str(), &end);
    }
    const auto number = real(value);
    demand(!word.empty() && *end == '\0' && !std::isnan(number), option, " wants a ",
           kWhole ? "whole number" : "number", ", not '", word, "'");
    demand(errno == 0 && number >= low && number <= high, option,
           format(" must be from %.10g to %.10g, not ", low, high), word);
    return value;
}

// One option that is a number. What stands in the field is the default, unless it is below the bounds: then `text` says it.
template <typename T>
void add(CLI::App& app, const std::string& name, T& field, double low, double high,
         const std::string& text) {
    const std::string called = name.substr(0, name.find(',')); // others are aliases
    CLI::Option* option = app.add_option_function<std::string>(
        name,
        [=, &field](const std::string& word) { field = parse_number<T>(called, word, low, high); },
        text);
    option->type_name(std::is_integral_v<T> ? "N" : "X");
    if (real(field) >= low) {
        option->default_str(format("%.10g", real(field)));
    }
}

void add_training(CLI::App& app, Options& o) {
    app.add_option(
        "--data", o.data,
        "text to train on, any bytes; its last tenth is for validation (build/corpus.txt, "
        "where scripts/corpus.sh has written it)");
    app.add_option_function<std::string>(
           "--recipe",
           [&o](const std::string& name) {
               check_recipe_name(name);
               o.recipes = {name};
           },
           "recipe: a preset's name or a .json file (default fp32)")
        ->type_name("NAME");
    app.add_option("--set", o.settings,
                   "KEY=VALUE of the recipe instead of the preset's; may be repeated")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false)
        ->type_name("KEY=VALUE");
    app.add_option_function<std::string>(
           "--compare", [&o](const std::string& list) { o.recipes = parse_list(list); },
           "several recipes A,B,... or all, one after another, each in a process of its own")
        ->type_name("NAMES");
    add(app, "--steps", o.steps, 1, 1e9, "optimizer steps");
    add(app, "--layers", o.layers, 1, 1000, "transformer blocks");
    add(app, "--dim", o.dim, 1, 65536, "width of the model, a multiple of --heads");
    add(app, "--heads", o.heads, 1, 1024, "attention heads");
    add(app, "--context", o.context, 1, 65536, "bytes of text seen at once");
    add(app, "--batch", o.batch, 1, 65536, "texts in one pass");
    add(app, "--accum", o.accum, 1, 65536, "passes whose gradients are added up for one step");
    add(app, "--lr", o.lr, 0, 1e6, "highest learning rate");
    add(app, "--min-lr", o.min_lr, 0, 1e6,
        "learning rate at the end of the cosine (a tenth of --lr)");
    add(app, "--warmup", o.warmup, 0, 1e9,
        "steps of linear warm-up (a tenth of --steps, at most 100)");
    add(app, "--beta1", o.beta1, 0, 1, "AdamW");
    add(app, "--beta2", o.beta2, 0, 1, "AdamW");
    add(app, "--eps", o.eps, 0, 1, "AdamW");
    add(app, "--weight-decay", o.weight_decay, 0, 100, "AdamW, on matrices only");
    add(app, "--clip", o.clip, 0, 1e30, "largest norm of the gradient; 0: no clipping");
    add(app, "--guard-norm", o.guard_norm, 0, 1e6,
        "skip a step whose gradient norm lies so many standard deviations above the last ones; 0: "
        "none");
    add(app, "--guard-loss", o.guard_loss, 0, 1e6, "the same for the loss");
    add(app, "--guard-window", o.guard_window, 2, 1024, "steps that these are compared with");
    add(app, "--seed", o.seed, 0, 9e15, "initial weights, batches and sampled text");
}

void add_looking(CLI::App& app, Options& o) {
    add(app, "--val-every", o.val_every, 0, 1e9, "steps between validations; 0: only at the end");
    add(app, "--val-batches", o.val_batches, 1, 1e6, "batches of one validation");
    add(app, "--monitor", o.monitor, 0, 1e9,
        "steps between looks at the layers' fp8 operands, for --out's monitor.csv; 0: none");
    add(app, "--sample", o.sample, 0, 100000, "bytes of text to write at the end");
    add(app, "--temperature", o.temperature, 0.01, 100, "of that text: low is safe, high is wild");
    app.add_option("--out", o.out,
                   "folder for losses.csv, losses.svg, results.json, report.html, monitor.csv, and "
                   "last-steps-RECIPE.json at the first gradient that is not finite");
    app.add_option("--save", o.save,
                   "file to write the trained weights to, in fp32; *.safetensors: in their types "
                   "(one recipe only)");
    app.add_option("--init", o.init,
                   "file of weights to start from, made by --save for the same model");
    app.add_option("--checkpoint", o.checkpoint,
                   "folder for checkpoints: one after the last step, or where it was interrupted "
                   "(one recipe only)");
    add(app, "--checkpoint-every", o.checkpoint_every, 0, 1e9,
        "steps between further checkpoints; 0: none");
    add(app, "--keep", o.keep, 0, 1e9, "newest checkpoints to keep; 0: all");
    app.add_option("--resume", o.resume,
                   "checkpoint, or folder of them, to go on from, with the same other options");
}

void add_machine(CLI::App& app, Options& o) {
    add(app, "--threads", o.threads, 0, 4096, "threads; 0: one for each physical core");
    app.add_option("--backend", o.backend,
                   "the library's host backend: host (fast) or reference (host)");
    add(app, "--max-memory", o.max_memory, 1, 1e9, "refuse models estimated to need more MiB");
    add(app, "--ranks", o.ranks, 1, 256,
        "ranks that share a step, as threads of this process; their passes are --accum in all");
    app.add_flag("--mpi", o.mpi, "ranks are the processes that mpirun started");
    add(app, "--zero,--stage", o.zero, 0, 3,
        "what ranks share out. 1: states, 2: gradients too, 3: weights too, 0: nothing (1)");
    add(app, "--shard-ranks", o.shard_ranks, 0, 256,
        "groups of so many ranks share out a copy each, those of a node, say; 0: all one copy");
    add(app, "--node-ranks", o.node_ranks, 0, 256,
        "add gradients among so many ranks, those of a node, first; 0: among all at once");
    app.add_option("--order", o.order_name,
                   "of sums over ranks: rank; tree, exact: the same bits for every number of ranks "
                   "(rank)");
    app.add_option("--wire-dtype", o.wire_name,
                   "type of gradients between ranks, such as bf16 or fp8_e4m3 (the recipe's)");
}

// False when the command line was one of questions.
bool read(CLI::App& app, int argc, char** argv) {
    app.allow_extras();
    app.set_help_flag("--help", "this text");
    app.add_flag_callback(
        "--list-recipes",
        [] {
            print_recipes();
            throw CLI::Success();
        },
        "print the presets and what they are");
    app.footer("Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (the table so far is "
               "printed).");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        print(stdout, app.help());
        return false;
    } catch (const CLI::Success&) {
        return false;
    } catch (const CLI::ArgumentMismatch& error) { // "--steps: 1 required N missing"
        const std::string text = error.what();
        throw UsageError(text.substr(0, text.find(':')) + " wants a value behind it");
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    if (!app.remaining().empty()) {
        const std::string word = app.remaining().front();
        throw UsageError(word.starts_with("--")
                             ? "unknown option '" + word + "'"
                             : "'" + word + "' is not an option: options begin with --");
    }
    return true;
}

} // namespace

void Options::check_ranks(int64_t count) const {
    demand(accum >= count, "--accum ", accum, " is too few passes for ", count,
           " ranks: each takes at least one of a step's; say --accum ", count);
    demand(shard_ranks == 0 || count % shard_ranks == 0, "--shard-ranks ", shard_ranks,
           " must divide the ", count, " ranks, so that each group has as many");
    demand(node_ranks == 0 || count % node_ranks == 0, "--node-ranks ", node_ranks,
           " must divide the ", count, " ranks");
    demand(zero != 3 || accum % count == 0,
           "--zero 3 gathers weights for every pass, so all ranks take equally many: --accum ",
           accum, " must be a multiple of ", count, " ranks");
}

void Options::parse_sharing() {
    shared = ranks > 1 || mpi || zero >= 0 || shard_ranks > 0 || node_ranks > 0 ||
             !order_name.empty() || !wire_name.empty();
    zero = zero >= 0 ? zero : 1;
    if (!order_name.empty()) {
        const auto* found = std::find(kOrders.begin(), kOrders.end(), order_name);
        demand(found != kOrders.end(), "--order is rank, tree or exact, not '", order_name, "'");
        order = static_cast<int32_t>(found - kOrders.begin());
    }
    order_name = kOrders.at(size(order));
    bool scaled = false;
    wire_dtype = dtype_by_name(wire_name, &scaled);
    demand(wire_name.empty() || (wire_dtype != MP_DTYPE_NONE && !scaled),
           "--wire-dtype is fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2, not '", wire_name, "'");
}

void Options::check_sharing() const {
    if (!shared) {
        return;
    }
    demand(!mpi || ranks == 1, "--mpi has as many ranks as mpirun starts: leave --ranks out");
    demand(!mpi || recipes.size() == 1,
           "--mpi wants a single recipe: --compare starts processes of its own");
    demand(node_ranks == 0 || (shard_ranks == 0 && order == MP_COMM_ORDER_RANK),
           "--node-ranks rounds the sums of a node to the wire: it goes with --order rank, and "
           "without --shard-ranks");
    demand(save.empty(), "--save writes what one rank holds, and ranks share the weights' exact "
                         "values: use --checkpoint");
    if (!mpi) {
        check_ranks(ranks);
    }
}

void Options::check_together() const {
    for (const std::string& setting : settings) { // whether key and value are good says the recipe
        demand(setting.find('=') != std::string::npos && !setting.starts_with('='),
               "--set wants KEY=VALUE, not '", setting, "'");
    }
    const bool one = recipes.size() == 1;
    demand(!data.empty(), "--data FILE is missing: any text to train on, of some 10 KB or more");
    demand(dim % heads == 0, "--dim ", dim, " cannot be shared out to --heads ", heads,
           ": it must be a multiple");
    demand(min_lr <= lr, "--min-lr is above --lr: the learning rate falls from --lr to --min-lr");
    demand(warmup <= steps, "--warmup is above --steps: the warm-up would never end");
    demand(beta1 < 1.0 && beta2 < 1.0, "--beta1 and --beta2 must be below 1");
    demand(save.empty() || one,
           "--save wants a single recipe: with --compare every one would overwrite the last");
    demand((checkpoint.empty() && resume.empty()) || one,
           "--checkpoint and --resume want a single recipe");
    demand((checkpoint_every == 0 && keep == 0) || !checkpoint.empty(),
           "--checkpoint-every and --keep want --checkpoint: a folder to write to");
    demand(resume.empty() || init.empty(), "--resume has weights of its own: leave --init out");
    demand(monitor == 0 || !out.empty(), "--monitor wants --out: a folder to write monitor.csv to");
    check_sharing();
    const double mib = real(ranks) * memory() / 1048576.0;
    demand(mib <= real(max_memory), "this model would need about ", format("%.0f", mib),
           " MiB and --max-memory is ", max_memory,
           ": make --layers, --dim, --context or --batch smaller, or raise --max-memory");
}

bool Options::parse(int argc, char** argv) {
    CLI::App app("Trains a small GPT on the bytes of a text, in the precision of a libmixedprec "
                 "recipe.",
                 "mixedprec_train");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    add_training(app, *this);
    add_looking(app, *this);
    add_machine(app, *this);
    refuse_empty_values(app);
    if (!read(app, argc, argv)) {
        return false;
    }
    if (data.empty() && access(kOwnText, F_OK) == 0) { // in a tree of the sources
        data = kOwnText;
    }
    min_lr = min_lr < 0.0 ? lr / 10.0 : min_lr;
    warmup = warmup < 0 ? std::min<int64_t>(steps / 10, 100) : warmup;
    parse_sharing();
    check_together();
    return true;
}

} // namespace train
