// SPDX-License-Identifier: Apache-2.0
// Every public function with NULL, with destroyed handles, with handles of another kind: a status and words,
// never a crash. Runs under the address sanitizer too.
#include "support.hpp"

using namespace mp_test;

TEST(Misuse, NullEverywhere) {
    mp_context* context = nullptr;
    mp_queue* queue = nullptr;
    mp_event* event = nullptr;
    mp_tensor* tensor = nullptr;
    mp_recipe* recipe = nullptr;
    mp_gemm* gemm = nullptr;
    mp_linear* linear = nullptr;
    mp_saved* saved = nullptr;
    mp_step_plan* step_plan = nullptr;
    mp_scaler* scaler = nullptr;
    mp_optimizer* optimizer = nullptr;
    mp_checkpoint* checkpoint = nullptr;
    int32_t number = 0;
    const mp_status statuses[] = {
        mp_context_create(nullptr, nullptr),
        mp_context_get_num_threads(nullptr, &number),
        mp_context_describe(nullptr, nullptr, 0, nullptr),
        mp_context_sync(nullptr),
        mp_queue_create(nullptr, &queue),
        mp_queue_wrap_native(nullptr, nullptr, &queue),
        mp_queue_get_native(nullptr, nullptr, 8),
        mp_queue_sync(nullptr),
        mp_event_create(nullptr, &event),
        mp_event_record(nullptr, nullptr),
        mp_queue_wait_event(nullptr, nullptr),
        mp_event_test(nullptr),
        mp_event_sync(nullptr),
        mp_tensor_create(nullptr, nullptr, &tensor),
        mp_tensor_wrap(nullptr, nullptr, nullptr, nullptr, nullptr, &tensor),
        mp_tensor_get_desc(nullptr, nullptr),
        mp_tensor_get_data(nullptr, nullptr),
        mp_tensor_copy(nullptr, nullptr, nullptr),
        mp_tensor_write(nullptr, nullptr, nullptr, 0),
        mp_tensor_read(nullptr, nullptr, nullptr, 0),
        mp_tensor_zero(nullptr, nullptr),
        mp_tensor_cast(nullptr, nullptr, nullptr, nullptr),
        mp_tensor_amax(nullptr, nullptr, nullptr),
        mp_tensor_quantize(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
        mp_tensor_quantize_pointers(nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr),
        mp_tensor_dequantize_pointers(nullptr, nullptr, nullptr, nullptr, nullptr, 0),
        mp_tensor_wrap_quantized(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                 nullptr, &tensor),
        mp_tensor_get_scale_grid(nullptr, 0, 0, nullptr, nullptr, nullptr),
        mp_dlpack_import(nullptr, nullptr, &tensor),
        mp_dlpack_export(nullptr, nullptr),
        mp_recipe_create(nullptr, "fp32", &recipe),
        mp_recipe_create_from_json(nullptr, "{}", 2, &recipe),
        mp_recipe_create_from_file(nullptr, "x", &recipe),
        mp_recipe_set_string(nullptr, "a", "b"),
        mp_recipe_set_float(nullptr, "a", 1),
        mp_recipe_set_int(nullptr, "a", 1),
        mp_recipe_get_string(nullptr, "a", nullptr),
        mp_recipe_get_float(nullptr, "a", nullptr),
        mp_recipe_get_int(nullptr, "a", nullptr),
        mp_recipe_validate(nullptr),
        mp_recipe_to_json(nullptr, nullptr, 0, nullptr),
        mp_recipe_get_preset_info(0, nullptr, nullptr),
        mp_recipe_get_key_info(0, nullptr),
        mp_recipe_plan_memory(nullptr, MP_RULE_ADAMW, 1, nullptr),
        mp_gemm_create(nullptr, nullptr, &gemm),
        mp_gemm_run(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
        mp_gemm_run_scaled(nullptr, nullptr, nullptr),
        mp_gemm_describe(nullptr, nullptr, 0, nullptr),
        mp_linear_create(nullptr, nullptr, nullptr, nullptr, nullptr, &linear),
        mp_linear_forward(nullptr, nullptr, nullptr, nullptr),
        mp_linear_backward_data(nullptr, nullptr, nullptr, nullptr),
        mp_linear_backward_weight(nullptr, nullptr, nullptr, nullptr, nullptr, 0),
        mp_linear_backward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0),
        mp_linear_create_pointers(nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0, &linear),
        mp_linear_forward_pointers(nullptr, nullptr, 0, nullptr, nullptr, 0),
        mp_linear_backward_pointers(nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr, nullptr, 0,
                                    0),
        mp_saved_create(nullptr, &saved),
        mp_saved_set_memory(nullptr, nullptr, 0),
        mp_saved_get_memory(nullptr, nullptr, nullptr),
        mp_linear_forward_saved(nullptr, nullptr, nullptr, nullptr, nullptr, 0),
        mp_linear_backward_saved(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0),
        mp_linear_get_saved_bytes(nullptr, 0, nullptr),
        mp_linear_set_gradient_rounding(nullptr, nullptr),
        mp_linear_get_gradient_rounding(nullptr, nullptr),
        mp_linear_get_operand_format(nullptr, 0, 0, nullptr, nullptr),
        mp_linear_quantize(nullptr, nullptr, 0, 0, nullptr, nullptr),
        mp_linear_set_weight_codes(nullptr, nullptr, nullptr),
        mp_linear_get_weight_codes(nullptr, 0, &tensor),
        mp_linear_get_multiply_tensor(nullptr, 0, &tensor),
        mp_queue_get_workspace_peak(nullptr, nullptr),
        mp_queue_set_workspace(nullptr, nullptr, 0),
        mp_queue_get_workspace(nullptr, nullptr, nullptr),
        mp_linear_describe(nullptr, nullptr, 0, nullptr),
        mp_scaler_desc_preset(nullptr, 8, nullptr),
        mp_scaler_create(nullptr, nullptr, &scaler),
        mp_scaler_create_from_recipe(nullptr, nullptr, &scaler),
        mp_scaler_get_scale(nullptr, nullptr, nullptr),
        mp_scaler_check_pointers(nullptr, nullptr, 0, nullptr, nullptr, nullptr),
        mp_scaler_update(nullptr, nullptr),
        mp_scaler_get_scale_tensor(nullptr, &tensor),
        mp_scaler_get_found_inf_tensor(nullptr, &tensor),
        mp_scaler_combine(nullptr, nullptr, nullptr),
        mp_optimizer_set_norm_comm(nullptr, nullptr),
        mp_optimizer_get_grad_norm_tensor(nullptr, &tensor),
        mp_optimizer_get_found_inf_tensor(nullptr, &tensor),
        mp_scaler_get_state(nullptr, nullptr, nullptr),
        mp_scaler_set_state(nullptr, nullptr, nullptr),
        mp_optimizer_create(nullptr, nullptr, nullptr, &optimizer),
        mp_optimizer_add_group(nullptr, nullptr, &number),
        mp_optimizer_add_param(nullptr, 0, nullptr, nullptr),
        mp_optimizer_set_lr(nullptr, 0, 0.1),
        mp_optimizer_set_lr_tensor(nullptr, 0, nullptr),
        mp_optimizer_set_grad_scale_tensor(nullptr, nullptr),
        mp_optimizer_get_group_step(nullptr, nullptr, 0, nullptr),
        mp_optimizer_set_group_step(nullptr, nullptr, 0, 0),
        mp_optimizer_step(nullptr, nullptr, nullptr),
        mp_optimizer_zero_grad(nullptr, nullptr),
        mp_optimizer_get_stats(nullptr, nullptr, nullptr),
        mp_optimizer_get_param_count(nullptr, nullptr),
        mp_optimizer_set_max_grad_norm(nullptr, 1.0),
        mp_optimizer_get_desc(nullptr, nullptr),
        mp_optimizer_get_group_count(nullptr, nullptr),
        mp_optimizer_get_group(nullptr, 0, nullptr),
        mp_optimizer_get_enabled(nullptr, 0, nullptr),
        mp_optimizer_get_param_name(nullptr, 0, nullptr, 0, nullptr),
        mp_optimizer_get_param_group(nullptr, 0, nullptr),
        mp_tensor_cast_pointers(nullptr, nullptr, nullptr, 0, nullptr, 0, 0, nullptr),
        mp_tensor_create_view(nullptr, 0, 0, nullptr, &tensor),
        mp_linear_get_desc(nullptr, nullptr),
        mp_recipe_get_frozen(nullptr, nullptr),
        mp_recipe_create_weight(nullptr, nullptr, 0, nullptr, nullptr, &tensor),
        mp_comm_get_deadline(nullptr, nullptr),
        mp_optimizer_get_state(nullptr, 0, "param", &tensor),
        mp_optimizer_set_step(nullptr, nullptr, 1),
        mp_optimizer_read_state(nullptr, nullptr, 0, "exp_avg", nullptr),
        mp_optimizer_write_state(nullptr, nullptr, 0, "exp_avg", nullptr),
        mp_optimizer_get_memory(nullptr, nullptr),
        mp_step_plan_create(nullptr, nullptr, nullptr, 0, &step_plan),
        mp_step_plan_run(nullptr, nullptr, nullptr),
        mp_step_plan_set_args(nullptr, nullptr, nullptr),
        mp_step_plan_get_args(nullptr, nullptr),
        mp_step_plan_get_stats(nullptr, nullptr, nullptr),
        mp_optimizer_step_pointers(nullptr, nullptr, nullptr, nullptr, 0, nullptr, nullptr),
        mp_checkpoint_create(nullptr, nullptr, nullptr, &checkpoint),
        mp_checkpoint_add_optimizer(nullptr, nullptr),
        mp_checkpoint_add_scaler(nullptr, nullptr),
        mp_checkpoint_add_linear(nullptr, "a", nullptr),
        mp_checkpoint_add_data(nullptr, "a", nullptr, 0),
        mp_checkpoint_save(nullptr, "a", 0, 0),
        mp_checkpoint_test(nullptr),
        mp_checkpoint_wait(nullptr),
        mp_checkpoint_load(nullptr, "a", 0, nullptr),
        mp_checkpoint_inspect(nullptr, nullptr),
        mp_checkpoint_describe(nullptr, nullptr, 0, nullptr),
        mp_checkpoint_read_manifest(nullptr, nullptr, 0, nullptr),
        mp_checkpoint_export_weights(nullptr, "a"),
    };
    for (std::size_t i = 0; i < std::size(statuses); ++i) {
        EXPECT_EQ(statuses[i], MP_STATUS_NULL_ARGUMENT) << "call " << i;
    }
    mp_context_destroy(context);
    mp_queue_destroy(queue);
    mp_tensor_destroy(tensor);
    mp_recipe_destroy(recipe);
    mp_gemm_destroy(gemm);
    mp_linear_destroy(linear);
    mp_saved_destroy(saved);
    mp_event_destroy(event);
    mp_step_plan_destroy(step_plan);
    mp_scaler_destroy(scaler);
    mp_optimizer_destroy(optimizer);
    mp_checkpoint_destroy(checkpoint);
}

TEST(Misuse, DestroyedHandlesAreRecognized) {
    const Context context = make_context(1);
    mp_tensor* tensor = make_tensor(context, MP_DTYPE_FP32, {4}).owned.release();
    mp_tensor_destroy(tensor);
    mp_tensor_destroy(tensor); // twice is nothing
    MP_FAILS(mp_tensor_zero(tensor, nullptr), MP_STATUS_INVALID_HANDLE, "tensor", "destroyed");
    // A good while later too.
    for (int i = 0; i < 500; ++i) {
        (void)make_tensor(context, MP_DTYPE_FP32, {4});
    }
    MP_FAILS(mp_tensor_zero(tensor, nullptr), MP_STATUS_INVALID_HANDLE, "tensor");

    mp_recipe* recipe = make_recipe(context, "fp32").owned.release();
    mp_recipe_destroy(recipe);
    mp_optimizer* optimizer = nullptr;
    MP_FAILS(mp_optimizer_create(context, recipe, nullptr, &optimizer), MP_STATUS_INVALID_HANDLE,
             "recipe");
    mp_context* gone = make_context(1).owned.release();
    mp_context_destroy(gone);
    MP_FAILS(mp_recipe_create(gone, "fp32", &recipe), MP_STATUS_INVALID_HANDLE, "context");
    EXPECT_EQ(recipe, nullptr);
}

TEST(Misuse, HandlesOfAnotherKindAreRecognized) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    auto* disguised = reinterpret_cast<mp_tensor*>(static_cast<mp_recipe*>(recipe));
    MP_FAILS(mp_tensor_zero(disguised, nullptr), MP_STATUS_INVALID_HANDLE, "another kind");
    mp_tensor_destroy(disguised); // ignored
    EXPECT_EQ(mp_recipe_validate(recipe), MP_STATUS_OK);
}

// A garbage collector may run finalizers between a failure and the reading of its words.
TEST(Misuse, DestroyKeepsTheMessage) {
    const Context context = make_context(1);
    Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {4});
    mp_recipe* recipe = nullptr;
    EXPECT_EQ(mp_recipe_create(context, "nonsense", &recipe), MP_STATUS_UNKNOWN_NAME);
    const std::string words = mp_last_error_message();
    tensor = Tensor();
    EXPECT_EQ(mp_last_error_message(), words);
}

TEST(Misuse, ShutdownWaitsForContexts) {
    Context context = make_context(1);
    const Tensor tensor = make_tensor(context, MP_DTYPE_FP32, {4});
    context = Context();
    MP_FAILS(mp_library_shutdown(), MP_STATUS_BAD_STATE, "1 context"); // the tensor keeps it alive
}
