// SPDX-License-Identifier: Apache-2.0
// The function twins of MP_*_INIT.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support.hpp"

namespace {

template <typename T> void expect_defaults(mp_status (*init)(T*, size_t), const T& defaults) {
    std::vector<unsigned char> memory(sizeof(T) + 8, 0xa5);
    auto* value = reinterpret_cast<T*>(memory.data());
    MP_OK(init(value, sizeof(T)));
    EXPECT_EQ(value->struct_size, sizeof(T));
    EXPECT_EQ(std::memcmp(value, &defaults, sizeof(T)), 0);
    EXPECT_EQ(memory[sizeof(T)], 0xa5);
    // A caller that knows less of the struct.
    std::fill(memory.begin(), memory.end(), static_cast<unsigned char>(0xa5));
    MP_OK(init(value, 8));
    EXPECT_EQ(value->struct_size, 8U);
    EXPECT_EQ(memory[8], 0xa5);
    MP_FAILS(init(nullptr, sizeof(T)), MP_STATUS_NULL_ARGUMENT, "desc");
    MP_FAILS(init(value, sizeof(T) + 8), MP_STATUS_STRUCT_TOO_NEW, "size");
    MP_FAILS(init(value, 4), MP_STATUS_STRUCT_TOO_NEW, "size");
}

TEST(Init, EveryStructHasItsDefaults) {
    expect_defaults(mp_checkpoint_desc_init, mp_checkpoint_desc MP_CHECKPOINT_DESC_INIT);
    expect_defaults(mp_checkpoint_info_init, mp_checkpoint_info MP_CHECKPOINT_INFO_INIT);
    expect_defaults(mp_comm_desc_init, mp_comm_desc MP_COMM_DESC_INIT);
    expect_defaults(mp_comm_exchange_init, mp_comm_exchange MP_COMM_EXCHANGE_INIT);
    expect_defaults(mp_comm_traffic_init, mp_comm_traffic MP_COMM_TRAFFIC_INIT);
    expect_defaults(mp_comm_operation_init, mp_comm_operation MP_COMM_OPERATION_INIT);
    expect_defaults(mp_comm_group_init, mp_comm_group MP_COMM_GROUP_INIT);
    expect_defaults(mp_comm_callbacks_init, mp_comm_callbacks MP_COMM_CALLBACKS_INIT);
    expect_defaults(mp_context_desc_init, mp_context_desc MP_CONTEXT_DESC_INIT);
    expect_defaults(mp_gemm_desc_init, mp_gemm_desc MP_GEMM_DESC_INIT);
    expect_defaults(mp_gemm_args_init, mp_gemm_args MP_GEMM_ARGS_INIT);
    expect_defaults(mp_linear_desc_init, mp_linear_desc MP_LINEAR_DESC_INIT);
    expect_defaults(mp_linear_stats_init, mp_linear_stats MP_LINEAR_STATS_INIT);
    expect_defaults(mp_optimizer_desc_init, mp_optimizer_desc MP_OPTIMIZER_DESC_INIT);
    expect_defaults(mp_param_group_desc_init, mp_param_group_desc MP_PARAM_GROUP_DESC_INIT);
    expect_defaults(mp_param_desc_init, mp_param_desc MP_PARAM_DESC_INIT);
    expect_defaults(mp_optimizer_stats_init, mp_optimizer_stats MP_OPTIMIZER_STATS_INIT);
    expect_defaults(mp_step_slot_init, mp_step_slot MP_STEP_SLOT_INIT);
    expect_defaults(mp_step_args_init, mp_step_args MP_STEP_ARGS_INIT);
    expect_defaults(mp_quant_desc_init, mp_quant_desc MP_QUANT_DESC_INIT);
    expect_defaults(mp_quant_stats_init, mp_quant_stats MP_QUANT_STATS_INIT);
    expect_defaults(mp_quantize_args_init, mp_quantize_args MP_QUANTIZE_ARGS_INIT);
    expect_defaults(mp_quantized_memory_init, mp_quantized_memory MP_QUANTIZED_MEMORY_INIT);
    expect_defaults(mp_recipe_key_desc_init, mp_recipe_key_desc MP_RECIPE_KEY_DESC_INIT);
    expect_defaults(mp_memory_report_init, mp_memory_report MP_MEMORY_REPORT_INIT);
    expect_defaults(mp_comm_reduce_desc_init, mp_comm_reduce_desc MP_COMM_REDUCE_DESC_INIT);
    expect_defaults(mp_scaler_desc_init, mp_scaler_desc MP_SCALER_DESC_INIT);
    expect_defaults(mp_scaler_state_init, mp_scaler_state MP_SCALER_STATE_INIT);
    expect_defaults(mp_sharding_desc_init, mp_sharding_desc MP_SHARDING_DESC_INIT);
    expect_defaults(mp_sharding_progress_init, mp_sharding_progress MP_SHARDING_PROGRESS_INIT);
    expect_defaults(mp_tensor_desc_init, mp_tensor_desc MP_TENSOR_DESC_INIT);
    expect_defaults(mp_cast_desc_init, mp_cast_desc MP_CAST_DESC_INIT);
}

} // namespace
