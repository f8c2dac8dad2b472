/* SPDX-License-Identifier: Apache-2.0
 * States of an mp_optimizer (optimizer.h), in and out: its tensors by name, their values, and the counts of steps that go with
 * them. For programs that import from other libraries, keep files of their own or look inside. */
#ifndef MIXEDPREC_OPTIMIZER_STATE_H
#define MIXEDPREC_OPTIMIZER_STATE_H

#include "status.h"

MP_BEGIN_DECLS

/** A tensor of one parameter, by name: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master"; and
 * for one of codes with a scale that scale, by its name and "_scale_inv". Contents may be read and written between
 * steps. Parameters that are kept in fp32 have gradients and moments without scales, whatever the recipe says.
 * @param[in]  optimizer  the optimizer
 * @param[in]  index      the parameter's number
 * @param[in]  state      the name
 * @param[out] out        a new reference for the caller to destroy
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index);
 *          MP_STATUS_UNKNOWN_NAME (no such state, or this parameter has none of it)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_state(mp_optimizer* optimizer, int32_t index, const char* state,
                                        mp_tensor** out) MP_MUST_CHECK;

/** The values of a state of one parameter, whatever it is stored as. Names, and what others call them:
 *   "exp_avg"       m                          torch, Megatron-Core, torchdistx: exp_avg; bitsandbytes: state1; optax: mu
 *   "exp_avg_sq"    v                          torch, Megatron-Core, torchdistx: exp_avg_sq; bitsandbytes: state2; optax: nu
 *   "compensation"  Kahan's c, as it is        torchdistx: compensation; optimi: kahan_comp
 *   "fp32_param"    the weight with all the bits the optimizer has of it: the master weight, parameter and remainder
 *                   joined, parameter plus compensation, or the parameter alone
 *                                              Megatron-Core: fp32_param, param; apex: master
 * t is torch's step: mp_optimizer_get_group_step. There is no max_exp_avg_sq (AMSGrad). Codes and scales as they are
 * stored, for a checkpoint that goes on with the same bits: mp_optimizer_get_state.
 * optimi's moments are divided by 1 - beta^t already: multiply them before mp_optimizer_write_state. Blocks.
 * @param[in]  optimizer  the optimizer
 * @param[in]  queue      NULL: the default queue
 * @param[in]  index      the parameter's number
 * @param[in]  state      the name
 * @param[in]  values     fp32, fp16 or bf16 on the context's device, as many elements as the parameter; is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index, device);
 *          MP_STATUS_UNKNOWN_NAME (no such state, or this parameter has none of it); MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_read_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                         const char* state, mp_tensor* values);

/** Stores values that came from elsewhere in a state: rounded once to nearest, with new scales where the state has
 * scales. "fp32_param" writes the parameter as well, and what its rounding loses goes into master weight, remainder or
 * compensation: nothing of a checkpoint in fp32 is lost that the recipe can hold. To import a bf16 parameter with its
 * compensation, write the parameter, call mp_optimizer_sync_master, then write "compensation". Numbers
 * must be finite, second moments not negative. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] index      the parameter's number
 * @param[in] state      a name of mp_optimizer_read_state
 * @param[in] values     fp32, fp16 or bf16 on the context's device, as many elements as the parameter
 * @returns as mp_optimizer_read_state
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_write_state(mp_optimizer* optimizer, mp_queue* queue, int32_t index,
                                          const char* state, mp_tensor* values);

/** After the caller wrote into parameters (a load, an average): master weights become the parameters, remainders and
 * compensations zero. Enqueues; blocks for parameters with a scale.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] index      the parameter's number; -1: all
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (index); vendor
 *          codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_sync_master(mp_optimizer* optimizer, mp_queue* queue, int32_t index);

/** Sets the count of steps and t of every group and parameter, to go on where a saved run stopped. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] step       steps taken so far, >= 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_BAD_STATE (a step is open); vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_step(mp_optimizer* optimizer, mp_queue* queue, int64_t step);

/** t of one group: the most steps that one of its parameters took part in, torch's `step`. Of those that were added after a
 * step, or marked as unused in one, it is ahead: they count their own, which checkpoints keep. Blocks.
 * @param[in]  optimizer  the optimizer
 * @param[in]  queue      NULL: the default queue
 * @param[in]  group      the group's number
 * @param[out] step       the count
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (group);
 *          vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_get_group_step(mp_optimizer* optimizer, mp_queue* queue,
                                             int32_t group, int64_t* step);

/** Sets t of one group alone, of all its parameters. Random numbers go by the count of mp_optimizer_set_step. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] group      the group's number
 * @param[in] step       >= 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_BAD_STATE (a step is open); vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_set_group_step(mp_optimizer* optimizer, mp_queue* queue,
                                             int32_t group, int64_t step);

MP_END_DECLS

#endif /* MIXEDPREC_OPTIMIZER_STATE_H */
