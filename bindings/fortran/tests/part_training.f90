! SPDX-License-Identifier: Apache-2.0
!
!> Of test_mixedprec: optimizers, what watches their steps, scalers, steps on arrays of the program's own, and checkpoints.
module part_training
    use mixedprec
    use checks
    use, intrinsic :: iso_fortran_env
    use, intrinsic :: ieee_arithmetic
    implicit none

contains

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
        type(mp_optimizer) :: optimizer
        type(mp_scaler) :: scaler
        type(mp_error) :: error
        real(real32), target :: param(100), grad(100)
        integer(int32) :: index1

        call recipe%create(context, "fp32")
        call groups_and_params()
        call first_values()
        call steps_and_rates()
        call states()
        call scalers(context, scaler)
        call checkpoints(context, folder, optimizer, scaler)
    contains
        subroutine groups_and_params()
            type(mp_param_group_desc) :: group
            type(mp_tensor) :: p, g
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
        end subroutine groups_and_params

        ! Of a parameter without memory until the optimizer has it.
        subroutine first_values()
            type(mp_optimizer) :: fresh
            type(mp_tensor) :: w
            real(real32) :: values(10)
            call fresh%create(context, recipe)
            call fresh%add_group()
            call w%create_deferred(context, MP_DTYPE_FP32, [10])
            call fresh%add_param(0, "w", w)
            call fresh%step(error=error)
            call expect_error(error, MP_STATUS_BAD_STATE, "no values")
            call fresh%init_params(1_int64, [mp_param_init(index=0, kind=MP_INIT_NORMAL, b=1d0)])
            call w%read(values)
            call expect(values(1) == -0.10356707125902176_real32, "normal numbers")
            call fresh%init_params(1_int64, [mp_param_init(index=1)], error)
            call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "parameter 1")
            call fresh%step()
        end subroutine first_values

        subroutine steps_and_rates()
            type(mp_optimizer_stats) :: stats
            type(mp_param_group_desc) :: found
            type(mp_tensor) :: norm, lr
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
        end subroutine steps_and_rates

        subroutine states()
            type(mp_memory_report) :: report
            type(mp_offload_traffic) :: moved
            type(mp_tensor) :: values
            character(:), allocatable :: name
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
            call optimizer%offload_traffic(moved)
            call expect(moved%steps == 0, "offload_traffic")
            call optimizer%sync_master(-1)
            call optimizer%zero_grad()
            call expect(all(grad == 0), "zero_grad")
            grad = 1
            call optimizer%mark_unused([index1])
            call optimizer%step()
            call expect(all(grad == 0) .and. optimizer%group_step(0) == 6, "mark_unused")
            call optimizer%set_frozen([index1], .true.)
            call expect(optimizer%frozen(index1) .and. optimizer%group_step(0) == 0, "frozen")
            call optimizer%state(index1, "grad", values, error)
            call expect_error(error, MP_STATUS_UNKNOWN_NAME, "grad")
            call optimizer%set_frozen([index1], .false.)
            call expect(.not. optimizer%frozen(index1), "trained again")
        end subroutine states
    end subroutine optimizers

    ! The last parameter first, one left for the end; and gradients that are given.
    subroutine steps_in_parts(context)
        type(mp_context), intent(in) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: whole, parts, given
        type(mp_tensor) :: grads(3)
        type(mp_error) :: error
        real(real32), target :: w(8, 3), v(8, 3), u(8, 3), g(8, 3)
        integer(int32) :: step, i
        call recipe%create(context, "fp32")
        do i = 1, 3
            call grads(i)%wrap(context, mp_array(g(:, i)))
        end do
        call make(whole, w, 0)
        call make(parts, v, 0)
        call make(given, u, MP_OPTIMIZER_GRADS_GIVEN)
        do step = 1, 2
            g = reshape([(sin(real(i * step)), i=1, 24)], [8, 3])
            call whole%step()
            call parts%step_begin()
            call parts%step_params([2])
            call parts%step_params([1])
            call parts%step_end()
            call given%step_begin()
            call given%step_params([2, 0], [grads(3), grads(1)])
            call given%step_params([1], grads(2:2))
            call given%step_end()
            call expect(all(v == w), "a step in parts")
            call expect(all(u == w), "a step with gradients that are given")
        end do
        call expect(any(w < 1) .and. any(w > 1), "weights that moved")
        call parts%step_params([1], error=error)
        call expect_error(error, MP_STATUS_BAD_STATE, "step_begin")
        call parts%step_begin()
        call parts%step_params([1, 0], grads(1:1), error=error)
        call expect_error(error, MP_STATUS_INVALID_ARGUMENT, "grads")
        call parts%step_end(error=error)
        call expect(error%status == MP_STATUS_OK, "the end after a wrong call")
    contains
        subroutine make(optimizer, weights, flags)
            type(mp_optimizer), intent(inout) :: optimizer
            real(real32), target, contiguous, intent(inout) :: weights(:, :)
            integer(int32), intent(in) :: flags
            type(mp_tensor) :: weight
            call optimizer%create(context, recipe, mp_optimizer_desc(flags=flags))
            call optimizer%add_group()
            weights = 1
            do i = 1, 3
                call weight%wrap(context, mp_array(weights(:, i)))
                if (flags == 0) then
                    call optimizer%add_param(0, achar(96 + i), weight, grad=grads(i))
                else
                    call optimizer%add_param(0, achar(96 + i), weight)
                end if
            end do
        end subroutine make
    end subroutine steps_in_parts

    subroutine scalers(context, scaler)
        type(mp_context), intent(in) :: context
        type(mp_scaler), intent(inout) :: scaler
        type(mp_scaler_desc) :: rule
        type(mp_scaler_state) :: state
        type(mp_tensor) :: norm
        type(mp_error) :: error
        real(real32), target :: grad(100)

        grad = 0
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
    end subroutine scalers

    subroutine slots_and_plans(context)
        type(mp_context), intent(in) :: context
        type(mp_optimizer_stats) :: stats
        type(mp_hyper), target :: zero
        type(mp_slots) :: slots, empty
        type(mp_step_plan) :: plan
        type(mp_step_args) :: args
        type(mp_error) :: error
        real(real32), target :: param(100), grad(100), m(100), v(100), param2(100), m2(100), v2(100), short(99)
        integer :: i

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
    end subroutine slots_and_plans

    subroutine checkpoints(context, folder, optimizer, scaler)
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: folder
        type(mp_optimizer), intent(in) :: optimizer
        type(mp_scaler), intent(in) :: scaler
        type(mp_checkpoint) :: checkpoint
        type(mp_checkpoint_info) :: info
        type(mp_error) :: error
        integer(int64), target :: data(2)
        character(:), allocatable :: name
        logical :: there

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
    end subroutine checkpoints
end module part_training
