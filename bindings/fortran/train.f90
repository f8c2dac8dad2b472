! SPDX-License-Identifier: Apache-2.0
!
!> A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.
!!
!!   train TEXT [RECIPE [STEPS [FOLDER]]]        recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there
!!
!! Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
!! softmax. The two products are the library's, in the recipe's dtypes; what is between them is here, in fp32, the loss
!! in double. Random numbers: s = 48271 s mod (2^31 - 1). The first dimension of an array is the library's last one.
module model
    use mixedprec
    use, intrinsic :: iso_fortran_env
    implicit none

    integer, parameter :: context_bytes = 8, embedding = 16, hidden = 128, bytes = 256, batch = 32
    integer, parameter :: features = context_bytes * embedding
    integer(int64), target :: random_state(1) = 1234

    ! Arrays that tensors are made over have TARGET, and stay where they are.
    real(real32), target :: embed(embedding, 0:bytes - 1), embed_grad(embedding, 0:bytes - 1)
    real(real32), target :: bias1(hidden) = 0, bias1_grad(hidden), bias2(bytes) = 0, bias2_grad(bytes)
    real(real32), target :: values1(features, hidden), values2(hidden, bytes)
    real(real32), target :: x(features, batch), dx(features, batch), h(hidden, batch), dh(hidden, batch)
    real(real32), target :: logits(bytes, batch), dlogits(bytes, batch)

