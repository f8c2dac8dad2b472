// SPDX-License-Identifier: Apache-2.0
// mixedprec train: the trainer that lies beside this program, with all words behind it.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include <CLI/CLI.hpp>

#include "program.hpp"

namespace command {
namespace {

struct Options {
    CLI::App* app = nullptr;
};

std::string beside(const std::string& name) {
    std::array<char, PATH_MAX> path{};
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
    must<Failure>(length > 0, "cannot tell where this program lies: ", std::strerror(errno));
    const std::string self(path.data(), size(length));
    return self.substr(0, self.rfind('/') + 1) + name;
}

Result train_by(const Options& options) {
    std::string program = beside("mixedprec_train");
    std::vector<std::string> words = options.app->remaining();
    std::vector<char*> arguments{program.data()};
    for (std::string& word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    throw Failure("train is the program mixedprec_train, which is to lie beside this one: '",
                  program, "': ", std::strerror(errno));
}

} // namespace

void add_train(Program& program) {
    auto options = std::make_shared<Options>();
    options->app =
        &program
             .add("train", "train a small GPT in a recipe: mixedprec_train, with all its options",
                  options, train_by)
             .app();
    options->app->prefix_command();
    options->app->set_help_flag(); // --help is the trainer's
    options->app->fallthrough(false);
}

} // namespace command
