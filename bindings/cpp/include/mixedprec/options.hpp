// SPDX-License-Identifier: Apache-2.0
// The C structs with the defaults of their initializers: GroupOptions group; group.lr = 3e-4;
#pragma once

#include <mixedprec.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace mixedprec {

/* The initializers are macros, which no template can take. */
#define MIXEDPREC_DEFAULTS(Name, Struct, INIT)                                                     \
    struct Name : Struct {                                                                         \
        Name() : Struct INIT {}                                                                    \
    }
MIXEDPREC_DEFAULTS(AdapterOptions, mp_adapter_desc, MP_ADAPTER_DESC_INIT);
MIXEDPREC_DEFAULTS(CastOptions, mp_cast_desc, MP_CAST_DESC_INIT);
MIXEDPREC_DEFAULTS(CheckpointInfo, mp_checkpoint_info, MP_CHECKPOINT_INFO_INIT);
MIXEDPREC_DEFAULTS(FileTensor, mp_file_tensor, MP_FILE_TENSOR_INIT);
MIXEDPREC_DEFAULTS(FileValue, mp_file_value, MP_FILE_VALUE_INIT);
MIXEDPREC_DEFAULTS(ModelWriterOptions, mp_model_writer_desc, MP_MODEL_WRITER_DESC_INIT);
MIXEDPREC_DEFAULTS(CommOptions, mp_comm_desc, MP_COMM_DESC_INIT);
MIXEDPREC_DEFAULTS(CommExchange, mp_comm_exchange, MP_COMM_EXCHANGE_INIT);
MIXEDPREC_DEFAULTS(CommTraffic, mp_comm_traffic, MP_COMM_TRAFFIC_INIT);
MIXEDPREC_DEFAULTS(ReduceOptions, mp_comm_reduce_desc, MP_COMM_REDUCE_DESC_INIT);
MIXEDPREC_DEFAULTS(GemmArgs, mp_gemm_args, MP_GEMM_ARGS_INIT);
MIXEDPREC_DEFAULTS(GemmOptions, mp_gemm_desc, MP_GEMM_DESC_INIT);
MIXEDPREC_DEFAULTS(GroupOptions, mp_param_group_desc, MP_PARAM_GROUP_DESC_INIT);
MIXEDPREC_DEFAULTS(GuardOptions, mp_guard_desc, MP_GUARD_DESC_INIT);
MIXEDPREC_DEFAULTS(LinearStats, mp_linear_stats, MP_LINEAR_STATS_INIT);
MIXEDPREC_DEFAULTS(MemoryReport, mp_memory_report, MP_MEMORY_REPORT_INIT);
MIXEDPREC_DEFAULTS(MergeReport, mp_merge_report, MP_MERGE_REPORT_INIT);
MIXEDPREC_DEFAULTS(OffloadTraffic, mp_offload_traffic, MP_OFFLOAD_TRAFFIC_INIT);
MIXEDPREC_DEFAULTS(OptimizerOptions, mp_optimizer_desc, MP_OPTIMIZER_DESC_INIT);
MIXEDPREC_DEFAULTS(OptimizerStats, mp_optimizer_stats, MP_OPTIMIZER_STATS_INIT);
MIXEDPREC_DEFAULTS(QuantOptions, mp_quant_desc, MP_QUANT_DESC_INIT);
MIXEDPREC_DEFAULTS(QuantizeArgs, mp_quantize_args, MP_QUANTIZE_ARGS_INIT);
MIXEDPREC_DEFAULTS(QuantizedMemory, mp_quantized_memory, MP_QUANTIZED_MEMORY_INIT);
MIXEDPREC_DEFAULTS(QuantStats, mp_quant_stats, MP_QUANT_STATS_INIT);
MIXEDPREC_DEFAULTS(RecipeKey, mp_recipe_key_desc, MP_RECIPE_KEY_DESC_INIT);
MIXEDPREC_DEFAULTS(ScalerOptions, mp_scaler_desc, MP_SCALER_DESC_INIT);
MIXEDPREC_DEFAULTS(ScalerState, mp_scaler_state, MP_SCALER_STATE_INIT);
MIXEDPREC_DEFAULTS(ShardingOptions, mp_sharding_desc, MP_SHARDING_DESC_INIT);
MIXEDPREC_DEFAULTS(ShardingProgress, mp_sharding_progress, MP_SHARDING_PROGRESS_INIT);
MIXEDPREC_DEFAULTS(StepArgs, mp_step_args, MP_STEP_ARGS_INIT);
MIXEDPREC_DEFAULTS(StepRecord, mp_step_record, MP_STEP_RECORD_INIT);
MIXEDPREC_DEFAULTS(StepSlot, mp_step_slot, MP_STEP_SLOT_INIT);
#undef MIXEDPREC_DEFAULTS

/** A parameter before there is one. The C texts of its formats live as long as the call. */
struct PlannedTensor : mp_planned_tensor {
    PlannedTensor(std::int64_t elements = 0) : mp_planned_tensor MP_PLANNED_TENSOR_INIT {
        count = elements;
    }
};

/** Host threads, device, memory and log of a context; the fields of mp_context_desc, with functions as C++ has them. */
struct ContextOptions : mp_context_desc {
    ContextOptions() : mp_context_desc MP_CONTEXT_DESC_INIT {}
    /** Receives lines of the log, at most one call at a time for a thread, from any thread. Overrides the C pointer. */
    std::function<void(int level, std::string_view line)> on_log;
};

} // namespace mixedprec
