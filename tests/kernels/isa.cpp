// SPDX-License-Identifier: Apache-2.0
// The choice of the instruction set.
#include <cstdlib>

#include "tables.hpp"

namespace mp::test {
namespace {

using backends::host::active_isa;
using backends::host::select_isa_from_environment;

constexpr const char* kVariable = "MIXEDPREC_ISA";

class Isa : public ::testing::Test {
  protected:
    void TearDown() override {
        ::unsetenv(kVariable);
        EXPECT_TRUE(select_isa_from_environment().ok());
    }
};

TEST_F(Isa, TheBestIsTakenUnlessOneIsNamed) {
    ::unsetenv(kVariable);
    ASSERT_TRUE(select_isa_from_environment().ok());
    EXPECT_EQ(&active_isa(), runnable_tables().front());
    ::setenv(kVariable, "", 1);
    ASSERT_TRUE(select_isa_from_environment().ok());
    EXPECT_EQ(&active_isa(), runnable_tables().front());
}

TEST_F(Isa, EveryRunnableOneCanBeNamed) {
    for (const IsaTable* table : runnable_tables()) {
        ::setenv(kVariable, table->name, 1);
        ASSERT_TRUE(select_isa_from_environment().ok());
        EXPECT_STREQ(active_isa().name, table->name);
    }
    EXPECT_STREQ(runnable_tables().back()->name, "baseline");
}

TEST_F(Isa, AnUnknownNameIsRefusedWithWhatThereIs) {
    const IsaTable* before = &active_isa();
    ::setenv(kVariable, "avx1024", 1);
    const Status status = select_isa_from_environment();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(std::string(status.text()).find("'avx1024'"), std::string::npos) << status.text();
    EXPECT_NE(std::string(status.text()).find("baseline"), std::string::npos) << status.text();
    EXPECT_EQ(&active_isa(), before);
}

} // namespace
} // namespace mp::test
