/* SPDX-License-Identifier: Apache-2.0
 * mp_linear: y = x * w^T + bias and its two gradients, in the formats of a recipe: rounded to a type, or as fp8
 * codes with scales.
 *
 * Shapes, all row-major: x [rows, in], w [out, in], bias [out], y [rows, out]; dy as y, dx as x, dw as w,
 * dbias as bias. rows may change from call to call. x, y, dy and dx are fp32, fp16 or bf16, whichever the
 * caller's activations are; operands are rounded to the recipe's GEMM dtypes inside, sums are fp32.
 *
 * One step of training:  forward -> backward (or its halves backward_data and backward_weight, in either
 * order), once for each micro-batch. forward keeps what backward_weight needs: a copy of x in the recipe's dtype, or, where
 * x already has that dtype, a reference to it (not with MP_LINEAR_COPY_INPUT), in which case its contents must not change
 * until backward_weight has run. A second forward replaces what the first one kept; saved.h has forwards that wait side by side.
 *
 * Evaluation: mp_linear_forward alone, without a backward, leaves training as it was, to the bit: under delayed scaling the
 * amaxes of a forward (x, and the weight) count from its backward on. One that no backward follows never counts, unless no layer
 * of an mp_linear_end_step had a backward in that step: then its layers' forwards count, to find scales. Frozen layers, which
 * may train without a backward, and statistics are evaluated by mp_linear_forward_saved with `saved` NULL (saved.h).
 *
 * fp8. Which products are fp8 and how their operands are scaled is the recipe's (gemm.* keys); a layer whose sizes
 * do not fit stays in high precision and mp_linear_describe says why. The codes of a weight made in forward serve
 * its backward too (gemm.weight_copy). After each optimizer step call mp_linear_end_step, or name the layers to
 * the optimizer once (mp_optimizer_set_linears): delayed scales follow from the step's amaxes there, cached weights are let
 * go, monitors are called. The weight may be a quantized tensor:
 * then its codes are the only copy; dw may be one too: it is summed in fp32 and rounded once. */
#ifndef MIXEDPREC_LINEAR_H
#define MIXEDPREC_LINEAR_H

#include "status.h"

/* mp_linear_desc.flags */
/* forward keeps nothing, and moves no delayed scale; backward_weight is refused */
#define MP_LINEAR_INFERENCE 1u
/* A converted weight serves until mp_linear_end_step, or until the library writes to the weight's memory, by whatever function,
 * tensor or pointer: for gradient accumulation. Writes of the caller's own, and those of a captured graph that is run
 * again, go unnoticed until then. */
#define MP_LINEAR_CACHE_WEIGHT 2u
#define MP_LINEAR_FIRST_OR_LAST 4u /* of the whole model: see gemm.filter.first_last */
#define MP_LINEAR_STATS 8u /* count what happens to elements; mp_linear_get_stats reads it */
/* The weight does not change while the layer lives (LoRA's base weight): it is rounded once, and again only where the library
 * writes to its memory (see MP_LINEAR_CACHE_WEIGHT). Its scale is made of its own amax then, under delayed scaling too.
 * Keeps nothing in forward, as MP_LINEAR_INFERENCE; gives dx alone. Adapters (adapter.h) keep what they need. */
#define MP_LINEAR_FROZEN 16u
/* forward keeps a copy of x also where it has the recipe's dtype already, and no reference: x may change or go before
 * backward. */
#define MP_LINEAR_COPY_INPUT 32u

/* The operands of a layer's products. */
#define MP_OPERAND_INPUT 0       /* x */
#define MP_OPERAND_WEIGHT 1      /* w */
#define MP_OPERAND_GRAD_OUTPUT 2 /* dy */
#define MP_OPERAND_COUNT 3       /* how many there are */

/* mp_linear_backward and mp_linear_backward_weight flags */
#define MP_BACKWARD_ACCUMULATE 1u /* dw and dbias += ; otherwise they are overwritten */

typedef struct mp_linear_desc {
    uint32_t struct_size; /* sizeof(mp_linear_desc) */
    uint32_t flags;       /* MP_LINEAR_* */
    int64_t in_features;  /* required, > 0 */
    int64_t out_features; /* required, > 0 */
    /* What the model calls the layer, for the recipe's key "layers", for random bits (gemm.*.rounding) and for messages: 1 to
     * 255 bytes of UTF-8, copied. NULL: it has no name. mp_linear_get_desc gives a string that lives as long as the layer. */
    const char* name;
} mp_linear_desc;

#define MP_LINEAR_DESC_INIT                                                                        \
    { sizeof(mp_linear_desc), 0, 0, 0, NULL }

