! SPDX-License-Identifier: Apache-2.0
!
!> Of test_mixedprec: contexts, recipes and tensors, and who owns what.
module part_objects
    use mixedprec
    use checks
    use, intrinsic :: iso_fortran_env
    implicit none

contains

    subroutine contexts()
        type(mp_context) :: context, closed
        type(mp_queue) :: queue
        type(mp_event) :: event
        type(mp_error) :: error
        character(:), allocatable :: text

        call expect(mp_layout_mismatches() == 0, "layout of structs")
        call expect(mp_library_version() >= MP_VERSION, "version")
        call expect(index(mp_build_info(), "0.") > 0, "build info")
        call context%create(threads=2, log=on_log, log_level=MP_LOG_INFO)
        call expect(context%num_threads() == 2, "threads")
        call expect(lines > 0, "log callback")
        call context%describe(text)
        call expect(index(text, """host""") > 0, "describe")
        call closed%create(threads=-1, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "num_threads")
        call expect(.not. closed%is_open(), "a context that was not made")
        call closed%sync(error)
        call expect_error(error, MP_STATUS_INVALID_HANDLE, "context")
        call closed%create(backend="cpu", error=error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "cpu")
        call expect(.not. mp_device_is_available(MP_DEVICE_HOST, 99, error), "device 99")

        call queue%create(context)
        call event%create(context)
        call event%record(queue)
        call queue%wait_event(event)
        call expect(event%reached(), "event")
        call event%sync()
        call queue%sync()
        call expect(queue%workspace_peak() >= 0, "workspace")
        call context%sync()
    end subroutine contexts

    subroutine recipes(context, folder)
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: folder
        type(mp_recipe) :: recipe, other, copy
        type(mp_error) :: error
        character(:), allocatable :: text, value
        real(real64) :: number
        integer(int64) :: whole
        integer :: unit

        call recipe%create(context, "fp8_delayd", error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "fp8_delayed")
        call recipe%create(context, "bf16_pure_kahan")
        call recipe%validate(error)
        call expect(.not. error%failed(), "validate")
        call recipe%set(MP_RECIPE_EXP_AVG_DTYPE, "fp32")
        call recipe%get(MP_RECIPE_EXP_AVG_DTYPE, value)
        call expect(value == "fp32", "get text")
        call recipe%get(MP_RECIPE_GEMM_AMAX_EPSILON, number)
        call expect(number >= 0, "get real")
        call recipe%set(MP_RECIPE_GEMM_MARGIN, 1)
        call recipe%get(MP_RECIPE_GEMM_MARGIN, whole)
        call expect(whole == 1, "get integer")
        call recipe%set(MP_RECIPE_GEMM_MARGIN, "one", error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "margin")
        call recipe%set("fp8.margn", 1, error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "gemm.margin")
        call recipe%to_json(text)
        call other%from_json(context, text)
        call copy%clone_of(other)
        call copy%to_json(value)
        call expect(text == value, "a recipe through JSON")
        call copy%set(MP_RECIPE_LAYERS, "lm_*: gemm.margin=2")
        call other%of_layer(copy, "lm_head")
        call other%get(MP_RECIPE_GEMM_MARGIN, whole)
        call expect(whole == 2, "a recipe for a layer")
        open (newunit=unit, file=folder // "/recipe.json", access="stream", form="unformatted", status="replace")
        write (unit) text
        close (unit)
        call other%from_file(context, folder // "/recipe.json")
        call other%from_json(context, "{""recipe"": ", error)
        call expect_error(error, MP_STATUS_PARSE_ERROR, "")
        call expect(other%is_open(), "a failure leaves the object as it was")
        call expect(.not. recipe%frozen(), "frozen")
        call copy%create(context, "auto")
        call copy%reason(text)
        call expect(len(text) > 0, "reason")
    end subroutine recipes

    subroutine plans_of_recipes(context)
        type(mp_context), intent(in) :: context
        type(mp_recipe) :: recipe, copy
        type(mp_error) :: error
        type(mp_memory_report) :: report, share
        type(mp_comm_traffic) :: sent
        character(:), allocatable :: text, name, allowed, meaning, value

        call recipe%create(context, "bf16_pure_kahan")
        call recipe%set(MP_RECIPE_EXP_AVG_DTYPE, "fp32")
        call recipe%plan_memory(MP_RULE_ADAMW, [1000000_int64, 50000_int64], report)
        call recipe%plan_memory(MP_RULE_ADAMW, [1000000_int64, 50000_int64], share, rank=0, ranks=2)
        call expect(report%parameter_count == 1050000 .and. &
            share%state_bytes(MP_STATE_EXP_AVG + 1) < report%state_bytes(MP_STATE_EXP_AVG + 1), "plan_memory")
        call copy%create(context, "bf16_pure")
        call copy%plan_tensors([mp_planned_tensor(count=1000), mp_planned_tensor(count=24, weight_dtype=MP_DTYPE_FP32, &
            rule=MP_RULE_LION)], report, sent)
        call expect(report%weight_bytes == 2096 .and. report%state_bytes(MP_STATE_EXP_AVG_SQ + 1) == 2000 .and. &
            sent%total_bytes == 0, "plan_tensors")
        call copy%plan_tensors([mp_planned_tensor(count=100000)], report, sent, rank=1, ranks=2)
        call expect(sent%all_to_all_bytes > 0, "plan_tensors of a rank")
        call copy%plan_tensors([mp_planned_tensor(count=-1)], report, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call mp_get_preset(0, name, text)
        call expect(len(name) > 0 .and. mp_recipe_preset_count() > 10, "presets")
        call mp_get_key(0, name, allowed, meaning, value)
        call expect(len(name) > 0 .and. len(meaning) > 0 .and. mp_recipe_key_count() > 10, "keys")
        call mp_get_preset(-1, name, text, error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
    end subroutine plans_of_recipes

    subroutine make(tensor, context, values)
        type(mp_tensor), intent(inout) :: tensor
        type(mp_context), intent(in) :: context
        real(real32), intent(in), target, contiguous :: values(:, :)
        call tensor%create(context, MP_DTYPE_FP32, shape(values))
        call tensor%write(values)
    end subroutine make

    subroutine tensors(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, view, bad
        type(mp_error) :: error
        real(real32), target :: values(3, 4), back(3, 4)
        real(real32), pointer, contiguous :: inside(:, :), flat(:), wrong(:, :, :)
        integer(int16), target :: words(12)
        integer(int64), allocatable :: dims(:)
        integer :: i

        values = reshape([(real(i), i = 1, 12)], [3, 4])
        call a%create(context, MP_DTYPE_FP32, [3, 4])
        call a%shape(dims)
        call expect(all(dims == [3, 4]) .and. a%elements() == 12 .and. a%dtype() == MP_DTYPE_FP32, "shape")
        call a%write(values)
        call a%read(back)
        call expect(all(back == values), "write and read")
        call a%pointer(inside)
        call expect(all(shape(inside) == [3, 4]) .and. inside(2, 3) == values(2, 3), "pointer")
        inside(2, 3) = -99
        call a%pointer(flat)
        call expect(size(flat) == 12 .and. flat(8) == -99.0, "the same memory, flat")
        call a%pointer(wrong, error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "dimensions")
        call a%read(back(:, 1:2), error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "shape")
        call a%read(words, error=error)
        call expect_error(error, MP_STATUS_INVALID_DTYPE, "fp32")
        ! Columns of Fortran are rows of the library: the view of its second row is values(:, 2).
        call view%view_of(a, 3_int64, [3])
        call view%read(back(:, 1))
        call expect(all(back(:, 1) == values(:, 2)), "order of dimensions")
        call bad%view_of(a, 10_int64, [3], error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
        call a%read(back(3:1:-2, 1), error=error)  ! two elements, of a copy that the compiler makes
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
    end subroutine tensors

    subroutine conversions(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b, amax
        type(mp_cast_desc) :: stochastic
        real(real32), target :: values(3, 4), back(3, 4), one(1)
        integer(int16), target :: words(12), more(12)
        integer :: i

        values = reshape([(real(i), i = 1, 12)], [3, 4])
        back = values
        back(2, 3) = -99
        call make(a, context, back)
        call b%create(context, MP_DTYPE_BF16, [3, 4])
        call b%cast_from(a)
        call b%read(back)
        call expect(back(2, 3) == -99.0, "values of bf16")
        call b%write(values)
        call b%read(words)
        call expect(words(1) == int(z'3F80', int16), "codes of bf16")
        stochastic = mp_cast_desc(rounding=MP_ROUND_STOCHASTIC, seed=7, uid=1, step=1)
        values = 1.001
        call a%write(values)
        call b%cast_from(a, stochastic)
        call b%read(words)
        call b%cast_from(a, stochastic)
        call b%read(more)
        call expect(all(words == more), "stochastic rounding repeats")
        call amax%create(context, MP_DTYPE_FP32, [integer ::])
        call a%amax(amax)
        call amax%read(one)
        call expect(one(1) == 1.001, "amax")
    end subroutine conversions

    subroutine wrapped_arrays(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b, view, bad
        type(mp_array) :: lent
        type(mp_error) :: error
        real(real32), target :: values(3, 4), back(3, 4), cube(2, 3, 4)
        real(real32), allocatable, target :: empty(:)
        real(real64), target :: doubles(4)
        integer(int16), target :: words(12)
        integer(int64), allocatable :: dims(:)
        integer :: i

        values = 1.001
        call make(a, context, values)
        lent = mp_array(values)
        call b%wrap(context, lent)
        values(1, 1) = 5
        call b%read(back)
        call expect(back(1, 1) == 5.0, "wrap")
        call b%zero()
        call expect(all(values == 0), "zero through the wrapped array")
        call b%copy_from(a)
        call expect(all(abs(values - 1.001) < 1e-6), "copy")
        call b%copy_from(b, error=error)
        call expect(error%failed(), "copy onto itself")
        cube = 1
        call view%wrap(context, mp_array(cube))
        call view%shape(dims)
        call expect(all(dims == [2, 3, 4]), "three dimensions")
        call bad%wrap(context, mp_array(words, MP_DTYPE_FP32), error)
        call expect_error(error, MP_STATUS_INVALID_DTYPE, "size")
        call bad%wrap(context, mp_array(doubles), error)
        call expect_error(error, MP_STATUS_INVALID_DTYPE, "kind of number")
        call bad%wrap(context, mp_array(empty), error)
        call expect(error%failed(), "an array that is not allocated")
        call b%wrap(context, mp_array(words, MP_DTYPE_BF16))
        call bad%create(context, 99, [3], error)
        call expect_error(error, MP_STATUS_INVALID_DTYPE, "")
        call bad%create(context, MP_DTYPE_FP32, [-3], error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
        call bad%create(context, MP_DTYPE_FP32, [(1, i = 1, 12)], error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
    end subroutine wrapped_arrays

    subroutine quantized_tensors(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, codes, scales, amax, bad
        type(mp_error) :: error
        type(mp_quant_stats) :: stats
        type(mp_quant_desc) :: quant
        real(real32), target :: back(3, 4), one(1)
        real(real32), allocatable, target :: empty(:)
        integer(int8), target :: small(12)

        back = 1.001
        call make(a, context, back)
        quant%scaling = MP_SCALING_ROW
        call codes%create_quantized(context, MP_DTYPE_FP8_E4M3, [3, 4], quant)
        call codes%quantize_from(a, stats=stats)
        call expect(stats%elements == 12, "quantize")
        call codes%read(back)
        call expect(all(abs(back - 1.001) < 0.07), "dequantized values")
        call codes%read(small)
        call scales%scales_of(codes)
        call expect(scales%elements() == 4, "one scale for each row, that is, for each column of Fortran")
        call codes%quant_desc(quant)
        call expect(quant%scaling == MP_SCALING_ROW, "quant_desc")
        call amax%quantized_amax_of(codes)
        call amax%read(one)
        call a%dequantize_from(codes)
        call bad%wrap_quantized(context, mp_array(small, MP_DTYPE_FP8_E4M3), mp_quant_desc(), mp_array(empty), &
            error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "scale_inv")
        call bad%wrap_quantized(context, mp_array(small, MP_DTYPE_FP8_E4M3), mp_quant_desc(), mp_array(one), &
            error=error)
        call bad%scales_of(a, error)
        call expect(error%failed(), "scales of a plain tensor")
    end subroutine quantized_tensors

    subroutine ownership(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b
        type(mp_tensor), allocatable :: sourced, many(:), longer(:)
        type(mp_error) :: error
        integer :: i
        call a%create(context, MP_DTYPE_FP32, [4])
        b = a
        call expect(b%elements() == 4, "a lent tensor")
        call b%close()
        call expect(a%elements() == 4, "closing what is lent does nothing")
        b = a
        call a%close()
        call a%close()
        call expect(a%elements(error) == 0, "a closed tensor")
        call expect_error(error, MP_STATUS_INVALID_HANDLE, "tensor")
        call expect(b%elements(error) == 0, "a lent tensor whose owner closed it")
        call expect_error(error, MP_STATUS_INVALID_HANDLE, "tensor")
        call a%create(context, MP_DTYPE_FP32, [4])
        call a%move_to(b)
        call expect(b%elements() == 4 .and. .not. a%is_open(), "move")
        allocate (sourced, source=b)
        deallocate (sourced)
        call expect(b%elements() == 4, "a sourced copy does not end its source")
        allocate (many(3))
        do i = 1, 3
            call many(i)%create(context, MP_DTYPE_FP32, [i])
        end do
        call move_alloc(many, longer)
        call expect(longer(3)%elements() == 3, "move_alloc")
        call expect(sum([(longer(i)%elements(), i = 1, 3)]) == 6, "array of tensors")
        do i = 1, 3000
            call leave_behind(context)
        end do
        call expect(b%elements() == 4, "after 3000 other tensors")
    end subroutine ownership

    subroutine leave_behind(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b
        call a%create(context, MP_DTYPE_FP32, [1000])
        b = a
        call a%create(context, MP_DTYPE_FP32, [1000])
    end subroutine leave_behind

    ! Memory that is named in advance, and gradients of the host's.
    subroutine memory_for_later(context)
        type(mp_context), intent(in) :: context
        type(mp_recipe) :: recipe
        type(mp_error) :: error
        integer :: i
        type(mp_optimizer) :: named, hosts
        type(mp_optimizer_desc) :: desc
        type(mp_tensor) :: w, g
        type(mp_memory_report) :: report
        real(real32), target :: place(3), weight(100)
        real(real32) :: values(3)
        call recipe%create(context, "fp32")
        place = 7
        weight = 1
        call w%wrap_deferred(context, mp_array(place))
        call w%read(values, error=error)
        call expect_error(error, MP_STATUS_BAD_STATE, "deferred")
        call named%create(context, recipe)
        call named%add_group()
        call named%add_param(0, "w", w)
        call w%read(values)
        call expect(all(values == 0) .and. all(place == 0), "the memory that was named")
        desc%flags = ior(MP_OPTIMIZER_OFFLOAD, MP_OPTIMIZER_OFFLOAD_GRADS)
        call hosts%create(context, recipe, desc)
        call hosts%add_group()
        call w%wrap(context, mp_array(weight))
        call hosts%add_param(0, "w", w)
        call hosts%acquire_grad(0)
        call hosts%state(0, "grad", g)
        call g%write([(1.0_real32, i = 1, 100)])
        call hosts%grad_ready(0)
        call hosts%step()
        call expect(abs(weight(100) - 0.999) < 1e-6, "a gradient of the host's")
        call hosts%memory(report)
        call expect(report%grad_bytes == 448, "lines of 64 bytes, on the host")
    end subroutine memory_for_later

end module part_objects
