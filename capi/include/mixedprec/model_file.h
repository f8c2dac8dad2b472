/* SPDX-License-Identifier: Apache-2.0
 * mp_model_file: the tensors of a model that comes as files. Today safetensors: one file, an index with the files that it
 * names, or a folder of them.
 *
 * Only headers are read until bytes are asked for. A file may come from anybody: damaged or hostile ones get
 * MP_STATUS_CORRUPT_DATA, and what is no safetensors file is called what it is. */
#ifndef MIXEDPREC_MODEL_FILE_H
#define MIXEDPREC_MODEL_FILE_H

#include "status.h"
#include "types.h"

MP_BEGIN_DECLS

/* mp_model_file_open.flags */
#define MP_MODEL_FILE_NO_LINKS 1u /* a symbolic link is refused in place of a file */

/** A tensor of a model's files. */
typedef struct mp_file_tensor {
    uint32_t struct_size;       /* sizeof(mp_file_tensor), set by the caller */
    int32_t dtype;              /* MP_DTYPE_*; MP_DTYPE_NONE where the library has no such type */
    int32_t ndim;               /* 0 for one number */
    int32_t reserved;           /* 0 */
    int64_t shape[MP_MAX_DIMS]; /* row-major, the slowest first */
    int64_t count;              /* elements */
    int64_t bytes;              /* of all elements */
    const char* name;           /* UTF-8; lives as long as the model file */
    const char* type_name;      /* the type as the file has it, such as "BF16"; static */
    const char* path;           /* the file that it is in; lives as long as the model file */
} mp_file_tensor;

#define MP_FILE_TENSOR_INIT                                                                        \
    { sizeof(mp_file_tensor), 0, 0, 0, {0}, 0, 0, NULL, NULL, NULL }

/** Opens a model's files and reads their headers. They stay open. Of a folder: what its index names, where it has one; else all
 * of its .safetensors files. No name may be in two files. Blocks.
 * @param[in]  path   a safetensors file, an index (....index.json), or a folder
 * @param[in]  flags  MP_MODEL_FILE_*
 * @param[out] out    the new model file
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT (unknown flags, or a checkpoint's folder);
 *          MP_STATUS_CORRUPT_DATA; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_open(const char* path, uint32_t flags,
                                    mp_model_file** out) MP_MUST_CHECK;

/** Closes the files.
 * @param[in] model  may be NULL
 * @returns nothing; never fails
 * @threads A
 * @since 0.2 */
MP_API void mp_model_file_destroy(mp_model_file* model);

/** How many tensors there are.
 * @param[in]  model  the model file
 * @param[out] count  tensors of all files
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_count(const mp_model_file* model, int64_t* count);

/** One tensor. They are in the order of the files, and of their bytes in them.
 * @param[in]     model   the model file
 * @param[in]     index   0 to the count - 1
 * @param[in,out] tensor  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW;
 *          MP_STATUS_INVALID_ARGUMENT for an index that is not there
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_tensor(const mp_model_file* model, int64_t index,
                                          mp_file_tensor* tensor);

/** The index of a tensor.
 * @param[in]  model  the model file
 * @param[in]  name   its whole name
 * @param[out] index  for the other calls
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNKNOWN_NAME
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_index(const mp_model_file* model, const char* name,
                                         int64_t* index);

/** What the files say of themselves by a key of `__metadata__`, in the first file that has it.
 * @param[in]  model     the model file
 * @param[in]  key       such as "format"
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE;
 *          MP_STATUS_UNKNOWN_NAME where no file has the key
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_metadata(const mp_model_file* model, const char* key,
                                            char* buffer, size_t capacity, size_t* needed);

/** Bytes of a tensor, as the file has them: little-endian, row-major. Blocks.
 * @param[in]  model   the model file
 * @param[in]  index   of the tensor
 * @param[in]  offset  the first byte of the tensor's that is wanted
 * @param[out] data    receives the bytes
 * @param[in]  bytes   how many; with offset no more than the tensor has
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_read(const mp_model_file* model, int64_t index, int64_t offset,
                                    void* data, size_t bytes);

MP_END_DECLS

#endif /* MIXEDPREC_MODEL_FILE_H */
