/* SPDX-License-Identifier: Apache-2.0
 * mp_recipe: which dtype every class of tensor has, how it is rounded, and how the loss is scaled.
 *
 * A recipe starts as a preset by name, is changed key by key (recipe_keys.h), and freezes at first use:
 * later sets fail, so a used recipe can be shared between threads. Presets of this version:
 *   fp32                      the baseline
 *   fp16_mixed                fp16 weights and GEMMs, fp32 master weights, dynamic loss scale
 *   bf16_mixed                fp32 weights, cast to bf16 for each use in a GEMM
 *   bf16_mixed_dual           bf16 weights beside fp32 master weights
 *   bf16_mixed_fp32_compute   fp32 weights and GEMMs; bf16 only when sharding gathers weights
 *   bf16_pure                 weights, gradients and states bf16, rounded to nearest
 *   bf16_pure_kahan           the same with a bf16 compensation buffer (AnyPrecisionAdamW)
 *   bf16_pure_remainder       bf16 weights and the 16 bits they lack of fp32 ones; gradients and states fp32
 *   bf16_pure_sr              bf16_pure with stochastic rounding of weights and second moments
 *   fp16_amp                  fp32 weights, fp16 GEMMs, dynamic loss scale (torch's autocast)
 *   bf16_full                 bf16 weights and products, for evaluation
 *   bf16_any_precision        bf16 weights and second moments, fp32 first moments (torchdistx's defaults)
 *   fp8_inference             bf16 weights, forward products in fp8 by their own amaxes
 *   fp8_delayed, fp8_current, fp8_rowwise, fp8_rowwise_gw_hp, fp8_block, mxfp8
 *                             fp8 products over fp32 weights, by how operands are scaled
 *   bf16_with_fp8_mixed, fp16_with_fp8_mixed
 *                             fp8 products inside bf16_mixed_dual and fp16_mixed
 *   msamp_o1, msamp_o2, msamp_o3, and each with _fp8_delayed behind it
 *                             MS-AMP's levels: fp8 products and gradients, scaled weights and states; with its own
 *                             window of scales, or with those of fp8_delayed
 * Two more names choose among them by the context's device; mp_recipe_get_reason says why:
 *   auto                      what the device is fast in; never fp8
 *   auto_fp8                  fp8_current, on any device; the reason says whether fp8 is native there */
#ifndef MIXEDPREC_RECIPE_H
#define MIXEDPREC_RECIPE_H

#include "rule.h"

/* Types of recipe values. */
#define MP_RECIPE_TYPE_STRING 1 /* one of some words, or free text */
#define MP_RECIPE_TYPE_FLOAT 2  /* a double */
#define MP_RECIPE_TYPE_INT 3    /* an int64_t */

typedef struct mp_recipe_key_desc {
    uint32_t struct_size;   /* sizeof(mp_recipe_key_desc), set by the caller */
    int32_t type;           /* MP_RECIPE_TYPE_* */
    const char* name;       /* the key; all strings here are static */
    const char* allowed;    /* strings: "a|b|c", or what they hold; numbers: "min..max" */
    const char* text;       /* what it means, one line */
    const char* fp32_value; /* its value in the fp32 preset */
} mp_recipe_key_desc;

#define MP_RECIPE_KEY_DESC_INIT                                                                    \
    { sizeof(mp_recipe_key_desc), 0, NULL, NULL, NULL, NULL }

/** Bytes by class of tensor; for one parameter count, one recipe, or one live optimizer. */
typedef struct mp_memory_report {
    uint32_t struct_size;       /* sizeof(mp_memory_report), set by the caller */
    uint32_t flags;             /* 0 */
    int64_t parameter_count;    /* elements */
    int64_t weight_bytes;       /* the model's own copy */
    int64_t master_bytes;       /* extra copy that is updated */
    int64_t grad_bytes;         /* main gradients */
    int64_t compensation_bytes; /* Kahan */
    int64_t total_bytes;        /* sum of all */
    int64_t reduced_grad_bytes; /* where ranks share it: their sums of gradients, with scales */
    int64_t state_bytes[MP_MAX_STATES]; /* by MP_STATE_* (rule.h) */
    /* Under MP_OPTIMIZER_OFFLOAD: the host's copy of the weights, and the buckets in which gradients come and weights go. Those
     * are there from the first step on, for the parameters that it steps. */
    int64_t offload_bytes;
    int64_t host_bytes; /* of total_bytes, what lies in host memory under MP_OPTIMIZER_OFFLOAD */
} mp_memory_report;

