// SPDX-License-Identifier: Apache-2.0
// Which compiled instruction set the host's kernels run on. All give the same bits, so the choice
// is one for the process and may change at any time.
#pragma once

#include <cstdint>

#include "host/kernels/jobs.hpp"
#include "status/status.hpp"

namespace mp::backends::host {

struct IsaList {
    const IsaTable* items[4];
    int32_t count;
};

// The tables of this build that this processor can run, best first; never empty.
IsaList runnable_isas() noexcept;

// Takes the one that the environment variable MIXEDPREC_ISA names (baseline, avx2, avx512,
// avx512_vbmi), or the best. invalid_argument, with what is there, for a name that this processor or this build does not
// have.
Status select_isa_from_environment() noexcept;

// The one in use: the best until another is selected.
const IsaTable& active_isa() noexcept;

} // namespace mp::backends::host
