/* SPDX-License-Identifier: Apache-2.0
 * mp_checkpoint: saving and loading everything that the next step depends on. Format: docs/checkpoints.md.
 *
 * A checkpoint is a directory "step-<step>-<sequence>-<id>" with one safetensors file a rank and a manifest with the
 * checksum of every byte. It is written under another name, synced, and renamed: after a crash at any moment the directory
 * of checkpoints has the one before or the new one, whole. Nothing is overwritten.
 *
 * It keeps: weights, master weights, moments, compensations, remainders and their scales in the types they have;
 * steps, learning rates and the other hyperparameters of groups, and which group a parameter is in; the seed; what the
 * guard has seen; the loss scaler; delayed scales and amax histories of layers; the caller's own bytes. Not gradients: save
 * between two steps.
 *
 * Loading checks everything (checksums, shapes, types, values of scales) into memory of its own before the first byte
 * of the live state changes; where anything is wrong, nothing has changed. It needs as much memory as the state. A file may
 * come from anybody: damaged or hostile ones get MP_STATUS_CORRUPT_DATA.
 *
 * With a communicator all calls but add, test, wait and destroy are collective: every rank adds the same things
 * and makes the same calls, the directory is one that all ranks see, and where one rank fails all return its failure. */
#ifndef MIXEDPREC_CHECKPOINT_H
#define MIXEDPREC_CHECKPOINT_H

#include "rule.h"

/* mp_checkpoint_save.flags */
/* Return when the state is copied and the directory is open; a thread of the library writes. Needs memory for one copy of the
 * state, and ranks that another thread may talk to: MPI with MPI_THREAD_MULTIPLE, callbacks with MP_COMM_TAKES_ANY_THREAD. Adding
 * to the object waits for it. */
#define MP_SAVE_BACKGROUND 1u

/* mp_checkpoint_load.flags */
/* Check the checksum of every byte of every file, not only of what is read. */
#define MP_LOAD_VERIFY_ALL 1u
/* Take a checkpoint of another recipe whose tensors all have the same types; the steps after it are then another recipe's. */
#define MP_LOAD_OTHER_RECIPE 2u
/* Take a checkpoint of another recipe, or of weights of other types, and round its numbers, through fp32, into the types of this
 * optimizer: weights with all bits they have, and moments; steps, hyperparameters, seed and the caller's bytes as they are. A
 * parameter that is kept as in the checkpoint is taken as it is. One that is trained here and was frozen there gets its weight,
 * moments of zero, and a count of steps of its own. Under another recipe the scaler and the layers' scales are not touched.
 * Whatever else the checkpoint has must be taken here. mp_checkpoint_info says what the rounding lost. Needs memory for the
 * saved states and the new ones beside the live ones, of the elements that this rank owns. */
#define MP_LOAD_CONVERT 4u

/** Called with the bytes that this rank has written or read and has to, from the thread that works. It must not call the
 * library. */
typedef void (*mp_checkpoint_progress_fn)(int64_t done, int64_t total, void* payload);

typedef struct mp_checkpoint_desc {
    uint32_t struct_size; /* sizeof(mp_checkpoint_desc) */
    uint32_t flags;       /* 0 */
    int32_t keep;     /* after a save older checkpoints beyond so many are deleted; 0: none is */
    int32_t reserved; /* 0 */
    mp_checkpoint_progress_fn progress; /* NULL: none */
    void* payload;                      /* handed to progress */
} mp_checkpoint_desc;

#define MP_CHECKPOINT_DESC_INIT                                                                    \
    { sizeof(mp_checkpoint_desc), 0, 0, 0, NULL, NULL }

/** What a checkpoint is, from its manifest. */
typedef struct mp_checkpoint_info {
    uint32_t struct_size; /* sizeof(mp_checkpoint_info), set by the caller */
    int32_t format;       /* version of the format */
    int64_t step;         /* what mp_checkpoint_save was given */
    int64_t sequence;     /* counts the checkpoints of a directory */
    int64_t world;        /* ranks that saved */
    int64_t tensor_count; /* tensors that its manifest lists */
    int64_t bytes;        /* of all its files but the manifest */
    int64_t applied_step; /* t of the optimizer */
    uint64_t seed;        /* of the optimizer's stochastic rounding */
    /* mp_checkpoint_load with MP_LOAD_CONVERT: 1 where the recipe or types were others; and then, over all elements, the largest
     * difference between a number here and in the checkpoint, and the root of the mean of squares. Else 0. */
    int32_t converted;
    int32_t reserved;                          /* 0 */
    double weight_largest_error;               /* with master weight, remainder or compensation */
    double weight_rms_error;                   /* likewise */
    double state_largest_error[MP_MAX_STATES]; /* by MP_STATE_* (rule.h) */
    double state_rms_error[MP_MAX_STATES];     /* likewise */
} mp_checkpoint_info;

