/* SPDX-License-Identifier: Apache-2.0
 * mp_context: the host, at most one accelerator, their threads, memory and log.
 *
 * Environment, read when a context is created or a library opened, never in a setuid program:
 *   MIXEDPREC_NUM_THREADS, OMP_NUM_THREADS   host threads, where mp_context_desc.num_threads is 0; the first one wins
 *   MIXEDPREC_ISA                            baseline, avx2, avx512, avx512_vbmi: no more than that of the processor
 *   MIXEDPREC_MODULE_PATH                    folders with the library's modules, before the library's own
 *   MIXEDPREC_ONEDNN_LIBRARY, _HWLOC_LIBRARY, _CUBLASLT_LIBRARY, _NCCL_LIBRARY, _HIP_LIBRARY
 *                                            files to open in place of those that the system's loader finds */
#ifndef MIXEDPREC_CONTEXT_H
#define MIXEDPREC_CONTEXT_H

#include "version.h"

/* Levels of log messages. WARNING: a layer that falls back from its recipe, threads that cannot be bound, damaged checkpoints
 * that are passed over. INFO: threads and processor, skipped steps with the first gradient that is not finite, loss scales that
 * move (on the host: a device would have to be waited for), checkpoints saved and loaded. DEBUG: the implementation of each
 * product of a layer. */
#define MP_LOG_ERROR 1   /* nothing yet: failures are statuses */
#define MP_LOG_WARNING 2 /* the default */
#define MP_LOG_INFO 3    /* and all of WARNING */
#define MP_LOG_DEBUG 4   /* and all of INFO */

/* mp_context_desc.flags: bind the worker threads to cores of their own (off: the OS decides). They are of one NUMA node
 * where one has enough free cores, and no two contexts of a process have a core in common: where too few are free, threads
 * stay unbound, the log says why and mp_context_describe() "threads_bound": false. The calling thread is never bound, but
 * a core is kept for it. */
#define MP_CONTEXT_BIND_THREADS 1u

/** Gives `size` bytes aligned to `alignment` (a power of two, at least 64), or NULL. Must be thread-safe. */
typedef void* (*mp_allocate_fn)(size_t size, size_t alignment, void* payload);

/** Takes back what mp_allocate_fn gave, with the same size and alignment. Must be thread-safe. */
typedef void (*mp_release_fn)(void* pointer, size_t size, size_t alignment, void* payload);

/** Receives one line of UTF-8 without a newline. May be called from any thread; must not call back in. */
typedef void (*mp_log_fn)(int32_t level, const char* message, void* payload);

/** Calls task(data, index) once for each index, 0 <= index < count, in any order and by any threads, also one after another
 * by the calling one, and returns when all calls have. Must be thread-safe and must not throw; a task does not call
 * back in, and leaves its thread's floating-point environment as it was. A program with a parallel loop of its own (TBB,
 * Rayon) lends it, so that no second set of threads is there. */
typedef void (*mp_parallel_fn)(int32_t count, void (*task)(void* data, int32_t index), void* data,
                               void* payload);

typedef struct mp_context_desc {
    uint32_t struct_size; /* sizeof(mp_context_desc) */
    uint32_t flags;       /* MP_CONTEXT_* */
    uint32_t api_version; /* MP_VERSION of the header compiled against; 0: the library's */
    int32_t device_kind;  /* MP_DEVICE_HOST (default), or MP_DEVICE_CUDA or _HIP beside the host */
    int32_t device_index; /* which accelerator, from 0 */
    /* Host threads, or tasks of `parallel` at once; 0: one for each physical core that this process
                                may use, within its control group's CPU time and OMP_NUM_THREADS; 1: no others */
    int32_t num_threads;
    int32_t log_level; /* most detailed level to report; 0: MP_LOG_WARNING */
    int32_t reserved;  /* 0 */
    /* On the host: NULL or "host" (fast), "reference" (scalar oracle), "kokkos" (what a GPU runs) */
    const char* backend;
    mp_allocate_fn allocate; /* host memory for tensors, states, workspaces; NULL: C library */
    mp_release_fn release;   /* both or neither */
    void* allocator_payload; /* handed to both */
    mp_log_fn log;           /* NULL: silence */
    void* log_payload;       /* handed to log */
    /* The caller's parallel loop; NULL: threads of the library's own. A program with OpenMP needs none: libgomp and libomp
     * are told of ours, so that theirs sleep after a loop of the program's (docs/abi.md). */
    mp_parallel_fn parallel;
    void* parallel_payload; /* handed to it */
} mp_context_desc;