#define MP_MEMORY_REPORT_INIT                                                                      \
    { sizeof(mp_memory_report), 0, 0, 0, 0, 0, 0, 0, 0, {0}, 0, 0 }

MP_BEGIN_DECLS

/* ---- The simple way: a preset by its name, and the weights that it wants */

/** Makes a recipe from a preset.
 * @param[in]  context  the context
 * @param[in]  name     a preset's name, "auto" or "auto_fp8"
 * @param[out] out      the new recipe
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNKNOWN_NAME (with the
 *          nearest names)
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_create(mp_context* context, const char* name,
                                  mp_recipe** out) MP_MUST_CHECK;

/** The weight that a recipe wants, from its values in fp32: a tensor of its weight.dtype, quantized where that has a scale, on
 * the context's device. Give the same values as mp_param_desc.init_fp32 too, so that a master weight or a compensation has what
 * rounding them loses. Blocks.
 * @param[in]  context  the context
 * @param[in]  recipe   the recipe
 * @param[in]  ndim     0..MP_MAX_DIMS
 * @param[in]  shape    ndim sizes, each >= 0; may be NULL when ndim is 0
 * @param[in]  values   host memory, row-major; NULL: zeros
 * @param[out] out      the new tensor
 * @returns as mp_tensor_create
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_create_weight(mp_context* context, const mp_recipe* recipe, int32_t ndim,
                                         const int64_t* shape, const float* values,
                                         mp_tensor** out) MP_MUST_CHECK;

/** The weight of an fp8 layer as the codes that its products take, with one scale: what a sharded optimizer gathers under
 * weight.gather.codes, a byte an element. Its owner keeps the exact numbers of its slice, in weight.dtype: give the same values
 * as mp_param_desc.init_fp32. A layer over such a weight keeps no copy of it between forward and backward. Blocks.
 * @param[in]  context  the context
 * @param[in]  recipe   the recipe, with one scale for a weight (gemm.scaling "delayed" or "tensorwise")
 * @param[in]  ndim     0..MP_MAX_DIMS
 * @param[in]  shape    ndim sizes, each >= 0; may be NULL when ndim is 0
 * @param[in]  values   host memory, row-major; NULL: zeros
 * @param[out] out      the new tensor
 * @returns as mp_tensor_create; MP_STATUS_UNSUPPORTED (the recipe has no such codes)
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_create_weight_codes(mp_context* context, const mp_recipe* recipe,
                                               int32_t ndim, const int64_t* shape,
                                               const float* values, mp_tensor** out) MP_MUST_CHECK;

/** Gives the caller's reference back.
 * @param[in] recipe  may be NULL
 * @returns nothing; a destroyed handle is ignored
 * @threads A
 * @since 0.2 */
MP_API void mp_recipe_destroy(mp_recipe* recipe);

/* ---- The explicit way: key by key, or as JSON */

/** Sets a key that holds a string.
 * @param[in] recipe  not yet used
 * @param[in] key     a key of recipe_keys.h
 * @param[in] value   one of its allowed values
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNKNOWN_NAME (with the
 *          nearest keys; also in a rule of "layers"); MP_STATUS_INVALID_ARGUMENT (type, value); MP_STATUS_BAD_STATE (frozen)
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_recipe_set_string(mp_recipe* recipe, const char* key, const char* value);

/** Sets a key that holds a floating-point number.
 * @param[in] recipe  not yet used
 * @param[in] key     a key of recipe_keys.h
 * @param[in] value   inside its bounds
 * @returns as mp_recipe_set_string
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_recipe_set_float(mp_recipe* recipe, const char* key, double value);

/** Sets a key that holds an integer.
 * @param[in] recipe  not yet used
 * @param[in] key     a key of recipe_keys.h
 * @param[in] value   inside its bounds
 * @returns as mp_recipe_set_string
 * @threads B
 * @since 0.2 */
