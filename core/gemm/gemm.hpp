// SPDX-License-Identifier: Apache-2.0
// GemmPlan: one matrix product, checked, with its implementation chosen and prepared.
#pragma once

#include <memory>
#include <string>

#include "device/ops.hpp"
#include "gemm/slab_product.hpp"
#include "runtime/select.hpp"

namespace mp::gemm {

class GemmPlan {
  public:
    // Fills leading dimensions and batch strides that are 0; throws on what cannot be. With the name of an implementation
    // no other is asked.
    GemmPlan(std::shared_ptr<Device> device, const GemmDesc& desc,
             const char* implementation = nullptr);

    [[nodiscard]] const GemmDesc& desc() const noexcept { return desc_; }
    // Elements from the first to the last one read or written.
    [[nodiscard]] int64_t extent_a() const noexcept;
    [[nodiscard]] int64_t extent_b() const noexcept;
    [[nodiscard]] int64_t extent_c() const noexcept;
    [[nodiscard]] int64_t extent_d() const noexcept;
    // Elements of the scale grids; 0 where an operand has none.
    [[nodiscard]] int64_t scale_count_a() const noexcept;
    [[nodiscard]] int64_t scale_count_b() const noexcept;

    void run(Stream& stream, const GemmBuffers& buffers);
    // D as codes: what quantize makes of the plan's D, which is one fp32 matrix without padding and waits in scratch memory.
    void run(Stream& stream, GemmBuffers buffers, const Sink& d);

    // The implementation, and who was passed over and why.
    [[nodiscard]] std::string describe() const;

  private:
    GemmDesc desc_;
    std::shared_ptr<Device> device_;
    Choice choice_;
    std::unique_ptr<Plan> plan_;         // of the choice
    std::unique_ptr<SlabProduct> slabs_; // instead, where no implementation reads B's codes
};

} // namespace mp::gemm