#define MP_CONTEXT_DESC_INIT                                                                       \
    {                                                                                              \
        sizeof(mp_context_desc), 0, MP_VERSION, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL                                                                             \
    }

MP_BEGIN_DECLS

/* ---- The simple way: a context, of the host or with an accelerator */

/** Opens the host and, if asked for, one accelerator. The module of an accelerator is looked for beside
 * the library and in MIXEDPREC_MODULE_PATH and loaded here, on first use; a missing module, driver or
 * device is a status that says which and what to do, never a silent hop to another device.
 * MIXEDPREC_NUM_THREADS is read here and counts where num_threads is 0.
 * @param[in]  desc  NULL: all defaults
 * @param[out] out   the new context
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT (also MP_CONTEXT_BIND_THREADS beside
 *          `parallel`, whose threads are the caller's); MP_STATUS_UNKNOWN_NAME (backend);
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_VERSION_MISMATCH; MP_STATUS_MODULE_NOT_FOUND;
 *          MP_STATUS_DEVICE_UNAVAILABLE; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_context_create(const mp_context_desc* desc, mp_context** out) MP_MUST_CHECK;

/** Gives the caller's reference back. The devices close when the last object made from them is gone.
 * @param[in] context  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_context_destroy(mp_context* context);

/* ---- The explicit way: which devices there are, before one is opened */

/** Number of devices of a kind. Opens nothing.
 * @param[in]  device_kind  MP_DEVICE_HOST, MP_DEVICE_CUDA or MP_DEVICE_HIP
 * @param[out] count        how many; 0 where the call fails
 * @returns MP_STATUS_OK; MP_STATUS_MODULE_NOT_FOUND, MP_STATUS_VERSION_MISMATCH or MP_STATUS_DEVICE_UNAVAILABLE with the
 *          reason why there is none; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_device_get_count(int32_t device_kind, int32_t* count);

/** Whether a device can be opened, and if not, why: a query that opens nothing.
 * @param[in] device_kind   MP_DEVICE_HOST, MP_DEVICE_CUDA or MP_DEVICE_HIP
 * @param[in] device_index  which one, from 0
 * @returns MP_STATUS_OK when it can; MP_STATUS_MODULE_NOT_FOUND, MP_STATUS_VERSION_MISMATCH or
 *          MP_STATUS_DEVICE_UNAVAILABLE with the reason as text; MP_STATUS_INVALID_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_device_available(int32_t device_kind, int32_t device_index);

/** What its driver calls a device; "host" for the host. Opens nothing.
 * @param[in]  device_kind   MP_DEVICE_HOST, MP_DEVICE_CUDA or MP_DEVICE_HIP
 * @param[in]  device_index  which one, from 0
 * @param[out] buffer        receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity      bytes of buffer
 * @param[out] needed        bytes the whole text needs with its NUL; may be NULL
 * @returns as mp_device_available; MP_STATUS_OK also when the text was cut to capacity
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_device_get_name(int32_t device_kind, int32_t device_index, char* buffer,
                                    size_t capacity, size_t* needed);

/** A device's memory in all. Opens nothing.
 * @param[in]  device_kind   MP_DEVICE_HOST, MP_DEVICE_CUDA or MP_DEVICE_HIP
 * @param[in]  device_index  which one, from 0
 * @param[out] bytes         its bytes
 * @returns as mp_device_available; MP_STATUS_NULL_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_device_get_memory(int32_t device_kind, int32_t device_index, int64_t* bytes);

/* ---- Everything else: what was found */

/** Number of host threads the context works with.
 * @param[in]  context      the context
 * @param[out] num_threads  the number, at least 1
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_context_get_num_threads(const mp_context* context, int32_t* num_threads);

/** Everything the context found and decided, as a JSON object: "host" and, where there is one, "accelerator". Each has its
 * "kind" and "index", "threads", "backend", "instruction_set", what else its backend says (versions, topology, reasons), and as
 * "candidates" for each operation the names of its implementations, the one asked first at the beginning.
 * @param[in]  context   the context
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_context_describe(const mp_context* context, char* buffer, size_t capacity,
                                     size_t* needed);

MP_END_DECLS

#endif /* MIXEDPREC_CONTEXT_H */
