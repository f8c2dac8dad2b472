// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_to_file.hpp"

#include <algorithm>
#include <vector>

#include "quant/read_floats.hpp"
#include "status/status.hpp"

namespace mp::checkpoint {
namespace {

void write_bytes(Stream& stream, const Tensor& tensor, model::ModelWriter& writer,
                 std::size_t index) {
    constexpr std::size_t kMost = std::size_t{1} << 20;
    std::vector<unsigned char> piece(std::min(tensor.bytes(), kMost));
    for (std::size_t done = 0; done < tensor.bytes(); done += piece.size()) {
        piece.resize(std::min(kMost, tensor.bytes() - done));
        stream.copy(piece.data(), static_cast<const unsigned char*>(tensor.data()) + done,
                    piece.size(), CopyKind::device_to_host);
        stream.sync();
        writer.write(index, static_cast<int64_t>(done), piece.data(), piece.size());
    }
}

void write_numbers(Stream& stream, const Tensor& tensor, model::ModelWriter& writer,
                   std::size_t index) {
    std::vector<float> piece;
    for (int64_t done = 0; done < tensor.count(); done += kFilePieceElements) {
        piece.resize(static_cast<std::size_t>(std::min(kFilePieceElements, tensor.count() - done)));
        quant::read_floats(stream, tensor.array(), done, piece);
        writer.write_floats(index, done, piece);
    }
}

} // namespace

void check_shape_in_file(const model::NewTensor& to, const Shape& shape, const char* what) {
    const std::span<const int64_t> sizes(shape.sizes.data(), static_cast<std::size_t>(shape.ndim));
    if (!std::equal(sizes.begin(), sizes.end(), to.shape.begin(), to.shape.end())) {
        fail(Code::invalid_shape,
             "model writer: '%.200s' is %s in the file, but %.300s is %s; shapes must be equal",
             to.name.c_str(), shape_text(to.shape).c_str(), what, shape.text().c_str());
    }
}

void write_tensor(Stream& stream, const Tensor& tensor, model::ModelWriter& writer,
                  std::size_t index) {
    const model::NewTensor& to = writer.tensor(index);
    check_shape_in_file(to, tensor.shape(), "the tensor");
    stream.refuse_capture("model writer: a tensor is to be written");
    const bool has_scales = tensor.scales() != nullptr;
    if (!has_scales && tensor.dtype() == model::dtype_of(to.type)) {
        write_bytes(stream, tensor, writer, index);
        return;
    }
    if (!has_scales && !is_floating(tensor.dtype()) && !is_in_blocks(tensor.dtype())) {
        fail(Code::invalid_dtype,
             "model writer: the tensor is %s, but '%.200s' is %s in the file; integers are written "
             "as "
             "they are",
             dtype_name(tensor.dtype()), to.name.c_str(), model::file_type_name(to.type));
    }
    writer.check_floats(index);
    write_numbers(stream, tensor, writer, index);
}

} // namespace mp::checkpoint
