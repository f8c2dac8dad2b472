! SPDX-License-Identifier: Apache-2.0
! bindings/c/optimizer_step.c in Fortran: must print the same lines.
program optimizer_step
    use, intrinsic :: iso_c_binding
    use mixedprec
    implicit none

    integer, parameter :: steps = 10, count = 37, kahan_count = 300, columns = 15
    type(c_ptr) :: context, recipe
    type(mp_error) :: error
    integer :: version

    version = mp_library_version()
    print '("library ", i0, ".", i0, ".", i0)', version/10000, mod(version/100, 100), mod(version, 100)
    call print_layouts()
    call check(mp_context_create(mp_context_desc(num_threads=2), context))
    call check(mp_recipe_create(context, "bf16_pure_kahn"//c_null_char, recipe), error)
    print '("error ", i0, " ", a, ": ", a)', error%status, error%name, error%message
    call run_tensors()
    call run_pointers()
    call run_kahan()
    call mp_context_destroy(context)

contains

    subroutine print_layout(name, bytes, base, fields)
        character(*), intent(in) :: name
        integer(c_size_t), intent(in) :: bytes
        type(c_ptr), intent(in) :: base, fields(:)
        integer(c_intptr_t) :: offsets(size(fields))
        offsets = transfer(fields, offsets) - transfer(base, 0_c_intptr_t)
        print '("layout ", a, " ", i0, ":", *(:, " ", i0))', name, bytes, offsets
    end subroutine

    subroutine print_layouts()
        type(mp_context_desc), target :: c
        type(mp_tensor_desc), target :: t
        type(mp_optimizer_desc), target :: o
        type(mp_param_group_desc), target :: h
        type(mp_param_desc), target :: p
        type(mp_optimizer_stats), target :: r
        type(mp_step_slot), target :: s
        type(mp_step_args), target :: a
        call print_layout("mp_context_desc", c_sizeof(c), c_loc(c), &
            [c_loc(c%struct_size), c_loc(c%flags), c_loc(c%api_version), c_loc(c%device_kind), c_loc(c%device_index), &
             c_loc(c%num_threads), c_loc(c%log_level), c_loc(c%reserved), c_loc(c%backend), c_loc(c%allocate), &
             c_loc(c%release), c_loc(c%allocator_payload), c_loc(c%log), c_loc(c%log_payload), &
             c_loc(c%parallel), c_loc(c%parallel_payload)])
        call print_layout("mp_tensor_desc", c_sizeof(t), c_loc(t), &
            [c_loc(t%struct_size), c_loc(t%flags), c_loc(t%dtype), c_loc(t%ndim), c_loc(t%shape), &
             c_loc(t%device_kind), c_loc(t%device_index)])
        call print_layout("mp_optimizer_desc", c_sizeof(o), c_loc(o), &
            [c_loc(o%struct_size), c_loc(o%flags), c_loc(o%seed), c_loc(o%max_grad_norm)])
        call print_layout("mp_param_group_desc", c_sizeof(h), c_loc(h), &
            [c_loc(h%struct_size), c_loc(h%flags), c_loc(h%lr), c_loc(h%beta1), c_loc(h%beta2), c_loc(h%eps), &
             c_loc(h%weight_decay), c_loc(h%rule), c_loc(h%reserved), c_loc(h%exp_avg_format), &
             c_loc(h%exp_avg_sq_format)])
        call print_layout("mp_param_desc", c_sizeof(p), c_loc(p), &
            [c_loc(p%struct_size), c_loc(p%flags), c_loc(p%name), c_loc(p%param), c_loc(p%grad), c_loc(p%init_fp32)])
        call print_layout("mp_optimizer_stats", c_sizeof(r), c_loc(r), &
            [c_loc(r%struct_size), c_loc(r%found_inf), c_loc(r%step), c_loc(r%skipped_steps), c_loc(r%grad_norm), &
             c_loc(r%grad_mul)])
        call print_layout("mp_step_slot", c_sizeof(s), c_loc(s), &
            [c_loc(s%struct_size), c_loc(s%flags), c_loc(s%count), c_loc(s%uid), c_loc(s%param), c_loc(s%grad), &
             c_loc(s%exp_avg), c_loc(s%exp_avg_sq), c_loc(s%compensation), c_loc(s%master), c_loc(s%param_dtype), &
             c_loc(s%grad_dtype), c_loc(s%exp_avg_dtype), c_loc(s%exp_avg_sq_dtype), c_loc(s%compensation_dtype), &
             c_loc(s%master_dtype), c_loc(s%param_scale_inv), c_loc(s%grad_scale_inv), c_loc(s%exp_avg_scale_inv), &
             c_loc(s%exp_avg_sq_scale_inv), c_loc(s%master_scale_inv), c_loc(s%exp_avg_coding), &
             c_loc(s%exp_avg_sq_coding), c_loc(s%master_coding), c_loc(s%compensation_coding), &
             c_loc(s%compensation_scale_inv), c_loc(s%first_element), c_loc(s%param_amax)])
        call print_layout("mp_step_args", c_sizeof(a), c_loc(a), &
            [c_loc(a%struct_size), c_loc(a%flags), c_loc(a%step), c_loc(a%seed), c_loc(a%lr), c_loc(a%beta1), &
             c_loc(a%beta2), c_loc(a%eps), c_loc(a%weight_decay), c_loc(a%max_grad_norm), c_loc(a%grad_scale), &
             c_loc(a%lr_pointer), c_loc(a%grad_scale_pointer), c_loc(a%rule), c_loc(a%reserved), &
             c_loc(a%step_pointer), c_loc(a%hyper_pointer), c_loc(a%grad_mul_pointer)])
    end subroutine

    ! So many hexadecimal digits, in small letters as everybody else's.
    elemental function hex(bits, digits) result(text)
        integer(c_int32_t), intent(in) :: bits
        integer, intent(in) :: digits
        character(digits) :: text
        integer :: i, nibble
        do i = 1, digits
            nibble = ibits(bits, 4*(digits - i), 4)
            text(i:i) = "0123456789abcdef" (nibble + 1:nibble + 1)
        end do
    end function

    function wrap(dtype, count, data) result(tensor)
        integer(c_int32_t), intent(in) :: dtype
        integer, intent(in) :: count
        type(c_ptr), intent(in) :: data
        type(c_ptr) :: tensor
        type(mp_tensor_desc) :: desc
        desc%dtype = dtype
        desc%ndim = 1
        desc%shape(1) = count
        call check(mp_tensor_wrap(context, desc, data, c_null_funptr, c_null_ptr, tensor))
    end function

    function make_optimizer(recipe_name, param, grad, init) result(optimizer)
        character(*), intent(in) :: recipe_name
        type(c_ptr), intent(in) :: param, grad, init
        type(c_ptr) :: optimizer, recipe
        type(mp_error) :: note
        type(mp_param_desc) :: desc
        character(kind=c_char), target :: name(2) = ["p", c_null_char]
        integer(c_int32_t) :: group, index
        call check(mp_recipe_create(context, recipe_name//c_null_char, recipe))
        call check(mp_optimizer_create(context, recipe, mp_optimizer_desc(), optimizer))
        call mp_recipe_destroy(recipe)
        call check(mp_optimizer_add_group(optimizer, mp_param_group_desc(weight_decay=0.01d0), group), note)
        if (note%status < 0) error stop "mp_optimizer_add_group failed"
        if (note%status > 0) print '("note ", a, ": ", a)', recipe_name, note%message
        desc%name = c_loc(name)
        desc%param = param
        desc%grad = grad
        desc%init_fp32 = init
        call check(mp_optimizer_add_param(optimizer, group, desc, index))
    end function

    subroutine read_state(optimizer, state, data, bytes)
        type(c_ptr), intent(in) :: optimizer, data
        character(*), intent(in) :: state
        integer(c_size_t), intent(in) :: bytes
        type(c_ptr) :: tensor
        call check(mp_optimizer_get_state(optimizer, 0, state//c_null_char, tensor))
        call check(mp_tensor_read(tensor, c_null_ptr, data, bytes))
        call mp_tensor_destroy(tensor)
    end subroutine

    ! All elements of the fp32 runs are the same; one that is not shows as a missing line.
    subroutine print_step(run, step, g, p, m, v)
        character(*), intent(in) :: run
        integer, intent(in) :: step
        real(c_float), intent(in) :: g(count), p(count), m(count), v(count)
        integer(c_int32_t) :: bits(count, 4)
        integer :: i
        bits = reshape([transfer(g, bits), transfer(p, bits), transfer(m, bits), transfer(v, bits)], [count, 4])
        if (any([(any(bits(:, i) /= bits(1, i)), i=1, 4)])) return
        print '(a, " step ", i0, " grad ", a, " param ", a, " exp_avg ", a, " exp_avg_sq ", a)', &
            run, step, hex(bits(1, :), 8)
    end subroutine

    subroutine run_tensors()
        real(c_float), target :: p(count), g(count), m(count), v(count)
        type(c_ptr) :: optimizer, param, grad
        type(mp_optimizer_stats) :: stats
        integer :: t
        p = 1
        param = wrap(mp_dtype_fp32, count, c_loc(p))
        grad = wrap(mp_dtype_fp32, count, c_loc(g))
        optimizer = make_optimizer("fp32", param, grad, c_null_ptr)
        do t = 1, steps
            g = real(sin(real(t, c_double)), c_float)
            call check(mp_optimizer_step(optimizer, c_null_ptr, c_null_ptr))
            call check(mp_context_sync(context))
            call read_state(optimizer, "exp_avg", c_loc(m), c_sizeof(m))
            call read_state(optimizer, "exp_avg_sq", c_loc(v), c_sizeof(v))
            call print_step("tensors", t, g, p, m, v)
        end do
        call check(mp_optimizer_get_stats(optimizer, c_null_ptr, stats))
        print '("stats step ", i0, " skipped ", i0)', stats%step, stats%skipped_steps
        call mp_tensor_destroy(grad)
        call mp_tensor_destroy(param)
        call mp_optimizer_destroy(optimizer)
    end subroutine

    subroutine run_pointers()
        real(c_float), target :: p(count), g(count), m(count), v(count)
        type(mp_step_slot) :: slot
        type(mp_optimizer_stats) :: stats
        integer :: t
        p = 1
        m = 0
        v = 0
        slot = mp_step_slot(count=count, param=c_loc(p), grad=c_loc(g), exp_avg=c_loc(m), exp_avg_sq=c_loc(v), &
            param_dtype=mp_dtype_fp32, grad_dtype=mp_dtype_fp32, exp_avg_dtype=mp_dtype_fp32, &
            exp_avg_sq_dtype=mp_dtype_fp32)
        do t = 1, steps
            g = real(sin(real(t, c_double)), c_float)
            call check(mp_optimizer_step_pointers(context, c_null_ptr, &
                mp_step_args(step=int(t, c_int64_t), weight_decay=0.01d0), [slot], 1_c_int64_t, c_null_ptr, stats))
            call print_step("pointers", t, g, p, m, v)
        end do
    end subroutine

    integer(c_int64_t) function next_random(state)
        integer(c_int64_t), intent(inout) :: state
        state = iand(state*1664525_c_int64_t + 1013904223_c_int64_t, int(z'ffffffff', c_int64_t))
        next_random = state
    end function

    ! 24 bits, so exact in fp32, in [-1, 1).
    real(c_float) function next_fp32(state)
        integer(c_int64_t), intent(inout) :: state
        next_fp32 = real(shiftr(next_random(state), 8) - 8388608, c_float)/8388608.0
    end function

    ! 8 bits, so exact in bf16, whose code is then the upper half of fp32's; in [-0.125, 0.125).
    integer(c_int16_t) function next_bf16(state)
        integer(c_int64_t), intent(inout) :: state
        integer(c_int32_t) :: bits
        bits = transfer(real(shiftr(next_random(state), 24) - 128, c_float)/1024.0, bits)
        next_bf16 = int(shifta(bits, 16), c_int16_t)
    end function

    subroutine print_kahan(optimizer, state)
        type(c_ptr), intent(in) :: optimizer
        character(*), intent(in) :: state
        integer(c_int16_t), target :: bits(kahan_count)
        integer :: i
        call read_state(optimizer, state, c_loc(bits), c_sizeof(bits))
        do i = 1, kahan_count, columns
            print '("kahan ", a, " ", i0, *(:, " ", a))', state, i - 1, hex(int(bits(i:i + columns - 1), c_int32_t), 4)
        end do
    end subroutine

    subroutine run_kahan()
        integer(c_int16_t), target :: p(kahan_count), g(kahan_count)
        real(c_float), target :: start(kahan_count)
        type(c_ptr) :: optimizer, param, grad, init
        integer(c_int64_t) :: state
        integer :: i, t
        state = 1
        p = 0
        do i = 1, kahan_count
            start(i) = next_fp32(state)
        end do
        param = wrap(mp_dtype_bf16, kahan_count, c_loc(p))
        grad = wrap(mp_dtype_bf16, kahan_count, c_loc(g))
        init = wrap(mp_dtype_fp32, kahan_count, c_loc(start))
        optimizer = make_optimizer("bf16_pure_kahan", param, grad, init)
        call mp_tensor_destroy(init)
        do t = 1, steps
            do i = 1, kahan_count
                g(i) = next_bf16(state)
            end do
            call check(mp_optimizer_step(optimizer, c_null_ptr, c_null_ptr))
            call check(mp_context_sync(context))
        end do
        call print_kahan(optimizer, "param")
        call print_kahan(optimizer, "compensation")
        call print_kahan(optimizer, "exp_avg")
        call print_kahan(optimizer, "exp_avg_sq")
        call mp_tensor_destroy(grad)
        call mp_tensor_destroy(param)
        call mp_optimizer_destroy(optimizer)
    end subroutine
end program
