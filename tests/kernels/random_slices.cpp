// SPDX-License-Identifier: Apache-2.0
// Slices far into a parameter: the number of a random block needs more than 32 bits, and its lower half may overflow inside
// a vector. Every instruction set against one element at a time.
#include <cstdio>

#include "numerics/rules.hpp"
#include "tables.hpp"

namespace mp::test {
namespace {

constexpr uint64_t kSeed = 0x0123456789abcdefU;
constexpr uint64_t kUid = 77;
constexpr uint64_t kStep = 5;
constexpr int64_t kCount = 700;

// Around every multiple of 2^32 blocks of 8 elements, and of 2^31 where a sign could come in; from each start in a tile.
std::vector<int64_t> starts() {
    std::vector<int64_t> found = {0, 8, (int64_t{1} << 58) + 8};
    for (const int64_t border : {int64_t{1} << 34, int64_t{1} << 35, 3 * (int64_t{1} << 35),
                                 int64_t{1} << 36, int64_t{1} << 40}) {
        for (int64_t before = -16; before <= 640; before += before < 136 ? 8 : 56) {
            found.push_back(border - before);
        }
    }
    return found;
}

numerics::GroupScalars scalars() {
    return numerics::group_scalars({1e-2, 0.9, 0.99, 1e-8, 0.1}, 3, 0.5);
}

// One step of zero states of one type beside a parameter of another, all rounded stochastically.
struct Arrays {
    HostArray param, grad, states[numerics::kMaxStates];
};

void round_into(HostArray& array, int64_t i, float x, numerics::Purpose purpose, int64_t first) {
    const numerics::SrKey key = numerics::make_sr_key(kSeed, kUid, kStep);
    const uint32_t bits = numerics::sr_bits32_at(key, purpose, static_cast<uint64_t>(first + i));
    (void)numerics::store_from_float_sr(array.dtype, array.bytes.data(), i, x, bits);
}

Arrays expected_of(Arrays a, int64_t first) {
    for (int64_t i = 0; i < kCount; ++i) {
        float x[numerics::kMaxStates] = {a.states[0].get(i), a.states[1].get(i)};
        const float w = a.param.get(i);
        const float delta = numerics::rule_delta(scalars(), w, a.grad.get(i), x);
        round_into(a.param, i, w + delta, numerics::Purpose::param, first);
        for (int k = 0; k < numerics::kMaxStates; ++k) {
            round_into(a.states[k], i, x[k], numerics::state_purpose(k), first);
        }
    }
    return a;
}

Arrays stepped(const IsaTable& table, Arrays a, int64_t first) {
    UpdateSegment s;
    s.count = kCount;
    s.uid = kUid;
    s.first = first;
    const auto place = [](StepArray& to, HostArray& array) {
        to.dtype = array.dtype;
        to.data = array.bytes.data();
    };
    place(s.param, a.param);
    place(s.grad, a.grad);
    place(s.states[0], a.states[0]);
    place(s.states[1], a.states[1]);
    const numerics::GroupScalars k = scalars();
    OptimizerUpdateDesc op{};
    op.kind = OpKind::optimizer_update;
    op.seed = kSeed;
    op.scalars = &k;
    op.stochastic_param = op.stochastic_states[0] = op.stochastic_states[1] = true;
    table.update({&op, &s, 0, kCount, kStep, false, nullptr});
    return a;
}

class RandomSlices : public TableTest {};

TEST_P(RandomSlices, HaveTheBitsOfTheirElements) {
    int64_t cases = 0;
    for (const auto& [param, state] :
         {std::pair{DType::bf16, DType::bf16}, std::pair{DType::fp16, DType::bf16},
          std::pair{DType::bf16, DType::fp16}}) {
        Arrays before = {make_array(param, kCount, Content::normal, 1),
                         make_array(param, kCount, Content::normal, 2),
                         {HostArray(state, kCount), HostArray(state, kCount)}};
        for (const int64_t first : starts()) {
            SCOPED_TRACE(std::string(dtype_name(param)) + ", from " + std::to_string(first));
            const Arrays expected = expected_of(before, first);
            const Arrays actual = stepped(*GetParam(), before, first);
            ASSERT_TRUE(same_bits(expected.param, actual.param, NanRule::same_bits));
            for (int k = 0; k < numerics::kMaxStates; ++k) {
                ASSERT_TRUE(same_bits(expected.states[k], actual.states[k], NanRule::same_bits));
            }
            ++cases;
        }
    }
    std::printf("%lld slices\n", static_cast<long long>(cases));
}

MP_FOR_EVERY_TABLE(RandomSlices);

} // namespace
} // namespace mp::test
