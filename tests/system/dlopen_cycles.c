// SPDX-License-Identifier: Apache-2.0
// A program that opens the library, uses it, closes it, and does so again: no thread stays, and little memory. What malloc has
// lent is counted, not what is resident, which is the system's to decide. And one that closes it while it has a context, whose
// threads wait for work: they do so in code that is still there.
// usage: dlopen_cycles LIBRARY
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <mixedprec.h>

static int thread_count(void) {
    int count = 0;
    DIR* tasks = opendir("/proc/self/task");
    while (tasks != NULL && readdir(tasks) != NULL) {
        count++;
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return count - 2; // but for . and ..
}

// 0 where another C library does not count.
static long lent_kib(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 info = mallinfo2();
    return (long)((info.uordblks + info.hblkhd) / 1024);
#else
    return 0;
#endif
}

typedef mp_status (*create_fn)(const mp_context_desc*, mp_context**);
typedef void (*destroy_fn)(mp_context*);
typedef mp_status (*tensor_fn)(mp_context*, const mp_tensor_desc*, mp_tensor**);
typedef void (*tensor_destroy_fn)(mp_tensor*);
typedef mp_status (*cast_fn)(const mp_tensor*, mp_queue*, mp_tensor*, const mp_cast_desc*);

// Closed before what was made is destroyed, or after.
static int use(const char* path, int closes_first) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    create_fn create = NULL;
    destroy_fn destroy = NULL;
    tensor_fn make = NULL;
    tensor_destroy_fn drop = NULL;
    cast_fn cast = NULL;
    *(void**)&create = dlsym(library, "mp_context_create"); // as POSIX has it
    *(void**)&destroy = dlsym(library, "mp_context_destroy");
    *(void**)&make = dlsym(library, "mp_tensor_create");
    *(void**)&drop = dlsym(library, "mp_tensor_destroy");
    *(void**)&cast = dlsym(library, "mp_tensor_cast");
    if (!create || !destroy || !make || !drop || !cast) {
        return 1;
    }
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    mp_context* context = NULL;
    mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
    shape.dtype = MP_DTYPE_FP32;
    shape.ndim = 1;
    shape.shape[0] = 100000;
    mp_tensor *from = NULL, *to = NULL;
    int failed =
        create(&desc, &context) != MP_STATUS_OK || make(context, &shape, &from) != MP_STATUS_OK;
    shape.dtype = MP_DTYPE_BF16;
    failed = failed || make(context, &shape, &to) != MP_STATUS_OK ||
             cast(from, NULL, to, NULL) != MP_STATUS_OK;
    if (closes_first) {
        failed = failed || dlclose(library) != 0 || dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL ||
                 cast(from, NULL, to, NULL) != MP_STATUS_OK;
    }
    drop(from);
    drop(to);
    destroy(context);
    return failed || (!closes_first && dlclose(library) != 0);
}

int main(int argc, char** argv) {
    enum { kWarm = 5, kCycles = 30, kMostKib = 100 };
    long before = 0;
    if (argc != 2) {
        return 2;
    }
    for (int i = 0; i < kWarm + kCycles; i++) {
        if (i == kWarm) {
            before = lent_kib();
        }
        if (use(argv[1], 0) != 0) {
            fprintf(stderr, "cycle %d failed\n", i);
            return 1;
        }
    }
    const long each = (lent_kib() - before) / kCycles;
    if (use(argv[1], 1) != 0) {
        fprintf(stderr, "closed while it was in use: failed\n");
        return 1;
    }
    printf("%d cycles: %d thread(s), %ld KiB stay of each\n", kCycles, thread_count(), each);
    return thread_count() == 1 && each <= kMostKib ? 0 : 1;
}
