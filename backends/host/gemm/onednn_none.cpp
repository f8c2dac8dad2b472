// SPDX-License-Identifier: Apache-2.0
// A build without oneDNN.
#include "host/gemm/host_gemm.hpp"

namespace mp::backends::host {

namespace {

constexpr const char* kWhy = "built without oneDNN";

bool supports(const GemmDesc& /*op*/, Reason& reason) noexcept {
    reason.set("%s", kWhy);
    return false;
}

Status make(const GemmDesc& /*op*/, int32_t /*threads*/,
            std::unique_ptr<HostGemm>& /*out*/) noexcept {
    return Status::error(Code::unsupported, "%s", kWhy);
}

} // namespace

const GemmImplementation kOnednnFp32 = {"onednn_fp32", supports, make};
const GemmImplementation kOnednnBf16 = {"onednn_bf16", supports, make};

OnednnFeatures onednn_features() noexcept { return {}; }

void describe_onednn(TextLine<512>& text) noexcept { text.set("%s", kWhy); }

} // namespace mp::backends::host
