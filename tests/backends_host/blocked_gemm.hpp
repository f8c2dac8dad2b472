// SPDX-License-Identifier: Apache-2.0
// The host's own matrix products, run by a test on threads of its own.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "gemm_case.hpp"
#include "host/gemm/panels.hpp"
#include "host_device.hpp"

namespace mp::test {

class BlockedGemmTest : public ::testing::Test {
  protected:
    // False where the implementation does not take it here.
    bool run(const backends::host::GemmImplementation& implementation, GemmCase& x,
             int32_t threads) {
        Reason reason;
        if (!implementation.supports(x.desc, reason)) {
            return false;
        }
        std::unique_ptr<backends::host::HostGemm> plan;
        check(implementation.make(x.desc, threads, plan));
        x.reset();
        check(plan->run(workshop_.on(threads), x.buffers()));
        return true;
    }
    void expect_within_bound(const GemmOptions& o, int32_t threads = 2) {
        SCOPED_TRACE(describe(o));
        GemmCase x(o);
        int32_t taken = 0;
        for (const backends::host::GemmImplementation* implementation :
             {&backends::host::kBlockedFp32, &backends::host::kWidenFp32,
              &backends::host::kBlockedBf16}) {
            if (run(*implementation, x, threads)) {
                SCOPED_TRACE(implementation->name);
                EXPECT_TRUE(within_bound(x));
                EXPECT_TRUE(x.padding_untouched());
                ++taken;
            }
        }
        EXPECT_GT(taken, 0);
    }

    Workshop workshop_;
};

} // namespace mp::test
