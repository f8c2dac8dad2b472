// SPDX-License-Identifier: Apache-2.0
#include "runtime/select.hpp"

#include <cstring>

namespace mp {

const char* op_kind_name(OpKind kind) noexcept {
    static constexpr const char* kNames[] = {
#define X(name, desc, candidate) #name,
#include "device/op_kinds.def"
#undef X
    };
    return kNames[static_cast<std::size_t>(kind)];
}

namespace {

void check_name(const CandidateList& list, OpKind kind, const char* name) {
    std::string names;
    for (int32_t i = 0; i < list.count; ++i) {
        if (std::strcmp(list.items[i].name, name) == 0) {
            return;
        }
        names += (i == 0 ? "" : ", ") + std::string(list.items[i].name);
    }
    fail(Code::unknown_name, "%s: there is no implementation '%s' on this device; there is: %s",
         op_kind_name(kind), name, names.c_str());
}

} // namespace

Choice find_candidate(const Device& device, const OpDesc& op, const char* name) {
    const CandidateList list = device.candidates(op.kind);
    if (name != nullptr) {
        check_name(list, op.kind, name);
    }
    Choice choice;
    for (int32_t i = 0; i < list.count; ++i) {
        const Candidate& candidate = list.items[i];
        if (name != nullptr && std::strcmp(candidate.name, name) != 0) {
            continue;
        }
        Reason reason;
        if (candidate.supports(device, op, reason)) {
            choice.candidate = &candidate;
            return choice;
        }
        choice.passed_over += choice.passed_over.empty() ? "" : "; ";
        choice.passed_over += std::string(candidate.name) + ": " + reason.c_str();
    }
    if (choice.passed_over.empty()) {
        choice.passed_over = "the device has no implementation of it";
    }
    return choice;
}

Choice select(const Device& device, const OpDesc& op, const char* name) {
    Choice choice = find_candidate(device, op, name);
    if (choice.candidate == nullptr) {
        fail(Code::unsupported, "%s is not supported here: %s", op_kind_name(op.kind),
             choice.passed_over.c_str());
    }
    return choice;
}

void run_op(Stream& stream, const OpDesc& op) {
    // The common case costs no string: reasons are built only when a candidate declines.
    const Choice choice = select(stream.device(), op);
    const Status status = choice.candidate->run(stream.device(), stream.queue(), op);
    note_writes(op, stream.is_captured());
    check(status);
}

} // namespace mp
