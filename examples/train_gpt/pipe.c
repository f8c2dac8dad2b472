/* SPDX-License-Identifier: Apache-2.0
 * A run's result through a pipe: the struct, then its arrays. Both ends are the same program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

static bool write_all(int descriptor, const void* data, size_t bytes) {
    const char* next = data;
    while (bytes > 0) {
        const ssize_t done = write(descriptor, next, bytes);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        if (done > 0) {
            next += done;
            bytes -= (size_t)done;
        }
    }
    return true;
}

static bool read_all(int descriptor, void* data, size_t bytes) {
    char* next = data;
    while (bytes > 0) {
        const ssize_t done = read(descriptor, next, bytes);
        if (done == 0 || (done < 0 && errno != EINTR)) {
            return false;
        }
        if (done > 0) {
            next += done;
            bytes -= (size_t)done;
        }
    }
    return true;
}

bool run_write(const Run* run, int descriptor) {
    const size_t curve = sizeof(float) * (size_t)run->steps;
    const size_t points = sizeof(MonitorPoint) * (size_t)run->point_count;
    const size_t sample = run->sample != NULL ? strlen(run->sample) : 0;
    return write_all(descriptor, run, sizeof *run) && write_all(descriptor, run->losses, curve) &&
           write_all(descriptor, run->val_losses, curve) &&
           write_all(descriptor, run->points, points) &&
           write_all(descriptor, &sample, sizeof sample) &&
           write_all(descriptor, run->sample, sample);
}

bool run_read(Run* run, int descriptor) {
    size_t sample = 0;
    if (!read_all(descriptor, run, sizeof *run)) {
        memset(run, 0, sizeof *run);
        return false;
    }
    const size_t curve = sizeof(float) * (size_t)run->steps;
    const size_t points = sizeof(MonitorPoint) * (size_t)run->point_count;
    run->points = malloc(points + 1);
    run->losses = malloc(curve + 1);
    run->val_losses = malloc(curve + 1);
    run->sample = NULL;
    if (run->losses == NULL || run->val_losses == NULL || run->points == NULL ||
        !read_all(descriptor, run->losses, curve) ||
        !read_all(descriptor, run->val_losses, curve) ||
        !read_all(descriptor, run->points, points) ||
        !read_all(descriptor, &sample, sizeof sample)) {
        run_free(run);
        return false;
    }
    if (sample > 0 && (run->sample = calloc(sample + 1, 1)) != NULL) {
        return read_all(descriptor, run->sample, sample);
    }
    return true;
}
