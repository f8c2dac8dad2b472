// SPDX-License-Identifier: Apache-2.0
// AdamW against trajectories that others computed: torch.optim.AdamW, optax.adamw, and torchdistx's
// AnyPrecisionAdamW (tests/fixtures/make_adamw.py).
#include <cmath>

#include "adamw_eager.hpp"
#include "adamw_fixture.hpp"
#include "training.hpp"

namespace mp::test {
namespace {

constexpr std::array<int64_t, 5> kSamples = {1, 2, 10, 100, 1000};

// ---- fp32, on every backend --------------------------------------------------------------------

class AdamwOracles : public BackendTest {
  protected:
    // Our trajectory for a case of the fixture, at the steps the fixture has.
    std::map<int64_t, ParamArrays> train(const FixtureCase& c) {
        const Layout layout;
        Training training(device(),
                          {fresh_param(layout, generate(kStreamParam, 0, c.count, c.exponent))},
                          c.hyper, {});
        std::map<int64_t, ParamArrays> samples;
        for (int64_t step = 1; step <= kSamples.back(); ++step) {
            training.set_grad(generate(kStreamGrad, static_cast<uint64_t>(step), c.count));
            training.step();
            if (std::find(kSamples.begin(), kSamples.end(), step) != kSamples.end()) {
                samples[step] = training.download();
            }
        }
        return samples;
    }
};

void expect_close(const HostArray& expected, const HostArray& actual, double relative,
                  double absolute) {
    ASSERT_EQ(expected.count, actual.count);
    for (int64_t i = 0; i < expected.count; ++i) {
        const double e = static_cast<double>(expected.get(i));
        ASSERT_NEAR(static_cast<double>(actual.get(i)), e, relative * std::abs(e) + absolute) << i;
    }
}

// With hyperparameters that fp32 holds exactly and parameters of the size of weights, all of fp32's
// trajectories agree for 1000 steps.
TEST_P(AdamwOracles, Fp32EqualsTorchAndOptax) {
    const std::map<int64_t, ParamArrays> ours = train(adamw_fixture().at("torch_exact_small"));
    for (const std::string oracle : {"torch_exact_small", "optax_exact_small"}) {
        for (const int64_t step : kSamples) {
            SCOPED_TRACE(oracle + ", step " + std::to_string(step));
            const ParamArrays& sample = ours.at(step);
            expect_close(adamw_fixture().array(oracle, step, 'p'), sample.param, 1e-6, 1e-7);
            expect_close(adamw_fixture().array(oracle, step, 'm'), sample.exp_avg, 1e-6, 1e-7);
            expect_close(adamw_fixture().array(oracle, step, 'v'), sample.exp_avg_sq, 1e-6, 1e-7);
        }
    }
}

double rms_error(const std::vector<double>& exact, const HostArray& array) {
    double sum = 0.0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
        const double error = static_cast<double>(array.get(static_cast<int64_t>(i))) - exact[i];
        sum += error * error;
    }
    return std::sqrt(sum / static_cast<double>(exact.size()));
}

// Otherwise they drift apart: parameters near 1 by the roundings of p, half an ulp a step; all by
// fl(0.999) and fl(1 - lr * weight_decay). The judge is the same trajectory in double: we must be at
// least as near to it as torch is.
TEST_P(AdamwOracles, Fp32IsAsExactAsTorch) {
    for (const std::string kind : {"usual_large", "usual_small", "exact_large", "exact_small"}) {
        const std::map<int64_t, ParamArrays> ours = train(adamw_fixture().at("torch_" + kind));
        for (const int64_t step : {100, 1000}) {
            const auto error = [&](const HostArray& array) {
                return rms_error(adamw_fixture().doubles("double_" + kind, step, 'p'), array);
            };
            const double our_error = error(ours.at(step).param);
            const double torch_error = error(adamw_fixture().array("torch_" + kind, step, 'p'));
            const double optax_error = error(adamw_fixture().array("optax_" + kind, step, 'p'));
            std::printf("%s, step %lld: rms error %.3g, torch %.3g, optax %.3g\n", kind.c_str(),
                        static_cast<long long>(step), our_error, torch_error, optax_error);
            EXPECT_LE(our_error, torch_error) << kind << " " << step;
        }
    }
}

MP_ALL_BACKENDS(AdamwOracles);

// ---- torchdistx's order of roundings --------------------------------------------------------------

Layout layout_of(const FixtureCase& c) {
    return {c.param, c.grad, c.exp_avg, c.exp_avg_sq, c.compensation, DType::none};
}

const HostArray& by_kind(const ParamArrays& arrays, char kind) {
    switch (kind) {
    case 'm':
        return arrays.exp_avg;
    case 'v':
        return arrays.exp_avg_sq;
    case 'c':
        return arrays.compensation;
    default:
        return arrays.param;
    }
}

// Calls visit(step, kind, expected, actual) for every array of the case.
template <typename Visit> void replay_eager(const std::string& name, const Visit& visit) {
    const AdamwFixture& fixture = adamw_fixture();
    const FixtureCase& c = fixture.at(name);
    const HostArray start = generate(kStreamParam, 0, c.count, c.exponent);
    EagerTraining training(fresh_param(layout_of(c), start), c.hyper);
    for (int64_t step = 1; step <= 20; ++step) {
        training.set_grad(generate(kStreamGrad, static_cast<uint64_t>(step), c.count, 0, c.grad));
        training.step();
        const ParamArrays& now = training.download();
        for (const char kind : {'p', 'm', 'v', 'c'}) {
            if (fixture.has(name, step, kind)) {
                visit(step, kind, fixture.array(name, step, kind), by_kind(now, kind));
            }
        }
    }
}

TEST(AdamwEager, EqualsTorchdistxInEveryBit) {
    int32_t cases = 0;
    int32_t arrays = 0;
    for (const auto& [name, c] : adamw_fixture().cases()) {
        if (name.rfind("eager_ieee_", 0) != 0) {
            continue;
        }
        ++cases;
        replay_eager(name,
                     [&, &case_name = name](int64_t step, char kind, const HostArray& expected,
                                            const HostArray& actual) {
                         ++arrays;
                         EXPECT_TRUE(same_bits(expected, actual, NanRule::same_bits))
                             << case_name << ", step " << step << ", " << kind;
                     });
    }
    EXPECT_EQ(cases, 12);                   // m, v in two types each; c in two, or none
    EXPECT_EQ(arrays, 4 * (4 * 3 + 8 * 4)); // at four steps
}

// With torch's own square root, which is up to one fp32 ulp off: m and v do not see it, parameters
// differ by at most one bf16 ulp, and where v is bf16 nothing differs. The shares are printed.
TEST(AdamwEager, DiffersFromUnmodifiedTorchOnlyByItsSquareRoot) {
    struct Share {
        int64_t elements = 0;
        int64_t differing = 0;
    };
    std::map<std::pair<DType, char>, Share> shares; // by the type of v, and of what
    for (const auto& [name, c] : adamw_fixture().cases()) {
        if (name.rfind("eager_m-", 0) != 0) {
            continue;
        }
        replay_eager(name, [&, &case_name = name, v = c.exp_avg_sq](int64_t /*step*/, char kind,
                                                                    const HostArray& expected,
                                                                    const HostArray& actual) {
            Share& share = shares[{v, kind}];
            for (int64_t i = 0; i < expected.count; ++i) {
                const int64_t distance = std::abs(static_cast<int64_t>(expected.code(i)) -
                                                  static_cast<int64_t>(actual.code(i)));
                ++share.elements;
                share.differing += distance != 0 ? 1 : 0;
                if (kind != 'c') {
                    EXPECT_LE(distance, kind == 'p' ? 1 : 0) << case_name << " " << kind << i;
                }
            }
        });
    }
    ASSERT_EQ(shares.size(), 8U);
    for (const auto& [key, share] : shares) {
        std::printf("v in %s: %lld of %lld elements of %c differ\n", dtype_name(key.first),
                    static_cast<long long>(share.differing), static_cast<long long>(share.elements),
                    key.second);
        EXPECT_TRUE(key.first != DType::bf16 || share.differing == 0);
    }
}

// torchdistx's own test: three Linear(5, 5), 6 steps, betas (0.8, 0.88), weight decay 0.03.
TEST(AdamwEager, PassesTorchdistxOwnTest) {
    const AdamwFixture& fixture = adamw_fixture();
    for (const std::string name : {"linear", "linear_torch"}) {
        const FixtureCase& c = fixture.at(name);
        EagerTraining eager(fresh_param(layout_of(c), fixture.array(name, 0, 'p')), c.hyper);
        Training fused(reference_device(), {fresh_param(layout_of(c), fixture.array(name, 0, 'p'))},
                       c.hyper, {});
        for (int64_t step = 1; step <= 6; ++step) {
            SCOPED_TRACE(name + ", step " + std::to_string(step));
            const HostArray expected = fixture.array(name, step, 'p');
            const auto take_step = [&](auto& training) {
                training.set_grad(fixture.array(name, step, 'g'));
                training.step();
                // assertEqual's tolerances for fp32
                expect_close(expected, training.download().param, 1.3e-6, 1e-5);
            };
            take_step(eager);
            take_step(fused);
            if (name == "linear") {
                EXPECT_TRUE(same_bits(expected, eager.download().param, NanRule::same_bits));
            }
        }
    }
}

} // namespace
} // namespace mp::test
