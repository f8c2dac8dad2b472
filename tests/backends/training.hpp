// SPDX-License-Identifier: Apache-2.0
// Many optimizer steps on one device as core does them: prepare, then the fused step, by the first
// candidate that takes each.
#pragma once

#include <stdexcept>

#include "launch.hpp"

namespace mp::test {

struct TrainingOptions {
    uint64_t seed = 0;
    bool stochastic_param = false;
    bool stochastic_states[numerics::kMaxStates] = {};
};

class Training {
  public:
    Training(TestDevice& on, const std::vector<ParamArrays>& params,
             const numerics::GroupHyper& hyper, const TrainingOptions& options)
        : on_(on), launch_(on, params), hyper_(on, hyper), scalars_(on, numerics::GroupScalars{}),
          state_(on, numerics::OptimizerState{}), group_step_(on, int64_t{0}) {
        prepare_.kind = OpKind::optimizer_prepare;
        prepare_.state = state_.data();
        prepare_.hyper = hyper_.data();
        prepare_.group_steps = group_step_.data();
        prepare_.scalars = scalars_.data();
        prepare_.group_count = 1;
        update_.kind = OpKind::optimizer_update;
        update_.table = launch_.table();
        update_.scalars = scalars_.data();
        update_.state = state_.data();
        update_.scaling = launch_.scaling();
        update_.seed = options.seed;
        update_.stochastic_param = options.stochastic_param;
        update_.stochastic_states[0] = options.stochastic_states[0];
        update_.stochastic_states[1] = options.stochastic_states[1];
        prepare_candidate_ = first_candidate(on, prepare_);
        update_candidate_ = first_candidate(on, update_);
        if (prepare_candidate_ == nullptr || update_candidate_ == nullptr) {
            throw std::runtime_error("no candidate takes the optimizer step");
        }
    }

    void set_grad(const HostArray& grad, float scale_inv = 0.0F) {
        launch_.upload_grad(0, grad, scale_inv);
    }
    void set_param(const HostArray& param) { launch_.upload_param(0, param); }
    void step() {
        run(on_, *prepare_candidate_, prepare_);
        run(on_, *update_candidate_, update_);
    }
    void steps(int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            step();
        }
    }
    [[nodiscard]] ParamArrays download() { return launch_.download(0); }

  private:
    TestDevice& on_;
    Launch launch_;
    DeviceValue<numerics::GroupHyper> hyper_;
    DeviceValue<numerics::GroupScalars> scalars_;
    DeviceValue<numerics::OptimizerState> state_;
    DeviceValue<int64_t> group_step_;
    OptimizerPrepareDesc prepare_{};
    OptimizerUpdateDesc update_{};
    const Candidate* prepare_candidate_ = nullptr;
    const Candidate* update_candidate_ = nullptr;
};

// A parameter whose moments and compensation are zero, as at the start of training.
inline ParamArrays fresh_param(const Layout& layout, const HostArray& start) {
    ParamArrays arrays;
    arrays.param = HostArray(layout.param, start.count);
    arrays.grad = HostArray(layout.grad, start.count);
    arrays.exp_avg_coding = layout.exp_avg_coding;
    arrays.exp_avg_sq_coding = layout.exp_avg_sq_coding;
    arrays.exp_avg =
        make_moment(layout.exp_avg, layout.exp_avg_coding, start.count, Content::zeros, 0);
    arrays.exp_avg_sq =
        make_moment(layout.exp_avg_sq, layout.exp_avg_sq_coding, start.count, Content::zeros, 0);
    arrays.exp_avg_scales = make_scales(layout.exp_avg_coding, start.count, Content::zeros, 0);
    arrays.exp_avg_sq_scales =
        make_scales(layout.exp_avg_sq_coding, start.count, Content::zeros, 0);
    if (layout.compensation != DType::none) {
        arrays.compensation = HostArray(layout.compensation, start.count);
    }
    if (layout.master != DType::none) {
        arrays.master = HostArray(layout.master, start.count);
    }
    for (int64_t i = 0; i < start.count; ++i) {
        arrays.param.set(i, start.get(i));
        if (layout.master != DType::none) {
            arrays.master.set(i, start.get(i));
        }
    }
    arrays.scale_inv = layout.scale_inv;
    arrays.uid = 99;
    return arrays;
}

inline HostArray constant(DType dtype, int64_t count, float value) {
    HostArray array(dtype, count);
    for (int64_t i = 0; i < count; ++i) {
        array.set(i, value);
    }
    return array;
}

// Distance in units of the last place of fp32, for numbers of one sign.
inline int64_t ulps(float a, float b) {
    return std::abs(static_cast<int64_t>(numerics::bits_from_float(a)) -
                    static_cast<int64_t>(numerics::bits_from_float(b)));
}

} // namespace mp::test
