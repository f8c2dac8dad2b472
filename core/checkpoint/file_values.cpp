// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_values.hpp"

#include <algorithm>

#include "numerics/codec.hpp"

namespace mp::checkpoint {
namespace {

using model::FileType;
using model::ModelFiles;

constexpr std::size_t kPieceElements = std::size_t{1} << 18;

std::size_t tensor_of(const ModelFiles& files, const optim::Parameter& p,
                      const std::string& prefix) {
    const std::string name = prefix + p.name;
    const std::size_t found = files.find(name);
    if (found == files.tensors().size()) {
        fail(
            Code::unknown_name,
            "model file: there is no tensor '%.300s', for parameter '%s'; load the parameters that "
            "the files have by their numbers, and give the others values otherwise",
            name.c_str(), p.name.c_str());
    }
    const std::vector<int64_t> shape = files.shape(found);
    const Shape& wanted = p.param->shape();
    const std::span<const int64_t> sizes(wanted.sizes.data(),
                                         static_cast<std::size_t>(wanted.ndim));
    if (!std::equal(shape.begin(), shape.end(), sizes.begin(), sizes.end())) {
        fail(Code::invalid_shape, "model file: tensor '%.300s' is %s, but parameter '%s' is %s",
             name.c_str(), shape_text(shape).c_str(), p.name.c_str(), wanted.text().c_str());
    }
    const FileType type = files.tensors()[found].entry->type;
    const DType dtype = model::dtype_of(type);
    if (dtype != DType::fp32 && dtype != DType::fp16 && dtype != DType::bf16) {
        fail(Code::invalid_dtype,
             "model file: tensor '%.300s' is %s; values of parameters are read from F32, F16 or "
             "BF16",
             name.c_str(), model::file_type_name(type));
    }
    return found;
}

} // namespace

FileValues::FileValues(const ModelFiles& files, const optim::Parameters& parameters,
                       std::span<const int32_t> indices, const std::string& prefix)
    : files_(files), tensors_(static_cast<std::size_t>(parameters.count())) {
    for (const int32_t index : indices) {
        tensors_[static_cast<std::size_t>(index)] = tensor_of(files, parameters[index], prefix);
    }
}

void FileValues::read(int32_t index, int64_t first, std::span<float> values) {
    const std::size_t tensor = tensors_.at(static_cast<std::size_t>(index));
    const DType dtype = model::dtype_of(files_.tensors()[tensor].entry->type);
    for (std::size_t start = 0; start < values.size(); start += kPieceElements) {
        const std::size_t count = std::min(kPieceElements, values.size() - start);
        bytes_.resize(static_cast<std::size_t>(bytes_of(dtype, static_cast<int64_t>(count))));
        files_.read(tensor, bytes_of(dtype, first + static_cast<int64_t>(start)), bytes_.data(),
                    bytes_.size());
        for (std::size_t i = 0; i < count; ++i) {
            values[start + i] =
                numerics::load_as_float(dtype, bytes_.data(), static_cast<int64_t>(i));
        }
    }
}

} // namespace mp::checkpoint
