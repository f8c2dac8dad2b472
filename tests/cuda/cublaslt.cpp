// SPDX-License-Identifier: Apache-2.0
// Opening cuBLASLt: the real one where it is installed, and what is said where it is not. It is
// looked for once in a process, so each case is a child.
#include "cuda/cublaslt.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

using mp::backends::cuda::cublaslt;

// Says what was found and ends the process.
[[noreturn]] void open_in_child(const char* library) {
    (void)setenv("MIXEDPREC_CUBLASLT_LIBRARY", library, 1);
    if (cublaslt().is_there()) {
        std::fprintf(stderr, "version %zu", cublaslt().GetVersion());
        std::exit(0);
    }
    std::fprintf(stderr, "%s", cublaslt().reason.c_str());
    std::exit(1);
}

TEST(CublasLt, IsOpenedWithAllItsFunctions) {
    const char* library = std::getenv("MP_CUBLASLT");
    if (library == nullptr || library[0] == '\0') {
        GTEST_SKIP() << "skipped: no cuBLASLt";
    }
    EXPECT_EXIT(open_in_child(library), ::testing::ExitedWithCode(0),
                "version " + std::to_string(CUBLAS_VER_MAJOR) + "[0-9][0-9][0-9][0-9]");
}

TEST(CublasLt, SaysWhichFileCannotBeOpened) {
    EXPECT_EXIT(open_in_child("no/such/library.so"), ::testing::ExitedWithCode(1),
                "MIXEDPREC_CUBLASLT_LIBRARY names no/such/library.so, which cannot be opened");
}

TEST(CublasLt, RefusesALibraryThatIsNone) {
    EXPECT_EXIT(open_in_child("libm.so.6"), ::testing::ExitedWithCode(1),
                "has no function cublasLtCreate");
}

} // namespace
