// SPDX-License-Identifier: Apache-2.0
// The choice of a candidate: the first that supports the operation. If none does, every candidate's reason is
// in the message. Never another device.
#pragma once

#include <string>

#include "device/backend.hpp"
#include "runtime/stream.hpp"

namespace mp {

const char* op_kind_name(OpKind kind) noexcept;

struct Choice {
    const Candidate* candidate = nullptr;
    std::string passed_over; // "name: reason; name: reason", best first
};

// No candidate where none does; `passed_over` has the reasons of all. With a name only that candidate is asked; throws
// unknown_name where there is none.
Choice find_candidate(const Device& device, const OpDesc& op, const char* name = nullptr);
// The same. Throws Error(unsupported) with all reasons where there is none.
Choice select(const Device& device, const OpDesc& op, const char* name = nullptr);

// Chooses and enqueues.
void run_op(Stream& stream, const OpDesc& op);

} // namespace mp
