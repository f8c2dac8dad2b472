// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_values.hpp"

#include <algorithm>

namespace mp::checkpoint {
namespace {

using model::TensorSource;

std::size_t tensor_of(const TensorSource& files, const optim::Parameter& p,
                      const std::string& prefix) {
    const std::string name = prefix + p.name;
    const std::size_t found = files.find(name);
    if (found == files.count()) {
        fail(
            Code::unknown_name,
            "model file: there is no tensor '%.300s', for parameter '%s'; load the parameters that "
            "the files have by their numbers, and give the others values otherwise",
            name.c_str(), p.name.c_str());
    }
    const std::vector<int64_t> shape = files.facts(found).shape;
    const Shape& wanted = p.param->shape();
    const std::span<const int64_t> sizes(wanted.sizes.data(),
                                         static_cast<std::size_t>(wanted.ndim));
    if (!std::equal(shape.begin(), shape.end(), sizes.begin(), sizes.end())) {
        fail(Code::invalid_shape, "model file: tensor '%.300s' is %s, but parameter '%s' is %s",
             name.c_str(), shape_text(shape).c_str(), p.name.c_str(), wanted.text().c_str());
    }
    files.check_floats(found);
    return found;
}

} // namespace

FileValues::FileValues(const TensorSource& files, const optim::Parameters& parameters,
                       std::span<const int32_t> indices, const std::string& prefix)
    : files_(files), tensors_(static_cast<std::size_t>(parameters.count())) {
    for (const int32_t index : indices) {
        tensors_[static_cast<std::size_t>(index)] = tensor_of(files, parameters[index], prefix);
    }
}

void FileValues::read(int32_t index, int64_t first, std::span<float> values) {
    files_.read_floats(tensors_.at(static_cast<std::size_t>(index)), first, values);
}

} // namespace mp::checkpoint
