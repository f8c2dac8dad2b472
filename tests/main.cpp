// SPDX-License-Identifier: Apache-2.0
// The main of every test program: that of GoogleTest, and --file=NAME takes only the tests of NAME.cpp. A choice that leaves
// no test fails: it would look as if all had passed.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace {

// Adds the suites of all other files to what the filter leaves out. A suite is of the file of its first test.
void choose_file(const std::string& name) {
    std::string others;
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
        const testing::TestSuite& suite = *all.GetTestSuite(i);
        if (std::filesystem::path(suite.GetTestInfo(0)->file()).stem() != name) {
            others.append(":").append(suite.name()).append(".*");
        }
    }
    std::string& filter = testing::GTEST_FLAG(filter);
    filter += filter.find('-') == std::string::npos ? "-" + others : others;
}

} // namespace

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    const std::string option = "--file=";
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argc != 2 || argument.compare(0, option.size(), option) != 0) {
            std::fprintf(stderr, "usage: %s [--file=NAME] [--gtest_...]\n", argv[0]);
            return 2;
        }
        choose_file(argument.substr(option.size()));
    }
    const int result = RUN_ALL_TESTS();
    if (testing::UnitTest::GetInstance()->test_to_run_count() == 0 &&
        !testing::GTEST_FLAG(list_tests)) {
        std::fprintf(stderr, "no test was chosen\n");
        return 1;
    }
    return result;
}
