// SPDX-License-Identifier: Apache-2.0
// mixedprec completion bash|zsh: written from the tree of subcommands and options itself, so that it never lags behind.
#include "support.hpp"

namespace command {
namespace {

struct Options {
    const CLI::App* app = nullptr;
    std::string shell;
};

std::string words_of(const CLI::App& app) {
    std::string words;
    for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!child->get_name().empty() && !child->get_group().empty()) {
            words += child->get_name() + " ";
        }
    }
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            words += "--" + name + " ";
        }
    }
    return words;
}

// One line of a case for every subcommand: "recipe show) words='...' ;;"
void add_cases(std::string& text, const CLI::App& app, const std::string& path) {
    text += "        '" + path + "') words='" + words_of(app) + "' ;;\n";
    for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!child->get_group().empty()) {
            add_cases(text, *child,
                      path.empty() ? child->get_name() : path + " " + child->get_name());
        }
    }
}

Result completion(const Options& options) {
    must<UsageError>(options.shell == "bash" || options.shell == "zsh",
                     "completion is for bash or zsh, not '", options.shell, "'");
    std::string presets;
    for (const auto& preset : mixedprec::Recipe::presets()) {
        presets += std::string(preset.name) + " ";
    }
    std::string cases;
    add_cases(cases, *options.app, "");
    Result result;
    if (options.shell == "zsh") {
        result.text = "#compdef mixedprec\nautoload -U +X bashcompinit && bashcompinit\n";
    }
    result.text += "# Written by: mixedprec completion " + options.shell +
                   "\n_mixedprec() {\n"
                   "    local current=${COMP_WORDS[COMP_CWORD]} previous= path= words= word i\n"
                   "    [ \"$COMP_CWORD\" -gt 0 ] && previous=${COMP_WORDS[COMP_CWORD-1]}\n"
                   "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                   "        word=${COMP_WORDS[i]}\n"
                   "        case $word in -*) break ;; esac\n"
                   "        case $path in recipe\\ *) break ;; esac\n"
                   "        if [ -z \"$path\" ]; then path=$word; elif [ \"$path\" = recipe ]; "
                   "then path=\"recipe $word\"; fi\n"
                   "    done\n    case $path in\n" +
                   cases +
                   "    esac\n"
                   "    case $previous in --recipe|show|diff|check) words=\"$words auto auto_fp8 " +
                   presets +
                   "\" ;; esac\n"
                   "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\n"
                   "complete -o default -F _mixedprec mixedprec\n";
    result.json = {{"shell", options.shell}, {"script", result.text}};
    return result;
}

} // namespace

void add_completion(Program& program) {
    auto options = std::make_shared<Options>();
    options->app = &program.app;
    CLI::App* app = program.add(program.app, "completion", "", options, completion);
    app->group(""); // hidden
    app->add_option("shell", options->shell, "bash or zsh")->required();
}

} // namespace command
