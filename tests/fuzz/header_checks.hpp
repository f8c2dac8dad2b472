// SPDX-License-Identifier: Apache-2.0
// What every header that was accepted promises of its tensors.
#pragma once

#include "fuzz/target.hpp"
#include "model/header.hpp"

namespace mp::fuzz {

inline void check_tensor(const model::Header& header, const model::FileTensor& tensor) {
    require(header.find(tensor.name) == &tensor);
    int64_t count = 1;
    for (const int64_t extent : header.shape(tensor)) {
        require(extent >= 0);
        count = extent == 0 || count == 0 ? 0 : count * extent;
    }
    require(bytes_of(tensor.type, count) == tensor.end - tensor.begin);
}

} // namespace mp::fuzz
