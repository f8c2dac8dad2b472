// SPDX-License-Identifier: Apache-2.0
// The file table over the real file system: nothing is overwritten, every error has its words.
#include <gtest/gtest.h>

#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "system/name.hpp"
#include "system/own_file.hpp"
#include "system/place.hpp"

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
    check(files.open(folder.c_str(), OpenMode::directory, &handle));
    check(files.sync(handle));
    check(files.close(handle));
    EXPECT_EQ(read_text(files, second, 100), "hello world");
    EXPECT_THROW((void)read_text(files, second, 10), Error);
    check(files.open(second.c_str(), OpenMode::read, &handle));
    char buffer[32];
    const Status early = files.read(handle, 5, buffer, 20);
    EXPECT_EQ(early.code(), Code::io_error);
    EXPECT_NE(std::string(early.text()).find("early"), std::string::npos);
    EXPECT_NE(std::string(early.text()).find(second), std::string::npos); // names the file
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
    EXPECT_FALSE(files.open(link.c_str(), OpenMode::plain_directory, &handle).ok());
    check(files.open(real.c_str(), OpenMode::plain_directory, &handle));
    std::vector<std::string> names;
    for (int twice = 0; twice < 2; ++twice) {
        check(files.list(handle, &names));
        EXPECT_EQ(names, (std::vector<std::string>{"empty", "inner"}));
    }
    bool taken = false;
    check(files.lock(handle, &taken));
    EXPECT_TRUE(taken);
    int32_t second = -1;
    check(files.open(real.c_str(), OpenMode::plain_directory, &second));
    check(files.lock(second, &taken));
    EXPECT_FALSE(taken);
    check(files.close(second));
    EXPECT_FALSE(files.remove(handle, "missing").ok());
    check(files.remove(handle, "inner"));
    check(files.remove(handle, "empty"));
    EXPECT_EQ(::access(link.c_str(), F_OK), 0);
    check(files.close(handle));
    check(files.remove(link.c_str()));
    check(files.remove(real.c_str()));
    check(files.remove(folder.c_str()));
}

