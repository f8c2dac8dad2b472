// SPDX-License-Identifier: Apache-2.0
// What follows from the options: the sizes of the model, and what runs and ranks must have alike.

#include "options.hpp"
#include "support.hpp"

namespace train {

int64_t Options::parameter_count() const {
    const double width = real(dim);
    const double count = real(layers) * (12.0 * width * width + 13.0 * width) +
                         (512.0 + real(context) + 2.0) * width;
    return count < 9e18 ? static_cast<int64_t>(count) : INT64_MAX;
}

double Options::activations() const {
    const double length = real(context), width = real(dim);
    const double rows = real(batch) * length;
    const double scores = real(batch * heads) * length * length;
    // What one layer keeps for its backward pass, and what all layers share.
    const double kept = real(layers) * (rows * 16.0 * width + scores);
    const double common = rows * (16.0 * width + 256.0) + scores;
    return 4.0 * (kept + common);
}

double Options::memory() const { return 16.0 * real(parameter_count()) + activations(); }

std::vector<Options::Setting> Options::identity() const {
    std::vector<Setting> all;
    const auto whole = [&](const char* name, int64_t value) {
        all.emplace_back(name, std::to_string(value));
    };
    const auto number = [&](const char* name, double value) {
        all.emplace_back(name, format("%.9g", value));
    };
    whole("--layers", layers);
    whole("--dim", dim);
    whole("--heads", heads);
    whole("--context", context);
    whole("--batch", batch);
    whole("--accum", accum);
    whole("--seed", seed);
    whole("--steps", steps);
    whole("--warmup", warmup);
    number("--lr", lr);
    number("--min-lr", min_lr);
    number("--beta1", beta1);
    number("--beta2", beta2);
    number("--eps", eps);
    number("--weight-decay", weight_decay);
    number("--clip", clip);
    all.emplace_back("--order", order_name);
    if (guards()) {
        number("--guard-norm", guard_norm);
        number("--guard-loss", guard_loss);
        whole("--guard-window", guard_window);
    }
    return all;
}

std::vector<Options::Setting> Options::common() const {
    const auto list = [](const std::vector<std::string>& parts) {
        std::string text;
        for (const std::string& part : parts) {
            text += (text.empty() ? "" : ",") + part;
        }
        return text;
    };
    const auto optional = [](const std::string& text) { return text.empty() ? "none" : text; };
    Options guarded = *this; // whose guard is named in any case: lists of all ranks have one length
    guarded.guard_norm = guards() ? guard_norm : 1.0;
    std::vector<Setting> all = guarded.identity();
    for (auto& [name, value] : all) {
        value = name == "--guard-norm" ? format("%.9g", guard_norm) : value;
    }
    all.insert(all.end(), {{"--recipe", list(recipes)},
                           {"--set", optional(list(settings))},
                           {"--val-every", std::to_string(val_every)},
                           {"--val-batches", std::to_string(val_batches)},
                           {"--sample", std::to_string(sample)},
                           {"--init", optional(init)},
                           {"--checkpoint", optional(checkpoint)},
                           {"--checkpoint-every", std::to_string(checkpoint_every)},
                           {"--keep", std::to_string(keep)},
                           {"--resume", optional(resume)},
                           {"--zero", std::to_string(zero)},
                           {"--shard-ranks", std::to_string(shard_ranks)},
                           {"--node-ranks", std::to_string(node_ranks)},
                           {"--wire-dtype", optional(wire_name)}});
    return all;
}

std::string Options::last_steps_file(const std::string& recipe) const {
    // Of a recipe's file: its name alone.
    return out + "/last-steps-" + recipe.substr(recipe.rfind('/') + 1) + ".json";
}

} // namespace train
