// SPDX-License-Identifier: Apache-2.0
// mixedprec.hpp without exceptions: every call returns an expected. Compiled with -fno-exceptions.
#define MIXEDPREC_EXPECTED
#include <mixedprec.hpp>

#include <cstdio>
#include <cstring>

namespace mp = mixedprec;

static int failures = 0;
#define CHECK(condition)                                                                           \
    ((condition) ? void() : (++failures, void(std::printf("line %d: %s\n", __LINE__, #condition))))

int main() {
    auto context = mp::Context::create();
    CHECK(context.has_value());
    auto bad = mp::Recipe::create(*context, "bf16_pure_kahn");
    CHECK(!bad);
    CHECK(bad.error().status() == MP_STATUS_UNKNOWN_NAME);
    CHECK(std::strstr(bad.error().what(), "bf16_pure_kahan") != nullptr);

    auto recipe = mp::Recipe::create(*context, "bf16_mixed");
    auto optimizer = mp::Optimizer::create(*context, *recipe);
    CHECK(*optimizer->add_group() == 0);
    auto weight = recipe->weight(*context, {4, 4}, std::vector<float>(16, 1.0f));
    CHECK(*optimizer->add_param("w", *weight) == 0);
    CHECK(!optimizer->add_param("w", *weight)); // a second time
    auto grad = optimizer->grad(0);
    CHECK(grad->write(std::vector<float>(16, 1.0f)).has_value());
    CHECK(!grad->write(std::vector<float>(3)).has_value());
    CHECK(optimizer->step().has_value());
    CHECK((*weight->to_vector<float>())[0] < 1.0f);
    CHECK(optimizer->step(nullptr, nullptr).has_value());
    CHECK(optimizer->stats()->step == 2);
    CHECK(optimizer->set_layer_params({{0}}).has_value());
    CHECK(optimizer->layer_begin(0, MP_PASS_FORWARD).has_value());
    CHECK(optimizer->layer_begin(0, MP_PASS_FORWARD).error().status() == MP_STATUS_BAD_STATE);
    CHECK(optimizer->layer_end(0, MP_PASS_FORWARD).has_value());
    const std::int32_t first[] = {0};
    CHECK(optimizer->step_params(first).error().status() == MP_STATUS_BAD_STATE);
    CHECK(optimizer->step_begin().has_value());
    CHECK(optimizer->step_params(first, {*grad, *grad}).error().status() ==
          MP_STATUS_INVALID_ARGUMENT);
    CHECK(optimizer->step_params(first, {*grad}).has_value());
    CHECK(optimizer->step_end().has_value());

    auto comms = mp::Comm::threads(1);
    CHECK(comms.has_value() && comms->size() == 1);
    CHECK(mp::Comm::threads(-1).error().status() == MP_STATUS_INVALID_ARGUMENT);
    CHECK((*comms)[0].barrier().has_value());

    const mp::Context taken = std::move(context).value();
    CHECK(taken.sync().has_value());
    std::printf("%d failures\n", failures);
    return failures != 0;
}
