// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.hpp"

#include <algorithm>
#include <cmath>

#include "recipe/automatic.hpp"

namespace mp::checkpoint {
namespace {

Recipe recipe_of(const Manifest& manifest) {
    try {
        return recipe_from_json(manifest.recipe.data(), manifest.recipe.size(), DeviceCapability{})
            .recipe;
    } catch (const Error& error) {
        fail(Code::corrupt_data, "checkpoint: its recipe cannot be used: %s",
             error.status().text());
    }
}

Tensor make_values(const Optimizer& optimizer, int32_t index) {
    // Beside the states, wherever they are.
    const std::shared_ptr<Tensor> beside = optimizer.state(index, "exp_avg");
    return {optimizer.context(), beside->stream(), DType::fp32,
            optimizer.state(index, "param")->shape()};
}

std::vector<float> read(const Optimizer& optimizer, int32_t index, const char* state) {
    const Tensor values = make_values(optimizer, index);
    optimizer.read_state(optimizer.context()->stream(), index, state, values);
    std::vector<float> numbers(static_cast<std::size_t>(values.count()));
    if (!numbers.empty()) {
        values.stream().copy(numbers.data(), values.data(), values.bytes(),
                             CopyKind::device_to_host);
        values.stream().sync();
    }
    return numbers;
}

void write(Optimizer& optimizer, int32_t index, const char* state,
           const std::vector<float>& numbers) {
    const Tensor values = make_values(optimizer, index);
    if (!numbers.empty()) {
        values.stream().copy(values.data(), numbers.data(), values.bytes(),
                             CopyKind::host_to_device);
        values.stream().sync();
    }
    optimizer.write_state(optimizer.context()->stream(), index, state, values);
}

class Sum {
  public:
    void add(const std::vector<float>& exact, const std::vector<float>& stored) {
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const double error =
                std::fabs(static_cast<double>(stored[i]) - static_cast<double>(exact[i]));
            largest_ = std::max(largest_, error);
            squares_ += error * error;
        }
        count_ += exact.size();
    }
    [[nodiscard]] Difference difference() const noexcept {
        return {largest_, count_ == 0 ? 0.0 : std::sqrt(squares_ / static_cast<double>(count_))};
    }

  private:
    double largest_ = 0.0;
    double squares_ = 0.0;
    std::size_t count_ = 0;
};

} // namespace

std::shared_ptr<Optimizer> make_twin(const Manifest& manifest, const Optimizer& target) {
    if (target.is_sharded()) {
        fail(Code::unsupported,
             "checkpoint: an optimizer that ranks share loads no other recipe; convert "
             "on one rank, save, and load that");
    }
    Stream& stream = target.context()->stream();
    auto twin =
        std::make_shared<Optimizer>(target.context(), recipe_of(manifest), OptimizerOptions{});
    for (const numerics::AdamwHyper& hyper : target.counts(stream).groups) {
        numerics::AdamwHyper group = hyper;
        group.device_lr = nullptr;
        (void)twin->add_group(group);
    }
    for (int32_t i = 0; i < target.parameter_count(); ++i) {
        const std::string& name = target.parameter_name(i);
        const StoredTensor* stored = manifest.find(name, "param");
        const Shape& shape = target.state(i, "param")->shape();
        if (stored == nullptr) {
            fail(Code::unknown_name, "checkpoint: it does not have the parameter '%s'",
                 name.c_str());
        }
        const std::vector<int64_t> sizes(shape.sizes.begin(), shape.sizes.begin() + shape.ndim);
        if (stored->shape != sizes) {
            fail(Code::invalid_shape, "checkpoint: parameter '%s' has another shape in the file",
                 name.c_str());
        }
        NewParameter parameter;
        parameter.name = name;
        parameter.param = make_state(target.context(), stream, stored->format, shape);
        (void)twin->add_parameter(stream, target.parameter_group(i), parameter);
    }
    return twin;
}

Conversion convert(const Optimizer& source, Optimizer& target) {
    Conversion result;
    Sum weights;
    Sum first;
    Sum second;
    const std::pair<const char*, Sum*> states[] = {
        {"fp32_param", &weights}, {"exp_avg", &first}, {"exp_avg_sq", &second}};
    for (int32_t i = 0; i < target.parameter_count(); ++i) {
        for (const auto& [state, sum] : states) {
            const std::vector<float> exact = read(source, i, state);
            write(target, i, state, exact);
            sum->add(exact, read(target, i, state));
        }
    }
    target.restore(target.context()->stream(), source.counts(source.context()->stream()));
    result.happened = true;
    result.weights = weights.difference();
    result.exp_avg = first.difference();
    result.exp_avg_sq = second.difference();
    return result;
}

} // namespace mp::checkpoint
