! SPDX-License-Identifier: Apache-2.0
!
!> Ranks over MPI, of MPI_COMM_WORLD and of a communicator of mpi_f08, share an optimizer of stage 1. Run by mpirun.
program test_mpi
    use mixedprec
    use mpi_f08
    use, intrinsic :: iso_fortran_env
    implicit none
    integer, parameter :: count = 40000
    type(MPI_Comm) :: copy
    integer :: provided
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy)
    call train()
    call MPI_Comm_free(copy)
    call MPI_Finalize()
contains
    subroutine train()
        type(mp_comm) :: world, comm
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_optimizer) :: optimizer
        type(mp_tensor) :: param, grad
        real(real32), allocatable, target :: mine(:), all(:)
        integer :: i, ranks, rank
        call MPI_Comm_size(MPI_COMM_WORLD, ranks)
        call MPI_Comm_rank(MPI_COMM_WORLD, rank)
        call world%create_mpi()
        call comm%create_mpi(copy%mpi_val)
        if (comm%size() /= ranks) error stop "ranks"
        if (comm%rank() /= rank) error stop "another rank"
        call context%create(threads=1)
        call recipe%create(context, "fp32")
        call optimizer%create(context, recipe, comm=comm)
        call optimizer%add_group()
        call param%create(context, MP_DTYPE_FP32, [count])
        call optimizer%add_param(0, "p", param)
        call optimizer%state(0, "grad", grad)
        do i = 1, 5
            call grad%write(spread(real(rank + i), 1, count))
            call optimizer%step()
        end do
        allocate (mine(count), all(count * ranks))
        call param%read(mine)
        call world%all_gather(mp_array(mine), mp_array(all))
        do i = 1, ranks
            if (any(transfer(all((i - 1) * count + 1:i * count), [0]) /= transfer(mine, [0]))) then
                error stop "other weights"
            end if
        end do
        if (mine(1) >= 0) error stop "nothing was learnt"
        if (rank == 0) print '(a)', "all passed"
    end subroutine train
end program test_mpi
