/* SPDX-License-Identifier: Apache-2.0 */
/* A program with OpenMP loops of its own beside the library: after the library's first loop the runtime's threads no longer
 * spin when a loop of the program's ends, unless the environment says how they wait.
 *
 *     openmp_neighbours gnu|llvm told|obeyed
 */
#include <dirent.h>
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <mixedprec.h>

enum { ELEMENTS = 1 << 20, LOOPS = 30, THREADS = 2 };

static char logged[8192];

static void note(int32_t level, const char* message, void* payload) {
    (void)payload;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%d: %s\n", (int)level,
             message);
}

static void check(int holds, const char* what) {
    if (!holds) {
        fprintf(stderr, "openmp_neighbours: %s; the library last said: %s\n%s", what,
                mp_last_error_message(), logged);
        exit(1);
    }
}

static float values[ELEMENTS];

static void own_loop(void) {
#pragma omp parallel for num_threads(THREADS)
    for (int i = 0; i < ELEMENTS; ++i) {
        values[i] = values[i] * 0.5F + 1.0F;
    }
}

static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of this process while it sleeps between loops: a busy machine does not change it. */
static double spinning(void) {
    double spent = 0.0;
    for (int i = 0; i < LOOPS; ++i) {
        own_loop();
        const double begin = processor_time();
        usleep(20000);
        spent += processor_time() - begin;
    }
    return spent / LOOPS;
}

/* Threads of the team that makes libgomp count ours. They begin in their own time. */
static int sleepers(void) {
    int found = 0;
    for (int tries = 0; tries < 200 && found < THREADS; ++tries) {
        DIR* folder = opendir("/proc/self/task");
        struct dirent* entry;
        found = 0;
        while (folder != NULL && (entry = readdir(folder)) != NULL) {
            char path[300];
            char name[32] = "";
            FILE* file;
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
            file = fopen(path, "r");
            if (file != NULL) {
                found +=
                    fgets(name, sizeof name, file) != NULL && strcmp(name, "mixedprec-omp\n") == 0;
                fclose(file);
            }
        }
        if (folder != NULL) {
            closedir(folder);
        }
        usleep(10000);
    }
    return found;
}

static mp_context* work(void) {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_context* context = NULL;
    desc.num_threads = THREADS;
    desc.log_level = MP_LOG_INFO;
    desc.log = note;
    check(mp_context_create(&desc, &context) >= 0, "no context");
    {
        mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
        mp_tensor* x = NULL;
        mp_tensor* y = NULL;
        shape.dtype = MP_DTYPE_FP32;
        shape.ndim = 1;
        shape.shape[0] = ELEMENTS;
        check(mp_tensor_wrap(context, &shape, values, NULL, NULL, &x) >= 0, "no tensor");
        shape.dtype = MP_DTYPE_BF16;
        check(mp_tensor_create(context, &shape, &y) >= 0, "no tensor");
        check(mp_tensor_cast(x, NULL, y, NULL) >= 0, "no cast"); /* on all threads */
        mp_tensor_destroy(x);
        mp_tensor_destroy(y);
    }
    return context;
}

int main(int argc, char** argv) {
    const int is_gnu = argc > 1 && strcmp(argv[1], "gnu") == 0;
    const int is_told = argc > 2 && strcmp(argv[2], "told") == 0;
    char about[16384];
    int (*blocktime)(void) = NULL;
    double before;
    double after;
    mp_context* context;

    own_loop();
    *(void**)&blocktime = dlsym(RTLD_DEFAULT, "kmp_get_blocktime");
    before = spinning();
    context = work();
    check(mp_context_describe(context, about, sizeof about, NULL) >= 0, "no description");
    if (!is_told) {
        check(strstr(about, "OMP_WAIT_POLICY=active") != NULL,
              "the description does not name what is set");
        check(strstr(logged, "OMP_WAIT_POLICY=passive") != NULL, "no warning of threads that spin");
        check(!is_gnu || sleepers() == 0, "a runtime was told against what the user set");
        check(is_gnu || blocktime() != 0, "a runtime was told against what the user set");
    } else {
        check(strstr(about, "is told of our threads") != NULL,
              "the description does not name the runtime");
        check(!is_gnu || sleepers() == THREADS, "libgomp has no team of ours");
        check(is_gnu || (blocktime != NULL && blocktime() == 0), "libomp was not told");
        after = spinning();
        printf("%.3f ms of processor time after a loop before, %.3f then\n", 1e3 * before,
               1e3 * after);
        check(after < 0.5 * before, "the program's threads still spin after a loop");
    }
    mp_context_destroy(context);
    return 0;
}
