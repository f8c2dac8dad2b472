// SPDX-License-Identifier: Apache-2.0
// The host's parallel loop: every iteration once, whoever does it; nested, from many threads, and after fork().
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "host/resources/thread_pool.hpp"

namespace mp::test {
namespace {

using backends::host::ThreadPool;

// How often each iteration was done.
std::vector<int> counts_of(ThreadPool& pool, int64_t count, int64_t grain) {
    std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
    pool.for_each(
        count, [&](int64_t i) { ++done[static_cast<std::size_t>(i)]; }, grain);
    return {done.begin(), done.end()};
}

TEST(ThreadPool, DoesEveryIterationOnce) {
    for (const int32_t threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        for (const int64_t count : {0, 1, 2, 3, 7, 8, 100, 1001}) {
            for (const int64_t grain : {1, 3, 16}) {
                for (int repeat = 0; repeat < 20; ++repeat) {
                    ASSERT_EQ(counts_of(pool, count, grain),
                              std::vector<int>(static_cast<std::size_t>(count), 1))
                        << threads << " threads, " << count << " by " << grain;
                }
            }
        }
    }
}

TEST(ThreadPool, GivesThreadsNumbersOfTheirOwn) {
    constexpr int32_t kThreads = 4;
    ThreadPool pool(kThreads);
    for (int repeat = 0; repeat < 200; ++repeat) {
        std::vector<std::atomic<int>> inside(kThreads);
        std::atomic<int> clashes{0};
        pool.for_each_on(64, [&](int64_t /*i*/, int32_t thread) {
            ASSERT_GE(thread, 0);
            ASSERT_LT(thread, kThreads);
            clashes += ++inside[static_cast<std::size_t>(thread)] != 1 ? 1 : 0;
            std::this_thread::yield();
            --inside[static_cast<std::size_t>(thread)];
        });
        ASSERT_EQ(clashes.load(), 0);
    }
}

// All threads are needed at once, or this waits for ever.
TEST(ThreadPool, WorksWithAllItsThreads) {
    ThreadPool pool(3);
    std::atomic<int> arrived{0};
    pool.for_each(3, [&](int64_t /*i*/) {
        ++arrived;
        while (arrived.load() < 3) {
            std::this_thread::yield();
        }
    });
    EXPECT_EQ(arrived.load(), 3);
}

// Memory lies where it was written first, so whoever zeroes a share of an array has to be who works on it.
TEST(ThreadPool, GivesAThreadTheSameShareOfEveryLoop) {
    constexpr int32_t kThreads = 3;
    ThreadPool pool(kThreads);
    const auto ids_by_share = [&pool] {
        std::vector<std::thread::id> ids(kThreads);
        std::atomic<int> arrived{0};
        pool.for_each_on(kThreads, [&](int64_t share, int32_t thread) {
            EXPECT_EQ(share, thread);
            ids[static_cast<std::size_t>(share)] = std::this_thread::get_id();
            ++arrived;
            while (arrived.load() < kThreads) { // so that nobody takes over another's
                std::this_thread::yield();
            }
        });
        return ids;
    };
    const std::vector<std::thread::id> first = ids_by_share();
    EXPECT_EQ(first[0], std::this_thread::get_id());
    for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(ids_by_share(), first);
    }
}

TEST(ThreadPool, TakesLoopsInsideLoops) {
    ThreadPool pool(3);
    std::atomic<int> done{0};
    pool.for_each(10, [&](int64_t /*i*/) { pool.for_each(10, [&](int64_t /*j*/) { ++done; }); });
    EXPECT_EQ(done.load(), 100);
}

TEST(ThreadPool, ServesManyCallersAtOnce) {
    ThreadPool pool(3);
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&] {
            for (int repeat = 0; repeat < 200; ++repeat) {
                wrong += counts_of(pool, 50, 1) == std::vector<int>(50, 1) ? 0 : 1;
            }
        });
    }
    for (std::thread& caller : callers) {
        caller.join();
    }
    EXPECT_EQ(wrong.load(), 0);
}

// The child has none of the threads: it starts its own, and leaves the parent's alone.
TEST(ThreadPool, WorksInAChildOfFork) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "skipped: the thread sanitizer ends a child that starts threads";
#endif
    auto* pool = new ThreadPool(3);
    ASSERT_EQ(counts_of(*pool, 100, 1), std::vector<int>(100, 1));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        (void)alarm(60);
        const bool right = counts_of(*pool, 100, 1) == std::vector<int>(100, 1);
        delete pool; // ends the child's threads
        _exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(counts_of(*pool, 100, 1), std::vector<int>(100, 1));
    delete pool;
}

// A child that never uses it must be able to end.
TEST(ThreadPool, EndsInAChildThatDidNotUseIt) {
    auto* pool = new ThreadPool(3);
    ASSERT_EQ(counts_of(*pool, 100, 1), std::vector<int>(100, 1));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        (void)alarm(60);
        delete pool;
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    delete pool;
}

// The program's signals are handled by the program's threads.
TEST(ThreadPool, ItsThreadsTakeNoSignals) {
    ThreadPool pool(2);
    std::atomic<int> arrived{0};
    std::atomic<bool> is_blocked{false};
    pool.for_each_on(2, [&](int64_t /*i*/, int32_t thread) {
        ++arrived;
        while (arrived.load() < 2) {
            std::this_thread::yield();
        }
        if (thread == 1) {
            sigset_t mask;
            (void)pthread_sigmask(SIG_SETMASK, nullptr, &mask);
            is_blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1 &&
                         sigismember(&mask, SIGSEGV) == 0;
        }
    });
    EXPECT_TRUE(is_blocked.load());
    sigset_t mask;
    (void)pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

} // namespace
} // namespace mp::test
