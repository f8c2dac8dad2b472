// SPDX-License-Identifier: Apache-2.0
// A build without hwloc.
#include "topology/topology.hpp"

namespace mp::topology {

Topology detect() noexcept { return detect_by_affinity("built without hwloc"); }

} // namespace mp::topology
