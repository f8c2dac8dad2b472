/* SPDX-License-Identifier: Apache-2.0
 * mp_model_writer: a model's files, written as others read them: safetensors, one file or several with an index, or GGUF,
 * version 3, one file.
 *
 * First say what there will be: mp_model_writer_add_tensor for each tensor, mp_model_writer_set_* for each key. Then write
 * elements, of any tensor, in pieces of any size and order: no more than a piece is ever in memory. The first write fixes the
 * header. mp_model_writer_finish gives the files their names, once everything is on the disk: until then they have names with
 * ".tmp-" in the same folder, and none is left by a writer that is destroyed, or that fails. A process that is killed leaves
 * them. Nothing is ever overwritten.
 *
 * A failure to write is final: the writer can then only be destroyed. Any other failed call changes nothing, unless it says
 * otherwise.
 *
 * Keys of GGUF that readers want are the caller's: llama.cpp refuses a file without "general.architecture". Those that place
 * tensors or parts ("general.alignment", "split.*") are the writer's own. */
#ifndef MIXEDPREC_MODEL_WRITER_H
#define MIXEDPREC_MODEL_WRITER_H

#include "model_file.h"
#include "status.h"
#include "types.h"

MP_BEGIN_DECLS

/* mp_model_writer_desc.format */
#define MP_MODEL_DEFAULT 0     /* by the name's end: .safetensors, .gguf */
#define MP_MODEL_SAFETENSORS 1 /* one file, or several with an index */
#define MP_MODEL_GGUF 2        /* one file, version 3 */

typedef struct mp_model_writer_desc {
    uint32_t struct_size; /* sizeof(mp_model_writer_desc) */
    int32_t format;       /* MP_MODEL_* */
    /* Of safetensors, 0: one file. Else tensors of more bytes are split, in the order in which they are added:
     * "model.safetensors" becomes "model-00001-of-00003.safetensors" and so on, with "model.safetensors.index.json", as hubs
     * have them. A tensor that has more alone gets a file alone. All files stay open until the end. */
    int64_t max_file_bytes;
} mp_model_writer_desc;

#define MP_MODEL_WRITER_DESC_INIT                                                                  \
    { sizeof(mp_model_writer_desc), MP_MODEL_DEFAULT, 0 }

/** Begins a model's files. Nothing is made before the first write. Blocks.
 * @param[in]  path  of the file, in a folder that is there
 * @param[in]  desc  NULL: defaults
 * @param[out] out   the new writer
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT (a name without a known end where the format is the
 *          default, something that has the name already, max_file_bytes where there can be one file only);
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_model_writer_create(const char* path, const mp_model_writer_desc* desc,
                                        mp_model_writer** out) MP_MUST_CHECK;

/** Ends a writer. Of one that is not finished nothing is left.
 * @param[in] writer  may be NULL
 * @returns nothing; never fails
 * @threads A
 * @since 0.2 */
MP_API void mp_model_writer_destroy(mp_model_writer* writer);

