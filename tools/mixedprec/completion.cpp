// SPDX-License-Identifier: Apache-2.0
// mixedprec completion bash|zsh|fish: written from the tree of subcommands and options itself, so that it never lags behind.
#include "program.hpp"

#include <CLI/CLI.hpp>

namespace command {
namespace {

struct Options {
    const CLI::App* app = nullptr;
    std::string shell;
};

// A word of the command line, and what the help says of it.
struct Word {
    std::string name;
    std::string text;
    bool has_value = false;
};

// What one subcommand takes. The path is "", "plan" or "recipe show".
struct Level {
    std::string path;
    std::vector<Word> subcommands, options;
};

void add_levels(std::vector<Level>& levels, const CLI::App& app, const std::string& path) {
    Level level{path, {}, {}};
    std::vector<const CLI::App*> children;
    for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!child->get_name().empty() && !child->get_group().empty()) {
            level.subcommands.push_back({child->get_name(), child->get_description()});
            children.push_back(child);
        }
    }
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            level.options.push_back(
                {name, option->get_description(), option->get_items_expected_max() > 0});
        }
    }
    levels.push_back(level);
    for (const CLI::App* child : children) {
        add_levels(levels, *child,
                   path.empty() ? child->get_name() : path + " " + child->get_name());
    }
}

std::string recipe_words() {
    std::string words = "auto auto_fp8";
    for (const auto& preset : mixedprec::Recipe::presets()) {
        words += std::string(" ") + preset.name;
    }
    return words;
}

// In single quotes: the shells differ in how one stands inside.
std::string quoted(const std::string& text, const std::string& shell) {
    std::string made = "'";
    for (const char c : text) {
        if (c == '\'') {
            made += shell == "fish" ? "\\'" : "'\\''";
        } else if (c == '\\' && shell == "fish") {
            made += "\\\\";
        } else {
            made += c;
        }
    }
    return made + "'";
}

// The words before the one to complete, without options, are the path: of "recipe" two, else one.
std::string path_loop(const std::string& words, const std::string& first, const std::string& end) {
    return "    for ((i = " + first + "; i < " + end +
           "; i++)); do\n"
           "        word=${" +
           words +
           "[i]}\n"
           "        case $word in -*) continue ;; esac\n"
           "        if [[ -z $at ]]; then at=$word\n"
           "        elif [[ $at = recipe ]]; then at=\"recipe $word\"; fi\n"
           "    done\n";
}

std::string bash(const std::vector<Level>& levels) {
    std::string cases;
    for (const Level& level : levels) {
        std::string words;
        for (const Word& one : level.subcommands) {
            words += one.name + " ";
        }
        for (const Word& one : level.options) {
            words += "--" + one.name + " ";
        }
        cases += "        '" + level.path + "') words='" + words + "' ;;\n";
    }
    return "_mixedprec() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} previous= at= words= word i\n"
           "    [ \"$COMP_CWORD\" -gt 0 ] && previous=${COMP_WORDS[COMP_CWORD-1]}\n" +
           path_loop("COMP_WORDS", "1", "COMP_CWORD") + "    case $at in\n" + cases +
           "    esac\n"
           "    case $previous in --recipe|show|diff|check) words=\"$words " +
           recipe_words() +
           "\" ;; esac\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\n"
           "complete -o default -F _mixedprec mixedprec\n";
}

// zsh calls the file itself as the function _mixedprec the first time; its last line then completes at once.
std::string zsh(const std::vector<Level>& levels) {
    std::string cases;
    for (const Level& level : levels) {
        cases += "        " + quoted(level.path, "zsh") + ")\n            subcommands=(";
        for (const Word& one : level.subcommands) {
            cases += "\n                " + quoted(one.name + ":" + one.text, "zsh");
        }
        cases += ")\n            options=(";
        for (const Word& one : level.options) {
            cases += "\n                " + quoted("--" + one.name + ":" + one.text, "zsh");
        }
        cases += ") ;;\n";
    }
    return "_mixedprec() {\n"
           "    local at= word\n"
           "    local -i i\n"
           "    local -a subcommands options recipes\n"
           "    recipes=(" +
           recipe_words() + ")\n" + path_loop("words", "2", "CURRENT") + "    case $at in\n" +
           cases +
           "    esac\n"
           "    if [[ $words[CURRENT] == -* ]]; then\n"
           "        _describe -o option options\n"
           "    elif (( $#subcommands )); then\n"
           "        _describe subcommand subcommands\n"
           "    elif [[ $words[CURRENT-1] == --recipe || $at == recipe\\ * ]]; then\n"
           "        compadd -a recipes\n"
           "        _files -g '*.json'\n"
           "    else\n"
           "        _files\n"
           "    fi\n"
           "}\n"
           "_mixedprec \"$@\"\n";
}

std::string fish(const std::vector<Level>& levels) {
    std::string lines;
    for (const Level& level : levels) {
        const std::string here = "complete -c mixedprec -n " +
                                 quoted("__mixedprec_at " + quoted(level.path, "zsh"), "fish");
        for (const Word& one : level.subcommands) {
            lines += here + " -f -a " + one.name + " -d " + quoted(one.text, "fish") + "\n";
        }
        for (const Word& one : level.options) {
            const char* value = !one.has_value         ? ""
                                : one.name == "recipe" ? " -x -a '(__mixedprec_recipes)'"
                                                       : " -r";
            lines += here + " -l " + one.name + value + " -d " + quoted(one.text, "fish") + "\n";
        }
    }
    for (const char* path : {"recipe show", "recipe diff", "recipe check"}) {
        lines += "complete -c mixedprec -n " + quoted(join("__mixedprec_at '", path, "'"), "fish") +
                 " -a '(__mixedprec_recipes)'\n";
    }
    return "function __mixedprec_at\n"
           "    set -l at ''\n"
           "    set -l words (commandline -opc)\n"
           "    set -e words[1]\n"
           "    for word in $words\n"
           "        if string match -q -- '-*' $word\n"
           "            continue\n"
           "        else if test -z \"$at\"\n"
           "            set at $word\n"
           "        else if test \"$at\" = recipe\n"
           "            set at \"recipe $word\"\n"
           "        end\n"
           "    end\n"
           "    test \"$at\" = \"$argv[1]\"\n"
           "end\n"
           "function __mixedprec_recipes\n"
           "    string split ' ' " +
           quoted(recipe_words(), "fish") + "\nend\n" + lines;
}

Result completion(const Options& options) {
    std::vector<Level> levels;
    add_levels(levels, *options.app, "");
    Result result;
    const std::string origin = "# Written by: mixedprec completion " + options.shell + "\n";
    if (options.shell == "bash") {
        result.text = origin + bash(levels);
    } else if (options.shell == "zsh") {
        result.text = "#compdef mixedprec\n" + origin + zsh(levels); // which zsh looks for first
    } else {
        must<UsageError>(options.shell == "fish", "completion is for bash, zsh or fish, not '",
                         options.shell, "'");
        result.text = origin + fish(levels);
    }
    result.json = {{"shell", options.shell}, {"script", result.text}};
    return result;
}

} // namespace

void add_completion(Program& program) {
    auto options = std::make_shared<Options>();
    options->app = &program.app;
    Subcommand app = program.add("completion", "print what completes this command in a shell",
                                 options, completion);
    app.add("shell", options->shell, "bash, zsh or fish", {.required = true});
}

} // namespace command
