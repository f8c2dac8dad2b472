! SPDX-License-Identifier: Apache-2.0
!
!> Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients overflow
!! at step 20: the scaler skips that step and halves its scale. Prints what the same program prints in every language.
program own_arrays
    use mixedprec
    use, intrinsic :: ieee_arithmetic
    use, intrinsic :: iso_fortran_env
    implicit none
    integer, parameter :: count = 1000
    real(real32), target :: p(count) = 0, grad(count) = 0, exp_avg(count) = 0, exp_avg_sq(count) = 0
    type(mp_context) :: context
    type(mp_scaler) :: scaler
    type(mp_slots) :: slots
    type(mp_step_args) :: args
    type(mp_optimizer_stats) :: stats
    integer :: i, j

    call context%create()
    call scaler%create(context)
    call slots%add(mp_array(p), mp_array(grad), mp_array(exp_avg), mp_array(exp_avg_sq))
    args%lr = 0.1d0
    do i = 1, 100
        grad = [((p(j + 1) - (mod(j, 7) - 3)) * real(scaler%scale(), real32), j = 0, count - 1)]
        if (i == 20) grad(6) = ieee_value(grad(6), ieee_positive_inf)
        call slots%step(context, args, scaler, stats)
        if (stats%found_inf == 0) args%step = args%step + 1
        call scaler%update()
    end do

    print '(a, i0, a, i0, a, i0, 2(a, f0.9))', "steps ", args%step - 1, "  skipped ", 100 - (args%step - 1), &
        "  scale ", nint(scaler%scale(), int64), "  sum ", sum(abs(real(p, real64))), "  p[1] ", p(2)
    call scaler%close()
    call context%close()
end program own_arrays
