// SPDX-License-Identifier: Apache-2.0
// MappedTensors: the tensors of a model's files under other names, split, joined, transposed or with other rows first, as rules
// say. Values by keys are those of the files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/name_index.hpp"
#include "model/name_rules.hpp"
#include "model/tensor_view.hpp"

namespace mp::model {

class MappedTensors final : public TensorSource {
  public:
    // Throws invalid_argument for what the rules say, unknown_name for what there is not, and invalid_shape and invalid_dtype for
    // what does not fit; with the line.
    MappedTensors(std::shared_ptr<const TensorSource> origin, std::string_view rules);

    // By rules, and of each rule in the origin's order.
    [[nodiscard]] std::size_t count() const noexcept override { return tensors_.size(); }
    [[nodiscard]] TensorFacts facts(std::size_t index) const override;
    [[nodiscard]] std::size_t find(std::string_view name) const noexcept override;
    [[nodiscard]] const std::vector<Value>& values() const noexcept override {
        return origin_->values();
    }
    [[nodiscard]] std::size_t find_value(std::string_view key) const noexcept override {
        return origin_->find_value(key);
    }
    [[nodiscard]] const std::string& path(std::size_t file) const override {
        return origin_->path(file);
    }
    [[nodiscard]] const Header& header(std::size_t file) const override {
        return origin_->header(file);
    }

  private:
    struct Mapped {
        std::string name;
        TensorViewPtr view;
        std::size_t file = 0;
    };
    class Builder;

    void read_bytes(std::size_t index, int64_t offset, void* data,
                    std::size_t bytes) const override;

    std::shared_ptr<const TensorSource> origin_;
    int32_t depth_ = 1; // maps over each other, with this one
    std::vector<Mapped> tensors_;
    NameIndex by_name_;
};

} // namespace mp::model
