// SPDX-License-Identifier: Apache-2.0
#include "linear/dropout.hpp"

#include "runtime/select.hpp"
#include "system/fnv.hpp"

namespace mp::linear {
namespace {

std::size_t bytes_of_matrix(const ArrayRef& matrix) {
    return static_cast<std::size_t>(bytes_of(matrix.dtype(), matrix.rows * matrix.columns));
}

} // namespace

Dropout::Dropout(uint32_t drop_below, const std::string& layer) : drop_below_(drop_below) {
    system::Fnv64 hash;
    hash.add(layer + ".dropout");
    uid_ = hash.value();
}

void Dropout::run(Stream& stream, const TensorRef& from, const TensorRef& to, uint64_t seed,
                  uint64_t time, bool accumulate) const {
    DropoutDesc op{};
    op.kind = OpKind::dropout;
    op.source = from;
    op.destination = to;
    op.drop_below = drop_below_;
    op.accumulate = accumulate;
    op.seed = seed;
    op.uid = uid_;
    op.step = time;
    run_op(stream, op);
}

DroppedMatrix::DroppedMatrix(Stream& stream, const Dropout& dropout, const ArrayRef& source,
                             const std::shared_ptr<Context>& context, uint64_t seed, uint64_t time)
    : memory_(stream, bytes_of_matrix(source)),
      tensor_(std::make_shared<Tensor>(context, stream, source.dtype(),
                                       Shape{{source.rows, source.columns}, 2}, memory_.data(),
                                       Deleter{})) {
    dropout.run(stream, source.elements(), tensor_->ref(), seed, time);
}

} // namespace mp::linear