namespace {

std::string new_folder(const char* name) {
    std::string folder = ::testing::TempDir() + name + std::to_string(::getpid());
    check(posix_files().make_directory(folder.c_str()));
    return folder;
}

mode_t mode_of(const std::string& path) {
    struct stat info = {};
    return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// Closes those of the standard streams that are in the set, until it ends.
class ClosedStreams {
  public:
    explicit ClosedStreams(int set) noexcept {
        for (int i = 0; i < 3; ++i) {
            copies_[i] = (set >> i & 1) != 0 ? ::fcntl(i, F_DUPFD_CLOEXEC, 100) : -1;
            if (copies_[i] >= 0) {
                (void)::close(i);
            }
        }
    }
    ClosedStreams(const ClosedStreams&) = delete;
    ClosedStreams& operator=(const ClosedStreams&) = delete;
    ~ClosedStreams() {
        for (int i = 0; i < 3; ++i) {
            if (copies_[i] >= 0) {
                (void)::dup2(copies_[i], i);
                (void)::close(copies_[i]);
            }
        }
    }

  private:
    int copies_[3];
};

} // namespace

TEST(Files, NoHandleIsAStandardStreams) {
    FileTable& files = posix_files();
    const std::string folder = new_folder("mp_streams_");
    const std::string file = folder + "/file";
    for (int set = 0; set < 8; ++set) {
        int lowest = 1000;
        bool still_closed = true;
        {
            const ClosedStreams closed(set);
            const OpenFile made(files, kCurrentDirectory, file, OpenMode::create_new);
            const OpenFile read(files, kCurrentDirectory, file, OpenMode::read_plain);
            const OpenFile parent(files, kCurrentDirectory, folder, OpenMode::directory);
            std::vector<std::string> names;
            check(files.list(parent.handle(), &names));
            for (const OpenFile* one : {&made, &read, &parent}) {
                lowest = std::min(lowest, one->handle());
            }
            for (int i = 0; i < 3; ++i) {
                still_closed = still_closed && ((set >> i & 1) == 0 || ::fcntl(i, F_GETFD) < 0);
            }
            check(files.remove(file.c_str()));
        }
        EXPECT_GE(lowest, 3) << set;
        EXPECT_TRUE(still_closed) << set;
    }
    check(files.remove(folder.c_str()));
}

TEST(Files, ModesAreWhatTheUmaskLeaves) {
    FileTable& files = posix_files();
    const std::string folder = new_folder("mp_umask_");
    ASSERT_EQ(::chmod(folder.c_str(), 02777), 0);
    const std::string file = folder + "/file", inner = folder + "/inner";
    for (const mode_t mask : {0000, 0002, 0022, 0027, 0077}) {
        const mode_t before = ::umask(mask);
        (void)OpenFile(files, kCurrentDirectory, file, OpenMode::create_new);
        check(files.make_directory(inner.c_str()));
        (void)::umask(before);
        EXPECT_EQ(mode_of(file), 0666U & ~mask);
        EXPECT_EQ(mode_of(inner), 02000U | (0777U & ~mask)); // the group's bit is inherited
        check(files.remove(file.c_str()));
        check(files.remove(inner.c_str()));
    }
    check(files.remove(folder.c_str()));
}

TEST(Files, OnlyRegularFilesAreReplaced) {
    FileTable& files = posix_files();
    const std::string folder = new_folder("mp_replace_");
    const std::string path = folder + "/it", part = path + ".part";
    replace_text(files, part, "precious");
    replace_text(files, path, "first");
    replace_text(files, path, "second");
    EXPECT_EQ(read_text(files, path, 100), "second");
    check(files.remove(path.c_str()));
    const std::function<int()> kinds[] = {
        [&] { return ::symlink(part.c_str(), path.c_str()); },
        [&] { return ::symlink((folder + "/nothing").c_str(), path.c_str()); },
        [&] { return ::mkfifo(path.c_str(), 0600); },
        [&] { return ::mkdir(path.c_str(), 0700); },
    };
    for (const auto& make : kinds) {
        ASSERT_EQ(make(), 0);
        FileIdentity before, after;
        check(files.look(kCurrentDirectory, path.c_str(), &before));
        EXPECT_THROW(replace_text(files, path, "third"), Error);
        check(files.look(kCurrentDirectory, path.c_str(), &after));
        EXPECT_EQ(before, after);
        check(files.remove(path.c_str()));
    }
    EXPECT_EQ(read_text(files, part, 100), "precious");
    EXPECT_THROW(replace_text(files, folder + "/no/such", "x"), Error);
    EXPECT_THROW(replace_text(files, folder + "/", "x"), Error);
    check(files.remove(part.c_str()));
    check(files.remove(folder.c_str())); // nothing else was left in it
}

TEST(Files, NamesAreUtf8AndNotReserved) {
    for (const char* good :
         {"w", "h0.attn.weight", "\xc3\xa9", "\xf0\x9f\x98\x80", " ", "__metadata"}) {
        EXPECT_NO_THROW(check_name("a name", good)) << good;
    }
    const std::string longest(255, 'n');
    EXPECT_NO_THROW(check_name("a name", longest));
    // Not a lead, cut, overlong, a surrogate, above the last character, a lone continuation.
    for (const std::string& bad :
         {std::string(), longest + "n", std::string("\xff"), std::string("a\xc3"),
          std::string("\xc0\xaf"), std::string("\xe0\x80\xaf"), std::string("\xed\xa0\x80"),
          std::string("\xf4\x90\x80\x80"), std::string("\x80"), std::string("__metadata__")}) {
        EXPECT_THROW(check_name("a name", bad), Error) << bad;
    }
}

TEST(Files, TheOwnFolderIsSaidFromTheRoot) {
    const std::vector<std::string> folders = own_directories();
    ASSERT_FALSE(folders.empty());
    for (const std::string& folder : folders) {
        EXPECT_EQ(folder.front(), '/');
    }
    char path[4096] = {};
    ASSERT_GT(::readlink("/proc/self/exe", path, sizeof path - 1), 0);
    EXPECT_EQ(folders.back() + "/", std::string(path).substr(0, std::string(path).rfind('/') + 1));
}
