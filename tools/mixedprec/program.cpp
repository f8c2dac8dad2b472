// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <CLI/CLI.hpp>

#include <utility>

namespace command {

template <typename T>
void Subcommand::add(const std::string& names, T& value, const std::string& text,
                     const Given& given) {
    CLI::Option* option = app_->add_option(names, value, text);
    option->required(given.required);
    if (given.count > 0) {
        option->expected(given.count);
    }
    if (given.may_repeat) {
        option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
    if (given.shows_default) {
        option->capture_default_str();
    }
    if (given.shown_as != nullptr) {
        option->option_text(given.shown_as);
    }
}
template void Subcommand::add(const std::string&, std::string&, const std::string&, const Given&);
template void Subcommand::add(const std::string&, std::vector<std::string>&, const std::string&,
                              const Given&);
template void Subcommand::add(const std::string&, int&, const std::string&, const Given&);
template void Subcommand::add(const std::string&, int64_t&, const std::string&, const Given&);
template void Subcommand::add(const std::string&, double&, const std::string&, const Given&);

void Subcommand::add_flag(const std::string& name, bool& value, const std::string& text) {
    app_->add_flag(name, value, text);
}

void Subcommand::hide() { app_->group(""); }

Subcommand Program::add_family(const std::string& name, const std::string& text) {
    CLI::App* added = app.add_subcommand(name, text);
    added->require_subcommand(1);
    added->fallthrough();
    return Subcommand(*added);
}

Subcommand Program::add_action(CLI::App& parent, const std::string& name, const std::string& text,
                               Action action) {
    CLI::App* added = parent.add_subcommand(name, text);
    added->final_callback([this, action = std::move(action)] { chosen = action; });
    return Subcommand(*added);
}

} // namespace command
