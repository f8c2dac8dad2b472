// SPDX-License-Identifier: Apache-2.0
// The fault-tolerance functions of MPI ("ULFM"), looked up by name: the same module runs on an MPI with them and on one
// without.
#pragma once

#include <mpi.h>

#include <vector>

namespace mp::comm {

struct Ulfm {
    int (*failure_ack)(MPI_Comm) = nullptr;
    int (*failure_get_acked)(MPI_Comm, MPI_Group*) = nullptr;
    [[nodiscard]] bool is_there() const noexcept {
        return failure_ack != nullptr && failure_get_acked != nullptr;
    }
};

const Ulfm& ulfm() noexcept;

bool is_open_mpi() noexcept;

// The ranks of `comm` that MPI knows to be dead; empty where it cannot tell.
std::vector<int> failed_ranks(MPI_Comm comm);

// Puts MPI's symbols where its own plugins find them, which this module's being loaded privately hides.
void publish_mpi() noexcept;

} // namespace mp::comm
