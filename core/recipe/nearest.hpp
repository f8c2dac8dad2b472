// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...": the names closest to a wrong one.
#pragma once

#include <string>
#include <vector>

namespace mp::recipe {

// Up to three names by edit distance, as "a, b, c".
std::string nearest_names(const std::string& wrong, std::vector<std::string> names);

} // namespace mp::recipe
