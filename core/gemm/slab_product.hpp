// SPDX-License-Identifier: Apache-2.0
// SlabProduct: a product of numbers by codes on any device. A slab of B's columns is decoded at a time, rounded to A's type, and
// multiplied as numbers are; the whole of B is nowhere in memory but as codes.
#pragma once

#include <memory>
#include <string>

#include "device/gemm_scales.hpp"
#include "runtime/stream.hpp"

namespace mp::gemm {

class GemmPlan;

class SlabProduct {
  public:
    // `desc` is checked, and has_coded_b(). `implementation`: of the slabs' products; may be null.
    SlabProduct(const std::shared_ptr<Device>& device, const GemmDesc& desc,
                const char* implementation);
    ~SlabProduct();

    void run(Stream& stream, const GemmBuffers& buffers);
    [[nodiscard]] std::string describe() const;

  private:
    GemmDesc desc_;
    int64_t columns_; // of op(B) in a slab
    std::unique_ptr<GemmPlan> whole_;
    std::unique_ptr<GemmPlan> rest_; // of the last slab, where it has fewer
};

} // namespace mp::gemm
