/* SPDX-License-Identifier: Apache-2.0
 * mp_model_file: the tensors of a model that comes as files. safetensors: one file, an index with the files that it names, or a
 * folder of them. GGUF, versions 2 and 3: one file, split ones too, or a folder with one.
 *
 * Only headers are read until bytes are asked for. A file may come from anybody: damaged or hostile ones get
 * MP_STATUS_CORRUPT_DATA, and what is neither is called what it is. */
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
    const char* path; /* the file that it is in, or begins in; lives as long as the model file */
} mp_file_tensor;

#define MP_FILE_TENSOR_INIT                                                                        \
    { sizeof(mp_file_tensor), 0, 0, 0, {0}, 0, 0, NULL, NULL, NULL }

/* mp_file_value.type */
#define MP_FILE_VALUE_TEXT 0     /* UTF-8 by convention; any bytes */
#define MP_FILE_VALUE_BOOLEAN 1  /* "true" or "false" */
#define MP_FILE_VALUE_INTEGER 2  /* of up to 64 bits */
#define MP_FILE_VALUE_UNSIGNED 3 /* of up to 64 bits */
#define MP_FILE_VALUE_FLOAT 4    /* fp32 or fp64 */

/** What a model's file says of itself by a key: "__metadata__" of safetensors, which has texts alone, and the keys of GGUF. */
typedef struct mp_file_value {
    uint32_t struct_size; /* sizeof(mp_file_value), set by the caller */
    int32_t type;         /* MP_FILE_VALUE_* */
    int32_t is_list;      /* 1: a list; else there is one */
    int32_t reserved;     /* 0 */
    int64_t count;        /* items of the list, or 1 */
    const char* key;      /* UTF-8; lives as long as the model file */
    const char* path;     /* the file that it is in; lives as long as the model file */
} mp_file_value;

#define MP_FILE_VALUE_INIT                                                                         \
    { sizeof(mp_file_value), 0, 0, 0, 0, NULL, NULL }

