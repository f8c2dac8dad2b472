/* SPDX-License-Identifier: Apache-2.0
 * The keys of mp_recipe, one macro per key. Values are strings unless marked (int), (float).
 * mp_recipe_get_key_info() tells the same at run time: type, default, allowed values and meaning. */
#ifndef MIXEDPREC_RECIPE_KEYS_H
#define MIXEDPREC_RECIPE_KEYS_H

/* What the operands of the three GEMMs of a linear layer are rounded to before they are multiplied
 * (forward x*w, data gradient dy*w, weight gradient dy*x): "fp32", "fp16", "bf16". Sums are fp32. */
#define MP_RECIPE_GEMM_FPROP_DTYPE "gemm.fprop.dtype" /* forward */
#define MP_RECIPE_GEMM_DGRAD_DTYPE "gemm.dgrad.dtype" /* data gradient */
#define MP_RECIPE_GEMM_WGRAD_DTYPE "gemm.wgrad.dtype" /* weight gradient */

/* How the model's own copy of a weight is stored: "fp32", "fp16", "bf16", "fp16_scaled", "fp8_e4m3_scaled".
 * Here and below, "_scaled" means codes with one power-of-two scale for the tensor (MS-AMP). */
#define MP_RECIPE_WEIGHT_DTYPE "weight.dtype"

/* Extra copy that the optimizer updates: "none", "fp32", "fp16_scaled"; "remainder16": the 16 bits that a bf16
 * weight lacks of an fp32 one. */
#define MP_RECIPE_MASTER_DTYPE "master.dtype"

/* Main gradients, which backward passes accumulate into: "fp32", "fp16", "bf16", "fp16_scaled",
 * "fp8_e4m3_scaled", "fp8_e5m2_scaled". */
#define MP_RECIPE_GRAD_DTYPE "grad.dtype"

/* What sharding puts on the wire: gradients ("fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2") and parameters. Scales of fp8
 * gradients: "shared": one for a gradient, on which all ranks agree, with FP8-LM's factor mu; the sums are kept as such
 * codes, too. "block": fp32 for 128 elements; "mx": E8M0 for 32; sums are fp32. In a recipe whose gradients are codes under
 * one scale, those that it keeps in fp32 travel in fp32. */
#define MP_RECIPE_GRAD_REDUCE_DTYPE "grad.reduce.dtype"     /* gradients */
#define MP_RECIPE_GRAD_REDUCE_SCALE "grad.reduce.scale"     /* scales of fp8 gradients */
#define MP_RECIPE_WEIGHT_GATHER_DTYPE "weight.gather.dtype" /* parameters */

/* Moments: "fp32", "fp16", "bf16", "fp16_scaled", "fp8_e4m3_scaled" (exp_avg only; exp_avg_sq is refused, with
 * the reason), and in blocks of the flattened tensor with a scale each, see MP_CODING_* in array.h:
 * "fp8_e4m3_block256", "fp8_e4m3_block128", "int8_block256", "int8_companded32", "int4_block128". Compensation (Kahan):
 * "none", "fp32", "fp16", "bf16", and those blocks but of int4. */
#define MP_RECIPE_EXP_AVG_DTYPE "optimizer.exp_avg.dtype"           /* first moments */
#define MP_RECIPE_EXP_AVG_SQ_DTYPE "optimizer.exp_avg_sq.dtype"     /* second moments */
#define MP_RECIPE_COMPENSATION_DTYPE "optimizer.compensation.dtype" /* Kahan */
/* Integer: tensors of fewer elements keep fp32 states where blocks are asked for; 4096. */
#define MP_RECIPE_BLOCK_MIN_ELEMENTS "optimizer.block_min_elements"

/* Rounding of what the optimizer stores: "nearest" (halves to even), "stochastic". Of bf16 weights beside an fp32 master
 * also "nearest_away": halves away from zero, as a weight beside "remainder16" is always rounded, so that both train
 * to the same bits. */
#define MP_RECIPE_WEIGHT_ROUNDING "optimizer.weight.rounding"         /* weights */
#define MP_RECIPE_EXP_AVG_ROUNDING "optimizer.exp_avg.rounding"       /* first moments */
#define MP_RECIPE_EXP_AVG_SQ_ROUNDING "optimizer.exp_avg_sq.rounding" /* second moments */

/* Products in fp8. "none" for no such product, or how their operands are scaled: "delayed" by earlier steps,
 * "tensorwise", "rowwise", "rowwise_gw_hp" (the weight gradient in high precision), "block" (1x128 and 128x128),
 * "mx" (32 elements, e8m0). */
#define MP_RECIPE_GEMM_SCALING "gemm.scaling"
/* "e4m3", "e5m2", or "hybrid": e4m3 for inputs and weights, e5m2 for gradients. */
#define MP_RECIPE_FP8_FORMAT "fp8.format"
/* "on", or "off": this product stays in gemm.*.dtype. */
#define MP_RECIPE_GEMM_FPROP_QUANTIZED "gemm.fprop.quantized" /* forward */
#define MP_RECIPE_GEMM_DGRAD_QUANTIZED "gemm.dgrad.quantized" /* data gradient */
#define MP_RECIPE_GEMM_WGRAD_QUANTIZED "gemm.wgrad.quantized" /* weight gradient */
/* Rounding of the codes that fp8 products take: "nearest" (halves to even), "stochastic". In every scaling and on every device.
 * Operands of products in high precision, and codes that are given, are never rounded so. The random bits follow from the
 * layer's name, so a layer must have one (mp_linear_desc.name); docs/numerics.md has their key. */