/** What happened to one operand since the counts were last cleared, and its delayed scale. */
typedef struct mp_linear_stats {
    uint32_t struct_size; /* sizeof(mp_linear_stats), set by the caller */
    uint32_t flags;       /* 0 */
    int32_t operand;      /* MP_OPERAND_* */
    int32_t dtype;        /* MP_DTYPE_* of the codes; of the rounded operand in high precision */
    int64_t elements;     /* counted */
    int64_t saturated;    /* finite, beyond the largest code */
    int64_t underflowed;  /* not zero, became zero */
    int64_t non_finite;   /* infinity or NaN */
    double amax;          /* largest |x|; NaN beats infinity beats numbers */
    double scale_inv;     /* delayed scaling: of the next step; otherwise 0 */
    double history_amax;  /* delayed scaling: largest amax remembered; otherwise 0 */
    int32_t history_len;  /* delayed scaling: amaxes remembered; otherwise 0 */
    int32_t updates;      /* delayed scaling: steps since the last amax that was not finite */
} mp_linear_stats;

#define MP_LINEAR_STATS_INIT                                                                       \
    { sizeof(mp_linear_stats), 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0, 0 }

/** Told by mp_linear_end_step about each operand of a monitored layer.
 * name: as given to mp_linear_set_monitor. advice: NULL, or one sentence that names the recipe key to change.
 * Both are valid during the call only. */
typedef void (*mp_linear_monitor_fn)(void* payload, const char* name, const mp_linear_stats* stats,
                                     const char* advice);

MP_BEGIN_DECLS

/* ---- The simple way: forward, backward, the end of a step */

/** Makes a layer over the caller's weight and bias, which it keeps alive and reads at every call, so
 * changes to them (by an optimizer, say) count at once. Freezes the recipe.
 * @param[in]  context  the context
 * @param[in]  recipe   decides the GEMM dtypes
 * @param[in]  desc     the sizes
 * @param[in]  weight   [out, in]; fp32, fp16, bf16 or quantized; of a layer that is frozen or of inference also codes in blocks
 *                      (MP_DTYPE_Q4_0 and so on), which its products decode and of which there is no other copy: such a layer
 *                      computes in the recipe's high precision
 * @param[in]  bias     [out], fp32, fp16 or bf16; NULL for none
 * @param[out] out      the new layer
 * @returns MP_STATUS_OK; MP_STATUS_WARNING where its sizes keep it in high precision under an fp8 recipe (the layer is made);
 *          MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE; MP_STATUS_INVALID_DTYPE;
 *          MP_STATUS_INVALID_ARGUMENT (device, recipe; no name where operands are rounded stochastically); MP_STATUS_UNSUPPORTED
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_linear_create(mp_context* context, mp_recipe* recipe,
                                  const mp_linear_desc* desc, mp_tensor* weight, mp_tensor* bias,
                                  mp_linear** out) MP_MUST_CHECK;

/** y = x * w^T + bias. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] x       [rows, in], or more dimensions whose last is in
 * @param[in] y       written; [rows, out]. What a call writes shares memory with nothing else of it, the weight and the
 *                    queue's workspace included
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_SHAPE;
 *          MP_STATUS_INVALID_DTYPE; MP_STATUS_INVALID_ARGUMENT (device, overlap); MP_STATUS_OUT_OF_MEMORY;
 *          MP_STATUS_BAD_STATE in a capture where operands are rounded stochastically: each replay would have the same random
 *          bits; vendor codes
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_forward(mp_linear* linear, mp_queue* queue, mp_tensor* x, mp_tensor* y);

/** Both gradients at once: mp_linear_backward_data and mp_linear_backward_weight with dy rounded only once where
 * both GEMMs want the same type. The same bits as the two calls. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out], rows as in the last forward
 * @param[in] dx      written; [rows, in]; NULL when not wanted
 * @param[in] dw      written or added to; [out, in]; NULL of a layer with adapters, whose gradients are where
 *                    mp_adapter_set_grads says
 * @param[in] dbias   written or added to; [out]; NULL when not wanted or the layer has no bias
 * @param[in] flags   MP_BACKWARD_ACCUMULATE or 0
 * @returns as mp_linear_backward_weight
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_backward(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                    mp_tensor* dx, mp_tensor* dw, mp_tensor* dbias, uint32_t flags);

/** The end of an optimizer step, for many layers and their adapters at once: delayed scales follow from the amaxes since the last
 * call, of forwards whose backward has run (where none has run in any of the layers: of all), cached weights are let go, and
 * monitors are called where their step has come. Call it once a step after the optimizer, whichever the recipe. Enqueues;
 * blocks where a monitor is called, and with `comm`, but not over NCCL.
 *
 * Where ranks train the same layers, `comm` makes them scale alike: every amax becomes the largest of all ranks before delayed
 * scales move on, unless gemm.reduce_amax is "off". One small message for all layers, which every rank names in the same order;
 * with mp_optimizer_set_linears, where the optimizer is shared, its step sends them.
 * @param[in] linears  the layers, all of one context; NULL entries are passed over
 * @param[in] count    their number, >= 0
 * @param[in] queue    NULL: the default queue
 * @param[in] comm     the ranks; NULL: this one alone
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT;
 *          MP_STATUS_BAD_STATE for a layer of mp_optimizer_set_linears, whose scales would move twice, and in a capture as
 *          mp_linear_forward;
 *          vendor codes; with `comm` as mp_comm_all_to_all, and then no layer has moved on. Over NCCL the next call that waits
 *          says it, and they have: load their state
 * @threads B; C with `comm`
 * @since 0.2 */
