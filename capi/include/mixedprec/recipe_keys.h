/* SPDX-License-Identifier: Apache-2.0
 * The keys of mp_recipe, one macro per key. Values are strings unless marked (int), (float).
 * mp_recipe_key_info() tells the same at run time: type, default, allowed values and meaning. */
#ifndef MIXEDPREC_RECIPE_KEYS_H
#define MIXEDPREC_RECIPE_KEYS_H

/* What the operands of the three GEMMs of a linear layer are rounded to before they are multiplied
 * (forward x*w, data gradient dy*w, weight gradient dy*x): "fp32", "fp16", "bf16". Sums are fp32. */
#define MP_RECIPE_GEMM_FPROP_DTYPE "gemm.fprop.dtype"
#define MP_RECIPE_GEMM_DGRAD_DTYPE "gemm.dgrad.dtype"
#define MP_RECIPE_GEMM_WGRAD_DTYPE "gemm.wgrad.dtype"

/* How the model's own copy of a weight is stored: "fp32", "fp16", "bf16". */
#define MP_RECIPE_WEIGHT_DTYPE "weight.dtype"

/* Extra fp32 copy that the optimizer updates: "none", "fp32". */
#define MP_RECIPE_MASTER_DTYPE "master.dtype"

/* Main gradients, which backward passes accumulate into: "fp32", "fp16", "bf16". */
#define MP_RECIPE_GRAD_DTYPE "grad.dtype"

/* What sharding puts on the wire: gradients ("fp32", "bf16", "fp16") and parameters. */
#define MP_RECIPE_GRAD_REDUCE_DTYPE "grad.reduce.dtype"
#define MP_RECIPE_WEIGHT_GATHER_DTYPE "weight.gather.dtype"

/* Optimizer states: "fp32", "fp16", "bf16"; compensation (Kahan) also "none". */
#define MP_RECIPE_EXP_AVG_DTYPE "optimizer.exp_avg.dtype"
#define MP_RECIPE_EXP_AVG_SQ_DTYPE "optimizer.exp_avg_sq.dtype"
#define MP_RECIPE_COMPENSATION_DTYPE "optimizer.compensation.dtype"

/* Rounding of what the optimizer stores: "nearest", "stochastic". */
#define MP_RECIPE_WEIGHT_ROUNDING "optimizer.weight.rounding"
#define MP_RECIPE_EXP_AVG_ROUNDING "optimizer.exp_avg.rounding"
#define MP_RECIPE_EXP_AVG_SQ_ROUNDING "optimizer.exp_avg_sq.rounding"

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
