// SPDX-License-Identifier: Apache-2.0
// mp_<struct>_init of every struct.
#include "mixedprec/checkpoint.h"
#include "mixedprec/comm.h"
#include "mixedprec/context.h"
#include "mixedprec/gemm.h"
#include "mixedprec/linear.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/quant.h"
#include "mixedprec/recipe.h"
#include "mixedprec/reduce.h"
#include "mixedprec/scaler.h"
#include "mixedprec/sharding.h"
#include "mixedprec/tensor.h"
#include "mixedprec/watch.h"

#include "boundary.hpp"
#include "versioned_struct.hpp"

using namespace mp::capi;

#define INIT(type, defaults)                                                                       \
    mp_status type##_init(type* desc, size_t size) {                                               \
        return boundary([&] { init_struct(desc, size, type defaults); });                          \
    }
INIT(mp_checkpoint_desc, MP_CHECKPOINT_DESC_INIT)
INIT(mp_checkpoint_info, MP_CHECKPOINT_INFO_INIT)
INIT(mp_comm_desc, MP_COMM_DESC_INIT)
INIT(mp_comm_exchange, MP_COMM_EXCHANGE_INIT)
INIT(mp_comm_traffic, MP_COMM_TRAFFIC_INIT)
INIT(mp_comm_operation, MP_COMM_OPERATION_INIT)
INIT(mp_comm_group, MP_COMM_GROUP_INIT)
INIT(mp_comm_callbacks, MP_COMM_CALLBACKS_INIT)
INIT(mp_context_desc, MP_CONTEXT_DESC_INIT)
INIT(mp_gemm_desc, MP_GEMM_DESC_INIT)
INIT(mp_gemm_args, MP_GEMM_ARGS_INIT)
INIT(mp_linear_desc, MP_LINEAR_DESC_INIT)
INIT(mp_linear_stats, MP_LINEAR_STATS_INIT)
INIT(mp_optimizer_desc, MP_OPTIMIZER_DESC_INIT)
INIT(mp_param_group_desc, MP_PARAM_GROUP_DESC_INIT)
INIT(mp_param_desc, MP_PARAM_DESC_INIT)
INIT(mp_planned_tensor, MP_PLANNED_TENSOR_INIT)
INIT(mp_guard_desc, MP_GUARD_DESC_INIT)
INIT(mp_step_record, MP_STEP_RECORD_INIT)
INIT(mp_optimizer_stats, MP_OPTIMIZER_STATS_INIT)
INIT(mp_step_slot, MP_STEP_SLOT_INIT)
INIT(mp_step_args, MP_STEP_ARGS_INIT)
INIT(mp_quant_desc, MP_QUANT_DESC_INIT)
INIT(mp_quant_stats, MP_QUANT_STATS_INIT)
INIT(mp_quantize_args, MP_QUANTIZE_ARGS_INIT)
INIT(mp_quantized_memory, MP_QUANTIZED_MEMORY_INIT)
INIT(mp_recipe_key_desc, MP_RECIPE_KEY_DESC_INIT)
INIT(mp_memory_report, MP_MEMORY_REPORT_INIT)
INIT(mp_comm_reduce_desc, MP_COMM_REDUCE_DESC_INIT)
INIT(mp_scaler_desc, MP_SCALER_DESC_INIT)
INIT(mp_scaler_state, MP_SCALER_STATE_INIT)
INIT(mp_sharding_desc, MP_SHARDING_DESC_INIT)
INIT(mp_sharding_progress, MP_SHARDING_PROGRESS_INIT)
INIT(mp_tensor_desc, MP_TENSOR_DESC_INIT)
INIT(mp_cast_desc, MP_CAST_DESC_INIT)
