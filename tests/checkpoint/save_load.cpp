// SPDX-License-Identifier: Apache-2.0
// Saving on N ranks and loading on M, over the simulated and the real file table.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/directory.hpp"
#include "checkpoint/example_state.hpp"
#include "checkpoint/simulated_files.hpp"
#include "checkpoint/thread_ranks.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::test;

namespace {

constexpr int64_t kCount = 1000;

std::string save_on(system::FileTable& files, int32_t size, uint32_t version,
                    const SaveOptions& options) {
    std::string path;
    run_ranks(size, [&](Ranks& ranks) {
        ExampleState state(ranks.rank(), size, kCount, version);
        const std::string made = save_checkpoint(ranks, files, state.catalog(), options);
        if (ranks.rank() == 0) {
            path = made;
        }
    });
    return path;
}

void load_on(system::FileTable& files, int32_t size, uint32_t version, const std::string& path) {
    run_ranks(size, [&](Ranks& ranks) {
        ExampleState state(ranks.rank(), size, kCount, 0);
        const Loaded loaded = load_checkpoint(ranks, files, state.catalog(), load_options(path));
        EXPECT_TRUE(state.is(0)); // nothing live is touched yet
        loaded.commit(state.catalog());
        EXPECT_TRUE(state.is(version));
        EXPECT_EQ(loaded.manifest().find_scalar("optimizer.t")->bits, version);
        EXPECT_EQ(loaded.manifest().seed, 42U);
    });
}

std::vector<std::string> names_in(system::FileTable& files, const std::string& path) {
    const system::OpenFile folder(files, system::kCurrentDirectory, path,
                                  system::OpenMode::directory);
    std::vector<std::string> names;
    check(files.list(folder.handle(), &names));
    return names;
}

} // namespace

TEST(SaveLoad, EveryNumberOfRanksToEveryOther) {
    int pairs = 0;
    for (int32_t n = 1; n <= 8; ++n) {
        SimulatedFiles files;
        const auto version = static_cast<uint32_t>(n);
        const std::string path = save_on(files, n, version, save_options("/c", 10));
        for (int32_t m = 1; m <= 8; ++m, ++pairs) {
            load_on(files, m, version, m % 2 == 0 ? path : "/c");
        }
        EXPECT_EQ(files.open_handles(), 0);
    }
    std::printf("%d pairs of rank counts\n", pairs);
}

TEST(SaveLoad, NewestIsTheLastCommittedAndOldOnesGoWhenAsked) {
    SimulatedFiles files;
    (void)save_on(files, 2, 1, save_options("/c", 200));
    (void)save_on(files, 2, 2, save_options("/c", 150)); // after going back
    load_on(files, 1, 2, "/c");
    EXPECT_EQ(list_committed(files, "/c").size(), 2U);
    SaveOptions options = save_options("/c", 160);
    options.keep = 2;
    (void)save_on(files, 2, 3, options);
    const std::vector<Committed> left = list_committed(files, "/c");
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left[0].step, 160);
    EXPECT_EQ(left[1].step, 150);
    EXPECT_EQ(names_in(files, "/c").size(), 2U);
}

TEST(SaveLoad, LeftoversOfTheDeadAreRemovedAndThoseOfTheLivingStay) {
    SimulatedFiles files;
    (void)save_on(files, 1, 1, save_options("/c", 1));
    const std::string dead = "/c/" + temporary_name(2, std::string(32, 'a'));
    const std::string living = "/c/" + temporary_name(2, std::string(32, 'b'));
    for (const std::string& path : {dead, living}) {
        check(files.make_directory(path.c_str()));
        const system::OpenFile shard(files, system::kCurrentDirectory, path + "/shard",
                                     system::OpenMode::create_new);
    }
    check(files.make_directory("/c/.tmp-of-somebody-else"));
    bool taken = false;
    const system::OpenFile lock(files, system::kCurrentDirectory, living,
                                system::OpenMode::plain_directory);
    check(files.lock(lock.handle(), &taken));
    EXPECT_TRUE(taken);
    (void)save_on(files, 1, 2, save_options("/c", 2));
    EXPECT_EQ(names_in(files, "/c").size(), 4U); // two committed, the living one, somebody else's
    EXPECT_EQ(names_in(files, living).size(), 1U);
    EXPECT_THROW((void)names_in(files, dead), Error);
}

