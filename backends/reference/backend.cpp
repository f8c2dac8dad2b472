// SPDX-License-Identifier: Apache-2.0
// The entry of the reference backend: always one device, which works with one thread.
#include "reference/backend.hpp"

#include "device/plain_device.hpp"
#include "reference/candidates.hpp"

namespace mp::backends::reference {

namespace {

CandidateList candidates(OpKind kind) noexcept {
    static constexpr const Candidate* kAll[] = {
#define X(name, desc, candidate) &candidate,
#include "device/op_kinds.def"
#undef X
    };
    return {kAll[static_cast<std::size_t>(kind)], 1};
}

Status open(const DeviceConfig& config, Device** out) noexcept {
    return PlainDevice::open(config, kName, "scalar", 1, candidates, out);
}

constexpr Backend kBackend = {
    kInterfaceVersion, kName, DeviceKind::host, count_one_device, summarize_host, open, nullptr,
};

} // namespace

const Backend* backend() noexcept { return &kBackend; }

} // namespace mp::backends::reference
