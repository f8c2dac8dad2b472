/* SPDX-License-Identifier: Apache-2.0
 * What the static C++ run time of a newer system asks its C library for, and an older C library lacks. Hidden: each of our
 * libraries has its own, and nobody else sees them. */
#include <dlfcn.h>
#include <errno.h>
#include <features.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MP_HIDDEN __attribute__((visibility("hidden")))

/* 2.32. Whether shared_ptr may count without atomic instructions; 0 is always right. */
extern MP_HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

/* 2.33; before it, inline functions over another symbol. The kernel's structure is the C library's on these machines. */
#if defined(__x86_64__) || defined(__aarch64__)
MP_HIDDEN int fstat(int file, struct stat* info) { return (int)syscall(SYS_fstat, file, info); }
MP_HIDDEN int fstat64(int file, struct stat64* info) { return (int)syscall(SYS_fstat, file, info); }
MP_HIDDEN int fstatat(int folder, const char* path, struct stat* info, int flags) {
    return (int)syscall(SYS_newfstatat, folder, path, info, flags);
}
#endif

/* 2.36. What std::random_device reads. */
extern MP_HIDDEN uint32_t arc4random(void);
MP_HIDDEN uint32_t arc4random(void) {
    uint32_t value = 0;
    while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
        if (errno != EINTR) { /* a kernel before 3.17: different at least, if not secret */
            struct timespec now = {0, 0};
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
            return (uint32_t)now.tv_nsec * 2654435761u ^ (uint32_t)now.tv_sec ^ (uint32_t)getpid();
        }
    }
    return value;
}

/* 2.35. Where the unwinder finds the tables of the code at an address. */
#if __GLIBC_PREREQ(2, 35)
struct search {
    uintptr_t address;
    struct dl_find_object* result;
};

static int look_into(struct dl_phdr_info* info, size_t size, void* data) {
    (void)size;
    const struct search* search = data;
    const ElfW(Phdr)* code = NULL;
    const ElfW(Phdr)* tables = NULL;
    for (size_t i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* part = &info->dlpi_phdr[i];
        if (part->p_type == PT_GNU_EH_FRAME) {
            tables = part;
        } else if (part->p_type == PT_LOAD &&
                   search->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            code = part;
        }
    }
    if (code == NULL || tables == NULL) {
        return 0;
    }
    search->result->dlfo_flags = 0;
    search->result->dlfo_map_start = (void*)(info->dlpi_addr + code->p_vaddr);
    search->result->dlfo_map_end = (void*)(info->dlpi_addr + code->p_vaddr + code->p_memsz);
    search->result->dlfo_link_map = NULL;
    search->result->dlfo_eh_frame = (void*)(info->dlpi_addr + tables->p_vaddr);
    return 1;
}

MP_HIDDEN int _dl_find_object(void* address, struct dl_find_object* result) {
    struct search search = {(uintptr_t)address, result};
    return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}
#endif
