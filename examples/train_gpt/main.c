/* SPDX-License-Identifier: Apache-2.0
 * train_gpt: trains a small GPT on text, in one or several libmixedprec recipes. The C ABI at work: parameters and
 * optimizer in params.c, linear layers in passes.c, attention's products in attention.c, the loop in run.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"
#include "run.h"

volatile sig_atomic_t interrupted = 0;
static volatile pid_t running_child = 0;

/* Ctrl-C reaches the child by itself; a signal sent to this process alone does not. Twice does no harm. */
static void on_interrupt(int signal_number) {
    interrupted = 1;
    if (running_child > 0) {
        kill(running_child, signal_number);
    }
}

/* In the child: trains, hands the result over, ends. */
static void run_child(const Options* options, const Text* text, const char* recipe, int out) {
    Run run;
    const bool good = run_recipe(&run, options, text, recipe);
    const bool sent = run_write(&run, out);
    run_free(&run);
    close(out);
    fflush(stdout);
    exit(good && sent ? EXIT_OK : EXIT_FAILED);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* Trains in a process of its own, so that its peak memory is its own, and a crash is too. */
static bool run_forked(Run* run, const Options* options, const Text* text, const char* recipe) {
    int ends[2];
    memset(run, 0, sizeof *run);
    fflush(stdout);
    if (pipe(ends) != 0) {
        fprintf(stderr, "train_gpt: cannot make a pipe: %s\n", strerror(errno));
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        running_child = 0;
        close(ends[0]);
        run_child(options, text, recipe, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        fprintf(stderr, "train_gpt: cannot start a process: %s\n", strerror(errno));
        close(ends[0]);
        return false;
    }
    running_child = child;
    const bool received = run_read(run, ends[0]);
    close(ends[0]);
    const int status = wait_for(child);
    running_child = 0;
    if (!received) {
        snprintf(run->recipe, sizeof run->recipe, "%s", recipe);
        run->outcome = RUN_FAILED;
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "train_gpt: %s: its process was ended by signal %d (%s)\n", recipe,
                    WTERMSIG(status), strsignal(WTERMSIG(status)));
        }
    }
    return received && run->outcome != RUN_FAILED;
}

static void print_model(const Options* o, const Text* text) {
    int64_t parameters = 0;
    options_memory(o, &parameters);
    printf("GPT: %lld layers, dim %lld, %lld heads, context %lld: %.2f million parameters\n"
           "Text: %s, %.2f MB. Batch: %lld x %lld bytes%s. %lld steps\n",
           (long long)o->layers, (long long)o->dim, (long long)o->heads, (long long)o->context,
           (double)parameters / 1e6, o->data, (double)text->count / 1e6,
           (long long)(o->batch * o->accum), (long long)o->context,
           o->accum > 1 ? " (accumulated)" : "", (long long)o->steps);
    fflush(stdout);
}

static int run_all(Run* runs, const Options* options, const Text* text) {
    bool good = true;
    int count = 0;
    for (; count < options->recipe_count && !interrupted; count++) {
        good = (options->recipe_count > 1 ? run_forked : run_recipe)(&runs[count], options, text,
                                                                     options->recipes[count]) &&
               good;
    }
    if ((options->recipe_count > 1 || good) && ranks_is_first_process()) {
        report_table(runs, count);
        report_samples(runs, count);
        if (options->out != NULL) {
            good = report_files(runs, count, options) && good;
        }
    }
    for (int i = 0; i < count; i++) {
        run_free(&runs[i]);
    }
    return !good ? EXIT_FAILED : interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}

int main(int argc, char** argv) {
    Options options;
    const int parsed = options_parse(&options, argc, argv);
    if (parsed != EXIT_OK) {
        return parsed < 0 ? EXIT_OK : parsed;
    }
    const int started = ranks_start(&options);
    if (started != EXIT_OK) {
        ranks_finish();
        return started;
    }
    Text text;
    const bool first = ranks_is_first_process();
    if (!text_load(&text, &options) ||
        (first && options.out != NULL && !report_prepare_folder(options.out)) ||
        (first && options.monitor > 0 && !monitor_prepare_file(&options))) {
        ranks_finish();
        return EXIT_FAILED;
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (first) {
        print_model(&options, &text);
    }
    static Run runs[MAX_RECIPES];
    const int code = run_all(runs, &options, &text);
    text_free(&text);
    ranks_finish();
    return code;
}