/** Opens a model's files and reads their headers. They stay open. Of a folder: what its index names, where it has one; else all
 * of its .safetensors files; else its GGUF. No name may be in two files. Blocks.
 * @param[in]  path   a safetensors or GGUF file, one of the parts of a split GGUF, an index (....index.json), or a folder
 * @param[in]  flags  MP_MODEL_FILE_*
 * @param[out] out    the new model file
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT (unknown flags, a checkpoint's folder, or one with
 *          several GGUF files);
 *          MP_STATUS_CORRUPT_DATA; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_open(const char* path, uint32_t flags,
                                    mp_model_file** out) MP_MUST_CHECK;

/** The tensors of a model file under other names, or made of several: split, joined, transposed. All other calls take the result
 * as any model file; its keys and paths are those of the first one, which stays open as long. Only headers are read here; what is
 * read later is read from the files then, with 1 MiB at most beside it for each transpose. Of a transposed tensor each read takes
 * a run out of every row of the file: ask for many rows at once.
 *
 * The rules are lines `NAME = EXPR`, of which # begins a comment. EXPR is one of these:
 *
 * - `NAME`: the tensor of that name.
 * - `join(EXPR, EXPR, ...)`: rows behind each other; types and all dimensions but the first are equal.
 * - `rows(EXPR, FIRST:END)`: rows FIRST to END - 1, from 0 on.
 * - `rows(EXPR, PART/PARTS)`: part PART, from 0 on, of PARTS that have as many rows each.
 * - `transpose(EXPR)`: of two dimensions, and elements of whole bytes (no blocks, no types below 8 bits).
 * - `half_to_pairs(EXPR, HEADS)`: for each head the rows of rotary pairs side by side, as GGUF has them for llama, of rows that
 *   lie half a head apart, as Hugging Face has them.
 * - `pairs_to_half(EXPR, HEADS)`: the other way.
 *
 * Rows are those of the first dimension, and where their operations cut, each one is whole blocks. In a name each * stands for
 * one or more characters, the first for as few as can be, then the next. All names of a rule have the same number of stars, and
 * the first, the second and so on stand for the same in each: `blk.*.attn_norm.weight = model.layers.*.input_layernorm.weight`.
 * Names with blanks or one of ( ) , = # stand in "quotes", where a star is a star.
 *
 * A rule without stars makes one tensor, and fails where a tensor that it names is not there, or its new name is given already.
 * One with stars makes a tensor for each that has its first name; the others it names must be there. It passes over those whose
 * new name an earlier rule gave; where it only renames, over tensors that an earlier rule has taken, too. So `* = *` at the end
 * takes the rest. It fails where no tensor has its first name at all, and where it would give a name twice.
 * @param[in]  model  the model file, perhaps one that this made
 * @param[in]  rules  UTF-8, of 1 MiB at most; operations nested 15 deep at most, 1024 joined at most, 8 stars in a name, 1024
 *                    rules with stars, 2^20 tensors and operations, names of 64 MiB in all; 64 maps over each other
 * @param[out] out    the new model file: tensors by rules, and of each rule in the order of its first name
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (a rule that cannot be
 *          read, or makes a name that is there, or makes too much); MP_STATUS_UNKNOWN_NAME; MP_STATUS_INVALID_SHAPE and
 *          MP_STATUS_INVALID_DTYPE, of tensors for an operation; all with the number of the line; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_map(const mp_model_file* model, const char* rules,
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

/** The text of a key's one value, in the first file that has it; of a number its shortest digits, "true" or "false".
 * @param[in]  model     the model file
 * @param[in]  key       such as "format", "general.architecture"
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE;
 *          MP_STATUS_UNKNOWN_NAME where no file has the key; MP_STATUS_INVALID_ARGUMENT where it has a list
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_metadata(const mp_model_file* model, const char* key,
                                            char* buffer, size_t capacity, size_t* needed);

/** How many keys there are.
 * @param[in]  model  the model file
 * @param[out] count  keys of all files
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_value_count(const mp_model_file* model, int64_t* count);

/** One key. They are in the order of the files, and in theirs.
 * @param[in]     model  the model file
 * @param[in]     index  0 to the count - 1
 * @param[in,out] value  struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW;
 *          MP_STATUS_INVALID_ARGUMENT for an index that is not there
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_value(const mp_model_file* model, int64_t index,
                                         mp_file_value* value);

/** The index of a key.
 * @param[in]  model  the model file
 * @param[in]  key    such as "tokenizer.ggml.tokens"
 * @param[out] index  of the first file's that has it
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNKNOWN_NAME
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_value_index(const mp_model_file* model, const char* key,
                                               int64_t* index);

/** The text of one item of a key's list, or of its one value.
 * @param[in]  model     the model file
 * @param[in]  index     of the key
 * @param[in]  item      0 to the value's count - 1
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE;
 *          MP_STATUS_INVALID_ARGUMENT for an index or an item that is not there
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_get_value_item(const mp_model_file* model, int64_t index,
                                              int64_t item, char* buffer, size_t capacity,
                                              size_t* needed);

/** Elements of a tensor as numbers, exactly. Blocks.
 * @param[in]  model   the model file
 * @param[in]  index   of a tensor in fp32, fp16, bf16 or one of the types of blocks (MP_DTYPE_Q4_0 and so on)
 * @param[in]  first   the first element
 * @param[out] values  receives them
 * @param[in]  count   how many; with first no more than the tensor has
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_file_read_floats(const mp_model_file* model, int64_t index, int64_t first,
                                           float* values, int64_t count);

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

/** Rows of a tensor into one of the library's, on any device: all of them, or the slice that belongs to a rank. Bytes stay as
 * they are where the types are equal and the tensor has no scales, blocks and integers too. Otherwise numbers are read, 2^18 or
 * one row of scales at a time, and become what the tensor keeps: fp32, fp16, bf16 to nearest even; MP_DTYPE_Q8_0 and _Q4_0 as
 * mp_model_writer_write_floats makes them; codes with scales as mp_tensor_quantize makes them of these rows, amax included. With
 * one scale for the tensor, and in NVFP4, the rows are read twice, first for their amax; of a grid whose blocks span all rows
 * the numbers are in fp32 memory all at once. Everything is checked before the first byte is read. Where reading fails after
 * that, or a block cannot hold its numbers, the tensor's elements are undefined: load it again. Blocks.
 * @param[in]     model      the model file
 * @param[in]     queue      NULL: the default queue of the tensor's device
 * @param[in]     index      of a tensor; where its type is not the tensor's, of one that mp_model_file_read_floats reads
 * @param[in]     first_row  the first of its rows (of the first dimension) that is wanted; of a single number 0
 * @param[in,out] tensor     with memory; its shape is the file's but for the number of rows
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index or rows that are
 *          not there; numbers that a block cannot hold); MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_BAD_STATE of a tensor without memory, or while the queue records a graph; MP_STATUS_IO_ERROR;
 *          MP_STATUS_OUT_OF_MEMORY; as mp_tensor_quantize; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_file_load(const mp_model_file* model, mp_queue* queue, int64_t index,
                                    int64_t first_row, mp_tensor* tensor);

MP_END_DECLS

#endif /* MIXEDPREC_MODEL_FILE_H */
