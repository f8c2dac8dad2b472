// SPDX-License-Identifier: Apache-2.0
// The file table over the real file system: nothing is overwritten, every error has its words.
#include <gtest/gtest.h>

#include <cstdio>
#include <unistd.h>

#include "system/file.hpp"

using namespace mp;
using namespace mp::system;

TEST(Files, WriteSyncRenameReadRemove) {
    FileTable& files = posix_files();
    const std::string folder = ::testing::TempDir() + "mp_files_" + std::to_string(::getpid());
    check(files.make_directory(folder.c_str()));
    EXPECT_FALSE(files.make_directory(folder.c_str()).ok());
    const std::string first = folder + "/a", second = folder + "/b";
    int32_t handle = -1;
    check(files.open(first.c_str(), OpenMode::create_new, &handle));
    check(files.write(handle, 0, "hello ", 6));
    check(files.write(handle, 6, "world", 5));
    check(files.sync(handle));
    int64_t bytes = 0;
    check(files.size(handle, &bytes));
    EXPECT_EQ(bytes, 11);
    check(files.close(handle));
    EXPECT_FALSE(
        files.open(first.c_str(), OpenMode::create_new, &handle).ok()); // never overwritten
    check(files.rename(first.c_str(), second.c_str()));
    check(files.sync_directory(folder.c_str()));
    EXPECT_EQ(read_text(files, second, 100), "hello world");
    EXPECT_THROW((void)read_text(files, second, 10), Error);
    check(files.open(second.c_str(), OpenMode::read, &handle));
    char buffer[32];
    const Status early = files.read(handle, 5, buffer, 20);
    EXPECT_EQ(early.code(), Code::io_error);
    EXPECT_NE(std::string(early.text()).find("early"), std::string::npos);
    check(files.close(handle));
    check(files.remove(second.c_str()));
    const Status missing = files.open(second.c_str(), OpenMode::read, &handle);
    EXPECT_NE(std::string(missing.text()).find("No such file"), std::string::npos);
    EXPECT_EQ(std::remove(folder.c_str()), 0);
}

// What is done by a directory's handle stays in it.
TEST(Files, DirectoriesAreNotFollowedThroughLinks) {
    FileTable& files = posix_files();
    const std::string folder = ::testing::TempDir() + "mp_links_" + std::to_string(::getpid());
    check(files.make_directory(folder.c_str()));
    const std::string real = folder + "/real", link = folder + "/link";
    check(files.make_directory(real.c_str()));
    ASSERT_EQ(::symlink(real.c_str(), link.c_str()), 0);
    ASSERT_EQ(::symlink(link.c_str(), (real + "/inner").c_str()), 0);
    check(files.make_directory((real + "/empty").c_str()));
    int32_t handle = -1;
    EXPECT_FALSE(files.open_directory(link.c_str(), &handle).ok());
    check(files.open_directory(real.c_str(), &handle));
    std::vector<std::string> names;
    for (int twice = 0; twice < 2; ++twice) {
        check(files.list_open(handle, &names));
        EXPECT_EQ(names, (std::vector<std::string>{"empty", "inner"}));
    }
    bool taken = false;
    check(files.lock(handle, &taken));
    EXPECT_TRUE(taken);
    int32_t second = -1;
    check(files.open_directory(real.c_str(), &second));
    check(files.lock(second, &taken));
    EXPECT_FALSE(taken);
    check(files.close(second));
    EXPECT_FALSE(files.remove_from(handle, "missing").ok());
    check(files.remove_from(handle, "inner"));
    check(files.remove_from(handle, "empty"));
    EXPECT_EQ(::access(link.c_str(), F_OK), 0);
    check(files.close(handle));
    check(files.remove(link.c_str()));
    check(files.remove(real.c_str()));
    check(files.remove(folder.c_str()));
}
