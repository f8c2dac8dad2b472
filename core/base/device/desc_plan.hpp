// SPDX-License-Identifier: Apache-2.0
// DescPlan: the plan of a product for which nothing is prepared.
#pragma once

#include <new>

#include "device/backend.hpp"

namespace mp {

class DescPlan final : public Plan {
  public:
    explicit DescPlan(const GemmDesc& desc) noexcept : desc_(desc) {}
    // Candidate::prepare.
    static Status prepare(Device& /*device*/, const GemmDesc& op, Plan** plan) noexcept {
        *plan = new (std::nothrow) DescPlan(op);
        return *plan != nullptr ? Status()
                                : Status::error(Code::out_of_memory, "no memory for a gemm plan");
    }
    static const GemmDesc& of(const Plan& plan) noexcept {
        return static_cast<const DescPlan&>(plan).desc_;
    }

  private:
    GemmDesc desc_;
};

} // namespace mp
