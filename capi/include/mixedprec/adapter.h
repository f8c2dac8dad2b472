/* SPDX-License-Identifier: Apache-2.0
 * mp_adapter: LoRA (arXiv 2106.09685) on a layer whose own weight is frozen, in any format, the codes of a model file too:
 *
 *   y = x * w^T + bias + scale * (drop(x) * a^T) * b^T        a [r, in], b [out, r], scale = alpha / r
 *
 * a and b are the only weights that are trained: give them to an optimizer as any parameter. PEFT calls them lora_A.weight and
 * lora_B.weight. At first a is random and b zero (first_values.h), so that nothing changes.
 *
 *   mp_linear_create(context, recipe, &desc, weight, NULL, &layer);           with MP_LINEAR_FROZEN
 *   mp_adapter_create(layer, recipe, &adapter_desc, a, b, &adapter);
 *   mp_adapter_set_grads(adapter, da, db);
 *   mp_linear_forward(layer, queue, x, y);
 *   mp_linear_backward(layer, queue, dy, dx, NULL, NULL, 0);                  writes da, db and dx
 *
 * All calls of linear.h and saved.h take the layer as ever: a forward keeps x and drop(x) * a^T instead of nothing, a backward
 * writes what mp_adapter_set_grads has named, and adds to it with MP_BACKWARD_ACCUMULATE. dw is NULL. The half
 * mp_linear_backward_data gives dx alone, mp_linear_backward_weight da and db alone. y and dx are rounded once for each
 * adapter, after the base's own rounding.
 *
 * Both matrices are layers of their own inside, in the formats of the recipe that the adapter is made with; they are called
 * <layer>.lora_A.<adapter> and <layer>.lora_B.<adapter>, which rules by layer may name ("*.lora_*"). x is rounded for each of
 * them as for the base: not at all where it has their type. mp_linear_end_step, mp_optimizer_set_linears and
 * mp_checkpoint_add_linear take the adapters that a layer has then along with it.
 *
 * Several adapters add up; one that is not active takes no part.
 *
 * DoRA (arXiv 2402.09353). An adapter with a magnitude m [out] scales the whole sum u, all but the bias, by the rows of the
 * weight that it makes: y = u * m / |w + scale * b * a| + bias, where a norm of 0 gives 0. The norm is worked out in every
 * forward and is a constant in backward (4.3 of the paper). Such an adapter is the only one that is active. PEFT gives the same
 * without dropout; with it PEFT drops in x * w^T too, and here x is whole there.
 *
 * Dropout. drop(x) is 0 where 16 random bits of the element are below dropout * 65536, and elsewhere x / (1 - dropout), rounded
 * to x's type. The bits follow from the seed of the optimizer that ends the layer's steps (0 without one), the names of layer and
 * adapter, the element, the step, the micro-batch, and of a sharded optimizer the rank: the same on every device and for any
 * threads; a backward, and a forward that is computed again, find the same ones. An evaluation (mp_linear_forward_saved with
 * `saved` NULL) drops nothing; mp_linear_forward does. x is numbers then, no codes. */
#ifndef MIXEDPREC_ADAPTER_H
#define MIXEDPREC_ADAPTER_H

#include "linear.h"

/* mp_adapter_desc.flags */
#define MP_ADAPTER_RANK_STABILIZED 1u /* scale = alpha / sqrt(r): rsLoRA, arXiv 2312.03732 */

typedef struct mp_adapter_desc {
    uint32_t struct_size; /* sizeof(mp_adapter_desc) */
    uint32_t flags;       /* MP_ADAPTER_* */
    double alpha;         /* >= 0; 0: r, and the scale is 1, or sqrt(r) if rank-stabilized */
    double dropout;       /* >= 0, < 1: in steps of 1 / 65536; the layer needs a name */
    int64_t rank;         /* r: a's rows; 0: as the tensors have it */
    /* Of its layer no other has it: UTF-8, copied; <layer>.lora_A.<name> has 255 bytes at most. NULL: "default".
     * mp_adapter_get_desc gives a string that lives as long as the adapter. */
    const char* name;
} mp_adapter_desc;

#define MP_ADAPTER_DESC_INIT                                                                       \
    { sizeof(mp_adapter_desc), 0, 0.0, 0.0, 0, NULL }

/* mp_linear_merge_adapters flags */
#define MP_MERGE_REQUANTIZE 1u /* the target may be codes */

