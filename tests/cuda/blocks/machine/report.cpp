// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

namespace mp::blocks {

const char* fault_name(Fault fault) {
    switch (fault) {
    case Fault::configuration:
        return "configuration";
    case Fault::out_of_bounds:
        return "out of bounds";
    case Fault::misaligned:
        return "misaligned";
    case Fault::read_only:
        return "read only";
    case Fault::unwritten:
        return "unwritten";
    case Fault::race:
        return "race";
    case Fault::divergent:
        return "divergent";
    }
    return "";
}

void Counters::add(const Counters& other) {
    const auto sum = [](Traffic& to, const Traffic& from) {
        to.requests += from.requests;
        to.sectors += from.sectors;
        to.ideal += from.ideal;
        to.distinct += from.distinct;
    };
    sum(loads, other.loads);
    sum(stores, other.stores);
    shared.requests += other.shared.requests;
    shared.cycles += other.shared.cycles;
    shared.ideal += other.shared.ideal;
    shared.worst = std::max(shared.worst, other.shared.worst);
    atomics += other.atomics;
    pass_bytes = std::max(pass_bytes, other.pass_bytes);
}

std::string Report::text() const {
    std::string lines;
    for (const Finding& finding : findings) {
        lines += std::string(fault_name(finding.fault)) + ": " + kernel + ", block " +
                 std::to_string(finding.block) + ", thread " + std::to_string(finding.thread) +
                 " " + finding.text;
        lines += finding.times > 1 ? " (" + std::to_string(finding.times) + " times)\n" : "\n";
    }
    return lines;
}

} // namespace mp::blocks