/** Says that there will be a tensor. GGUF has them in this order.
 * @param[in]  writer  before its first write
 * @param[in]  name    UTF-8, of its own; in GGUF of at most 63 bytes, which is what ggml keeps
 * @param[in]  dtype   MP_DTYPE_*: in safetensors all but packed types and blocks; in GGUF fp32, fp16, bf16, int8 to int64, blocks
 * @param[in]  ndim    0 for one number; at most 8, in GGUF 4
 * @param[in]  shape   row-major, the slowest first, as mp_file_tensor has it; of blocks the last is a multiple of a block's
 *                     elements
 * @param[out] index   for the other calls: how many were added before
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (of the name);
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_SHAPE; MP_STATUS_BAD_STATE once something is written;
 *          MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_add_tensor(mp_model_writer* writer, const char* name,
                                            int32_t dtype, int32_t ndim, const int64_t* shape,
                                            int64_t* index);

/** Sets a key to a text: of safetensors' "__metadata__", which has texts alone, or of GGUF.
 * @param[in] writer  before its first write
 * @param[in] key     UTF-8, of at most 65535 bytes, not set before
 * @param[in] text    UTF-8
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (a key that is set
 *          already, one of the writer's own, or what the format does not have); MP_STATUS_BAD_STATE once something is written;
 *          MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_text(mp_model_writer* writer, const char* key,
                                          const char* text);

/** Sets a key of GGUF to a boolean.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] value   0: false
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_boolean(mp_model_writer* writer, const char* key,
                                             int32_t value);

/** Sets a key of GGUF to a signed integer.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] bits    8, 16, 32 or 64, in which the value fits. Readers want the type that they know: llama.cpp's integers have
 *                    32 bits, and most of them no sign
 * @param[in] value   the integer
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_integer(mp_model_writer* writer, const char* key, int32_t bits,
                                             int64_t value);

/** Sets a key of GGUF to an integer without a sign.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] bits    as those of mp_model_writer_set_integer
 * @param[in] value   the integer
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_unsigned(mp_model_writer* writer, const char* key,
                                              int32_t bits, uint64_t value);

/** Sets a key of GGUF to a number in fp32.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] value   the number
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_float(mp_model_writer* writer, const char* key, float value);

/** Sets a key of GGUF to a list of texts, such as a tokenizer's tokens.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] texts   UTF-8, none of them NULL
 * @param[in] count   how many
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_texts(mp_model_writer* writer, const char* key,
                                           const char* const* texts, int64_t count);

/** Sets a key of GGUF to a list of signed integers, such as the types of tokens, which have 32 bits.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] bits    as those of mp_model_writer_set_integer
 * @param[in] values  the integers
 * @param[in] count   how many
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_integers(mp_model_writer* writer, const char* key,
                                              int32_t bits, const int64_t* values, int64_t count);

/** Sets a key of GGUF to a list of numbers in fp32, such as the scores of tokens.
 * @param[in] writer  before its first write
 * @param[in] key     as that of mp_model_writer_set_text
 * @param[in] values  the numbers
 * @param[in] count   how many
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_set_floats(mp_model_writer* writer, const char* key,
                                            const float* values, int64_t count);

/** Sets all keys that a model's files have and that are not set yet, as they are there, such as a tokenizer with its types. Not
 * the writer's own. The first file that has a key counts. All of them, or none.
 * @param[in] writer  before its first write
 * @param[in] model   of GGUF, or with texts alone, where the writer's format is safetensors
 * @returns as mp_model_writer_set_text
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_copy_metadata(mp_model_writer* writer, const mp_model_file* model);

/** Writes bytes of a tensor, as the file has them: little-endian, row-major. What was written may be written again. Blocks.
 * @param[in] writer  the writer
 * @param[in] index   of the tensor
 * @param[in] offset  the first byte of the tensor's that is written
 * @param[in] data    the bytes
 * @param[in] bytes   how many; with offset no more than the tensor has
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_BAD_STATE once
 *          it is finished or has failed; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_write(mp_model_writer* writer, int64_t index, int64_t offset,
                                       const void* data, size_t bytes);

/** Writes elements of a tensor that are given as numbers. fp16 and bf16 are the nearest ones, ties to even; a number beyond the
 * largest fp16 becomes an infinity. Codes of Q8_0 and Q4_0 have the bits of gguf-py 0.19.0 (gguf.quants.quantize).
 * Blocks.
 * @param[in] writer  the writer
 * @param[in] index   of a tensor in fp32, fp16, bf16, Q8_0 or Q4_0
 * @param[in] first   the first element; of blocks a multiple of 32
 * @param[in] values  the numbers; of blocks all are finite, and their largest fits a scale of fp16
 * @param[in] count   how many; of blocks a multiple of 32
 * @returns as mp_model_writer_write; MP_STATUS_INVALID_DTYPE of tensors of other types, whose bytes
 *          mp_model_writer_write takes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_write_floats(mp_model_writer* writer, int64_t index, int64_t first,
                                              const float* values, int64_t count);

/** Writes a whole tensor: bytes as they are where the file's tensor has its type and it has no scales; else its numbers, as
 * mp_model_writer_write_floats writes them, 2^18 at a time. Where one of those cannot be written those before it have been.
 * Blocks.
 * @param[in] writer  the writer
 * @param[in] queue   NULL: the default queue of the tensor's device
 * @param[in] index   of a tensor of the same shape
 * @param[in] tensor  of any type, quantized ones too
 * @returns as mp_model_writer_write_floats; MP_STATUS_INVALID_SHAPE; MP_STATUS_BAD_STATE of a tensor without memory; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_write_tensor(mp_model_writer* writer, mp_queue* queue,
                                              int64_t index, const mp_tensor* tensor);

/** Ends the files: all of them are on the disk and have their names. Of several the index comes first: who opens the model too
 * early misses a file that it names. After it the writer can only be destroyed. Blocks.
 * @param[in] writer  all of whose tensors are written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE where bytes of a tensor are
 *          missing, which may be written then, and once it is finished or has failed; MP_STATUS_INVALID_ARGUMENT where
 *          something has one of the names meanwhile; MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_model_writer_finish(mp_model_writer* writer);

MP_END_DECLS

#endif /* MIXEDPREC_MODEL_WRITER_H */