MP_API mp_status mp_recipe_set_int(mp_recipe* recipe, const char* key, int64_t value);

/** Reads a key that holds a string.
 * @param[in]  recipe  the recipe
 * @param[in]  key     a key of recipe_keys.h
 * @param[out] value   borrowed static string
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_UNKNOWN_NAME;
 *          MP_STATUS_INVALID_ARGUMENT (the key holds a number)
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_get_string(const mp_recipe* recipe, const char* key, const char** value);

/** Reads a key that holds a floating-point number.
 * @param[in]  recipe  the recipe
 * @param[in]  key     a key of recipe_keys.h
 * @param[out] value   the number
 * @returns as mp_recipe_get_string
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_get_float(const mp_recipe* recipe, const char* key, double* value);

/** Reads a key that holds an integer.
 * @param[in]  recipe  the recipe
 * @param[in]  key     a key of recipe_keys.h
 * @param[out] value   the number
 * @returns as mp_recipe_get_string
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_get_int(const mp_recipe* recipe, const char* key, int64_t* value);

/** Makes a recipe from JSON: {"recipe": "preset", "key": value, ...}. "recipe" defaults to "fp32"; keys are
 * the dotted names of recipe_keys.h. Unknown or repeated keys, wrong types and impossible combinations are
 * refused with all reasons. At most 1 MiB.
 * @param[in]  context  the context
 * @param[in]  json     UTF-8 text
 * @param[in]  length   its bytes, none of which is NUL; SIZE_MAX: up to the first NUL
 * @param[out] out      the new recipe
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_PARSE_ERROR (with the
 *          position); MP_STATUS_UNKNOWN_NAME; MP_STATUS_INVALID_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_create_from_json(mp_context* context, const char* json, size_t length,
                                            mp_recipe** out) MP_MUST_CHECK;

/** Makes a recipe from a JSON file. Blocks.
 * @param[in]  context  the context
 * @param[in]  path     the file, UTF-8
 * @param[out] out      the new recipe
 * @returns as mp_recipe_create_from_json; MP_STATUS_IO_ERROR
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_create_from_file(mp_context* context, const char* path,
                                            mp_recipe** out) MP_MUST_CHECK;

/** The recipe as JSON in canonical form: every key, in the order of mp_recipe_get_key_info. Read back by
 * mp_recipe_create_from_json it gives the same recipe.
 * @param[in]  recipe    the recipe
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_to_json(const mp_recipe* recipe, char* buffer, size_t capacity,
                                   size_t* needed);

/** Checks the combination and reports every problem at once in mp_last_error_message().
 * @param[in] recipe  the recipe
 * @returns MP_STATUS_OK; MP_STATUS_WARNING with advice (such as bf16 second moments rounded to nearest, which
 *          cannot decrease at beta2 > 0.998); MP_STATUS_INVALID_ARGUMENT; MP_STATUS_NULL_ARGUMENT;
 *          MP_STATUS_INVALID_HANDLE
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_validate(const mp_recipe* recipe);

/** A copy that can be changed, also of a recipe that is in use.
 * @param[in]  recipe  the recipe
 * @param[out] out     the new recipe
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_OUT_OF_MEMORY
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_clone(const mp_recipe* recipe, mp_recipe** out) MP_MUST_CHECK;

/** The recipe as a layer of this name has it: the key "layers" resolved into the keys that it changes, and empty. To see what a
 * layer will do, and to make its weight (mp_recipe_create_weight_codes): weight.gather.codes is off where the layer has no such
 * codes. mp_linear_create takes the recipe itself.
 * @param[in]  recipe  the recipe
 * @param[in]  name    the layer's, as in mp_linear_desc.name
 * @param[out] out     the new recipe, which can be changed
 * @returns as mp_recipe_clone; MP_STATUS_INVALID_ARGUMENT (the name; a combination that this layer cannot have)
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_clone_for_layer(const mp_recipe* recipe, const char* name,
                                           mp_recipe** out) MP_MUST_CHECK;

/** The recipe as a parameter of this name has it: likewise, of the keys that say what a parameter is kept and gathered in. To see
 * what mp_optimizer_add_param will make, which takes the recipe itself; a group's state_formats go over it.
 * @param[in]  recipe  the recipe
 * @param[in]  name    the parameter's, as in mp_param_desc.name
 * @param[out] out     the new recipe, which can be changed
 * @returns as mp_recipe_clone_for_layer
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_clone_for_param(const mp_recipe* recipe, const char* name,
                                           mp_recipe** out) MP_MUST_CHECK;

/** Whether something uses the recipe, so that it can no longer change.
 * @param[in]  recipe  the recipe
 * @param[out] frozen  1 when it cannot change, else 0
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_get_frozen(const mp_recipe* recipe, int32_t* frozen);

/** Why the device's choice fell on this preset, in words; empty for a recipe that was not made by "auto".
 * @param[in]  recipe    the recipe
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_get_reason(const mp_recipe* recipe, char* buffer, size_t capacity,
                                      size_t* needed);

/* ---- Everything else: the presets and keys there are, the memory a recipe needs */

