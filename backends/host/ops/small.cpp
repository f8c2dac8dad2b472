// SPDX-License-Identifier: Apache-2.0
// Operations on a few numbers, by the calling thread.
#include "host/ops/candidates.hpp"

namespace mp::backends::host {

namespace {

void prepare(ThreadPool& /*threads*/, const OptimizerPrepareDesc& op) noexcept {
    numerics::prepare_step(*op.state, op.scaler, op.rule);
    for (int64_t group = 0; group < op.group_count; ++group) {
        numerics::prepare_group(*op.state, op.hyper[group], op.group_steps[group],
                                op.scalars[group]);
    }
}

void update_scaler(ThreadPool& /*threads*/, const ScalerUpdateDesc& op) noexcept {
    numerics::update_loss_scale(*op.state, op.rule);
}

void update_delayed(ThreadPool& /*threads*/, const DelayedUpdateDesc& op) noexcept {
    for (int64_t i = 0; i < op.state_count; ++i) {
        numerics::update_delayed(op.states[i], op.histories + i * op.rule.history_len, op.rule);
    }
}

} // namespace

const Candidate kOptimizerPrepare = kByThreads<prepare, OptimizerPrepareDesc>;
const Candidate kScalerUpdate = kByThreads<update_scaler, ScalerUpdateDesc>;
const Candidate kDelayedUpdate = kByThreads<update_delayed, DelayedUpdateDesc>;

} // namespace mp::backends::host
