! SPDX-License-Identifier: Apache-2.0
!
!> What the tests of this folder say of failures, and the callbacks that they count.
module checks
    use mixedprec
    use, intrinsic :: iso_fortran_env
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
end module checks
