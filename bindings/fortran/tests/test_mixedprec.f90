! SPDX-License-Identifier: Apache-2.0
!
!> Every part of the module mixedprec. Ends with a message where something is not as it should be.
!! Argument: a folder for files, which is made, and which the caller deletes.
program test_mixedprec
    use mixedprec
    use checks
    use part_objects
    use part_layers
    use part_training
    use, intrinsic :: iso_fortran_env
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
        call contexts()
        call recipes(context, folder)
        call plans_of_recipes(context)
        call tensors(context)
        call conversions(context)
        call wrapped_arrays(context)
        call memory_for_later(context)
        call quantized_tensors(context)
        call ownership(context)
        call products(context)
        call layers(context)
        call layers_with_notes(context)
        call layers_on_arrays(context)
        call watch(context, folder)
        call optimizers(context, folder)
        call steps_in_parts(context)
        call slots_and_plans(context)
        call one_rank(context)
    end subroutine all_tests

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
end program test_mixedprec
