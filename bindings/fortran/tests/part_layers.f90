! SPDX-License-Identifier: Apache-2.0
!
!> Of test_mixedprec: products of matrices, and layers: of tensors, of arrays, and such as a recipe cannot serve.
module part_layers
    use mixedprec
    use checks
    use, intrinsic :: iso_fortran_env
    implicit none

contains

    subroutine products(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: a, b, d
        type(mp_gemm) :: gemm
        type(mp_gemm_desc) :: desc
        type(mp_error) :: error
        real(real32), target :: one(32, 16), two(48, 32), ys(48, 16)
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
    end subroutine products

    ! A weight, inputs and a bias.
    subroutine fill(w, xs, bs)
        real(real32), intent(out) :: w(32, 48), xs(32, 16), bs(48)
        integer :: i
        w = reshape([(sin(real(i)) / 6, i = 1, size(w))], shape(w))
        xs = reshape([(sin(real(i)), i = 1, size(xs))], shape(xs))
        bs = 0.5
    end subroutine fill

    subroutine layers(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: weight, bias, x, y, dy, dx, dw, db
        type(mp_recipe) :: recipe
        type(mp_linear) :: linear
        type(mp_error) :: error
        real(real32), target :: w(32, 48), xs(32, 16), ys(48, 16), ys2(48, 16), bs(48), dbs(48)

        call recipe%create(context, "fp8_delayed")
        call fill(w, xs, bs)
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
        call passes()
        call statistics()
        call saved_inputs()
        call operands()
    contains
        subroutine passes()
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
        end subroutine passes

        subroutine statistics()
            type(mp_linear_stats) :: stats
            type(mp_linear_desc) :: sizes
            integer(int8), allocatable :: bytes(:)
            character(:), allocatable :: text
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
        end subroutine statistics

        subroutine saved_inputs()
            type(mp_saved) :: saved
            call saved%create(linear)
            call linear%forward(x, y, saved)
            call linear%backward(dy, dx, dw, db, saved=saved)
            call saved%close()
            call linear%backward(dy, dx, dw, db, saved=saved, error=error)
            call expect_error(error, MP_STATUS_INVALID_HANDLE, "saved")
        end subroutine saved_inputs

        subroutine operands()
            type(mp_quant_desc) :: quant
            type(mp_tensor) :: form
            integer(int32) :: dtype
            call linear%operand_format(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, dtype, quant)
            call form%create_quantized(context, dtype, [32, 16], quant)
            call linear%quantize(MP_PRODUCT_FPROP, MP_OPERAND_INPUT, x, form)
            call linear%multiply_tensor(MP_OPERAND_INPUT, form)
            call expect(form%elements() == 1, "multiply_tensor")
            call linear%set_gradient_rounding()
            call linear%set_weight_codes()
        end subroutine operands
    end subroutine layers

    ! A size that the recipe cannot serve: the layer is made, and the note says so.
    subroutine layers_with_notes(context)
        type(mp_context), intent(in) :: context
        type(mp_tensor) :: weight
        type(mp_recipe) :: recipe
        type(mp_linear) :: plain
        type(mp_error) :: error

        call recipe%create(context, "mxfp8")
        call weight%create(context, MP_DTYPE_FP32, [32, 47])
        call plain%create(context, recipe, 32, 47, weight, error=error)
        call expect_error(error, MP_STATUS_WARNING, "")
        call expect(plain%is_open() .and. len(error%message) > 0, "a note is no failure")
        call plain%create(context, recipe, 31, 47, weight, error=error)
        call expect_error(error, MP_STATUS_INVALID_SHAPE, "")
    end subroutine layers_with_notes

    subroutine layers_on_arrays(context)
        type(mp_context), intent(in) :: context
        type(mp_recipe) :: recipe
        type(mp_linear) :: arrays
        type(mp_error) :: error
        real(real32), target :: w(32, 48), xs(32, 16), ys(48, 16), ys2(48, 16), bs(48)
        real(real32), target :: dxs(32, 16), dws(32, 48), dbs(48)

        call fill(w, xs, bs)
        ys2 = 1
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
    end subroutine layers_on_arrays
end module part_layers