#define MP_RECIPE_GEMM_INPUT_ROUNDING "gemm.input.rounding"             /* x */
#define MP_RECIPE_GEMM_WEIGHT_ROUNDING "gemm.weight.rounding"           /* w */
#define MP_RECIPE_GEMM_GRAD_OUTPUT_ROUNDING "gemm.grad_output.rounding" /* dy */
/* From an amax to a scale: "current", "float64", "msamp", "deepseek", "mx_rceil", "mx_floor", "mx_ceil",
 * "mx_even"; see MP_SCALE_RULE_* in quant.h. */
#define MP_RECIPE_GEMM_SCALE_RULE "gemm.scale_rule"
#define MP_RECIPE_GEMM_POWER_OF_TWO_SCALE "gemm.power_of_two_scale" /* "on", "off" */
#define MP_RECIPE_GEMM_AMAX_EPSILON "gemm.amax_epsilon"             /* (float) */
#define MP_RECIPE_GEMM_MARGIN "gemm.margin"                         /* (int) room of 2^margin */
#define MP_RECIPE_GEMM_INTERVAL "gemm.interval"                     /* (int) delayed scaling */
#define MP_RECIPE_GEMM_AMAX_HISTORY_LEN "gemm.amax_history_len"     /* (int) delayed scaling */
#define MP_RECIPE_GEMM_AMAX_COMPUTE_ALGO "gemm.amax_compute_algo"   /* "max", "most_recent" */
/* (int) delayed scaling: for so many steps a tensor is scaled by its own amax. Transformer Engine has 0, and
 * thus a scale of 1 in the first step. */
#define MP_RECIPE_GEMM_WARM_UP "gemm.warm_up"
#define MP_RECIPE_GEMM_REDUCE_AMAX "gemm.reduce_amax" /* "on", "off": over ranks */
/* "on", "off": forward, on a GPU. */
#define MP_RECIPE_GEMM_FAST_ACCUMULATION "gemm.fast_accumulation"
#define MP_RECIPE_WEIGHT_GATHER_CODES "weight.gather.codes" /* "on", "off": codes on the wire */
/* Codes of a weight after forward: "keep" them for backward, or "recompute" them there. */
#define MP_RECIPE_GEMM_WEIGHT_COPY "gemm.weight_copy"
/* Which layers stay in high precision: those whose sizes are not multiples (int); "on": the first and the last
 * layer (MP_LINEAR_FIRST_OR_LAST); "auto": those too small to gain on a GPU. */
#define MP_RECIPE_GEMM_FILTER_MULTIPLE_OF "gemm.filter.multiple_of" /* (int) */
#define MP_RECIPE_GEMM_FILTER_FIRST_LAST "gemm.filter.first_last"   /* "on", "off" */
#define MP_RECIPE_GEMM_FILTER_SIZE "gemm.filter.size"               /* "none", "auto" */
/* Policy by layer: rules "patterns: key=value, key=value", with semicolons between them, for the layers whose
 * mp_linear_desc.name fits one of a rule's patterns, and the parameters whose mp_param_desc.name does. "*" stands for any
 * characters, "?" for one; a pattern has no comma, semicolon, colon or equals sign: "?" stands for them. Each rule says what
 * differs. Of layers: gemm.*, fp8.format, or "recipe", all of these as a preset (not "auto") has them. Of parameters:
 * master.dtype, weight.gather.dtype, optimizer.<state>.dtype, optimizer.compensation.dtype. Patterns alone: layers in high
 * precision, as with gemm.scaling=none. What fits several rules has the values of all, later ones over earlier; a layer without
 * a name fits none. Values are checked when they are set, what they are together where something has them (mp_linear_create,
 * mp_optimizer_add_param, mp_recipe_clone_for_layer, mp_recipe_clone_for_param). "": no rule. At most 4,096 bytes.
 *   "lm_head*,h0.*"
 *   "lm_head*: recipe=fp32; *.attn.*: recipe=fp8_rowwise; *.experts.*: recipe=mxfp8, gemm.wgrad.quantized=off"
 *   "*embed*: optimizer.exp_avg.dtype=fp32, optimizer.exp_avg_sq.dtype=fp32, weight.gather.dtype=fp32" */
#define MP_RECIPE_LAYERS "layers"

/* Loss scaling: kind "none", "static", "dynamic"; the rest see mp_scaler_desc. */
#define MP_RECIPE_SCALER_KIND "scaler.kind"
#define MP_RECIPE_SCALER_INIT_SCALE "scaler.init_scale"           /* (float) */
#define MP_RECIPE_SCALER_GROWTH_FACTOR "scaler.growth_factor"     /* (float) */
#define MP_RECIPE_SCALER_BACKOFF_FACTOR "scaler.backoff_factor"   /* (float) */
#define MP_RECIPE_SCALER_GROWTH_INTERVAL "scaler.growth_interval" /* (int) */
#define MP_RECIPE_SCALER_HYSTERESIS "scaler.hysteresis"           /* (int) */
#define MP_RECIPE_SCALER_REFILL "scaler.hysteresis_refill"        /* "growth", "good_step" */
#define MP_RECIPE_SCALER_MIN_SCALE "scaler.min_scale"             /* (float) 0: no minimum */
#define MP_RECIPE_SCALER_MAX_SCALE "scaler.max_scale"             /* (float) 0: only kept finite */
#define MP_RECIPE_SCALER_AT_MIN "scaler.at_min"                   /* "clamp", "error" */
#define MP_RECIPE_SCALER_COUNT_OFFSET "scaler.count_offset"       /* (int) 1: DeepSpeed's count */

#endif /* MIXEDPREC_RECIPE_KEYS_H */
