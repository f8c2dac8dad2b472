// SPDX-License-Identifier: Apache-2.0
// A build without oneDNN.
#include "host/gemm/host_gemm.hpp"

namespace mp::backends::host {

GemmImplementations onednn_implementations() noexcept { return {nullptr, 0}; }

void describe_onednn(TextLine<128>& text) noexcept { text.set("built without oneDNN"); }

} // namespace mp::backends::host
