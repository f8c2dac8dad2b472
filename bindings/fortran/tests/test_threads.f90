! SPDX-License-Identifier: Apache-2.0
!
!> Two ranks that are OpenMP threads share an optimizer, in stages 1 and 2, and by layers also in stage 3. Both end with the
!! same weights, bit for bit, and with those of one rank that has the mean gradient.
program test_threads
    use mixedprec
    use, intrinsic :: iso_fortran_env
    use omp_lib
    implicit none
    integer, parameter :: count = 40000, steps = 20
    real(real32), target, save :: params(count, 2), alone(count)
    integer :: stage
    logical :: same

    call train_alone()
    do stage = 1, 5
        if (stage <= 2) call train_shared(stage, .false.)
        if (stage > 2) call train_shared(stage - 2, .true.)
        same = all(transfer(params(:, 1), [0]) == transfer(params(:, 2), [0]))
        if (.not. same) error stop "the ranks have different weights"
        same = all(transfer(params(:, 1), [0]) == transfer(alone, [0]))
        if (.not. same) error stop "the ranks have other weights than one rank"
    end do
    call wrong_layers()
    call lose_a_rank()
    print '(a)', "all passed"

contains

    elemental real(real32) function gradient(value, i, step)
        real(real32), intent(in) :: value
        integer, intent(in) :: i, step
        gradient = value - real(mod(i + step, 5), real32)
    end function gradient

    subroutine train_alone()
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_tensor) :: param
        integer :: i, step
        call context%create(threads=1)
        call recipe%create(context, "fp32")
        call optimizer%create(context, recipe)
        call optimizer%add_group()
        alone = 1
        call param%wrap(context, mp_array(alone))
        call optimizer%add_param(0, "p", param)
        do step = 1, steps
            call set_gradient(optimizer, [(gradient(alone(i), i, step), i = 1, count)])
            call optimizer%step()
        end do
    end subroutine train_alone

    subroutine set_gradient(optimizer, values)
        type(mp_optimizer), intent(in) :: optimizer
        real(real32), intent(in) :: values(:)
        type(mp_tensor) :: grad
        call optimizer%state(0, "grad", grad)
        call grad%write(values)
    end subroutine set_gradient

    subroutine train_shared(stage, by_layers)
        integer, intent(in) :: stage
        logical, intent(in) :: by_layers
        type(mp_comm) :: comms(2)
        call mp_create_threads(comms)
        !$omp parallel num_threads(2)
        call rank_of(comms(omp_get_thread_num() + 1), stage, by_layers, omp_get_thread_num() + 1)
        !$omp end parallel
    end subroutine train_shared

    subroutine rank_of(comm, stage, by_layers, number)
        type(mp_comm), intent(in) :: comm
        integer, intent(in) :: stage, number
        logical, intent(in) :: by_layers
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_tensor) :: param, other
        type(mp_sharding_desc) :: sharding
        integer(int64) :: start, own
        integer :: i, step
        call context%create(threads=1)
        call recipe%create(context, "fp32")
        sharding%stage = stage
        call optimizer%create(context, recipe, comm=comm, sharding=sharding)
        call optimizer%add_group()
        call param%create(context, MP_DTYPE_FP32, [count])
        call param%write([(1.0, i = 1, count)])
        call optimizer%add_param(0, "p", param)
        call other%create(context, MP_DTYPE_FP32, [10])
        call optimizer%add_param(0, "q", other)
        call optimizer%set_layer_params([1, 1], [0, 1])
        call optimizer%shard()
        call optimizer%slice(0, number - 1, start, own)
        if (own <= 0 .or. own >= count) error stop "a rank owns all or nothing"
        do step = 1, steps
            if (by_layers) then
                call forward(optimizer, param, other, params(:, number))
                call pass_by(optimizer, 1, MP_PASS_BACKWARD)
                call optimizer%layer_begin(0, MP_PASS_BACKWARD)
            else
                call param%read(params(:, number))
                call optimizer%acquire_grad(0)
            end if
            call set_gradient(optimizer, [(gradient(params(i, number), i, step), i = 1, count)])
            if (by_layers) call optimizer%layer_end(0, MP_PASS_BACKWARD)
            if (.not. by_layers) call optimizer%grad_ready(0)
            call optimizer%step()
        end do
        call forward(optimizer, param, other, params(:, number))
    end subroutine rank_of

    subroutine pass_by(optimizer, layer, pass)
        type(mp_optimizer), intent(in) :: optimizer
        integer, intent(in) :: layer, pass
        call optimizer%layer_begin(layer, pass)
        call optimizer%layer_end(layer, pass)
    end subroutine pass_by

    !> Both layers; the weights of the first.
    subroutine forward(optimizer, param, other, values)
        type(mp_optimizer), intent(in) :: optimizer
        type(mp_tensor), intent(in) :: param, other
        real(real32), intent(out) :: values(:)
        real(real32) :: more(10)
        call optimizer%layer_begin(0, MP_PASS_FORWARD)
        call param%read(values)
        call optimizer%layer_end(0, MP_PASS_FORWARD)
        call optimizer%layer_begin(1, MP_PASS_FORWARD)
        call other%read(more)
        call optimizer%layer_end(1, MP_PASS_FORWARD)
    end subroutine forward

    subroutine wrong_layers()
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_tensor) :: param
        call context%create(threads=1)
        call recipe%create(context, "fp32")
        call optimizer%create(context, recipe)
        call optimizer%add_group()
        call param%create(context, MP_DTYPE_FP32, [10])
        call optimizer%add_param(0, "p", param)
        call refused(MP_STATUS_INVALID_ARGUMENT, optimizer, [2], [0], 0)
        call refused(MP_STATUS_INVALID_ARGUMENT, optimizer, [1], [1], 0)
        call refused(MP_STATUS_INVALID_ARGUMENT, optimizer, [2, -1], [0], 0)
        call refused(MP_STATUS_INVALID_ARGUMENT, optimizer, [1], [0], 65)
        call optimizer%set_layer_params([1, 0], [0], prefetch=0)
        call pass_refused(MP_STATUS_INVALID_ARGUMENT, optimizer, 2, MP_PASS_FORWARD)
        call pass_refused(MP_STATUS_INVALID_ARGUMENT, optimizer, 1, MP_PASS_ACCUMULATE + 1)
        call optimizer%layer_begin(0, MP_PASS_ACCUMULATE)
        call pass_refused(MP_STATUS_BAD_STATE, optimizer, 0, MP_PASS_ACCUMULATE)
        call refused(MP_STATUS_BAD_STATE, optimizer, [1], [0], 0)
        call optimizer%layer_end(0, MP_PASS_ACCUMULATE)
    end subroutine wrong_layers

    subroutine refused(status, optimizer, counts, indices, prefetch)
        integer, intent(in) :: status, counts(:), indices(:), prefetch
        type(mp_optimizer), intent(in) :: optimizer
        type(mp_error) :: error
        call optimizer%set_layer_params(counts, indices, prefetch, error)
        if (error%status /= status) error stop "wrong layers were taken"
    end subroutine refused

    subroutine pass_refused(status, optimizer, layer, pass)
        integer, intent(in) :: status, layer, pass
        type(mp_optimizer), intent(in) :: optimizer
        type(mp_error) :: error
        call optimizer%layer_begin(layer, pass, error)
        if (error%status /= status) error stop "a wrong pass was taken"
    end subroutine pass_refused

    !> A rank that leaves is an error of the other, not a wait for ever.
    subroutine lose_a_rank()
        type(mp_comm) :: comms(2)
        type(mp_error) :: error
        call mp_create_threads(comms, mp_comm_desc(deadline_ms=5000))
        !$omp parallel num_threads(2)
        if (omp_get_thread_num() == 0) then
            call comms(1)%barrier(error)
        else
            call comms(2)%close()
        end if
        !$omp end parallel
        if (error%status /= MP_STATUS_PEER_LOST) error stop "a lost rank went unnoticed"
    end subroutine lose_a_rank
end program test_threads