MP_API mp_status mp_linear_end_step(mp_linear* const* linears, int32_t count, mp_queue* queue,
                                    mp_comm* comm);

/** Gives the caller's reference back.
 * @param[in] linear  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_linear_destroy(mp_linear* linear);

/* ---- The same on plain memory, and each gradient by itself. The explicit way is saved.h */

/** mp_linear_create over plain memory, for programs that have no tensors.
 * @param[in]  context       the context whose device the memory is on
 * @param[in]  recipe        decides the GEMM dtypes
 * @param[in]  desc          the sizes
 * @param[in]  weight        [out, in], row-major; stays the caller's and valid while the layer lives
 * @param[in]  weight_dtype  MP_DTYPE_FP32, _FP16 or _BF16
 * @param[in]  bias          [out], likewise; NULL for none
 * @param[in]  bias_dtype    likewise; MP_DTYPE_NONE with NULL
 * @param[out] out           the new layer
 * @returns as mp_linear_create; MP_STATUS_WARNING also, once a recipe, where the weight is fp32 and the recipe's weight.dtype is
 *          another: of such a recipe only the products apply here; MP_STATUS_INVALID_ARGUMENT also for memory that is not aligned
 *          to its elements
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_linear_create_pointers(mp_context* context, mp_recipe* recipe,
                                           const mp_linear_desc* desc, const void* weight,
                                           int32_t weight_dtype, const void* bias,
                                           int32_t bias_dtype, mp_linear** out) MP_MUST_CHECK;

/** mp_linear_forward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
 * @param[in]  linear  the layer
 * @param[in]  queue   NULL: the default queue
 * @param[in]  rows    >= 0
 * @param[in]  x       [rows, in]; where its dtype is the recipe's (fp32 of an fp32 recipe) it is kept by address, and must stay
 *                     what and where it is until backward, unless the layer has MP_LINEAR_COPY_INPUT
 * @param[out] y       written; [rows, out]
 * @param[in]  dtype   of x and y: MP_DTYPE_FP32, _FP16 or _BF16
 * @returns as mp_linear_forward; MP_STATUS_INVALID_ARGUMENT also for memory that is not aligned to its elements
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_forward_pointers(mp_linear* linear, mp_queue* queue, int64_t rows,
                                            const void* x, void* y, int32_t dtype);

/** mp_linear_backward on plain memory, with the same bits. Enqueues; on the host everything is done when it returns.
 * @param[in]     linear      the layer
 * @param[in]     queue       NULL: the default queue
 * @param[in]     rows        as in the last forward
 * @param[in]     dy          [rows, out]
 * @param[out]    dx          written; [rows, in]; NULL when not wanted
 * @param[in]     dtype       of dy and dx: MP_DTYPE_FP32, _FP16 or _BF16
 * @param[in,out] dw          written or added to; [out, in]; NULL when not wanted, or with a frozen weight
 * @param[in,out] dbias       written or added to; [out]; NULL when not wanted, and without dw
 * @param[in]     grad_dtype  of dw and dbias: MP_DTYPE_FP32, _FP16 or _BF16
 * @param[in]     flags       MP_BACKWARD_ACCUMULATE or 0
 * @returns as mp_linear_backward; MP_STATUS_INVALID_ARGUMENT also for memory that is not aligned to its elements
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_backward_pointers(mp_linear* linear, mp_queue* queue, int64_t rows,
                                             const void* dy, void* dx, int32_t dtype, void* dw,
                                             void* dbias, int32_t grad_dtype, uint32_t flags);

/** dx = dy * w. Enqueues. Needs no forward before it.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out]
 * @param[in] dx      written; [rows, in]. Over an x that forward keeps by reference, that x is kept no longer
 * @returns as mp_linear_forward
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_backward_data(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                         mp_tensor* dx);

/** dw (+)= dy^T * x and dbias (+)= column sums of dy, with the x that the last forward kept. The sums over
 * rows are fp32 and are rounded once into dw and dbias. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @param[in] dy      [rows, out], rows as in the last forward
 * @param[in] dw      written or added to; [out, in], fp32, fp16, bf16 or quantized: the main gradient; NULL of a layer with
 *                    adapters
 * @param[in] dbias   written or added to; [out]; NULL when not wanted or the layer has no bias
 * @param[in] flags   MP_BACKWARD_ACCUMULATE or 0
 * @returns as mp_linear_forward; MP_STATUS_BAD_STATE without a forward before it; MP_STATUS_WARNING, once, where a second
 *          gradient begins, or one is added after an optimizer has changed the weight (which the host looks at), without
 *          mp_linear_end_step under delayed scales or cached weights; once, where a micro-batch is added into
 *          a quantized dw, whose sums are rounded to a code's few bits each time (grad.dtype chooses a wider one)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_backward_weight(mp_linear* linear, mp_queue* queue, const mp_tensor* dy,
                                           mp_tensor* dw, mp_tensor* dbias, uint32_t flags);

/* ---- Everything else: what happens to numbers, saving scales */

