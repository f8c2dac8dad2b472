// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_source.hpp"

#include <algorithm>

#include "dtype/divide.hpp"
#include "numerics/block_types.hpp"
#include "status/status.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 18; // that become numbers at a time; whole blocks

} // namespace

void TensorSource::read(std::size_t index, int64_t offset, void* data, std::size_t bytes) const {
    const TensorFacts tensor = facts(index);
    if (offset < 0 || offset > tensor.bytes ||
        bytes > static_cast<uint64_t>(tensor.bytes - offset)) {
        fail(Code::invalid_argument,
             "%zu bytes from byte %lld on were asked for; tensor '%.*s' has %lld", bytes,
             static_cast<long long>(offset), system::shown(tensor.name, 200), tensor.name.data(),
             static_cast<long long>(tensor.bytes));
    }
    read_bytes(index, offset, data, bytes);
}

void TensorSource::check_floats(std::size_t index) const {
    const TensorFacts tensor = facts(index);
    const DType dtype = dtype_of(tensor.type);
    if (!is_high_precision(dtype) && !is_in_blocks(dtype)) {
        fail(Code::invalid_dtype,
             "model file: tensor '%.*s' is %s; numbers are read from F32, F16, BF16, Q4_0, Q4_1, "
             "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K and MXFP4",
             system::shown(tensor.name, 200), tensor.name.data(), file_type_name(tensor.type));
    }
}

void TensorSource::read_floats(std::size_t index, int64_t first, std::span<float> values) const {
    check_floats(index);
    const FileType type = facts(index).type;
    const DType dtype = dtype_of(type);
    const int64_t block = block_elements(type);
    const auto count = static_cast<int64_t>(values.size());
    std::vector<unsigned char> bytes;
    for (int64_t done = 0; done < count;) {
        const int64_t begin = (first + done) / block * block; // whole blocks are read
        const int64_t n = std::min(count - done, begin + kPieceElements - first - done);
        const int64_t end = round_up(first + done + n, block);
        bytes.resize(static_cast<std::size_t>(mp::bytes_of(dtype, end - begin)));
        read(index, mp::bytes_of(dtype, begin), bytes.data(), bytes.size());
        numerics::load_floats(dtype, bytes.data(), first + done - begin, n, values.data() + done);
        done += n;
    }
}

} // namespace mp::model
