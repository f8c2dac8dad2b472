/* SPDX-License-Identifier: Apache-2.0
 * Changes of an optimizer's parameters between steps: many are added at once, frozen, and trained again. For layers that are
 * unfrozen one by one, adapters beside a model that is trained already, embeddings that stop moving late.
 *
 * Where ranks share the optimizer and have cut its parameters (mp_optimizer_shard, or the first step), these calls and
 * mp_optimizer_add_param are collective: all ranks make the same ones. The list is then cut anew, as one that began so would be;
 * states and weights go to their new owners, of which no bit changes. Until that is over a rank has both what it gives away and
 * what it gets. Ranks agree before anything changes: one that differs is named (MP_STATUS_RANK_MISMATCH), one that cannot go on
 * stops all (MP_STATUS_PEER_ERROR), and then nothing has changed anywhere. A rank that runs out of memory while states travel
 * ends the communicator for all, as in a step; the parameters and states are those of before.
 *
 * They are refused (MP_STATUS_BAD_STATE, with what to do) while a step is open or a layer has begun, and in a capture. After the
 * cut also while gradients are on their way or summed, or in stages 2 and 3 have memory, and in stage 3 while a weight has. So:
 * after a step, before the next forward pass. A graph that holds a step (gpu.md) holds the old arrays: capture it again. */
#ifndef MIXEDPREC_PARAM_CHANGES_H
#define MIXEDPREC_PARAM_CHANGES_H

#include "optimizer.h"

MP_BEGIN_DECLS

/** mp_optimizer_add_param for many parameters of one group: all are added, or none. Where ranks have cut the parameters the list
 * is cut anew once, and not once for each. Blocks where ranks share the optimizer.
 * @param[in]  optimizer  the optimizer
 * @param[in]  group      the group's number
 * @param[in]  descs      the parameters, all of one struct_size; may be NULL when count is 0
 * @param[in]  count      how many
 * @param[out] first      the number of the first one, from 0; those of the others follow it; may be NULL
 * @returns as mp_optimizer_add_param; MP_STATUS_INVALID_ARGUMENT also for count and struct_size
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_add_params(mp_optimizer* optimizer, int32_t group,
                                         const mp_param_desc* descs, int32_t count, int32_t* first);

/** Freezes parameters, or has them trained again; nothing for those that are so already. What is frozen is as one that was added
 * with MP_PARAM_FROZEN: gradient, states and what the weight's rounding had lost (master weight, remainder, compensation) go.
 * The weight stays as it is stored; where ranks gather it rounded, as it was gathered, in every stage. What is trained again gets
 * a gradient of zeros (mp_optimizer_get_state), states of zeros, and a master of the weight's value. Its bias correction begins
 * with its own first step, as that of a parameter that is added late: t, which mp_optimizer_get_group_step tells, is of trained
 * parameters alone. A mark of mp_optimizer_mark_unused is gone. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue; its work so far comes first
 * @param[in] indices    the parameters' numbers, in any order; may be NULL when count is 0
 * @param[in] count      how many; 0: none
 * @param[in] frozen     0: trained; anything else: frozen
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index, count);
 *          MP_STATUS_INVALID_DTYPE (a weight of a type that the recipe does not train); MP_STATUS_BAD_STATE (above; an
 *          init_fp32 that waits for mp_optimizer_shard); MP_STATUS_UNSUPPORTED (as mp_optimizer_shard);
 *          MP_STATUS_RANK_MISMATCH; MP_STATUS_PEER_ERROR; MP_STATUS_OUT_OF_MEMORY; as mp_comm_all_to_all
 * @threads C
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_frozen(mp_optimizer* optimizer, mp_queue* queue,
                                         const int32_t* indices, int32_t count, int32_t frozen);

/** Whether a parameter is frozen.
 * @param[in]  optimizer  the optimizer
 * @param[in]  index      the parameter's number
 * @param[out] frozen     1: frozen; 0: trained
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_frozen(const mp_optimizer* optimizer, int32_t index,
                                         int32_t* frozen);

MP_END_DECLS

#endif /* MIXEDPREC_PARAM_CHANGES_H */
