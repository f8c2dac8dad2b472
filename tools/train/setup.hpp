// SPDX-License-Identifier: Apache-2.0
// What a run begins with, made by the library.
#pragma once

#include "ranks.hpp"

namespace train {

// Also sets the threads of OpenMP. Unless --threads says how many, the ranks of a machine share its cores.
Context make_context(const Options& options, const Ranks& ranks, int32_t& threads);
// A preset or a file, with --set's keys; rank 0 says why an automatic one was chosen.
Recipe make_recipe(mp_context* context, const Options& options, const Ranks& ranks,
                   const std::string& name);
Scaler make_scaler(mp_context* context, mp_recipe* recipe);

} // namespace train