/** Number of presets.
 * @returns the number
 * @threads A
 * @since 0.2 */
MP_API int32_t mp_recipe_preset_count(void);

/** Name and one-line description of a preset.
 * @param[in]  index  0 .. mp_recipe_preset_count() - 1
 * @param[out] name   borrowed static string
 * @param[out] text   borrowed static string; may be NULL
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_get_preset_info(int32_t index, const char** name, const char** text);

/** Number of keys.
 * @returns the number
 * @threads A
 * @since 0.2 */
MP_API int32_t mp_recipe_key_count(void);

/** Everything about one key.
 * @param[in]     index  0 .. mp_recipe_key_count() - 1
 * @param[in,out] desc   struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_ARGUMENT; MP_STATUS_STRUCT_TOO_NEW
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_recipe_get_key_info(int32_t index, mp_recipe_key_desc* desc);

/** Exact bytes that a recipe needs for so many parameters, before anything is allocated: elements, and the
 * scales of one tensor where the recipe has scaled codes. Scratch and activations are not in it.
 * @param[in]     recipe           the recipe
 * @param[in]     rule             what steps them, which says the states: MP_RULE_* (rule.h)
 * @param[in]     parameter_count  elements
 * @param[in,out] report           struct_size set by the caller; the rest is written
 * @returns MP_STATUS_OK; MP_STATUS_NULL_ARGUMENT; MP_STATUS_INVALID_HANDLE; MP_STATUS_INVALID_ARGUMENT (count
 *          negative or above 2^55, no such rule); MP_STATUS_STRUCT_TOO_NEW
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_plan_memory(const mp_recipe* recipe, int32_t rule,
                                       int64_t parameter_count, mp_memory_report* report);

/** The same for a model's tensors of the recipe's weight.dtype, each with scales of its own.
 * @param[in]     recipe        the recipe
 * @param[in]     rule          MP_RULE_*
 * @param[in]     counts        elements of each tensor; may be NULL when tensor_count is 0
 * @param[in]     tensor_count  how many tensors
 * @param[in,out] report        struct_size set by the caller; the rest is written
 * @returns as mp_recipe_plan_memory
 * @threads A for a frozen recipe, B before
 * @since 0.2 */
MP_API mp_status mp_recipe_plan_memory_of_tensors(const mp_recipe* recipe, int32_t rule,
                                                  const int64_t* counts, int64_t tensor_count,
                                                  mp_memory_report* report);

MP_END_DECLS

#endif /* MIXEDPREC_RECIPE_H */
