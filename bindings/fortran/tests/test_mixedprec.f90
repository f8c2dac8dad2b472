! SPDX-License-Identifier: Apache-2.0
!
!> Every part of the module mixedprec. Ends with a message where something is not as it should be.
!! Argument: a folder for files, which is made, and which the caller deletes.
module tests
    use mixedprec
    use, intrinsic :: iso_fortran_env
    use, intrinsic :: ieee_arithmetic
    implicit none
    integer :: lines = 0, monitored = 0, progressed = 0

contains

    subroutine expect(condition, what)
        logical, intent(in) :: condition
        character(*), intent(in) :: what
        if (.not. condition) error stop what
    end subroutine expect

    subroutine expect_error(error, status, words)
        type(mp_error), intent(in) :: error
        integer(int32), intent(in) :: status
        character(*), intent(in) :: words
        if (error%status == status .and. index(error%message, words) > 0) return
        print '(a, i0, 3a)', "status ", error%status, " """, error%message, """"
        error stop "another error than expected: " // words
    end subroutine expect_error

    subroutine on_log(level, message)
        integer, intent(in) :: level
        character(*), intent(in) :: message
        if (level > 0 .and. len(message) > 0) lines = lines + 1
    end subroutine on_log

    subroutine on_monitor(name, stats, advice)
        character(*), intent(in) :: name, advice
        type(mp_linear_stats), intent(in) :: stats
        if (name == "layer" .and. stats%elements > 0 .and. len(advice) >= 0) monitored = monitored + 1
    end subroutine on_monitor

    subroutine on_progress(done, total)
        integer(int64), intent(in) :: done, total
        if (done <= total) progressed = progressed + 1
    end subroutine on_progress

    subroutine contexts_and_recipes(folder)
        character(*), intent(in) :: folder
        type(mp_context) :: context, closed
        type(mp_queue) :: queue
        type(mp_event) :: event
        type(mp_recipe) :: recipe, other, copy
        type(mp_error) :: error
        type(mp_memory_report) :: report, share
        type(mp_comm_traffic) :: sent
        character(:), allocatable :: text, name, allowed, meaning, value
        real(real64) :: number
        integer(int64) :: whole
        integer :: unit

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
    end subroutine contexts_and_recipes

    subroutine tensors(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b, view, codes, scales, amax, bad
        type(mp_array) :: lent
        type(mp_error) :: error
        type(mp_cast_desc) :: stochastic
        type(mp_quant_stats) :: stats
        type(mp_quant_desc) :: quant
        real(real32), target :: values(3, 4), back(3, 4), one(1), cube(2, 3, 4)
        real(real32), allocatable, target :: empty(:)
        real(real32), pointer, contiguous :: inside(:, :), flat(:), wrong(:, :, :)
        real(real64), target :: doubles(4)
        integer(int16), target :: words(12), more(12)
        integer(int8), target :: small(12)
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
    end subroutine tensors

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

    subroutine products(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b, d, weight, bias, x, y, dy, dx, dw, db, form
        type(mp_gemm) :: gemm
        type(mp_gemm_desc) :: desc
        type(mp_recipe) :: recipe
        type(mp_linear) :: linear, plain, arrays
        type(mp_saved) :: saved
        type(mp_error) :: error
        type(mp_linear_stats) :: stats
        type(mp_linear_desc) :: sizes
        type(mp_quant_desc) :: quant
        real(real32), target :: one(32, 16), two(48, 32), w(32, 48), xs(32, 16), ys(48, 16), ys2(48, 16), bs(48)
        real(real32), target :: dxs(32, 16), dws(32, 48), dbs(48)
        integer(int8), allocatable :: bytes(:)
        integer(int32) :: dtype
        character(:), allocatable :: text
        integer :: i

        ! Fortran: d(n, m) = b(n, k) a(k, m); the library reads the same memory as D = A B.
        one = reshape([(sin(real(i)), i = 1, size(one))], shape(one))
        two = reshape([(cos(real(i)), i = 1, size(two))], shape(two))
        desc%m = 16
        desc%n = 48
        desc%k = 32
        desc%dtype_a = MP_DTYPE_FP32
        desc%dtype_b = MP_DTYPE_FP32
        call gemm%create(context, desc)
        call a%wrap(context, mp_array(one))
        call b%wrap(context, mp_array(two))
        call d%create(context, MP_DTYPE_FP32, [48, 16])
        call gemm%run(a, b, d)
        call d%read(ys)
        call expect(all(abs(ys - matmul(two, one)) < 1e-4), "gemm is matmul of Fortran's arrays")
        call gemm%describe(text)
        call expect(len(text) > 0, "gemm describe")
        call gemm%run(a, b, a, error=error)
        call expect(error%failed(), "gemm onto an operand")
        desc%m = -1
        call gemm%create(context, desc, error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")

        call recipe%create(context, "fp8_delayed")
        w = reshape([(sin(real(i)) / 6, i = 1, size(w))], shape(w))
        xs = one
        bs = 0.5
        call weight%create_weight(context, recipe, w)
        call bias%wrap(context, mp_array(bs))
        call linear%create(context, recipe, 32, 48, weight, bias, MP_LINEAR_STATS_C)
        call expect(recipe%frozen(), "a layer freezes its recipe")
        call recipe%set(MP_RECIPE_GEMM_MARGIN, 1, error)
        call expect_error(error, MP_STATUS_BAD_STATE, "")
        call x%wrap(context, mp_array(xs))
        call y%wrap(context, mp_array(ys))
        call dy%wrap(context, mp_array(ys2))
        call dx%create(context, MP_DTYPE_FP32, [32, 16])
        call dw%create(context, MP_DTYPE_FP32, [32, 48])
        call db%create(context, MP_DTYPE_FP32, [48])
        call linear%set_monitor("layer", 1, on_monitor)
        call linear%backward(dy, dw=dw, error=error)
        call expect_error(error, MP_STATUS_BAD_STATE, "forward")
        call linear%forward(x, y)
        call expect(all(abs(ys - matmul(transpose(w), xs) - 0.5) < 0.2), "forward")
        call linear%forward(y, x, error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
        ys2 = 1
        call linear%backward(dy, dx, dw, db)
        call db%read(dbs)
        call expect(all(dbs == 16), "dbias")
        call linear%backward_weight(dy, dw, db, accumulate=.true., error=error)
        call db%read(dbs)
        call expect(all(dbs == 32), "accumulated dbias")
        call linear%backward_data(dy, dx)
        call linear%stats(MP_OPERAND_INPUT, stats)
        call expect(stats%elements > 0, "stats")
        call linear%advice(MP_OPERAND_INPUT, text)
        call linear%stats(17, stats, error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call mp_end_step([linear])
        call expect(monitored > 0, "monitor")
        call linear%clear_stats()
        call linear%describe(text)
        call expect(len(text) > 0, "describe")
        call linear%get_scaling(bytes)
        call linear%set_scaling(bytes)
        call linear%set_scaling(bytes(:3), error)
        call expect(error%failed(), "damaged scaling")
        call linear%desc(sizes)
        call expect(sizes%in_features == 32 .and. sizes%out_features == 48, "desc")
        call saved%create(linear)
        call linear%forward(x, y, saved)
        call linear%backward(dy, dx, dw, db, saved=saved)
        call saved%close()
        call linear%backward(dy, dx, dw, db, saved=saved, error=error)
        call expect_error(error, MP_STATUS_INVALID_HANDLE, "saved")
        call linear%operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, dtype, quant)
        call form%create_quantized(context, dtype, [32, 16], quant)
        call linear%quantize(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, form)
        call linear%multiply_tensor(MP_OPERAND_INPUT, form)
        call expect(form%elements() == 1, "multiply_tensor")
        call linear%set_gradient_rounding()
        call linear%set_weight_codes()

        ! A size that the recipe cannot serve: the layer is made, and the note says so.
        call recipe%create(context, "mxfp8")
        call weight%create(context, MP_DTYPE_FP32, [32, 47])
        call plain%create(context, recipe, 32, 47, weight, error=error)
        call expect_error(error, MP_STATUS_WARNING, "")
        call expect(plain%is_open() .and. len(error%message) > 0, "a note is no failure")
        call plain%create(context, recipe, 31, 47, weight, error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")

        call recipe%create(context, "fp32")
        call arrays%create_arrays(context, recipe, mp_array(w), mp_array(bs))
        call arrays%forward_arrays(mp_array(xs), mp_array(ys))
        call expect(all(abs(ys - matmul(transpose(w), xs) - 0.5) < 1e-4), "forward on arrays")
        call arrays%backward_arrays(mp_array(ys2), mp_array(dxs), mp_array(dws), mp_array(dbs))
        call expect(all(dbs == 16) .and. all(abs(dws - matmul(xs, transpose(ys2))) < 1e-4), "gradients on arrays")
        call arrays%forward_arrays(mp_array(xs), mp_array(bs), error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "rows")
        call arrays%backward_arrays(mp_array(ys2), dw=mp_array(bs), error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "rows")
        call arrays%create_arrays(context, recipe, mp_array(w), mp_array(dws), error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "bias(out)")
    end subroutine products

    ! A guard skips what stands out; a history names what is not finite.
    subroutine watch(context, folder)
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: folder
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_optimizer_stats) :: stats
        type(mp_guard_desc) :: guard
        type(mp_step_record) :: record
        type(mp_tensor) :: p, g
        type(mp_error) :: error
        real, target :: param(4), grad(4)
        real(real64), parameter :: losses(4) = [1d0, 1.1d0, 100d0, 1d0]
        character(:), allocatable :: text
        logical :: exists
        integer :: i
        call recipe%create(context, "fp32")
        call optimizer%create(context, recipe, mp_optimizer_desc(flags=MP_OPTIMIZER_CHECK_FINITE))
        call optimizer%add_group()
        param = 1
        grad = 0
        call p%wrap(context, mp_array(param))
        call g%wrap(context, mp_array(grad))
        call optimizer%add_param(0, "w", p, grad=g)
        call optimizer%set_guard(mp_guard_desc(window=2, max_loss_z=3d0))
        call optimizer%guard(guard)
        call expect(guard%window == 2 .and. guard%max_loss_z == 3, "guard")
        call optimizer%set_history(8, folder // "/steps.json")
        do i = 1, 4
            call optimizer%set_loss(losses(i))
            call optimizer%step()
        end do
        call optimizer%stats(stats)
        call expect(stats%outlier_steps == 1 .and. optimizer%record_count() == 4, "an outlier")
        call optimizer%record(2, record)
        call expect(record%outcome == MP_STEP_OUTLIER .and. record%loss == 100 .and. record%loss_z > 3, "record")
        call optimizer%bad_tensor(text)
        call expect(text == "", "no bad tensor")
        grad(2) = ieee_value(grad(2), ieee_positive_inf)
        call optimizer%step(error=error)
        call expect_error(error, MP_STATUS_BAD_STATE, "loss")
        call optimizer%set_loss(1d0)
        call optimizer%step()
        call optimizer%record(4, record)
        call optimizer%bad_tensor(text)
        call expect(record%outcome == MP_STEP_NON_FINITE .and. text == "the gradient of 'w'", "bad_tensor")
        inquire (file=folder // "/steps.json", exist=exists)
        call expect(exists, "the file of the history")
        call optimizer%record(5, record, error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call optimizer%set_guard(mp_guard_desc(), error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call optimizer%set_guard()
        call optimizer%guard(guard)
        call expect(guard%max_loss_z == 0, "no guard")
        call optimizer%set_history(0)
        call expect(optimizer%record_count() == 0, "no history")
    end subroutine watch

    subroutine optimizers(context, folder)
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: folder
        type(mp_recipe) :: recipe
        type(mp_scaler) :: scaler
        type(mp_scaler_desc) :: rule
        type(mp_scaler_state) :: state
        type(mp_optimizer) :: optimizer
        type(mp_optimizer_stats) :: stats
        type(mp_param_group_desc) :: group, found
        type(mp_hyper), target :: zero
        type(mp_memory_report) :: report
        type(mp_tensor) :: p, g, values, norm, lr
        type(mp_slots) :: slots, empty
        type(mp_step_plan) :: plan
        type(mp_step_args) :: args
        type(mp_checkpoint) :: checkpoint
        type(mp_checkpoint_info) :: info
        type(mp_error) :: error
        real(real32), target :: param(100), grad(100), m(100), v(100), param2(100), m2(100), v2(100), short(99)
        integer(int64), target :: data(2)
        integer(int32) :: index1
        character(:), allocatable :: name
        integer :: i
        logical :: there

        call recipe%create(context, "fp32")
        call optimizer%create(context, recipe, mp_optimizer_desc(max_grad_norm=1d0))
        group%lr = 0.1d0
        call optimizer%add_group(group, state_formats=["bf16", "    "])
        ! Numbers of single precision, as programs have them: also eps, which Lion does not read.
        call optimizer%add_group(mp_param_group_desc(lr=real(1e-4, real64), beta1=real(0.9, real64), &
            beta2=real(0.99, real64), eps=real(1e-8, real64), rule=MP_RULE_LION), error=error)
        call expect(.not. error%failed(), "single-precision numbers for Lion")
        call optimizer%add_group(state_formats=["bf17"], error=error)
        call expect(error%failed(), "a format that is none")
        call optimizer%add_group(state_formats=["fp32", "fp32", "fp32", "fp32", "fp32"], error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "states")
        param = 1
        grad = 0.5
        call p%wrap(context, mp_array(param))
        call g%wrap(context, mp_array(grad))
        call optimizer%add_param(0, "p", p, grad=g, index=index1)
        call optimizer%add_param(0, "p", p, grad=g, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        ! The same memory under two names would be stepped twice, by two threads.
        call optimizer%add_param(0, "tied", p, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call optimizer%add_param(7, "q", p, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "group")
        call optimizer%step()
        call optimizer%stats(stats)
        call expect(stats%step == 1 .and. abs(stats%grad_norm - 5) < 1e-3 .and. all(param < 1), "step")
        call optimizer%grad_norm_tensor(norm)
        call expect(norm%elements() == 1, "grad_norm_tensor")
        call optimizer%set_lr(-1, 0.2d0)
        call optimizer%group(0, found)
        call expect(found%lr == 0.2d0, "set_lr")
        call optimizer%set_lr(0, -1d0, error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "lr")
        call lr%create(context, MP_DTYPE_FP32, [1])
        call optimizer%set_lr_tensor(0, lr)
        call optimizer%set_lr_tensor(0)
        call optimizer%set_grad_scale_tensor()
        call optimizer%set_max_grad_norm(0d0)
        call optimizer%set_enabled(0, .false.)
        call expect(.not. optimizer%enabled(0), "enabled")
        call optimizer%set_enabled(0, .true.)
        call values%create(context, MP_DTYPE_FP32, [100])
        call optimizer%read_state(index1, "exp_avg", values)
        call optimizer%write_state(index1, "exp_avg", values)
        call optimizer%read_state(index1, "exp_avgs", values, error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "exp_avg")
        call optimizer%state(index1, "exp_avg", values)
        call expect(values%dtype() == MP_DTYPE_BF16, "a group's own format")
        call optimizer%set_step(5_int64)
        call expect(optimizer%group_step(0) == 5, "set_step")
        call optimizer%set_group_step(0, 6_int64)
        call optimizer%param_name(index1, name)
        call expect(name == "p" .and. optimizer%param_count() == 1 .and. optimizer%group_count() == 2, "names")
        call optimizer%memory(report)
        call expect(report%parameter_count == 100, "memory")
        call optimizer%sync_master(-1)
        call optimizer%zero_grad()
        call expect(all(grad == 0), "zero_grad")

        call watch(context, folder)

        call scaler%create(context)
        call expect(scaler%scale() == 65536, "scale")
        call mp_scaler_preset("megatron", rule)
        call scaler%create(context, rule)
        call mp_scaler_preset("megatrn", rule, error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "megatron")
        call scaler%get_state(state)
        state%scale = 8
        call scaler%set_state(state)
        call expect(scaler%scale() == 8, "state")
        grad(3) = ieee_value(grad(3), ieee_quiet_nan)
        call scaler%check([mp_array(grad)])
        call scaler%get_state(state)
        call expect(state%found_inf == 1, "check")
        call scaler%scale_tensor(norm)
        call scaler%found_inf_tensor(norm)
        call scaler%update()

        grad = 0.5
        param = 1
        param2 = 1
        m = 0
        v = 0
        m2 = 0
        v2 = 0
        call empty%step(context, args, error=error)
        call expect_error(error, MP_STATUS_BAD_STATE, "no arrays")
        call slots%add(mp_array(param), mp_array(grad), mp_array(short), mp_array(v), error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "elements")
        call slots%add(mp_array(param), mp_array(grad), mp_array(m), mp_array(v))
        args%lr = 1d-3
        do i = 1, 3
            args%step = i
            call slots%step(context, args, stats=stats)
        end do
        call expect(all(param < 1), "steps on slots")
        call empty%add(mp_array(param2), mp_array(grad), mp_array(m2), mp_array(v2))
        args%step = 1
        call plan%create(context, args, empty)
        do i = 1, 3
            call plan%run()
        end do
        call plan%stats(stats)
        call plan%get_args(args)
        args%lr = 1d-4
        call plan%set_args(args)
        call expect(stats%step == 3 .and. all(param == param2), "a plan gives the bits of steps")
        zero = mp_named_hyper(MP_RULE_ADAMW, "beta1", 0d0)
        args%hypers = c_loc(zero)
        args%hyper_count = 1
        call plan%set_args(args)
        call plan%run()
        call expect(all(m2 == grad), "a zero that is meant")
        args%hyper_count = 0
        zero = mp_named_hyper(MP_RULE_LION, "eps", 0d0, error)
        call expect_error(error, MP_STATUS_UNKNOWN_NAME, "lion does not read eps")
        call slots%add(mp_array(param), mp_array(grad), mp_array(m2), mp_array(v2))
        args%step = 4
        call slots%step(context, args, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")

        data = [11, 12]
        call checkpoint%create(context, keep=2, progress=on_progress)
        call checkpoint%add_optimizer(optimizer)
        call checkpoint%add_scaler(scaler)
        call checkpoint%add_data("data", mp_array(data))
        call checkpoint%save(folder // "/checkpoints", 3_int64, background=.true.)
        call checkpoint%wait()
        call expect(checkpoint%done(), "done")
        call expect(progressed > 0, "progress callback")
        data = 0
        call checkpoint%load(folder // "/checkpoints", info)
        call expect(info%step == 3 .and. all(data == [11, 12]), "load")
        call mp_inspect(folder // "/checkpoints", info)
        call expect(info%tensor_count > 0, "inspect")
        call mp_describe_checkpoint(folder // "/checkpoints", name)
        call expect(len(name) > 0, "describe")
        call mp_inspect(folder // "/nothing", info, error)
        call expect_error(error, MP_STATUS_IO_ERROR, "nothing")
        call checkpoint%export_weights(folder // "/weights.safetensors")
        inquire (file=folder // "/weights.safetensors", exist=there)
        call expect(there, "export")
        call checkpoint%export_weights(folder // "/weights.safetensors", error)
        call expect_error(error, MP_STATUS_IO_ERROR, "")
        call expect(len(mp_last_message()) > 0, "last message")
    end subroutine optimizers

    subroutine one_rank(context)
        type(mp_context), intent(in) :: context
        type(mp_comm) :: comm, part
        type(mp_request) :: request
        type(mp_tensor) :: a, b
        type(mp_comm_traffic) :: traffic
        type(mp_error) :: error
        real(real32), target :: x(8), y(8)
        character(:), allocatable :: text
        call comm%create_self()
        call expect(comm%rank() == 0 .and. comm%size() == 1 .and. comm%node(0) == 0, "one rank")
        x = 3
        y = 0
        call comm%all_gather(mp_array(x), mp_array(y))
        call expect(all(y == 3), "all_gather")
        y = 0
        call comm%all_to_all(mp_array(x), [32_int64], [0_int64], mp_array(y), [32_int64], [0_int64])
        call expect(all(y == 3), "all_to_all")
        call comm%all_to_all(mp_array(x), [36_int64], [0_int64], mp_array(y), [36_int64], [0_int64], error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "outside")
        call comm%all_to_all(mp_array(x), [16_int64, 16_int64], [0_int64, 16_int64], mp_array(y), [32_int64], &
            [0_int64], error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "each rank")
        call comm%broadcast(mp_array(x), 0, request)
        call request%wait()
        call expect(request%done(), "request")
        call comm%broadcast(mp_array(x), 5, error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "")
        call a%wrap(context, mp_array(x))
        call b%wrap(context, mp_array(y))
        y = 0
        call comm%all_reduce(a, b)
        call expect(all(y == 3), "all_reduce")
        call comm%reduce_scatter(a, b, [8_int64])
        call comm%all_gather_values(a, b, [4_int64, 4_int64], error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "each rank")
        call comm%all_gather_values(a, b)
        call comm%barrier()
        call part%split_of(comm, 0, 0)
        call comm%set_deadline(1000_int64)
        call comm%traffic(traffic)
        call comm%describe(text)
        call expect(len(text) > 0, "describe")
        call comm%abort("enough")
        call comm%status(error)
        call expect_error(error, MP_STATUS_ABORTED, "enough")
        call part%barrier()
    end subroutine one_rank
end module tests

program test_mixedprec
    use tests
    implicit none
    character(1024) :: folder
    call get_command_argument(1, folder)
    call execute_command_line("mkdir -p '" // trim(folder) // "'")
    call all_tests(trim(folder))
    print '(a)', "all passed"
contains
    subroutine all_tests(folder)
        character(*), intent(in) :: folder
        type(mp_context) :: context
        call context%create(threads=2)
        call contexts_and_recipes(folder)
        call tensors(context)
        call ownership(context)
        call products(context)
        call optimizers(context, folder)
        call one_rank(context)
    end subroutine all_tests
end program test_mixedprec
