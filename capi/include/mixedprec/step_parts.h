/* SPDX-License-Identifier: Apache-2.0
 * A step in parts ("optimizer step in backward"): each parameter is written as soon as its gradient is final, not when all are.
 * The bits are those of mp_optimizer_step.
 *
 *   gradient release   backward goes on while what is final is stepped; the next layer's gradient uses the memory again
 *                      (https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html)
 *   a GPU trainer      whose states and step are on the host: a gradient comes in 16 bits, the weight goes back, while the GPU
 *                      computes the next. mp_optimizer_step_params of a context on the host calls nothing of CUDA, and has
 *                      written when it returns. So it may be what cudaLaunchHostFunc calls between two copies of a stream,
 *                      which then waits for it by itself. Keep the status that it gets, and the message, which is of CUDA's
 *                      thread. Let one stream do this, nobody else use the optimizer meanwhile, and synchronize the stream
 *                      before mp_optimizer_step_end.
 *
 *     mp_optimizer_step_begin(optimizer, NULL, NULL);
 *     for (layer = layers; layer-- > 0;) {
 *         ... backward of the layer, into `gradient` ...
 *         mp_optimizer_step_params(optimizer, NULL, &layer, 1, &gradient);
 *     }
 *     mp_optimizer_step_end(optimizer, NULL);
 *
 * Who keeps its own arrays needs none of this: mp_optimizer_step_pointers (step.h) is given the step's number, and so may be
 * called for any arrays at any time. */
#ifndef MIXEDPREC_STEP_PARTS_H
#define MIXEDPREC_STEP_PARTS_H

#include "optimizer.h"

MP_BEGIN_DECLS

/** Begins a step that is taken in parts. It is decided here: its number, and the hyperparameters of all groups as they are
 * now; mp_optimizer_get_stats counts it already. So nothing may depend on all gradients. Until mp_optimizer_step_end these are
 * MP_STATUS_BAD_STATE: another step, mp_optimizer_set_step, _set_group_step, _mark_unused, _zero_grad, mp_checkpoint_save,
 * _load, _export_weights. A parameter that is added meanwhile is of the next step. Enqueues.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue
 * @param[in] scaler     its scale is divided out; it may not look for infinities. NULL: no loss scale
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (device);
 *          MP_STATUS_BAD_STATE (a step is open; a parameter without values; the queue's stream is being captured);
 *          MP_STATUS_UNSUPPORTED (ranks, offload, max_grad_norm, a guard, MP_OPTIMIZER_CHECK_FINITE, a scaler that checks,
 *          mp_optimizer_set_norm_comm); MP_STATUS_OUT_OF_MEMORY; vendor codes; and then nothing has changed
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_step_begin(mp_optimizer* optimizer, mp_queue* queue,
                                         mp_scaler* scaler);

/** Writes parameters in the open step. Enqueues: on the host they are written when this returns. Their gradients are read no
 * more then, and under MP_OPTIMIZER_ZERO_GRAD they are zero.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue; the one that the step began on, or one ordered after it
 * @param[in] indices    the parameters' numbers, in any order, each once in a step
 * @param[in] count      how many; 0: none
 * @param[in] grads      a gradient for each, of its shape, of any dtype that mp_param_desc.grad may have; not kept. NULL: their
 *                       own
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (an index, count,
 *          device, one named twice, a gradient in the memory of what steps write, or under MP_OPTIMIZER_ZERO_GRAD of another
 *          one's gradient); MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE; MP_STATUS_UNSUPPORTED with all reasons;
 *          MP_STATUS_BAD_STATE (no step is open; a parameter that was written, is frozen or unused, or has no gradient; the
 *          queue's stream is being captured); MP_STATUS_OUT_OF_MEMORY; vendor codes; and then none of them was written
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_step_params(mp_optimizer* optimizer, mp_queue* queue,
                                          const int32_t* indices, int32_t count,
                                          mp_tensor* const* grads);

/** Ends the open step: what is left of its parameters is written now, from their own gradients, and all that follows a step
 * follows, as after mp_optimizer_step. Blocks.
 * @param[in] optimizer  the optimizer
 * @param[in] queue      NULL: the default queue; one ordered after all that parameters were written on
 * @returns as mp_optimizer_step; MP_STATUS_BAD_STATE (no step is open; one that is left has no gradient of its own; the
 *          queue's stream is being captured), and then it stays open
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_optimizer_step_end(mp_optimizer* optimizer, mp_queue* queue);

MP_END_DECLS

#endif /* MIXEDPREC_STEP_PARTS_H */
