// SPDX-License-Identifier: Apache-2.0
// FileValues: first values of parameters from a model's files, of which a rank reads what it has.
#pragma once

#include <string>
#include <vector>

#include "model/tensor_source.hpp"
#include "optim/first_values.hpp"

namespace mp::checkpoint {

class FileValues final : public optim::ValueSource {
  public:
    // The tensor of parameter 'w' is called `prefix` + 'w'. Throws where one of `indices` has none, or one of another shape or
    // of a type that holds no numbers. Both outlive this.
    FileValues(const model::TensorSource& files, const optim::Parameters& parameters,
               std::span<const int32_t> indices, const std::string& prefix);
    void read(int32_t index, int64_t first, std::span<float> values) override;

  private:
    const model::TensorSource& files_;
    std::vector<std::size_t> tensors_; // by parameter: which of the files'
};

} // namespace mp::checkpoint
