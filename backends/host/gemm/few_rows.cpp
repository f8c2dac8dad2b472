// SPDX-License-Identifier: Apache-2.0
#include "host/gemm/few_rows.hpp"

#include <algorithm>
#include <new>

#include "dtype/divide.hpp"
#include "host/resources/atomic_max.hpp"

namespace mp::backends::host {

namespace {

// Columns of D, rows of B, that a thread takes at a time.
constexpr int64_t kColumnsAtOnce = 32;

} // namespace

bool FewRowsGemm::takes(const GemmDesc& desc, Reason& reason) noexcept {
    if (!is_in_blocks(desc.dtype_b) || !desc.trans_b || desc.trans_a) {
        reason.set("B is %s; this multiplies rows of A by rows of B in blocks",
                   dtype_name(desc.dtype_b));
        return false;
    }
    if (desc.m > kMostDotRows || desc.m == 0 || desc.n == 0 || desc.k == 0) {
        reason.set("1 to %lld rows of A, and nothing that is empty",
                   static_cast<long long>(kMostDotRows));
        return false;
    }
    if (desc.scale_a.exists()) {
        reason.set("A has scales");
        return false;
    }
    return has_common_results(desc, reason);
}

Status FewRowsGemm::make(const GemmDesc& desc, int32_t /*threads*/,
                         std::unique_ptr<HostGemm>& out) noexcept {
    out.reset(new (std::nothrow) FewRowsGemm(desc));
    return out != nullptr ? Status()
                          : Status::error(Code::out_of_memory, "host: no memory for a gemm plan");
}

void FewRowsGemm::widen(const void* a, float* rows) const noexcept {
    for (int64_t row = 0; row < desc_.m; ++row) {
        table_.widen(desc_.dtype_a,
                     static_cast<const char*>(a) + bytes_of(desc_.dtype_a, row * desc_.lda),
                     desc_.k, rows + row * desc_.k);
    }
}

void FewRowsGemm::multiply(const GemmBuffers& buffers, const float* rows,
                           int64_t column) const noexcept {
    float sums[kMostDotRows * kColumnsAtOnce];
    const int64_t count = std::min(kColumnsAtOnce, desc_.n - column);
    table_.dot({desc_.dtype_b,
                static_cast<const char*>(buffers.b) + bytes_of(desc_.dtype_b, column * desc_.k),
                count, desc_.k, desc_.dtype_a, rows, desc_.m, sums, kColumnsAtOnce});
    FinishJob job = finish_job(desc_, buffers, 0, 0, column);
    job.sums = sums;
    job.stride = kColumnsAtOnce;
    job.rows = desc_.m;
    job.columns = count;
    table_.finish(job);
    raise_amax(buffers.amax_d, job.amax);
}

Status FewRowsGemm::run(const Resources& with, const GemmBuffers& buffers) const noexcept {
    ScratchPool::Lease lease;
    const Status status =
        with.scratch.take(static_cast<std::size_t>(desc_.m * desc_.k) * sizeof(float), lease);
    if (!status.ok()) {
        return status;
    }
    auto* const rows = static_cast<float*>(lease.data());
    widen(buffers.a, rows);
    with.threads.for_each(divide_up(desc_.n, kColumnsAtOnce),
                          [&](int64_t i) { multiply(buffers, rows, i * kColumnsAtOnce); });
    return {};
}

const GemmImplementation kFewRows = {"few_rows", FewRowsGemm::takes, FewRowsGemm::make};

} // namespace mp::backends::host