/** What rounding to the target's type has done to a merged weight. */
typedef struct mp_merge_report {
    uint32_t struct_size; /* sizeof(mp_merge_report), set by the caller */
    uint32_t reserved;    /* 0 */
    int64_t elements;     /* of the rows that were written */
    double rms_change;    /* root of the mean square of merged - w: what was learned */
    double rms_error;     /* of target - merged: what rounding adds */
    double max_error;     /* the largest of its elements */
} mp_merge_report;

#define MP_MERGE_REPORT_INIT                                                                       \
    { sizeof(mp_merge_report), 0, 0, 0.0, 0.0, 0.0 }

MP_BEGIN_DECLS

/** Puts an adapter on a layer, which has it until the handle is destroyed. Keeps the layer, a and b alive; a and b are read at
 * every call, so changes to them count at once. It is active, and no gradient of it is wanted yet. Freezes the recipe.
 * @param[in]  linear  a layer with MP_LINEAR_FROZEN; with MP_LINEAR_INFERENCE its adapters are not trained either
 * @param[in]  recipe  decides the types of both products; the layer's own, or another one
 * @param[in]  desc    NULL: alpha is the rank, the name "default"
 * @param[in]  a       [r, in]; fp32, fp16, bf16 or quantized
 * @param[in]  b       [out, r], likewise
 * @param[out] out     the new adapter
 * @returns MP_STATUS_OK; MP_STATUS_WARNING where its sizes keep it in high precision under an fp8 recipe (it is made);
 *          MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (a layer whose weight is trained; a name that is taken; alpha; device, recipe);
 *          MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_UNSUPPORTED; MP_STATUS_OUT_OF_MEMORY
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_create(mp_linear* linear, mp_recipe* recipe,
                                   const mp_adapter_desc* desc, mp_tensor* a, mp_tensor* b,
                                   mp_adapter** out) MP_MUST_CHECK;

/** mp_adapter_create over plain memory, for programs that have no tensors.
 * @param[in]  linear  as there
 * @param[in]  recipe  as there
 * @param[in]  desc    as there, with the rank
 * @param[in]  a       [r, in], row-major; stays the caller's and valid while the adapter lives
 * @param[in]  b       [out, r], likewise
 * @param[in]  dtype   of both: MP_DTYPE_FP32, _FP16 or _BF16
 * @param[out] out     the new adapter
 * @returns as mp_adapter_create; MP_STATUS_INVALID_ARGUMENT also for memory that is not aligned to its elements
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_create_pointers(mp_linear* linear, mp_recipe* recipe,
                                            const mp_adapter_desc* desc, const void* a,
                                            const void* b, int32_t dtype,
                                            mp_adapter** out) MP_MUST_CHECK;

/** Where a backward of the layer writes the adapter's gradients from now on. Keeps the tensors alive.
 * @param[in] adapter  the adapter
 * @param[in] da       as a; fp32, fp16, bf16 or quantized; NULL: it is not wanted. mp_linear_set_gradient_rounding of the
 *                     layer that mp_adapter_get_linears gives says how it is rounded
 * @param[in] db       as b, likewise
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (device); MP_STATUS_BAD_STATE of a layer with MP_LINEAR_INFERENCE
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_set_grads(mp_adapter* adapter, mp_tensor* da, mp_tensor* db);

/** mp_adapter_set_grads over plain memory, which stays the caller's and valid until another one is named.
 * @param[in] adapter  the adapter
 * @param[in] da       as a; NULL: it is not wanted
 * @param[in] db       as b, likewise
 * @param[in] dtype    of both: MP_DTYPE_FP32, _FP16 or _BF16
 * @returns as mp_adapter_set_grads; MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT for memory that is not aligned to its
 *          elements
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_set_grads_pointers(mp_adapter* adapter, void* da, void* db,
                                               int32_t dtype);

/** Gives the adapter a magnitude, which makes it DoRA: from the next forward on. Keeps the tensors alive.
 * @param[in] adapter    the adapter
 * @param[in] magnitude  [out], fp32, fp16 or bf16, read at every call: a parameter as a and b are; NULL: none
 * @param[in] gradient   [out], likewise, where a backward writes: a forward then keeps u [rows, out], in the library's memory;
 *                       NULL: it is not wanted
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (device; a gradient alone); MP_STATUS_BAD_STATE (a gradient of a layer with
 *          MP_LINEAR_INFERENCE)
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_set_magnitude(mp_adapter* adapter, mp_tensor* magnitude,
                                          mp_tensor* gradient);

/** mp_adapter_set_magnitude over plain memory, which stays the caller's and valid until another one is named.
 * @param[in] adapter    the adapter
 * @param[in] magnitude  [out]; NULL: none
 * @param[in] gradient   [out]; NULL: it is not wanted
 * @param[in] dtype      of both: MP_DTYPE_FP32, _FP16 or _BF16
 * @returns as mp_adapter_set_magnitude; MP_STATUS_INVALID_ARGUMENT also for memory that is not aligned to its elements
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_set_magnitude_pointers(mp_adapter* adapter, void* magnitude,
                                                   void* gradient, int32_t dtype);

/** Sets the magnitude to the norms that the rows of w + scale * b * a have now, so that the layer computes as without it: how
 * DoRA begins. Enqueues.
 * @param[in] adapter  one with a magnitude, which is written
 * @param[in] queue    NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_BAD_STATE (it has none);
 *          MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_init_magnitude(mp_adapter* adapter, mp_queue* queue);

/** Switches it on or off, from the next forward on. A backward takes the adapters that are active then, so none may be switched
 * between a forward and its backward.
 * @param[in] adapter  the adapter
 * @param[in] active   0: off, and the layer is as if it had none
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_set_active(mp_adapter* adapter, int32_t active);

/** Whether it takes part.
 * @param[in]  adapter  the adapter
 * @param[out] active   1 or 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_get_active(const mp_adapter* adapter, int32_t* active);

/** What the adapter was made with; alpha and rank as they are used.
 * @param[in]     adapter  the adapter
 * @param[in,out] desc     struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_get_desc(const mp_adapter* adapter, mp_adapter_desc* desc);

/** The two layers that the adapter is: for their descriptions, statistics, monitors and scaling state. Their passes belong to the
 * layer that has the adapter.
 * @param[in]  adapter  the adapter
 * @param[out] a        in to r; a new handle, which the caller destroys
 * @param[out] b        r to out, likewise
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_OUT_OF_MEMORY
 * @threads B, of the layer
 * @since 0.2 */
