// SPDX-License-Identifier: Apache-2.0
// Products: the plans of a layer's products, one for each number of rows that it has met.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "context/context.hpp"
#include "gemm/gemm.hpp"
#include "recipe/layer_policy.hpp"

namespace mp::linear {

struct ProductSizes {
    int64_t in_features = 0;
    int64_t out_features = 0;
    DType bias = DType::none; // of the forward product; none: it has no bias
    float scale = 1.0F;       // of each product
};

class Products {
  public:
    Products(std::shared_ptr<Context> context, std::shared_ptr<Device> device,
             std::shared_ptr<const recipe::LayerPolicy> policy, const ProductSizes& sizes)
        : context_(std::move(context)), device_(std::move(device)), policy_(std::move(policy)),
          sizes_(sizes) {}

    // For rows of x and of dy. Throws where the device cannot multiply so. Valid until forget_old().
    gemm::GemmPlan& plan(recipe::GemmRole role, int64_t rows, DType result, bool accumulate,
                         bool has_bias = true);
    // A caller whose number of rows never repeats must not fill memory with plans.
    void forget_old();
    // Of all plans.
    [[nodiscard]] std::string describe() const;

  private:
    // Role, rows, dtype of the result, accumulate, with the bias that a forward has.
    using Key = std::tuple<recipe::GemmRole, int64_t, DType, bool, bool>;
    [[nodiscard]] GemmDesc desc_of(const Key& key) const;

    std::shared_ptr<Context> context_;
    std::shared_ptr<Device> device_;
    std::shared_ptr<const recipe::LayerPolicy> policy_;
    ProductSizes sizes_;
    std::map<Key, gemm::GemmPlan> plans_;
};

} // namespace mp::linear
