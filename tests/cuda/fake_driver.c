/* SPDX-License-Identifier: Apache-2.0
 * Stands in for libcuda.so.1 where a test wants a driver that does not serve: of the version in
 * MP_FAKE_DRIVER_VERSION, starting with the error in MP_FAKE_DRIVER_ERROR, with no device. It does
 * nothing else. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int result_t;

static int number(const char* name, int fallback) {
    const char* text = getenv(name);
    return text != NULL ? atoi(text) : fallback;
}

result_t cuInit(unsigned int flags);
result_t cuDriverGetVersion(int* version);
result_t cuDeviceGetCount(int* count);
result_t cuGetProcAddress_v2(const char* symbol, void** out, int version, uint64_t flags,
                             void* found);

result_t cuInit(unsigned int flags) {
    (void)flags;
    return number("MP_FAKE_DRIVER_ERROR", 0);
}

result_t cuDriverGetVersion(int* version) {
    *version = number("MP_FAKE_DRIVER_VERSION", 1 << 20);
    return 0;
}

result_t cuDeviceGetCount(int* count) {
    *count = 0;
    return 0;
}

static result_t no_device(void) { return 100; }

result_t cuGetProcAddress_v2(const char* symbol, void** out, int version, uint64_t flags,
                             void* found) {
    static const struct {
        const char* name;
        void* address;
    } known[] = {{"cuInit", (void*)(uintptr_t)cuInit},
                 {"cuDriverGetVersion", (void*)(uintptr_t)cuDriverGetVersion},
                 {"cuDeviceGetCount", (void*)(uintptr_t)cuDeviceGetCount},
                 {"cuGetProcAddress", (void*)(uintptr_t)cuGetProcAddress_v2}};
    (void)version;
    (void)flags;
    *out = (void*)(uintptr_t)no_device;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        if (strcmp(symbol, known[i].name) == 0) {
            *out = known[i].address;
        }
    }
    if (found != NULL) {
        *(int*)found = 0;
    }
    return 0;
}
