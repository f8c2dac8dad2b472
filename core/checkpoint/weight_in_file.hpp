// SPDX-License-Identifier: Apache-2.0
// What a weight is in a checkpoint's file, and which of its elements a rank reads.
#pragma once

#include <string>

#include "checkpoint/manifest.hpp"
#include "optim/saved_state.hpp"

namespace mp::checkpoint {

// What a parameter's weight is kept as: with a name of the table where that says all, else as codes of blocks.
struct WeightFormat {
    FormatId id = FormatId::none;
    Format format;
    bool operator==(const WeightFormat& other) const noexcept;
};

// The scales' type and shape say how they lie; where two grids agree in both, their scales mean the same, and it is the one
// that there is here.
WeightFormat weight_in_file(const Manifest& manifest, const std::string& name,
                            const StoredTensor& weight, const ScaleGrid& here);

// As `live`, but of whole rows of the file's blocks around its elements: a part of a block has no scale of its own.
optim::StatesPlace cover_of(const optim::StatesPlace& live, const Format& in_file);

} // namespace mp::checkpoint
