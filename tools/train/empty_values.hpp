// SPDX-License-Identifier: Apache-2.0
// Options of the command line whose value is the empty text: a script's variable that was never set, most likely.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace train {

// Of all options that take a value, also of subcommands. Call it when all are there.
inline void refuse_empty_values(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        if (option->get_expected_max() > 0) {
            option->check(CLI::Validator(
                [](const std::string& value) {
                    return value.empty() ? std::string("is empty; give a value, or leave it out")
                                         : std::string();
                },
                ""));
        }
    }
    for (CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
        refuse_empty_values(*below);
    }
}

} // namespace train
