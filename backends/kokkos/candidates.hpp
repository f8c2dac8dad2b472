// SPDX-License-Identifier: Apache-2.0
// The candidates named "kokkos" for every kind of operation, for any execution space. Access says
// how to get one:
//     static bool takes_gemm(const GemmDesc& op, Reason& reason) noexcept;
//     // Calls body(exec) with an execution space of the queue. May throw.
//     template <class Body> static Status with_space(Device&, Queue&, const Body& body);
// Nothing thrown inside leaves a candidate.
#pragma once

#include <exception>

#include "device/backend.hpp"
#include "device/desc_plan.hpp"
#include "kernels/amax.hpp"
#include "kernels/cast.hpp"
#include "kernels/column_sum.hpp"
#include "kernels/content_hash.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grad_stats.hpp"
#include "kernels/optimizer_prepare.hpp"
#include "kernels/optimizer_update.hpp"
#include "kernels/quantize.hpp"
#include "kernels/row_norm.hpp"
#include "kernels/scale_columns.hpp"
#include "kernels/scaler_update.hpp"
#include "kernels/sum_parts.hpp"
#include "kokkos/supports.hpp"

namespace mp::backends::kokkos {

inline constexpr const char* kName = "kokkos";

// Overloads by descriptor, so that one template makes all candidates.
template <class Exec> void launch(const Exec& exec, const CastDesc& op) { kernels::cast(exec, op); }
template <class Exec> void launch(const Exec& exec, const AmaxDesc& op) { kernels::amax(exec, op); }
template <class Exec> void launch(const Exec& exec, const ColumnSumDesc& op) {
    kernels::column_sum(exec, op);
}
template <class Exec> void launch(const Exec& exec, const DropoutDesc& op) {
    kernels::dropout(exec, op);
}
template <class Exec> void launch(const Exec& exec, const RowNormDesc& op) {
    kernels::row_norm(exec, op);
}
template <class Exec> void launch(const Exec& exec, const ScaleColumnsDesc& op) {
    kernels::scale_columns(exec, op);
}
template <class Exec> void launch(const Exec& exec, const GradStatsDesc& op) {
    kernels::grad_stats(exec, op);
}
template <class Exec> void launch(const Exec& exec, const OptimizerPrepareDesc& op) {
    kernels::optimizer_prepare(exec, op);
}
template <class Exec> void launch(const Exec& exec, const OptimizerUpdateDesc& op) {
    kernels::optimizer_update(exec, op);
}
template <class Exec> void launch(const Exec& exec, const ScalerUpdateDesc& op) {
    kernels::scaler_update(exec, op);
}
template <class Exec> void launch(const Exec& exec, const QuantizeDesc& op) {
    kernels::quantize(exec, op);
}
template <class Exec> void launch(const Exec& exec, const DequantizeDesc& op) {
    kernels::dequantize(exec, op);
}
template <class Exec> void launch(const Exec& exec, const DelayedUpdateDesc& op) {
    kernels::delayed_update(exec, op);
}
template <class Exec> void launch(const Exec& exec, const SumPartsDesc& op) {
    kernels::sum_parts(exec, op);
}

template <class Exec> void launch(const Exec& exec, const ContentHashDesc& op) {
    kernels::content_hash(exec, op);
}

template <class Access> class Candidates {
  public:
    static CandidateList of(OpKind kind) noexcept {
        static constexpr const Candidate* kAll[] = {
#define X(name, desc, candidate) &kOf<desc>,
#include "device/op_kinds.def"
#undef X
        };
        return {kAll[static_cast<std::size_t>(kind)], 1};
    }

  private:
    template <class Body>
    static Status guarded(Device& device, Queue& queue, const Body& body) noexcept {
        try {
            return Access::with_space(device, queue, body);
        } catch (const std::exception& error) {
            return Status::error(Code::kokkos_error, "kokkos: %s", error.what());
        } catch (...) {
            return Status::error(Code::kokkos_error, "kokkos: unknown exception");
        }
    }

    template <class Desc>
    static bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
        const auto& desc = static_cast<const Desc&>(op);
        if constexpr (std::is_same_v<Desc, GemmDesc>) {
            if (!Access::takes_gemm(desc, reason)) {
                return false;
            }
        }
        return is_supported(desc, reason);
    }

    template <class Desc>
    static Status run(Device& device, Queue& queue, const OpDesc& op) noexcept {
        return guarded(device, queue,
                       [&op](const auto& exec) { launch(exec, static_cast<const Desc&>(op)); });
    }

    static Status run_gemm(Device& device, Queue& queue, Plan& plan,
                           const GemmBuffers& buffers) noexcept {
        const GemmDesc& op = DescPlan::of(plan);
        Reason reason;
        if (!buffers_are_aligned(op, buffers, reason)) {
            return Status::error(Code::unsupported, "kokkos: gemm: %s", reason.c_str());
        }
        return guarded(device, queue,
                       [&op, &buffers](const auto& exec) { kernels::gemm(exec, op, buffers); });
    }

    template <class Desc> static constexpr Candidate make() noexcept {
        if constexpr (std::is_same_v<Desc, GemmDesc>) {
            return {kName, supports<Desc>, nullptr, DescPlan::prepare, run_gemm};
        } else {
            return {kName, supports<Desc>, run<Desc>, nullptr, nullptr};
        }
    }
    template <class Desc> static constexpr Candidate kOf = make<Desc>();
};

} // namespace mp::backends::kokkos
