// SPDX-License-Identifier: Apache-2.0
// mixedprec: what there is on this machine, what a training will need, how trainings compare, and care for checkpoints.
// One file for each subcommand; docs/man/mixedprec.1 is the manual.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <CLI/CLI.hpp>

#include "../train/empty_values.hpp"
#include "../train/files.hpp"
#include "program.hpp"

namespace command {
namespace {

void print(const std::string& text) {
    train::print(stdout, text);
    const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    must<Failure>(good, "not all could be written to the standard output: ", std::strerror(errno));
}

// The words before the options: whose help is worth reading.
std::string asked = "mixedprec";

void remember(const CLI::App& program) {
    for (const CLI::App* app = &program; !app->get_subcommands().empty();) {
        app = app->get_subcommands().front();
        asked += " " + app->get_name();
    }
}

// What was not understood, in the order in which it was given.
std::string extras_of(const CLI::App& program) {
    const std::vector<std::string> words = program.remaining(true);
    if (words.empty()) {
        return "some words are not understood";
    }
    return words[0].starts_with("-") ? "unknown option '" + words[0] + "'"
                                     : "'" + words[0] + "' is not expected here";
}

// Fills `program.chosen`; false where help was asked for and printed.
bool read(Program& program, int argc, char** argv) {
    try {
        program.app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        const CLI::App* app = &program.app;
        std::string path; // of the names before the last
        while (!app->get_subcommands().empty()) {
            path += (path.empty() ? "" : " ") + app->get_name();
            app = app->get_subcommands().front();
        }
        print(app->help(path));
        return false;
    } catch (const CLI::CallForVersion&) {
        print(join(mp_library_build_info(), "\n"));
        return false;
    } catch (const CLI::Success&) {
        return false;
    } catch (const CLI::ExtrasError&) {
        remember(program.app);
        throw UsageError(extras_of(program.app));
    } catch (const CLI::ParseError& error) {
        remember(program.app);
        // A word that is no subcommand is found missing first.
        const bool is_unknown = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
                                !program.app.remaining(true).empty();
        throw UsageError(is_unknown ? extras_of(program.app) : error.what());
    }
    remember(program.app);
    return true;
}

int run(int argc, char** argv) {
    CLI::App app("Low-precision training: this machine, recipes, memory, losses, checkpoints.",
                 "mixedprec");
    app.require_subcommand(1);
    app.set_help_all_flag();
    app.set_version_flag("--version", "", "print the library's version and end");
    app.fallthrough();
    bool as_json = false;
    app.add_flag("--json", as_json, "print one JSON object instead of text");
    app.footer("Exit codes: 0 fine, 1 a check failed or something went wrong, 2 wrong usage.");
    Program program{app, {}};
    add_info(program);
    add_recipe(program);
    add_plan(program);
    add_train(program);
    add_compare(program);
    add_checkpoint_readers(program);
    add_checkpoint_writers(program);
    add_diff(program);
    add_bench(program);
    add_completion(program);
    train::refuse_empty_values(app);
    if (!read(program, argc, argv)) {
        return kFine;
    }
    const Result result = program.chosen();
    const auto json = [&] {
        return result.json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    };
    print(as_json ? train::clean_json(json()) : result.text);
    return result.code;
}

} // namespace
} // namespace command

int main(int argc, char** argv) {
    train::reserve_standard_streams();
    std::signal(SIGPIPE, SIG_IGN); // a closed pipe is a failed write, which is said
    try {
        return command::run(argc, argv);
    } catch (const command::UsageError& error) {
        train::print(stderr, train::join("mixedprec: ", error.what(), ". See ", command::asked,
                                         " --help\n"));
        return command::kUsage;
    } catch (const std::exception& error) {
        train::print(stderr, train::join("mixedprec: ", command::clean(error.what()), "\n"));
        return command::kFailed;
    }
}