TEST(SaveLoad, RanksThatDisagreeAreNamed) {
    const auto save_with = [](const std::function<void(Catalog&, int32_t)>& change) {
        SimulatedFiles files;
        std::string text;
        try {
            run_ranks(3, [&](Ranks& ranks) {
                ExampleState state(ranks.rank(), 3, kCount, 1);
                change(state.catalog(), ranks.rank());
                (void)save_checkpoint(ranks, files, state.catalog(), save_options("/c", 1));
            });
        } catch (const Error& error) {
            text = error.status().text();
        }
        EXPECT_TRUE(names_in(files, "/c").empty());
        return text;
    };
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  c.scalars[0].bits += rank == 2 ? 1 : 0;
              }).find("rank 2 and rank 0 have different scalars"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  c.recipe += rank == 1 ? " " : "";
              }).find("rank 1 and rank 0 have different recipe"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  if (rank == 1) {
                      static_cast<unsigned char*>(c.entries[5].slices[0].data)[0] ^= 1;
                  }
              }).find("rank 1 and rank 0 have different scales"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  c.entries[0].slices[0].start += rank == 1;
              }).find("'w' (param)"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  if (rank == 2) {
                      c.entries[1].shape = {500, 2};
                  }
              }).find("another shape"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  c.entries[6].name = rank == 1 ? "position" : "place";
              }).find("rank 0 has nothing called 'position' (blob)"),
              std::string::npos);
    EXPECT_NE(save_with([](Catalog& c, int32_t rank) {
                  if (rank == 2) {
                      c.entries.pop_back();
                  }
              }).find("rank 2 has nothing called 'empty' (param)"),
              std::string::npos);
}

// Whatever stands in a folder under the name of a checkpoint, a save beside it is found and takes no whole one away.
TEST(SaveLoad, FoldersWithImpossibleNumbersHideNothing) {
    const int64_t most = int64_t{1} << 53;
    const std::vector<int64_t> numbers = {4,        1'000'000, most / 2, most / 2 + 1, most - 3,
                                          most - 2, most - 1,  most,     INT64_MAX};
    int cases = 0;
    for (std::size_t one = 0; one < numbers.size(); ++one) {
        for (std::size_t other = one; other < numbers.size(); ++other) {
            for (const bool has_garbage : {false, true}) {
                SimulatedFiles files;
                (void)save_on(files, 1, 1, save_options("/c", 1));
                for (const std::size_t i : std::set<std::size_t>{one, other}) {
                    const std::string path =
                        "/c/" + committed_name(9, numbers[i], std::string(32, 'a'));
                    check(files.make_directory(path.c_str()));
                    if (has_garbage) {
                        const system::OpenFile garbage(files, system::kCurrentDirectory,
                                                       path + "/" + kManifestName,
                                                       system::OpenMode::create_new);
                    }
                }
                SaveOptions options = save_options("/c", 2);
                options.keep = 1;
                for (uint32_t version = 2; version < 5; ++version, ++cases) {
                    options.step = version;
                    const std::string path = save_on(files, 1, version, options);
                    load_on(files, 1, version, "/c");
                    load_on(files, 1, version, path);
                }
            }
        }
    }
    std::printf("%d saves beside planted folders\n", cases);
}

TEST(SaveLoad, ARenamedCheckpointIsNotTheNewest) {
    SimulatedFiles files;
    const std::string first = save_on(files, 1, 1, save_options("/c", 1));
    const std::string last =
        committed_name(1, (int64_t{1} << 53) - 1, first.substr(first.size() - 32));
    check(files.rename(first.c_str(), ("/c/" + last).c_str()));
    EXPECT_THROW(load_on(files, 1, 1, "/c"), Error); // its manifest has another number
    (void)save_on(files, 1, 2, save_options("/c", 2));
    load_on(files, 1, 2, "/c");
}

TEST(SaveLoad, WhatDoesNotFitIsRefusedWithTheReason) {
    SimulatedFiles files;
    const std::string path = save_on(files, 2, 1, save_options("/c", 1));
    const auto load_with = [&](const std::function<void(Catalog&)>& change) {
        std::string text;
        try {
            run_ranks(1, [&](Ranks& ranks) {
                ExampleState state(0, 1, kCount, 0);
                change(state.catalog());
                (void)load_checkpoint(ranks, files, state.catalog(), load_options(path));
            });
        } catch (const Error& error) {
            text = error.status().text();
        }
        return text;
    };
    EXPECT_NE(load_with([](Catalog& c) { c.entries[0].name = "v"; }).find("does not have 'v'"),
              std::string::npos);
    EXPECT_NE(load_with([](Catalog& c) { c.entries.pop_back(); }).find("nothing here takes it"),
              std::string::npos);
    EXPECT_NE(load_with([](Catalog& c) {
                  c.entries[1].format = FormatId::fp16;
              }).find("is bf16 in the file but fp16 here"),
              std::string::npos);
    EXPECT_NE(load_with([](Catalog& c) {
                  c.entries[0].shape = {125, 8};
              }).find("is [250, 4] in the file but [125, 8] here"),
              std::string::npos);
    const std::string other = load_with([](Catalog& c) {
        c.recipe = "{}";
        c.preset = "bf16_mixed";
    });
    for (const char* words : {"another recipe, one without a name", "here it is 'bf16_mixed'",
                              "MP_LOAD_CONVERT", "MP_LOAD_OTHER_RECIPE"}) {
        EXPECT_NE(other.find(words), std::string::npos) << other;
    }
    EXPECT_EQ(load_with([](Catalog&) {}), "");
}

