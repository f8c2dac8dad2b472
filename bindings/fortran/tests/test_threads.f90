! SPDX-License-Identifier: Apache-2.0
!
!> Two ranks that are OpenMP threads share an optimizer, in stages 1 and 2. Both end with the same weights, bit for bit,
!! and with those of one rank that has the mean gradient.
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
    do stage = 1, 2
        call train_shared(stage)
        same = all(transfer(params(:, 1), [0]) == transfer(params(:, 2), [0]))
        if (.not. same) error stop "the ranks have different weights"
        same = all(transfer(params(:, 1), [0]) == transfer(alone, [0]))
        if (.not. same) error stop "the ranks have other weights than one rank"
    end do
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
        call optimizer%acquire_grad(0)
        call optimizer%state(0, "grad", grad)
        call grad%write(values)
    end subroutine set_gradient

    subroutine train_shared(stage)
        integer, intent(in) :: stage
        type(mp_comm) :: comms(2)
        call mp_create_threads(comms)
        !$omp parallel num_threads(2)
        call rank_of(comms(omp_get_thread_num() + 1), stage, omp_get_thread_num() + 1)
        !$omp end parallel
    end subroutine train_shared

    subroutine rank_of(comm, stage, number)
        type(mp_comm), intent(in) :: comm
        integer, intent(in) :: stage, number
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_tensor) :: param
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
        call optimizer%shard()
        call optimizer%slice(0, number - 1, start, own)
        if (own <= 0 .or. own >= count) error stop "a rank owns all or nothing"
        do step = 1, steps
            call param%read(params(:, number))
            call set_gradient(optimizer, [(gradient(params(i, number), i, step), i = 1, count)])
            call optimizer%grad_ready(0)
            call optimizer%step()
        end do
        call param%read(params(:, number))
    end subroutine rank_of

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
