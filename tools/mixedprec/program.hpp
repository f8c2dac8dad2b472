// SPDX-License-Identifier: Apache-2.0
// The subcommands and their options. CLI11, which reads them, takes every file that includes it seconds to compile; so only
// program.cpp does, and what walks or changes the tree of subcommands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support.hpp"

namespace CLI { // NOLINT(readability-identifier-naming): a library's
class App;
} // namespace CLI

namespace command {

// What is said of an option besides its names, its value and its text.
struct Given {
    bool required = false;
    int count = 0; // of values, exactly; 0: one, or for a list any number
    bool may_repeat = false;
    bool shows_default = false;
    const char* shown_as = nullptr; // in the help, instead of the value's type
};

// One subcommand. Options are named "--name", or "name" where they are given by their place.
class Subcommand {
  public:
    explicit Subcommand(CLI::App& app) : app_(&app) {}
    [[nodiscard]] CLI::App& app() const { return *app_; }

    // T is std::string, std::vector<std::string>, int, int64_t or double.
    template <typename T>
    void add(const std::string& names, T& value, const std::string& text, const Given& given = {});
    void add_flag(const std::string& name, bool& value, const std::string& text);
    // Leaves it out of the help.
    void hide();

  private:
    CLI::App* app_;
};

// Adds a subcommand to the program. It reads its options into memory of its own; `chosen` is then what to run.
using Action = std::function<Result()>;
struct Program {
    CLI::App& app;
    Action chosen;

    // `run` is called with the options once the whole command line has been read.
    template <typename Options>
    Subcommand add(const std::string& name, const std::string& text,
                   const std::shared_ptr<Options>& options, Result (*run)(const Options&)) {
        return add_below(Subcommand(app), name, text, options, run);
    }
    template <typename Options>
    Subcommand add_below(const Subcommand& parent, const std::string& name, const std::string& text,
                         const std::shared_ptr<Options>& options, Result (*run)(const Options&)) {
        return add_action(parent.app(), name, text, [options, run] { return run(*options); });
    }
    // One that only has others below it.
    Subcommand add_family(const std::string& name, const std::string& text);

  private:
    Subcommand add_action(CLI::App& parent, const std::string& name, const std::string& text,
                          Action action);
};

void add_info(Program& program);
void add_recipe(Program& program);
void add_plan(Program& program);
void add_train(Program& program);
void add_compare(Program& program);
void add_checkpoint_readers(Program& program); // inspect, verify
void add_checkpoint_writers(Program& program); // convert, reshard
void add_diff(Program& program);
void add_bench(Program& program);
void add_completion(Program& program);

} // namespace command
