// SPDX-License-Identifier: Apache-2.0
// What every subcommand needs: exit codes, its result for people and for scripts, and small helpers around both.
#pragma once

#include <mixedprec.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "../train/files.hpp"
#include "../train/support.hpp"
#include "../train/text.hpp"

namespace command {

using Json = nlohmann::ordered_json; // which writes null for NaN
using train::clean;
using train::Failure;
using train::format;
using train::join;
using train::must;
using train::real;
using train::size;
using train::states_of;
using train::UsageError;

enum ExitCode { kFine = 0, kFailed = 1, kUsage = 2 };

// What a subcommand found. With --json `json` is printed, else `text`.
struct Result {
    std::string text;
    Json json = Json::object();
    ExitCode code = kFine;
};

// The host with so many threads (0: the library's choice), silent.
mixedprec::Context host_context(int threads = 0, const char* backend = nullptr);

// A recipe by a preset's name, "auto", or a path that ends in .json, with KEY=VALUE changes.
mixedprec::Recipe open_recipe(const mixedprec::Context& context, const std::string& name,
                              const std::vector<std::string>& settings = {});
// Names of a list with commas; "all" is every preset.
std::vector<std::string> recipe_names(const std::string& list);

std::vector<std::string> split(const std::string& text, char separator);
// "1 tensor", "2 tensors"
std::string counted(size_t count, const std::string& what);
// "1.5 GiB"
std::string bytes_text(double bytes);
// A size such as 80G, 512MiB or 1e9. K, M, G, T are powers of 1000 where `decimal`, else of 1024.
double parse_size(const std::string& text, bool decimal, const std::string& option);

double seconds();

} // namespace command
