// SPDX-License-Identifier: Apache-2.0
// Which of the groups here is which of a checkpoint: the one with the same parameters, in whatever order groups were added.
#pragma once

#include <cstdint>
#include <vector>

#include "optim/parameters.hpp"

namespace mp::optim {

// By saved group, the group here; `groups` is how many there are. `saved_group`: that of each parameter here, as it was saved.
// Throws bad_state, with names, where parameters that shared a group do not share one here, or the other way round, and
// where a group without parameters has no counterpart.
std::vector<int32_t> match_groups(const Parameters& parameters,
                                  const std::vector<int32_t>& saved_group, std::size_t saved,
                                  std::size_t groups);

} // namespace mp::optim