MP_API mp_status mp_adapter_get_linears(const mp_adapter* adapter, mp_linear** a, mp_linear** b);

/** Writes rows of the weight that a layer and its active adapters are together, w + scale * b * a, with a magnitude times
 * m / |w + scale * b * a|: for a model without adapters. Summed in fp32 and rounded once to the target's type. Takes 4 bytes of
 * scratch memory for each of its elements, 8 with a report, and a and b in fp32: name fewer rows at a time for less.
 *
 * Codes. A weight that was codes is not written as codes again unless that is asked for: the change that was learned may be
 * smaller than a code's step, and go. The report says how much of it went. Of types of blocks MP_DTYPE_Q8_0 and _Q4_0 are made,
 * with the bits of gguf-py, on the host.
 * @param[in]     linear     the layer
 * @param[in]     queue      NULL: the default queue
 * @param[in]     first_row  of the weight
 * @param[in]     target     written: [rows, in], fp32, fp16 or bf16; with MP_MERGE_REQUANTIZE codes with scales, MP_DTYPE_Q8_0
 *                           and _Q4_0, too. It may be the weight itself
 * @param[in]     flags      0 or MP_MERGE_REQUANTIZE
 * @param[in,out] report     NULL: not wanted. struct_size set by the caller; the rest is written. Blocks then
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE (codes without the flag; other types of blocks); MP_STATUS_INVALID_ARGUMENT (device, overlap;
 *          rows that the weight does not have; numbers that a block cannot hold); MP_STATUS_UNSUPPORTED (a magnitude beside
 *          other adapters); MP_STATUS_STRUCT_TOO_NEW; MP_STATUS_OUT_OF_MEMORY; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_merge_adapters(mp_linear* linear, mp_queue* queue, int64_t first_row,
                                          mp_tensor* target, uint32_t flags,
                                          mp_merge_report* report);

/** Gives the caller's reference back: the layer has the adapter no longer.
 * @param[in] adapter  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads B, of the layer
 * @since 0.2 */
MP_API void mp_adapter_destroy(mp_adapter* adapter);

MP_END_DECLS

#endif /* MIXEDPREC_ADAPTER_H */
