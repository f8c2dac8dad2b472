// SPDX-License-Identifier: Apache-2.0
// What is found out about the machine follows the affinity mask, and binding binds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/topology.hpp"

namespace mp::test {
namespace {

using topology::bind_thread;
using topology::CoreLease;
using topology::detect;
using topology::free_cores;
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
    EXPECT_EQ(static_cast<int32_t>(found.cores.size()), found.physical_cores);
    std::set<int> distinct;
    for (const Topology::Core& core : found.cores) {
        EXPECT_TRUE(cpus.count(core.cpu) == 1) << core.cpu;
        EXPECT_TRUE(distinct.insert(core.cpu).second) << core.cpu;
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
            ASSERT_EQ(found.cores.size(), 1U);
            EXPECT_EQ(found.cores[0].cpu, cpu);
            EXPECT_EQ(found.packages, 1);
        });
    }
}

TEST(Topology, BindsAThreadToOneCore) {
    const Topology found = detect();
    for (const Topology::Core& core : found.cores) {
        in_a_thread([&] {
            ASSERT_TRUE(bind_thread(pthread_self(), core.cpu).ok());
            EXPECT_EQ(affinity(), std::set<int>{core.cpu});
        });
    }
}

TEST(Topology, SaysWhyItCannotBind) {
    in_a_thread([] {
        const std::set<int> before = affinity();
        for (const int cpu :
             {CPU_SETSIZE - 1, CPU_SETSIZE, -1}) { // none in this machine, one hopes
            const Status status = bind_thread(pthread_self(), cpu);
            EXPECT_EQ(status.code(), Code::unsupported);
            EXPECT_STRNE(status.text(), "");
        }
        EXPECT_EQ(affinity(), before);
    });
}

// Nodes 0 and 1 with cores of so many each; cores 100, 101, ...
Topology machine_of(int32_t cores_of_0, int32_t cores_of_1) {
    Topology machine;
    for (int32_t i = 0; i < cores_of_0 + cores_of_1; ++i) {
        machine.cores.push_back({100 + i, i < cores_of_0 ? 0 : 1});
    }
    return machine;
}

using Cpus = std::vector<int32_t>;

TEST(Topology, TwoLeasesHaveNoCoreInCommon) {
    const Topology machine = machine_of(4, 0);
    CoreLease first;
    ASSERT_TRUE(first.take(machine, 3).ok());
    EXPECT_EQ(first.cpus(), (Cpus{100, 101, 102}));
    EXPECT_EQ(free_cores(machine), 1);
    {
        CoreLease second;
        const Status status = second.take(machine, 2);
        EXPECT_EQ(status.code(), Code::unsupported);
        EXPECT_NE(std::string(status.text()).find("1 of 4 core(s) are free"), std::string::npos)
            << status.text();
        EXPECT_TRUE(second.cpus().empty());
        ASSERT_TRUE(second.take(machine, 1).ok());
        EXPECT_EQ(second.cpus(), (Cpus{103}));
        EXPECT_EQ(free_cores(machine), 0);
    }
    EXPECT_EQ(free_cores(machine), 1);
}

TEST(Topology, ALeaseStaysInANodeWhereItCan) {
    const Topology machine = machine_of(4, 6);
    CoreLease five, two, three;
    ASSERT_TRUE(five.take(machine, 5).ok());
    EXPECT_EQ(five.cpus(), (Cpus{104, 105, 106, 107, 108}));
    ASSERT_TRUE(two.take(machine, 2).ok());
    EXPECT_EQ(two.cpus(), (Cpus{100, 101}));
    ASSERT_TRUE(three.take(machine, 3).ok()); // no node has three
    EXPECT_EQ(three.cpus(), (Cpus{102, 103, 109}));
}

TEST(Topology, ALeaseIsOfOneThreadAtLeast) {
    CoreLease lease;
    EXPECT_FALSE(lease.take(machine_of(1, 0), 0).ok());
    EXPECT_FALSE(lease.take(Topology(), 1).ok());
}

#if MP_HAS_HWLOC
// Two packages of two NUMA nodes each, three cores a node, two hardware threads a core: of a machine that hwloc makes up.
// DISABLED: only for a process of its own, since a process reads its machine once.
TEST(Topology, DISABLED_OfAMadeUpMachine) {
    const Topology found = detect();
    EXPECT_EQ(found.packages, 2);
    EXPECT_EQ(found.numa_nodes, 4);
    EXPECT_EQ(found.physical_cores, 12);
    EXPECT_EQ(found.logical_cpus, 24);
    ASSERT_EQ(found.cores.size(), 12U);
    for (int32_t i = 0; i < 12; ++i) {
        EXPECT_EQ(found.cores[static_cast<std::size_t>(i)], (Topology::Core{2 * i, i / 3}));
    }
    CoreLease whole_node, rest_of_nodes, one;
    ASSERT_TRUE(whole_node.take(found, 3).ok());
    EXPECT_EQ(whole_node.cpus(), (Cpus{0, 2, 4}));
    ASSERT_TRUE(rest_of_nodes.take(found, 8).ok()); // more than a node
    EXPECT_EQ(rest_of_nodes.cpus(), (Cpus{6, 8, 10, 12, 14, 16, 18, 20}));
    ASSERT_TRUE(one.take(found, 1).ok());
    EXPECT_EQ(one.cpus(), (Cpus{22}));
    EXPECT_EQ(free_cores(found), 0);
    EXPECT_EQ(bind_thread(pthread_self(), CPU_SETSIZE - 1).code(), Code::unsupported);
}

TEST(Topology, OfAMadeUpMachine) {
    if (std::string(detect().sentence.c_str()).find("hwloc:") != 0) {
        GTEST_SKIP() << detect().sentence.c_str();
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        setenv("HWLOC_SYNTHETIC", "pack:2 numa:2 core:3 pu:2", 1);
        execl("/proc/self/exe", "topology", "--gtest_also_run_disabled_tests",
              "--gtest_filter=Topology.DISABLED_OfAMadeUpMachine", static_cast<char*>(nullptr));
        _exit(127);
    }
    int ended = -1;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
}
#endif

} // namespace
} // namespace mp::test
