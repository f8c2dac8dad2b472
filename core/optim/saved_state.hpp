// SPDX-License-Identifier: Apache-2.0
// What of a parameter goes into a checkpoint: the arrays that a step reads and changes, as far as they are here.
#pragma once

#include <string>
#include <vector>

#include "optim/param_states.hpp"

namespace mp::optim {

// An array of a parameter that a step reads and changes, as far as it is here.
struct SavedTensor {
    std::string state; // "param", "exp_avg", "exp_avg_scale_inv", ...
    FormatId format = FormatId::none;
    std::vector<int64_t>
        shape;         // of the whole, in elements; of scales: none, or the number of blocks
    int64_t start = 0; // elements [start, start + count) are here
    int64_t count = 0;
    void* data = nullptr;
    const Stream* stream = nullptr;
    bool is_everywhere = true; // all of it, on every rank
    bool is_copy = false;      // a rank of another group has the same
};

// The elements of a parameter whose states are here, and all that is kept of them.
struct StatesPlace {
    FormatId weight = FormatId::none;
    StateFormats formats;
    std::vector<int64_t> shape; // of the whole parameter
    int64_t whole = 0;          // elements of it
    int64_t start = 0;          // elements [start, start + count) are here
    int64_t count = 0;
    bool is_everywhere = true;
    bool is_copy = false;
    const Stream* stream = nullptr;
    ArrayRef param;
    const ParamStates* states = nullptr; // null: nothing is here
};
// Every rank lists all that there is, also what it has no element of.
std::vector<SavedTensor> saved_tensors(const StatesPlace& place);

} // namespace mp::optim
