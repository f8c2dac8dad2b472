! SPDX-License-Identifier: Apache-2.0
! The C ABI of libmixedprec by iso_c_binding, as far as optimizer_step.f90 needs it, and failures as a derived type.
module mixedprec
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int32_t), parameter :: mp_version = 100, mp_device_host = 1
    integer(c_int32_t), parameter :: mp_dtype_none = 0, mp_dtype_fp32 = 1, mp_dtype_fp16 = 2, mp_dtype_bf16 = 3
    integer(c_int32_t), parameter :: mp_hyperparameters_explicit = 256

    ! Unsigned C fields are signed here: the values in use are small.
    type, bind(c) :: mp_context_desc
        integer(c_int32_t) :: struct_size = 96, flags = 0, api_version = mp_version
        integer(c_int32_t) :: device_kind = mp_device_host, device_index = 0
        integer(c_int32_t) :: num_threads = 0, log_level = 0, reserved = 0
        type(c_ptr) :: backend = c_null_ptr
        type(c_funptr) :: allocate = c_null_funptr, release = c_null_funptr
        type(c_ptr) :: allocator_payload = c_null_ptr
        type(c_funptr) :: log = c_null_funptr
        type(c_ptr) :: log_payload = c_null_ptr
        type(c_funptr) :: parallel = c_null_funptr
        type(c_ptr) :: parallel_payload = c_null_ptr
    end type
    type, bind(c) :: mp_tensor_desc
        integer(c_int32_t) :: struct_size = 88, flags = 0, dtype = mp_dtype_none, ndim = 0
        integer(c_int64_t) :: shape(8) = 0
        integer(c_int32_t) :: device_kind = mp_device_host, device_index = 0
    end type
    type, bind(c) :: mp_optimizer_desc
        integer(c_int32_t) :: struct_size = 24, flags = 0
        integer(c_int64_t) :: seed = 0
        real(c_double) :: max_grad_norm = 0
    end type
    type, bind(c) :: mp_param_group_desc
        integer(c_int32_t) :: struct_size = 72, flags = mp_hyperparameters_explicit
        real(c_double) :: lr = 1d-3, beta1 = 0.9d0, beta2 = 0.999d0, eps = 1d-8, weight_decay = 0
        integer(c_int32_t) :: rule = 0, reserved = 0
        type(c_ptr) :: exp_avg_format = c_null_ptr, exp_avg_sq_format = c_null_ptr
    end type
    type, bind(c) :: mp_param_desc
        integer(c_int32_t) :: struct_size = 40, flags = 0
        type(c_ptr) :: name = c_null_ptr, param = c_null_ptr, grad = c_null_ptr, init_fp32 = c_null_ptr
    end type
    type, bind(c) :: mp_optimizer_stats
        integer(c_int32_t) :: struct_size = 40, found_inf = 0
        integer(c_int64_t) :: step = 0, skipped_steps = 0
        real(c_double) :: grad_norm = 0, grad_mul = 0
    end type
    type, bind(c) :: mp_step_slot
        integer(c_int32_t) :: struct_size = 176, flags = 0
        integer(c_int64_t) :: count = 0, uid = 0
        type(c_ptr) :: param = c_null_ptr, grad = c_null_ptr, exp_avg = c_null_ptr, exp_avg_sq = c_null_ptr
        type(c_ptr) :: compensation = c_null_ptr, master = c_null_ptr
        integer(c_int32_t) :: param_dtype = mp_dtype_none, grad_dtype = mp_dtype_none, exp_avg_dtype = mp_dtype_none
        integer(c_int32_t) :: exp_avg_sq_dtype = mp_dtype_none, compensation_dtype = mp_dtype_none
        integer(c_int32_t) :: master_dtype = mp_dtype_none
        type(c_ptr) :: param_scale_inv = c_null_ptr, grad_scale_inv = c_null_ptr, exp_avg_scale_inv = c_null_ptr
        type(c_ptr) :: exp_avg_sq_scale_inv = c_null_ptr, master_scale_inv = c_null_ptr
        integer(c_int32_t) :: exp_avg_coding = 0, exp_avg_sq_coding = 0, master_coding = 0, compensation_coding = 0
        type(c_ptr) :: compensation_scale_inv = c_null_ptr
        integer(c_int64_t) :: first_element = 0
        type(c_ptr) :: param_amax = c_null_ptr
    end type
    type, bind(c) :: mp_step_args
        integer(c_int32_t) :: struct_size = 128, flags = mp_hyperparameters_explicit
        integer(c_int64_t) :: step = 1, seed = 0
        real(c_double) :: lr = 1d-3, beta1 = 0.9d0, beta2 = 0.999d0, eps = 1d-8, weight_decay = 0, max_grad_norm = 0
        real(c_double) :: grad_scale = 1
        type(c_ptr) :: lr_pointer = c_null_ptr, grad_scale_pointer = c_null_ptr
        integer(c_int32_t) :: rule = 0, reserved = 0
        type(c_ptr) :: step_pointer = c_null_ptr, hyper_pointer = c_null_ptr, grad_mul_pointer = c_null_ptr
    end type

    ! What went wrong (negative), or success with a note (positive).
    type :: mp_error
        integer(c_int32_t) :: status = 0
        character(:), allocatable :: name, message
    end type

    interface
        integer(c_int32_t) function mp_library_version() bind(c)
            import
        end function
        type(c_ptr) function mp_status_string(status) bind(c)
            import
            integer(c_int32_t), value :: status
        end function
        type(c_ptr) function mp_last_error_message() bind(c)
            import
        end function
        integer(c_int32_t) function mp_context_create(desc, context) bind(c)
            import
            type(mp_context_desc), intent(in) :: desc
            type(c_ptr), intent(out) :: context
        end function
        integer(c_int32_t) function mp_context_sync(context) bind(c)
            import
            type(c_ptr), value :: context
        end function
        subroutine mp_context_destroy(context) bind(c)
            import
            type(c_ptr), value :: context
        end subroutine
        integer(c_int32_t) function mp_recipe_create(context, name, recipe) bind(c)
            import
            type(c_ptr), value :: context
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), intent(out) :: recipe
        end function
        subroutine mp_recipe_destroy(recipe) bind(c)
            import
            type(c_ptr), value :: recipe
        end subroutine
        integer(c_int32_t) function mp_tensor_wrap(context, desc, data, deleter, payload, tensor) bind(c)
            import
            type(c_ptr), value :: context, data, payload
            type(mp_tensor_desc), intent(in) :: desc
            type(c_funptr), value :: deleter
            type(c_ptr), intent(out) :: tensor
        end function
        integer(c_int32_t) function mp_tensor_read(tensor, queue, data, bytes) bind(c)
            import
            type(c_ptr), value :: tensor, queue, data
            integer(c_size_t), value :: bytes
        end function
        subroutine mp_tensor_destroy(tensor) bind(c)
            import
            type(c_ptr), value :: tensor
        end subroutine
        integer(c_int32_t) function mp_optimizer_create(context, recipe, desc, optimizer) bind(c)
            import
            type(c_ptr), value :: context, recipe
            type(mp_optimizer_desc), intent(in) :: desc
            type(c_ptr), intent(out) :: optimizer
        end function
        integer(c_int32_t) function mp_optimizer_add_group(optimizer, desc, index) bind(c)
            import
            type(c_ptr), value :: optimizer
            type(mp_param_group_desc), intent(in) :: desc
            integer(c_int32_t), intent(out) :: index
        end function
        integer(c_int32_t) function mp_optimizer_add_param(optimizer, group, desc, index) bind(c)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: group
            type(mp_param_desc), intent(in) :: desc
            integer(c_int32_t), intent(out) :: index
        end function
        integer(c_int32_t) function mp_optimizer_step(optimizer, queue, scaler) bind(c)
            import
            type(c_ptr), value :: optimizer, queue, scaler
        end function
        integer(c_int32_t) function mp_optimizer_get_stats(optimizer, queue, stats) bind(c)
            import
            type(c_ptr), value :: optimizer, queue
            type(mp_optimizer_stats), intent(inout) :: stats
        end function
        integer(c_int32_t) function mp_optimizer_get_state(optimizer, index, state, tensor) bind(c)
            import
            type(c_ptr), value :: optimizer
            integer(c_int32_t), value :: index
            character(kind=c_char), intent(in) :: state(*)
            type(c_ptr), intent(out) :: tensor
        end function
        integer(c_int32_t) function mp_optimizer_step_pointers(context, queue, args, slots, slot_count, scaler, stats) &
            bind(c)
            import
            type(c_ptr), value :: context, queue, scaler
            type(mp_step_args), intent(in) :: args
            type(mp_step_slot), intent(in) :: slots(*)
            integer(c_int64_t), value :: slot_count
            type(mp_optimizer_stats), intent(inout) :: stats
        end function
        subroutine mp_optimizer_destroy(optimizer) bind(c)
            import
            type(c_ptr), value :: optimizer
        end subroutine
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import
            type(c_ptr), value :: text
        end function
    end interface

contains

    function copied(text) result(copy)
        type(c_ptr), intent(in) :: text
        character(:), allocatable :: copy
        character(kind=c_char), pointer :: letters(:)
        integer :: i
        call c_f_pointer(text, letters, [c_strlen(text)])
        allocate (character(size(letters)) :: copy)
        do i = 1, size(letters)
            copy(i:i) = letters(i)
        end do
    end function

    ! The status with its words. Without `error` a failure ends the program.
    subroutine check(status, error)
        integer(c_int32_t), intent(in) :: status
        type(mp_error), intent(out), optional :: error
        if (present(error)) then
            error%message = copied(mp_last_error_message())
            error%name = copied(mp_status_string(status))
            error%status = status
        else if (status < 0) then
            error stop copied(mp_status_string(status))//": "//copied(mp_last_error_message())
        end if
    end subroutine
end module