/** What the layer keeps, in which dtype, how many bytes, and which GEMM implementations it uses and why.
 * @param[in]  linear    the layer
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_describe(const mp_linear* linear, char* buffer, size_t capacity,
                                    size_t* needed);

/** What the layer was made with.
 * @param[in]     linear  the layer
 * @param[in,out] desc    struct_size set by the caller; the rest is written. MP_LINEAR_STATS is set also where a monitor counts
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_STRUCT_TOO_NEW
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_desc(const mp_linear* linear, mp_linear_desc* desc);

/** What happened to an operand since the counts were last cleared: at creation, by a monitor's turn, or by
 * mp_linear_clear_stats. Each forward counts x and the weight (a copy of it that is kept: when it is made), each backward dy.
 * Where a call rounds an operand to codes, that rounding counts, each one if there are several. Where it rounds none, as in high
 * precision or of codes that are given, a pass of its own counts elements, non_finite and amax; nothing saturates or underflows
 * there. mp_linear_quantize counts, too, so that its codes count again where they are used. An evaluation counts nothing: a
 * forward with `saved` NULL (saved.h). Blocks.
 * @param[in]     linear   a layer with MP_LINEAR_STATS or a monitor
 * @param[in]     operand  MP_OPERAND_*
 * @param[in,out] stats    struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 *          (operand); MP_STATUS_BAD_STATE where nothing is counted
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_stats(const mp_linear* linear, int32_t operand,
                                     mp_linear_stats* stats);

/** Sets the counts of all operands to zero. Enqueues.
 * @param[in] linear  the layer
 * @param[in] queue   NULL: the default queue
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_clear_stats(mp_linear* linear, mp_queue* queue);

/** One sentence that names the recipe key to change where an operand saturates, underflows or is not finite;
 * empty where all is well.
 * @param[in]  linear    a layer with MP_LINEAR_STATS or a monitor
 * @param[in]  operand   MP_OPERAND_*
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns as mp_linear_get_stats
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_advice(const mp_linear* linear, int32_t operand, char* buffer,
                                      size_t capacity, size_t* needed);

/** Has every so many steps' statistics handed to a function by mp_linear_end_step, and cleared after it.
 * @param[in] linear   the layer
 * @param[in] name     what the layer is called; copied
 * @param[in] every    steps between calls, > 0; 0 ends the monitoring
 * @param[in] monitor  called once for each operand, from the thread that calls mp_linear_end_step. It may end the monitoring
 *                     or set another one, which begins with the next step; it is called no more then
 * @param[in] payload  handed to monitor
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_set_monitor(mp_linear* linear, const char* name, int32_t every,
                                       mp_linear_monitor_fn monitor, void* payload);

/** Copies out what the layer must remember for training to go on bit for bit: delayed scales and amax histories; under
 * stochastic rounding of operands the step's number, and how many micro-batches it has had. A few bytes for recipes without
 * them. Blocks.
 * @param[in]  linear    the layer
 * @param[out] buffer    receives the bytes; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer; nothing is written when it is too small
 * @param[out] needed    bytes there are; may be NULL
 * @returns MP_STATUS_OK, also when capacity was too small; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_get_scaling(const mp_linear* linear, void* buffer, size_t capacity,
                                       size_t* needed);

/** Puts back what mp_linear_get_scaling copied out of a layer of the same recipe. Blocks.
 * @param[in] linear  the layer
 * @param[in] data    the bytes
 * @param[in] bytes   their number
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_PARSE_ERROR;
 *          MP_STATUS_INVALID_ARGUMENT (another recipe's)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_linear_set_scaling(mp_linear* linear, const void* data, size_t bytes);

MP_END_DECLS

#endif /* MIXEDPREC_LINEAR_H */
