// SPDX-License-Identifier: Apache-2.0
// What is found out about the machine follows the affinity mask, and binding binds.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include <sched.h>

#include "topology/topology.hpp"

namespace mp::test {
namespace {

using topology::bind_thread;
using topology::detect;
using topology::Topology;

std::set<int> affinity() {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    std::set<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &mask)) {
            cpus.insert(cpu);
        }
    }
    return cpus;
}

void set_affinity(const std::set<int>& cpus) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : cpus) {
        CPU_SET(cpu, &mask);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
}

// Binding must not outlive a test.
template <class Body> void in_a_thread(const Body& body) { std::thread(body).join(); }

TEST(Topology, CountsAreConsistent) {
    const Topology found = detect();
    const std::set<int> cpus = affinity();
    EXPECT_EQ(found.logical_cpus, static_cast<int32_t>(cpus.size()));
    EXPECT_GE(found.physical_cores, 1);
    EXPECT_LE(found.physical_cores, found.logical_cpus);
    EXPECT_GE(found.numa_nodes, 1);
    EXPECT_GE(found.packages, 1);
    EXPECT_LE(found.packages, found.physical_cores);
    EXPECT_FALSE(found.sentence.empty());
    EXPECT_EQ(static_cast<int32_t>(found.core_cpus.size()), found.physical_cores);
    const std::set<int> distinct(found.core_cpus.begin(), found.core_cpus.end());
    EXPECT_EQ(distinct.size(), found.core_cpus.size());
    for (const int cpu : found.core_cpus) {
        EXPECT_TRUE(cpus.count(cpu) == 1) << cpu;
    }
}

// As under taskset: of each CPU alone, only that one is there.
TEST(Topology, FollowsTheAffinityMask) {
    for (const int cpu : affinity()) {
        in_a_thread([cpu] {
            set_affinity({cpu});
            const Topology found = detect();
            EXPECT_EQ(found.logical_cpus, 1);
            EXPECT_EQ(found.physical_cores, 1);
            EXPECT_EQ(found.core_cpus, std::vector<int32_t>{cpu});
            EXPECT_EQ(found.packages, 1);
        });
    }
}

TEST(Topology, BindsAThreadToOneCore) {
    const Topology found = detect();
    const auto cores = static_cast<int32_t>(found.core_cpus.size());
    for (int32_t worker = 0; worker < 2 * cores; ++worker) {
        in_a_thread([&] {
            ASSERT_TRUE(bind_thread(pthread_self(), found, worker).ok());
            EXPECT_EQ(affinity(),
                      std::set<int>{found.core_cpus[static_cast<std::size_t>(worker % cores)]});
        });
    }
}

TEST(Topology, SaysWhyItCannotBind) {
    in_a_thread([] {
        const std::set<int> before = affinity();
        Topology unknown;
        EXPECT_EQ(bind_thread(pthread_self(), unknown, 0).code(), Code::unsupported);
        unknown.core_cpus = {CPU_SETSIZE - 1}; // no such CPU in this machine, one hopes
        const Status status = bind_thread(pthread_self(), unknown, 0);
        EXPECT_EQ(status.code(), Code::unsupported);
        EXPECT_STRNE(status.text(), "");
        EXPECT_EQ(bind_thread(pthread_self(), detect(), -1).code(), Code::unsupported);
        EXPECT_EQ(affinity(), before);
    });
}

} // namespace
} // namespace mp::test
