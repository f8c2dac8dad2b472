/* SPDX-License-Identifier: Apache-2.0
 * The numbers of an optimizer's parameters into a model's files: the other way of mp_optimizer_load_params. From any stage and
 * any number of ranks: one rank writes, and the others send it what they have, 2^18 elements at a time. So no rank holds more
 * of a model than it does anyway. */
#ifndef MIXEDPREC_WRITE_PARAMS_H
#define MIXEDPREC_WRITE_PARAMS_H

#include "model_writer.h"
#include "optimizer.h"

/* mp_optimizer_write_params.flags. Without it weights are written as steps leave them and models compute with them: what was
 * evaluated. With it the exact values behind them are: the master weight, the weight with its remainder, or with its
 * compensation, where there is one. In F32 mp_optimizer_load_params takes these back without a loss, to train on. */
#define MP_WRITE_PARAMS_EXACT 1u

MP_BEGIN_DECLS

/** Writes parameters into tensors that the writer has: of their names behind a prefix, and of their shapes, as
 * mp_model_writer_write_floats writes numbers. Frozen ones in codes go as what these are worth. Weights that are fp8 codes for
 * use go as the numbers that their owner keeps. Where ranks share the optimizer it is collective, after mp_optimizer_shard and
 * between steps, and names the same parameters in the same order on all. A call that fails on one rank fails on all; what was
 * written before it may be written again. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] writer     of the one rank that writes; NULL on all others
 * @param[in] prefix     what the tensors' names begin with before a parameter's name, "model." say; NULL: nothing. It is that
 *                       of the rank that writes
 * @param[in] indices    the parameters' numbers; NULL: all parameters
 * @param[in] count      how many; without indices 0
 * @param[in] flags      MP_WRITE_PARAMS_*
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT, also where no rank has a writer; MP_STATUS_INVALID_HANDLE;
 *          MP_STATUS_INVALID_ARGUMENT (an index, unknown flags, two ranks with a writer); MP_STATUS_UNKNOWN_NAME,
 *          MP_STATUS_INVALID_SHAPE and MP_STATUS_INVALID_DTYPE, of a tensor; MP_STATUS_BAD_STATE (before mp_optimizer_shard, of
 *          parameters without values, and as mp_model_writer_write); MP_STATUS_IO_ERROR; MP_STATUS_OUT_OF_MEMORY;
 *          MP_STATUS_RANK_MISMATCH; MP_STATUS_PEER_ERROR; as mp_comm_all_to_all; vendor codes
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_write_params(mp_optimizer* optimizer, mp_queue* queue,
                                           mp_model_writer* writer, const char* prefix,
                                           const int32_t* indices, int32_t count, uint32_t flags);

MP_END_DECLS

#endif /* MIXEDPREC_WRITE_PARAMS_H */
