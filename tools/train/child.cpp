// SPDX-License-Identifier: Apache-2.0
// A recipe in a process of its own, whose result comes back through a pipe.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "files.hpp"
#include "run.hpp"

namespace train {

static volatile pid_t running_child = 0;

// Ctrl-C reaches the child by itself; a signal sent to this process alone does not. Twice does no harm.
void signal_child(int number) {
    if (running_child > 0) {
        kill(running_child, number);
    }
}

static std::vector<uint8_t> read_all(int pipe_end) {
    std::vector<uint8_t> bytes;
    std::array<uint8_t, 65536> part{};
    ssize_t count = 0;
    while ((count = read(pipe_end, part.data(), part.size())) > 0) {
        bytes.insert(bytes.end(), part.begin(), part.begin() + count);
    }
    close(pipe_end);
    return bytes;
}

bool run_forked(Run& run, const Options& options, const Processes& processes, const Text& text,
                const std::string& recipe, double peak) {
    std::array<int, 2> ends{};
    std::fflush(stdout);
    if (pipe(ends.data()) != 0) {
        throw Failure("cannot make a pipe: ", std::strerror(errno));
    }
    const pid_t child = fork();
    if (child == 0) {
        running_child = 0;
        close(ends[0]);
        const bool good = run_recipe(run, options, processes, text, recipe, peak);
        const std::vector<uint8_t> bytes = pack(run);
        const bool sent =
            write_all(ends[1], reinterpret_cast<const char*>(bytes.data()), bytes.size());
        std::fflush(stdout);
        std::exit(good && sent ? kDone : kFailed);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        throw Failure("cannot start a process: ", std::strerror(errno));
    }
    running_child = child;
    const std::vector<uint8_t> bytes = read_all(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    running_child = 0;
    if (WIFEXITED(status) && !bytes.empty()) {
        run = unpack(bytes);
        return run.outcome != kRunFailed;
    }
    run = Run{};
    run.recipe = recipe;
    if (WIFSIGNALED(status)) {
        print_failure(Failure(recipe, ": its process was ended by signal ", WTERMSIG(status), " (",
                              strsignal(WTERMSIG(status)), ")"));
    }
    return false;
}

} // namespace train
