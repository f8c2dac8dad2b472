! SPDX-License-Identifier: Apache-2.0
! bindings/fortran/README.md: a hundred steps towards 1.
! snippet flags: -J. -Wno-compare-reals -Wno-function-elimination mixedprec_c.f90 mixedprec.f90
! snippet with: bindings/fortran/mixedprec_c.f90 bindings/fortran/mixedprec.f90
program frame
    ! snippet: step
    if (any(p < 0.09) .or. any(p > 0.11)) error stop "a hundred steps of 1e-3 do not come to 0.1"
    if (args%step /= 101) error stop "steps were skipped"
    call scaler%close()
    call context%close()
contains
    function my_gradient(at) result(gradient)
        real, intent(in) :: at(:)
        real :: gradient(size(at))
        gradient = at - 1
    end function
end program
