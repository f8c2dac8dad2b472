// SPDX-License-Identifier: Apache-2.0
// The trajectories of tests/fixtures/make_states.py, and runs that are compared with them.
#pragma once

#include "adamw_fixture.hpp"
#include "step_case.hpp"
#include "training.hpp"

namespace mp::test {

class Trajectory {
  public:
    explicit Trajectory(const std::string& name) : name_(name) {}

    [[nodiscard]] const FixtureCase& types() const { return fixture_.at(name_); }
    // 0 for an array without a scale.
    [[nodiscard]] float scale_inv(int64_t step, char kind) const {
        const DType dtype = fixture_.array(name_, step, kind).dtype;
        const bool is_scaled = dtype != DType::fp32 && !has(step, block_kind(kind));
        return is_scaled ? static_cast<float>(fixture_.number(key(step, kind))) : 0.0F;
    }
    [[nodiscard]] HostArray array(int64_t step, char kind) const {
        return fixture_.has(name_, step, kind) ? fixture_.array(name_, step, kind) : HostArray();
    }
    [[nodiscard]] bool has(int64_t step, char kind) const {
        return fixture_.has(name_, step, kind);
    }
    [[nodiscard]] ParamArrays arrays(int64_t step) const {
        ParamArrays result;
        result.param = array(step, 'p');
        result.exp_avg = array(step, 'm');
        result.exp_avg_sq = array(step, 'v');
        result.master = array(step, 'w');
        result.exp_avg_scales = array(step, 'M');
        result.exp_avg_sq_scales = array(step, 'V');
        result.exp_avg_coding = coding(result.exp_avg_scales);
        result.exp_avg_sq_coding = coding(result.exp_avg_sq_scales);
        result.scale_inv = {scale_inv(step, 'p'), 0.0F, scale_inv(step, 'm'), scale_inv(step, 'v'),
                            has(step, 'w') ? scale_inv(step, 'w') : 0.0F};
        return result;
    }

  private:
    // The kind of the scales of an array's blocks.
    static char block_kind(char kind) { return static_cast<char>(kind - 'a' + 'A'); }
    [[nodiscard]] Coding coding(const HostArray& scales) const {
        if (scales.count == 0) {
            return Coding::plain;
        }
        return name_.substr(0, 7) == "fp8_128"     ? Coding::block128
               : name_.substr(0, 9) == "companded" ? Coding::companded8
               : name_.substr(0, 3) == "fp8"       ? Coding::block
               : name_.substr(0, 4) == "int8"      ? Coding::dynamic8
                                                   : Coding::dynamic4;
    }
    [[nodiscard]] std::string key(int64_t step, char kind) const {
        return name_ + "." + std::to_string(step) + "." + kind;
    }

    const AdamwFixture& fixture_ = states_fixture();
    std::string name_;
};

// A run over a fixture's gradients, compared wherever the fixture has arrays.
inline void expect_trajectory(TestDevice& on, const std::string& name) {
    SCOPED_TRACE(name);
    const Trajectory expected(name);
    ParamArrays start = expected.arrays(0);
    start.grad = expected.array(1, 'g');
    start.scale_inv.grad = expected.scale_inv(1, 'g');
    Training training(on, {start}, expected.types().hyper, {});
    for (int64_t step = 1; expected.has(step, 'g'); ++step) {
        training.set_grad(expected.array(step, 'g'), expected.scale_inv(step, 'g'));
        training.step();
        if (expected.has(step, 'p')) {
            SCOPED_TRACE("step " + std::to_string(step));
            const ParamArrays actual = training.download();
            ParamArrays want = expected.arrays(step);
            want.grad = actual.grad;
            want.scale_inv.grad = actual.scale_inv.grad;
            expect_same(want, actual);
        }
    }
}

} // namespace mp::test
