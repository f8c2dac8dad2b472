// SPDX-License-Identifier: Apache-2.0
// Adapters against PEFT (tests/fixtures/make_lora.py): within the roundings of fp32 sums of its numbers in fp64, and in bf16 no
// further from them than PEFT's own.
#include <cmath>
#include <sstream>

#include "adapters.hpp"
#include "fixture_arrays.hpp"

using namespace mp_test;
using namespace mp_test::adapters;

namespace {

struct Case {
    std::string name;
    bool is_rank_stabilized = false;
    bool has_magnitude = false;
    std::vector<double> alphas;
};

Case read_case(const std::string& name, const std::string& facts) {
    std::istringstream words(facts);
    Case result;
    std::size_t count = 0;
    result.name = name;
    words >> count >> result.is_rank_stabilized >> result.has_magnitude;
    result.alphas.resize(count);
    for (double& alpha : result.alphas) {
        words >> alpha;
    }
    return result;
}

Tensor tensor_in(mp_context* context, const FixtureFile& file, const std::string& name,
                 int32_t dtype) {
    const FixtureArray& stored = file.array(name);
    std::vector<float> values(stored.bytes.size() / sizeof(float));
    std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
    return make_tensor(context, dtype, stored.shape, values);
}

Tensor like(mp_context* context, mp_tensor* tensor, int32_t dtype) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(tensor, &desc)));
    return make_tensor(context, dtype, std::vector<int64_t>(desc.shape, desc.shape + desc.ndim));
}

struct OneAdapter {
    Tensor a, b, da, db, m, dm;
    Adapter adapter;
};

// What a pass of ours gives, by the fixture's names.
std::map<std::string, std::vector<float>> run(const FixtureFile& file, const Case& which,
                                              const char* recipe_name, int32_t dtype) {
    const Context context = make_context();
    const Recipe recipe = make_recipe(context, recipe_name);
    const auto read = [&](const std::string& name) {
        return tensor_in(context, file, which.name + "/" + name, dtype);
    };
    const Tensor w = read("w"), bias = read("bias"), x = read("x"), dy = read("dy"),
                 y = like(context, dy, dtype), dx = like(context, x, dtype);
    mp_tensor_desc sizes = MP_TENSOR_DESC_INIT;
    EXPECT_TRUE(succeeded(mp_tensor_get_desc(w, &sizes)));
    const Linear layer = make_linear(
        context, recipe, linear_desc(sizes.shape[1], sizes.shape[0], MP_LINEAR_FROZEN), w, bias);
    std::vector<OneAdapter> adapters;
    for (std::size_t i = 0; i < which.alphas.size(); ++i) {
        const std::string number = std::to_string(i);
        OneAdapter one{read("a" + number), read("b" + number), {}, {}, {}, {}, {}};
        one.da = like(context, one.a, dtype);
        one.db = like(context, one.b, dtype);
        mp_adapter_desc desc = adapter_desc(which.alphas[i], number.c_str());
        desc.flags = which.is_rank_stabilized ? MP_ADAPTER_RANK_STABILIZED : 0;
        one.adapter = make_adapter(layer, recipe, desc, one.a, one.b);
        EXPECT_TRUE(succeeded(mp_adapter_set_grads(one.adapter, one.da, one.db)));
        if (which.has_magnitude) {
            one.m = read("m" + number);
            one.dm = like(context, one.m, dtype);
            EXPECT_TRUE(succeeded(mp_adapter_set_magnitude(one.adapter, one.m, one.dm)));
        }
        adapters.push_back(std::move(one));
    }
    EXPECT_TRUE(succeeded(mp_linear_forward(layer, nullptr, x, y)));
    EXPECT_TRUE(done(mp_linear_backward(layer, nullptr, dy, dx, nullptr, nullptr, 0)));
    std::map<std::string, std::vector<float>> results = {{"y", values_of(context, y)},
                                                         {"dx", values_of(context, dx)}};
    for (std::size_t i = 0; i < adapters.size(); ++i) {
        results["da" + std::to_string(i)] = values_of(context, adapters[i].da);
        results["db" + std::to_string(i)] = values_of(context, adapters[i].db);
        if (which.has_magnitude) {
            results["dm" + std::to_string(i)] = values_of(context, adapters[i].dm);
        }
    }
    return results;
}

// Root of the mean square of the difference.
template <typename Values> double distance(const Values& values, const Array& exact) {
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const double difference =
            static_cast<double>(values[i]) - exact.at(at / exact.columns, at % exact.columns);
        sum += difference * difference;
    }
    return std::sqrt(sum / static_cast<double>(values.size()));
}

std::vector<Case> cases(const FixtureFile& file) {
    std::vector<Case> all;
    for (const auto& [name, facts] : file.facts("case")) {
        all.push_back(read_case(name, facts));
    }
    return all;
}

} // namespace

TEST(AdapterOracle, IsPeftsInDouble) {
    const FixtureFile file("lora");
    for (const Case& which : cases(file)) {
        for (const auto& [name, values] : run(file, which, "fp32", MP_DTYPE_FP32)) {
            SCOPED_TRACE(which.name + "/" + name);
            const Array exact = array_in(file, which.name + "/float64/" + name);
            ASSERT_EQ(static_cast<int64_t>(values.size()), exact.rows * exact.columns);
            double largest = 0;
            for (int64_t i = 0; i < exact.rows * exact.columns; ++i) {
                largest =
                    std::max(largest, std::fabs(exact.at(i / exact.columns, i % exact.columns)));
            }
            for (std::size_t i = 0; i < values.size(); ++i) {
                const auto at = static_cast<int64_t>(i);
                // Sums of at most 48 products of products, whose terms are no larger than the largest result.
                EXPECT_NEAR(static_cast<double>(values[i]),
                            exact.at(at / exact.columns, at % exact.columns),
                            64 * 0x1p-24 * largest);
            }
        }
    }
}

TEST(AdapterOracle, IsNoFurtherFromItInBf16) {
    const FixtureFile file("lora");
    for (const Case& which : cases(file)) {
        for (const auto& [name, values] : run(file, which, "bf16_pure", MP_DTYPE_BF16)) {
            SCOPED_TRACE(which.name + "/" + name);
            const Array exact = array_in(file, which.name + "/float64/" + name);
            const Array theirs = array_in(file, which.name + "/bfloat16/" + name);
            std::vector<float> peft(values.size());
            std::memcpy(peft.data(), theirs.bytes.data(), theirs.bytes.size());
            const double ours = distance(values, exact), limit = distance(peft, exact);
            EXPECT_GT(limit, 0.0);
            EXPECT_LE(ours, limit);
        }
    }
}