TEST(SaveLoad, ExportedKeysAreUnique) {
    SimulatedFiles files;
    ExampleState state(0, 1, kCount, 1);
    Catalog catalog;
    catalog.entries = {state.catalog().entries[4], state.catalog().entries[5]}; // with a scale
    write_weights(files, "/whole", catalog);
    catalog.entries.push_back(catalog.entries[0]);
    catalog.entries.back().name = "bias_param_scale_inv";
    try {
        write_weights(files, "/twice", catalog);
        ADD_FAILURE() << "a file has a key twice";
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::invalid_argument);
        EXPECT_NE(std::string(error.status().text()).find("'bias_param_scale_inv'"),
                  std::string::npos);
    }
    EXPECT_EQ(names_in(files, "/"), std::vector<std::string>{"whole"});
}

TEST(SaveLoad, ASnapshotKeepsWhatWas) {
    SimulatedFiles files;
    run_ranks(1, [&](Ranks& ranks) {
        ExampleState state(0, 1, kCount, 1);
        const Snapshot snapshot(state.catalog());
        auto* first = static_cast<unsigned char*>(state.catalog().entries[0].slices[0].data);
        first[0] = static_cast<unsigned char>(~first[0]); // training goes on
        (void)save_checkpoint(ranks, files, snapshot.catalog(), save_options("/c", 1));
    });
    load_on(files, 1, 1, "/c");
}

TEST(SaveLoad, OnTheRealFileSystem) {
    system::FileTable& files = system::posix_files();
    const std::string folder = ::testing::TempDir() + "mp_checkpoint_" + std::to_string(::getpid());
    const std::string path = save_on(files, 3, 7, save_options(folder, 5, kDefaultChunk));
    load_on(files, 2, 7, folder);
    load_on(files, 4, 7, path);
    for (const Committed& one : list_committed(files, folder)) {
        discard(files, open_parent(files, folder).handle(), one.name);
    }
    EXPECT_EQ(std::remove(folder.c_str()), 0);
}

TEST(SaveLoad, LinksAndPipesAreNoFilesOfACheckpoint) {
    system::FileTable& files = system::posix_files();
    const std::string folder = ::testing::TempDir() + "mp_links_" + std::to_string(::getpid());
    const std::string path = save_on(files, 1, 7, save_options(folder, 5));
    const std::string shard = path + "/shard-0-of-1.safetensors";
    const std::string aside = path + "/aside";
    ASSERT_EQ(std::rename(shard.c_str(), aside.c_str()), 0);
    const auto expect_refused = [&](const std::string& what) {
        EXPECT_THROW(load_on(files, 1, 7, path), Error) << what;
        ASSERT_EQ(std::remove(shard.c_str()), 0) << what;
    };
    ASSERT_EQ(::symlink("aside", shard.c_str()), 0);
    expect_refused("link");
    ASSERT_EQ(::symlink("/dev/zero", shard.c_str()), 0);
    expect_refused("link to a device");
    ASSERT_EQ(::mkfifo(shard.c_str(), 0600), 0);
    expect_refused("pipe");
    check(files.make_directory(shard.c_str()));
    expect_refused("directory");
    ASSERT_EQ(std::rename(aside.c_str(), shard.c_str()), 0);
    load_on(files, 1, 7, path);
    const std::string manifest = path + "/manifest.json";
    ASSERT_EQ(std::remove(manifest.c_str()), 0);
    ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
    EXPECT_THROW(load_on(files, 1, 7, path), Error);
    for (const Committed& one : list_committed(files, folder)) {
        discard(files, open_parent(files, folder).handle(), one.name);
    }
    EXPECT_EQ(std::remove(folder.c_str()), 0);
}
