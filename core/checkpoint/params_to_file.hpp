// SPDX-License-Identifier: Apache-2.0
// The numbers of an optimizer's parameters into a model's files, from any number of ranks: a piece at a time travels to the rank
// that writes, so that no rank holds more of a model than it has.
#pragma once

#include <span>
#include <string>

#include "model/model_writer.hpp"
#include "optim/optimizer.hpp"

namespace mp::checkpoint {

struct ParamsToFile {
    std::span<const int32_t> indices;
    std::string prefix; // of the names in the file, before the parameters'
    bool is_exact = false;
    model::ModelWriter* writer = nullptr; // of one rank; null on all others
};

// Collective where ranks share the optimizer, after shard(). `own`: what of this rank's arguments is wrong already. Throws on
// every rank where one fails. Waits.
void write_params(optim::Optimizer& optimizer, Stream& stream, const ParamsToFile& what,
                  const Status& own);

} // namespace mp::checkpoint