#define MP_CHECKPOINT_INFO_INIT                                                                    \
    {                                                                                              \
        sizeof(mp_checkpoint_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, {0.0}, { 0.0 }         \
    }

MP_BEGIN_DECLS

/* ---- The simple way: add what belongs to the training, save it, load it */

/** Makes an empty checkpoint object. Collective with a communicator, which is not used after this call.
 * @param[in]  context  the context
 * @param[in]  comm     NULL: one rank
 * @param[in]  desc     NULL: all defaults
 * @param[out] out      the new object
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY; what the communicator gives
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_checkpoint_create(mp_context* context, mp_comm* comm,
                                      const mp_checkpoint_desc* desc,
                                      mp_checkpoint** out) MP_MUST_CHECK;

/** Adds an optimizer, one at most: its parameters, states, groups and seed. It is kept alive. Parameters and groups that
 * are added to it later are saved, too. Of one that ranks share
 * (mp_optimizer_create_sharded) each writes its slices, else rank 0 all.
 * @param[in] checkpoint  the object
 * @param[in] optimizer   of the same context
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (there is one)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_add_optimizer(mp_checkpoint* checkpoint, mp_optimizer* optimizer);

/** Adds a loss scaler, one at most: scale and counters. It is kept alive.
 * @param[in] checkpoint  the object
 * @param[in] scaler      of the same context
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (there is one)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_add_scaler(mp_checkpoint* checkpoint, mp_scaler* scaler);

/** Adds a layer's delayed scales and amax histories; its weight belongs to the optimizer. It is kept alive. Amaxes of a step that
 * has begun (a backward has run, its end has not) are saved as the largest over the ranks; what was evaluated leaves none.
 * @param[in] checkpoint  the object
 * @param[in] name        unique among layers, 1 to 255 bytes of UTF-8, not "__metadata__"
 * @param[in] linear      of the same context
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (name)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_add_linear(mp_checkpoint* checkpoint, const char* name,
                                          mp_linear* linear);

/** Adds bytes of the caller: the position in the data, a schedule, a random state. A save copies them as they are then; a
 * load of the same size writes them. With a communicator those of rank 0 are saved, and every rank gets them.
 * @param[in] checkpoint  the object
 * @param[in] name        unique among such data, 1 to 255 bytes of UTF-8, not "__metadata__"; the same on all ranks
 * @param[in] data        must stay until the object is destroyed
 * @param[in] bytes       their number, > 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_add_data(mp_checkpoint* checkpoint, const char* name, void* data,
                                        size_t bytes);

/** Saves a new checkpoint. Blocks until it is on the disk, or with MP_SAVE_BACKGROUND until the state is copied.
 * After a failure the checkpoints are those of before, unless only the last sync of the directory failed.
 * @param[in] checkpoint  the object
 * @param[in] directory   of checkpoints, not one itself; made where it is missing; a link to one is followed, links in it are
 *                        not. What the path means is settled in the call, also for MP_SAVE_BACKGROUND. Modes are 0777 and
 *                        0666, less the umask
 * @param[in] step        a number for its name, >= 0
 * @param[in] flags       0 or MP_SAVE_BACKGROUND
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_BAD_STATE (a save is running; the directory has the largest sequence; a state in blocks has a scale that is
 *          infinite or NaN, which a load would refuse); MP_STATUS_UNSUPPORTED (in the background: see there);
 *          MP_STATUS_RANK_MISMATCH (with what differs); MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_checkpoint_save(mp_checkpoint* checkpoint, const char* directory, int64_t step,
                                    uint32_t flags);

/** Loads into what was added, from a checkpoint of the same things saved by any number of ranks. A group is known by its
 * parameters, in whatever order groups were added; one without parameters by its place among such groups. Where ranks share an
 * optimizer that has not stepped yet it is shared out first (mp_optimizer_shard), also where the checkpoint is then refused. A
 * scaler whose scale does not move keeps its own. Of a parameter that is frozen here (MP_PARAM_FROZEN) the weight is read, and
 * states that the checkpoint has of it are not: a model that was trained is tuned. Blocks.
 * @param[in]     checkpoint  the object
 * @param[in]     path        a checkpoint, or a directory of them: then the newest whose manifest is intact
 * @param[in]     flags       MP_LOAD_VERIFY_ALL, MP_LOAD_OTHER_RECIPE, MP_LOAD_CONVERT
 * @param[in,out] info        struct_size set by the caller, the rest is written; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_WARNING (newer ones are damaged, and were passed over); MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_CORRUPT_DATA; MP_STATUS_VERSION_MISMATCH;
 *          MP_STATUS_UNKNOWN_NAME, MP_STATUS_INVALID_SHAPE, MP_STATUS_INVALID_DTYPE (a tensor missing, left over, of another
 *          shape or type); MP_STATUS_BAD_STATE (another recipe: both are named; groups of other
 *          parameters, more or fewer groups); MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_checkpoint_load(mp_checkpoint* checkpoint, const char* path, uint32_t flags,
                                    mp_checkpoint_info* info);

/** Gives the caller's reference back. Blocks while a save is running.
 * @param[in] checkpoint  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_checkpoint_destroy(mp_checkpoint* checkpoint);

/* ---- The explicit way: saves in the background, and checkpoints that are looked at before they are loaded */

/** Whether a save in the background has ended. Does not block.
 * @param[in] checkpoint  the object
 * @returns MP_STATUS_OK when none is running; MP_STATUS_NOT_READY when one is; MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_test(mp_checkpoint* checkpoint);

/** Blocks until a save in the background has ended, and gives its status, once.
 * @param[in] checkpoint  the object
 * @returns as mp_checkpoint_save; MP_STATUS_OK where there was none
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_checkpoint_wait(mp_checkpoint* checkpoint);

/** What a checkpoint is, without loading it. Blocks.
 * @param[in]     path  as for mp_checkpoint_load
 * @param[in,out] info  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_WARNING (newer ones were passed over); MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_CORRUPT_DATA; MP_STATUS_VERSION_MISMATCH; MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_checkpoint_inspect(const char* path, mp_checkpoint_info* info);

/** Reads a file of a checkpoint, or all, and compares every byte with its checksum. Also that each file has what the manifest
 * says, and that scales are numbers that a load believes. Blocks.
 * @param[in] path      as for mp_checkpoint_load
 * @param[in] file      its place in the manifest's list of files; -1: all of them, up to the first that is damaged
 * @param[in] progress  told of the file's bytes; may be NULL
 * @param[in] payload   handed to progress
 * @returns MP_STATUS_OK; MP_STATUS_WARNING (newer ones were passed over); MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_INVALID_ARGUMENT (there is no such file); MP_STATUS_CORRUPT_DATA; MP_STATUS_VERSION_MISMATCH;
 *          MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_checkpoint_verify(const char* path, int64_t file,
                                      mp_checkpoint_progress_fn progress, void* payload);

/** The manifest that a load would take, for programs: {"name": ..., "manifest": ...}. The name is of the checkpoint in the
 * directory, or "" where the path is a checkpoint itself; what a manifest has is in docs/checkpoints.md. Its file is read once,
 * and everything in it is checked. Blocks.
 * @param[in]  path      as for mp_checkpoint_load
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_WARNING (newer ones were passed over);
 *          MP_STATUS_NULL_ARGUMENT; MP_STATUS_CORRUPT_DATA; MP_STATUS_VERSION_MISMATCH; MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_checkpoint_read_manifest(const char* path, char* buffer, size_t capacity,
                                             size_t* needed);

/** The same in words: the checkpoints of a directory, newest first, each as a load would see it; or a checkpoint's recipe, files
 * and tensors. Blocks.
 * @param[in]  path      a checkpoint, or a directory of them
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_CORRUPT_DATA;
 *          MP_STATUS_VERSION_MISMATCH; MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_checkpoint_describe(const char* path, char* buffer, size_t capacity,
                                        size_t* needed);

/* ---- Everything else: weights for other programs */

/** Writes the optimizer's parameters alone as one ordinary safetensors file, each under its name, and for one of codes the
 * scales under its name and "_param_scale_inv", and NVFP4's amax under "_param_amax". Codes of fp4 are bytes of two. Blocks.
 * @param[in] checkpoint  the object
 * @param[in] file        must not exist, nor a link of that name
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (a parameter has the
 *          name that another one's scale gets); MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_checkpoint_export_weights(mp_checkpoint* checkpoint, const char* file);

MP_END_DECLS

#endif /* MIXEDPREC_CHECKPOINT_H */