contains

    integer(int64) function next_random()
        random_state = mod(random_state * 48271, 2147483647_int64)
        next_random = random_state(1)
    end function next_random

    subroutine fill(values, bound)
        real(real32), intent(out) :: values(:, :)
        real(real64), intent(in) :: bound
        integer :: i, j
        do j = 1, size(values, 2)
            do i = 1, size(values, 1)
                values(i, j) = real((2 * (real(next_random(), real64) / 2147483647) - 1) * bound, real32)
            end do
        end do
    end subroutine fill

    subroutine read_file(path, text)
        character(*), intent(in) :: path
        integer(int8), allocatable, intent(out) :: text(:)
        integer :: unit, length, status
        open (newunit=unit, file=path, access="stream", form="unformatted", action="read", status="old", iostat=status)
        if (status /= 0) error stop "cannot read " // path
        inquire (unit=unit, size=length)
        allocate (text(0:length - 1))
        read (unit) text
        close (unit)
    end subroutine read_file

    !> Loss of one row, and its gradient times `factor`.
    subroutine cross_entropy(row, target, factor, loss, gradient)
        real(real32), intent(in) :: row(0:)
        integer, intent(in) :: target
        real(real64), intent(in) :: factor
        real(real64), intent(inout) :: loss
        real(real32), intent(out) :: gradient(0:)
        real(real64) :: largest, total, e(0:bytes - 1)
        integer :: j
        largest = maxval(row)
        total = 0
        do j = 0, bytes - 1
            e(j) = exp(row(j) - largest)
            total = total + e(j)
        end do
        do j = 0, bytes - 1
            gradient(j) = real((e(j) / total - merge(1d0, 0d0, j == target)) * factor, real32)
        end do
        loss = loss + (log(total) - (row(target) - largest))
    end subroutine cross_entropy

    !> Trains on `text`. The objects end with this subroutine.
    subroutine train(text, name, steps, folder)
        integer(int8), intent(in) :: text(0:)
        character(*), intent(in) :: name, folder
        integer(int64), intent(in) :: steps
        type(mp_context) :: context
        type(mp_recipe) :: recipe
        type(mp_scaler) :: scaler
        type(mp_optimizer) :: optimizer
        type(mp_param_group_desc) :: group
        type(mp_tensor) :: w1, w2, dw1, dw2, v1, v2, t_embed, t_embed_grad, b1, db1, b2, db2
        type(mp_tensor) :: t_x, t_dx, t_h, t_dh, t_logits, t_dlogits
        type(mp_linear) :: linear1, linear2
        type(mp_checkpoint) :: checkpoint
        type(mp_checkpoint_info) :: info
        type(mp_error) :: error
        integer(int64) :: position(batch), step
        integer(int32) :: index1, index2
        integer :: r, c, i, byte
        real(real64) :: scale, loss

        call context%create()
        call recipe%create(context, name)
        call scaler%from_recipe(context, recipe)
        call optimizer%create(context, recipe)
        group%lr = 1d-2
        group%weight_decay = 0.01d0
        call optimizer%add_group(group)

        call fill(embed, 1d0)
        call fill(values1, sqrt(1d0 / features))
        call fill(values2, sqrt(1d0 / hidden))
        call w1%create_weight(context, recipe, values1)
        call w2%create_weight(context, recipe, values2)
        call v1%wrap(context, mp_array(values1))
        call v2%wrap(context, mp_array(values2))
        call t_embed%wrap(context, mp_array(embed))
        call t_embed_grad%wrap(context, mp_array(embed_grad))
        call b1%wrap(context, mp_array(bias1))
        call db1%wrap(context, mp_array(bias1_grad))
        call b2%wrap(context, mp_array(bias2))
        call db2%wrap(context, mp_array(bias2_grad))
        call optimizer%add_param(0, "embed", t_embed, grad=t_embed_grad)
        call optimizer%add_param(0, "w1", w1, initial=v1, index=index1)
        call optimizer%add_param(0, "b1", b1, grad=db1)
        call optimizer%add_param(0, "w2", w2, initial=v2, index=index2)
        call optimizer%add_param(0, "b2", b2, grad=db2)
        call optimizer%state(index1, "grad", dw1)
        call optimizer%state(index2, "grad", dw2)
        call linear1%create(context, recipe, features, hidden, w1, b1)
        call linear2%create(context, recipe, hidden, bytes, w2, b2)
        call optimizer%set_linears([linear1, linear2])

        call t_x%wrap(context, mp_array(x))
        call t_dx%wrap(context, mp_array(dx))
        call t_h%wrap(context, mp_array(h))
        call t_dh%wrap(context, mp_array(dh))
        call t_logits%wrap(context, mp_array(logits))
        call t_dlogits%wrap(context, mp_array(dlogits))

        step = 0
        if (folder /= "") then
            call checkpoint%create(context)
            call checkpoint%add_optimizer(optimizer)
            call checkpoint%add_scaler(scaler)
            call checkpoint%add_linear("linear1", linear1)
            call checkpoint%add_linear("linear2", linear2)
            call checkpoint%add_data("random", mp_array(random_state))
            call mp_inspect(folder, info, error)
            if (.not. error%failed()) then
                call checkpoint%load(folder, info)
                step = info%step
                print '(a, i0)', "resumed at step ", step
            end if
        end if

        do while (step < steps)
            scale = scaler%scale()
            loss = 0
            do r = 1, batch
                position(r) = mod(next_random(), size(text) - int(context_bytes, int64))
                do c = 0, context_bytes - 1
                    x(c * embedding + 1:(c + 1) * embedding, r) = embed(:, byte_at(position(r) + c))
                end do
            end do
            call linear1%forward(t_x, t_h)
            h = max(h, 0.0)
            call linear2%forward(t_h, t_logits)
            do r = 1, batch
                byte = byte_at(position(r) + context_bytes)
                call cross_entropy(logits(:, r), byte, scale / batch, loss, dlogits(:, r))
            end do

            call linear2%backward(t_dlogits, dx=t_dh, dw=dw2, dbias=db2)
            where (h <= 0) dh = 0
            call linear1%backward(t_dh, dx=t_dx, dw=dw1, dbias=db1)
            embed_grad = 0
            do r = 1, batch
                do c = 0, context_bytes - 1
                    byte = byte_at(position(r) + c)
                    do i = 1, embedding
                        embed_grad(i, byte) = embed_grad(i, byte) + dx(c * embedding + i, r)
                    end do
                end do
            end do
            call optimizer%step(scaler)
            call scaler%update()

            step = step + 1
            if (mod(step, 10_int64) == 0) then
                print '(a, i3, 2a, a, i0)', "step ", step, "  loss ", decimal(loss / batch), &
                    "  scale ", nint(scale, int64)
            end if
        end do
        if (folder /= "") call checkpoint%save(folder, step)
    contains
        integer function byte_at(place)
            integer(int64), intent(in) :: place
            byte_at = iand(int(text(place)), 255)
        end function byte_at
    end subroutine train

    !> As C's %.9f: with the zero that Fortran's f0.9 leaves out before the point.
    function decimal(value) result(text)
        real(real64), intent(in) :: value
        character(:), allocatable :: text
        character(40) :: buffer
        write (buffer, '(f40.9)') value
        text = trim(adjustl(buffer))
    end function decimal
end module model

program main
    use model
    implicit none
    integer(int8), allocatable :: text(:)
    character(:), allocatable :: name, folder
    character(1024) :: argument
    integer(int64) :: steps

    if (command_argument_count() < 1) then
        write (error_unit, '(a)') "usage: train TEXT [RECIPE [STEPS [FOLDER]]]"
        stop 2
    end if
    name = "bf16_mixed"
    steps = 60
    folder = ""
    call get_command_argument(1, argument)
    call read_file(trim(argument), text)
    if (command_argument_count() > 1) then
        call get_command_argument(2, argument)
        name = trim(argument)
    end if
    if (command_argument_count() > 2) then
        call get_command_argument(3, argument)
        read (argument, *) steps
    end if
    if (command_argument_count() > 3) then
        call get_command_argument(4, argument)
        folder = trim(argument)
    end if
    call train(text, name, steps, folder)
end program main
