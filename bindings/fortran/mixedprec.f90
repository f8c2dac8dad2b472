! SPDX-License-Identifier: Apache-2.0
!
!> Objects of libmixedprec as derived types; `use mixedprec` gives them, and the constants and structs of
!! mixedprec_types. See README.md for errors, lifetimes and the order of dimensions.
!!
!! Every procedure has an optional last argument `error`. Without it a failure ends the program with the library's
!! message. An object belongs to the variable in which it was created. It ends with that variable, or by
!! `call object%close()`. `a = b` lends: `a` is a second name for what `b` has, and useless once `b` has ended.
module mixedprec_safe
    use mixedprec_c, raw_array => mp_array
    implicit none
    private

    !> What a procedure says: status 0, or positive with a note, or negative with what went wrong.
    type, public :: mp_error
        integer(c_int32_t) :: status = 0
        character(:), allocatable :: name     !< such as MP_STATUS_INVALID_SHAPE
        character(:), allocatable :: message  !< one line; empty after a success without a note
    contains
        procedure :: failed
    end type mp_error

    !> Memory of the program's own: what mp_array(a) gives. It must stay where it is while the library may use it.
    type, public :: mp_array
        private
        type(c_ptr) :: address = c_null_ptr
        ! The same place. Without a pointer in this type an optimizing compiler takes it that nobody keeps the address.
        integer(c_int8_t), pointer :: memory => null()
        integer(c_int32_t) :: dtype = MP_DTYPE_NONE
        integer(c_int64_t) :: count = 0, element_bytes = 0
        integer :: ndim = 0
        integer(c_int64_t) :: shape(MP_MAX_DIMS) = 0
    end type mp_array

    !> mp_array(a [, dtype]): a variable with TARGET, whole and contiguous, of real32, real64, int8, int16, int32 or
    !! int64; any rank. dtype says what 8-bit or 16-bit codes mean, such as MP_DTYPE_BF16.
    interface mp_array
        module procedure array_r32, array_r64, array_i8, array_i16, array_i32, array_i64
    end interface mp_array

    !> What all objects have in common.
    type, public :: mp_object
        private
        type(c_ptr) :: handle = c_null_ptr
        type(c_ptr) :: context = c_null_ptr
        integer :: kind = 0
        ! The address of the variable that owns the handle: a copy of the variable does not destroy it.
        integer(c_intptr_t) :: owner = 0
    contains
        procedure :: close => object_close
        procedure :: is_open => object_is_open
        procedure :: raw => object_raw
        procedure :: move_to => object_move_to
        procedure, private :: lend => object_lend
        generic :: assignment(=) => lend
        final :: object_final
    end type mp_object

    integer, parameter :: OF_CONTEXT = 1, OF_QUEUE = 2, OF_EVENT = 3, OF_RECIPE = 4, OF_TENSOR = 5, OF_GEMM = 6, &
        OF_LINEAR = 7, OF_SAVED = 8, &
        OF_SCALER = 9, OF_OPTIMIZER = 10, OF_PLAN = 11, OF_COMM = 12, OF_REQUEST = 13, OF_CHECKPOINT = 14

    !> The devices, their threads, memory and log.
    type, extends(mp_object), public :: mp_context
    contains
        procedure :: create => context_create
        procedure :: sync => context_sync
        procedure :: num_threads => context_num_threads
        procedure :: describe => context_describe
    end type mp_context

    !> Work in order on one device.
    type, extends(mp_object), public :: mp_queue
    contains
        procedure :: create => queue_create
        procedure :: sync => queue_sync
        procedure :: wait_event => queue_wait_event
        procedure :: workspace_peak => queue_workspace_peak
    end type mp_queue

    !> A point in a queue's work.
    type, extends(mp_object), public :: mp_event
    contains
        procedure :: create => event_create
        procedure :: record => event_record
        procedure :: reached => event_reached
        procedure :: sync => event_sync
    end type mp_event

    !> Which dtype every class of tensor has, how it is rounded, how the loss is scaled.
    type, extends(mp_object), public :: mp_recipe
    contains
        procedure :: create => recipe_create
        procedure :: from_json => recipe_from_json
        procedure :: from_file => recipe_from_file
        procedure :: clone_of => recipe_clone_of
        procedure, private :: set_text => recipe_set_text
        procedure, private :: set_real => recipe_set_real
        procedure, private :: set_int => recipe_set_int
        procedure, private :: set_int64 => recipe_set_int64
        generic :: set => set_text, set_real, set_int, set_int64
        procedure, private :: get_text => recipe_get_text
        procedure, private :: get_real => recipe_get_real
        procedure, private :: get_int64 => recipe_get_int64
        generic :: get => get_text, get_real, get_int64
        procedure :: to_json => recipe_to_json
        procedure :: validate => recipe_validate
        procedure :: frozen => recipe_frozen
        procedure :: reason => recipe_reason
        procedure :: plan_memory => recipe_plan_memory
        procedure :: plan_tensors => recipe_plan_tensors
    end type mp_recipe

    !> A dense array of one element type. The library is row-major: a Fortran array (in, out) is its [out, in].
    !! Shapes in this module are Fortran's, fastest first.
    type, extends(mp_object), public :: mp_tensor
    contains
        procedure :: create => tensor_create
        procedure :: create_quantized => tensor_create_quantized
        procedure :: create_weight => tensor_create_weight
        procedure :: create_weight_codes => tensor_create_weight_codes
        procedure :: wrap => tensor_wrap
        procedure :: wrap_quantized => tensor_wrap_quantized
        procedure :: view_of => tensor_view_of
        procedure :: dtype => tensor_dtype
        procedure :: shape => tensor_shape
        procedure :: elements => tensor_elements
        procedure, private :: read_r32 => tensor_read_r32
        procedure, private :: read_i8 => tensor_read_i8
        procedure, private :: read_i16 => tensor_read_i16
        procedure, private :: read_i32 => tensor_read_i32
        generic :: read => read_r32, read_i8, read_i16, read_i32
        procedure, private :: write_r32 => tensor_write_r32
        procedure, private :: write_i8 => tensor_write_i8
        procedure, private :: write_i16 => tensor_write_i16
        procedure, private :: write_i32 => tensor_write_i32
        generic :: write => write_r32, write_i8, write_i16, write_i32
        procedure, private :: pointer_r1 => tensor_pointer_r1
        procedure, private :: pointer_r2 => tensor_pointer_r2
        procedure, private :: pointer_r3 => tensor_pointer_r3
        procedure, private :: pointer_i8 => tensor_pointer_i8
        procedure, private :: pointer_i16 => tensor_pointer_i16
        generic :: pointer => pointer_r1, pointer_r2, pointer_r3, pointer_i8, pointer_i16
        procedure :: copy_from => tensor_copy_from
        procedure :: cast_from => tensor_cast_from
        procedure :: quantize_from => tensor_quantize_from
        procedure :: dequantize_from => tensor_dequantize_from
        procedure :: zero => tensor_zero
        procedure :: amax => tensor_amax
        procedure :: scales_of => tensor_scales_of
        procedure :: quantized_amax_of => tensor_quantized_amax_of
        procedure :: quant_desc => tensor_quant_desc
    end type mp_tensor

    !> A planned matrix product.
    type, extends(mp_object), public :: mp_gemm
    contains
        procedure :: create => gemm_create
        procedure :: run => gemm_run
        procedure :: describe => gemm_describe
    end type mp_gemm

    !> y = x w^T + bias and its gradients, in the forms of a recipe.
    type, extends(mp_object), public :: mp_linear
    contains
        procedure :: create => linear_create
        procedure :: create_arrays => linear_create_arrays
        procedure :: forward => linear_forward
        procedure :: backward => linear_backward
        procedure :: backward_data => linear_backward_data
        procedure :: backward_weight => linear_backward_weight
        procedure :: forward_arrays => linear_forward_arrays
        procedure :: backward_arrays => linear_backward_arrays
        procedure :: describe => linear_describe
        procedure :: desc => linear_desc
        procedure :: stats => linear_stats
        procedure :: clear_stats => linear_clear_stats
        procedure :: advice => linear_advice
        procedure :: set_monitor => linear_set_monitor
        procedure :: get_scaling => linear_get_scaling
        procedure :: set_scaling => linear_set_scaling
        procedure :: set_gradient_rounding => linear_set_gradient_rounding
        procedure :: operand_format => linear_operand_format
        procedure :: quantize => linear_quantize
        procedure :: set_weight_codes => linear_set_weight_codes
        procedure :: multiply_tensor => linear_multiply_tensor
    end type mp_linear

    !> What one forward of a layer keeps for its backward, where several wait at once.
    type, extends(mp_object), public :: mp_saved
    contains
        procedure :: create => saved_create
    end type mp_saved

    !> The loss scale and the rule that moves it.
    type, extends(mp_object), public :: mp_scaler
    contains
        procedure :: create => scaler_create
        procedure :: from_recipe => scaler_from_recipe
        procedure :: scale => scaler_scale
        procedure :: update => scaler_update
        procedure :: check => scaler_check
        procedure :: combine => scaler_combine
        procedure :: get_state => scaler_get_state
        procedure :: set_state => scaler_set_state
        procedure :: scale_tensor => scaler_scale_tensor
        procedure :: found_inf_tensor => scaler_found_inf_tensor
    end type mp_scaler

    !> Parameters by name in groups, their states, and the step.
    type, extends(mp_object), public :: mp_optimizer
    contains
        procedure :: create => optimizer_create
        procedure :: add_group => optimizer_add_group
        procedure :: add_param => optimizer_add_param
        procedure :: step => optimizer_step
        procedure :: zero_grad => optimizer_zero_grad
        procedure :: set_linears => optimizer_set_linears
        procedure :: stats => optimizer_stats
        procedure :: set_lr => optimizer_set_lr
        procedure :: set_lr_tensor => optimizer_set_lr_tensor
        procedure :: set_grad_scale_tensor => optimizer_set_grad_scale_tensor
        procedure :: set_enabled => optimizer_set_enabled
        procedure :: set_max_grad_norm => optimizer_set_max_grad_norm
        procedure :: set_norm_comm => optimizer_set_norm_comm
        procedure :: state => optimizer_state
        procedure :: read_state => optimizer_read_state
        procedure :: write_state => optimizer_write_state
        procedure :: grad_norm_tensor => optimizer_grad_norm_tensor
        procedure :: sync_master => optimizer_sync_master
        procedure :: set_step => optimizer_set_step
        procedure :: group_step => optimizer_group_step
        procedure :: set_group_step => optimizer_set_group_step
        procedure :: desc => optimizer_desc
        procedure :: group_count => optimizer_group_count
        procedure :: group => optimizer_group
        procedure :: enabled => optimizer_enabled
        procedure :: param_count => optimizer_param_count
        procedure :: param_name => optimizer_param_name
        procedure :: memory => optimizer_memory
        procedure :: set_guard => optimizer_set_guard
        procedure :: guard => optimizer_guard
        procedure :: set_loss => optimizer_set_loss
        procedure :: set_history => optimizer_set_history
        procedure :: record_count => optimizer_record_count
        procedure :: record => optimizer_record
        procedure :: bad_tensor => optimizer_bad_tensor
        procedure :: shard => optimizer_shard
        procedure :: grad_ready => optimizer_grad_ready
        procedure :: end_microbatch => optimizer_end_microbatch
        procedure :: acquire_grad => optimizer_acquire_grad
        procedure :: gather_begin => optimizer_gather_begin
        procedure :: gather_wait => optimizer_gather_wait
        procedure :: gather_free => optimizer_gather_free
        procedure :: slice => optimizer_slice
        procedure :: progress => optimizer_progress
        procedure :: traffic => optimizer_traffic
    end type mp_optimizer

    !> Arrays of the program's own that a step works on.
    type, public :: mp_slots
        private
        type(mp_step_slot), allocatable :: slots(:) ! room for more than there are
        integer :: count = 0
    contains
        procedure :: add => slots_add
        procedure :: step => slots_step
    end type mp_slots

    !> The same step prepared once. The arrays of its slots must outlive it.
    type, extends(mp_object), public :: mp_step_plan
    contains
        procedure :: create => plan_create
        procedure :: run => plan_run
        procedure :: set_args => plan_set_args
        procedure :: get_args => plan_get_args
        procedure :: stats => plan_stats
    end type mp_step_plan

    !> Ranks that exchange bytes.
    type, extends(mp_object), public :: mp_comm
    contains
        procedure :: create_self => comm_create_self
        procedure :: create_mpi => comm_create_mpi
        procedure :: create_callbacks => comm_create_callbacks
        procedure :: split_of => comm_split_of
        procedure :: rank => comm_rank
        procedure :: size => comm_size
        procedure :: node => comm_node
        procedure :: all_to_all => comm_all_to_all
        procedure :: all_gather => comm_all_gather
        procedure :: broadcast => comm_broadcast
        procedure :: barrier => comm_barrier
        procedure :: all_reduce => comm_all_reduce
        procedure :: reduce_scatter => comm_reduce_scatter
        procedure :: all_gather_values => comm_all_gather_values
        procedure :: set_deadline => comm_set_deadline
        procedure :: abort => comm_abort
        procedure :: status => comm_status
        procedure :: traffic => comm_traffic
        procedure :: describe => comm_describe
    end type mp_comm

    !> An operation in flight. Ending it before it is done ends its communicator.
    type, extends(mp_object), public :: mp_request
    contains
        procedure :: wait => request_wait
        procedure :: done => request_done
    end type mp_request

    !> Everything that the next step depends on, saved and loaded.
    type, extends(mp_object), public :: mp_checkpoint
    contains
        procedure :: create => checkpoint_create
        procedure :: add_optimizer => checkpoint_add_optimizer
        procedure :: add_scaler => checkpoint_add_scaler
        procedure :: add_linear => checkpoint_add_linear
        procedure :: add_data => checkpoint_add_data
        procedure :: save => checkpoint_save
        procedure :: load => checkpoint_load
        procedure :: done => checkpoint_done
        procedure :: wait => checkpoint_wait
        procedure :: export_weights => checkpoint_export_weights
    end type mp_checkpoint

    public :: mp_create_threads, mp_end_step, mp_inspect, mp_describe_checkpoint, mp_get_preset, mp_get_key, &
        mp_last_message, mp_build_info, mp_dtype_text, mp_device_is_available, mp_scaler_preset, mp_named_hyper
    public :: mp_recipe_preset_count, mp_recipe_key_count, mp_library_version, mp_layout_mismatches

    abstract interface
        !> A line of the log. From any thread; must not call the library. A module procedure, not an internal one.
        subroutine mp_log_procedure(level, message)
            import
            integer, intent(in) :: level
            character(*), intent(in) :: message
        end subroutine mp_log_procedure

        !> Statistics of an operand of a layer; advice is empty where all is well. A module procedure.
        subroutine mp_monitor_procedure(name, stats, advice)
            import
            character(*), intent(in) :: name, advice
            type(mp_linear_stats), intent(in) :: stats
        end subroutine mp_monitor_procedure

        !> Bytes written or read so far, and in all. From the thread that works. A module procedure.
        subroutine mp_progress_procedure(done, total)
            import
            integer(c_int64_t), intent(in) :: done, total
        end subroutine mp_progress_procedure

        function text_getter(object, buffer, capacity, needed) bind(c) result(answer)
            import
            type(c_ptr), value :: object, buffer
            integer(c_size_t), value :: capacity
            integer(c_size_t), intent(out), optional :: needed
            integer(c_int32_t) :: answer
        end function text_getter

        function c2f_function(number) bind(c) result(answer)
            import
            integer(c_int), value :: number
            type(c_ptr) :: answer
        end function c2f_function
    end interface
    public :: mp_log_procedure, mp_monitor_procedure, mp_progress_procedure

    interface
        function c_strlen(text) bind(c, name="strlen") result(length)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: length
        end function c_strlen

        function c_dlsym(library, name) bind(c, name="dlsym") result(address)
            import
            type(c_ptr), value :: library, name
            type(c_funptr) :: address
        end function c_dlsym
    end interface

    ! What a variable without an object hands to the library, which knows it for no live handle.
    integer(c_int64_t), target, save :: nothing(64) = 0

contains

    ! ---- Errors and text

    !> Whether something went wrong.
    pure logical function failed(this)
        class(mp_error), intent(in) :: this
        failed = this%status < 0
    end function failed

    !> What the library said in this thread's last call: a note too, where no `error` was given.
    function mp_last_message() result(text)
        character(:), allocatable :: text
        text = from_c(mp_last_error_message())
    end function mp_last_message

    subroutine check(status, error)
        integer(c_int32_t), intent(in) :: status
        type(mp_error), intent(out), optional :: error
        if (present(error)) then
            error%status = status
            error%name = from_c(mp_status_string(status))
            error%message = ""
            if (status /= MP_STATUS_OK) error%message = mp_last_message()
        else if (status < 0) then
            call give_up(status, mp_last_message())
        end if
    end subroutine check

    ! A failure that this layer finds itself.
    subroutine refuse(status, message, error)
        integer(c_int32_t), intent(in) :: status
        character(*), intent(in) :: message
        type(mp_error), intent(out), optional :: error
        if (.not. present(error)) call give_up(status, message)
        error%status = status
        error%name = from_c(mp_status_string(status))
        error%message = message
    end subroutine refuse

    subroutine give_up(status, message)
        integer(c_int32_t), intent(in) :: status
        character(*), intent(in) :: message
        character(:), allocatable :: text
        text = from_c(mp_status_string(status)) // ": " // message
        error stop text
    end subroutine give_up

    function from_c(address) result(text)
        type(c_ptr), intent(in) :: address
        character(:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        integer :: i
        text = ""
        if (.not. c_associated(address)) return
        call c_f_pointer(address, bytes, [c_strlen(address)])
        deallocate (text)
        allocate (character(size(bytes)) :: text)
        do i = 1, size(bytes)
            text(i:i) = bytes(i)
        end do
    end function from_c

    subroutine to_c(text, bytes)
        character(*), intent(in) :: text
        character(kind=c_char), allocatable, intent(out) :: bytes(:)
        integer :: i
        allocate (bytes(len_trim(text) + 1))
        do i = 1, len_trim(text)
            bytes(i) = text(i:i)
        end do
        bytes(size(bytes)) = c_null_char
    end subroutine to_c

    ! Text of any length from a function that fills a buffer.
    subroutine ask(getter, object, text, error)
        procedure(text_getter) :: getter
        type(c_ptr), intent(in) :: object
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: buffer(:)
        integer(c_size_t) :: needed
        integer(c_int32_t) :: status
        text = ""
        needed = 0
        status = getter(object, c_null_ptr, 0_c_size_t, needed)
        if (status < 0) needed = 0
        allocate (buffer(needed + 1))
        buffer = c_null_char
        if (status >= 0) status = getter(object, c_loc(buffer), size(buffer, kind=c_size_t), needed)
        call check(status, error)
        if (status >= 0) text = from_c(c_loc(buffer))
    end subroutine ask

    ! ---- What objects have in common

    integer(c_intptr_t) function place(this)
        class(mp_object), intent(in), target :: this
        place = transfer(c_loc(this%handle), 0_c_intptr_t)
    end function place

    !> Ends the object. Nothing happens to one that is not open, or that is only lent.
    subroutine object_close(this)
        class(mp_object), intent(inout) :: this
        if (c_associated(this%handle) .and. this%owner == place(this)) then
            select case (this%kind)
            case (OF_CONTEXT); call mp_context_destroy(this%handle)
            case (OF_QUEUE); call mp_queue_destroy(this%handle)
            case (OF_EVENT); call mp_event_destroy(this%handle)
            case (OF_RECIPE); call mp_recipe_destroy(this%handle)
            case (OF_TENSOR); call mp_tensor_destroy(this%handle)
            case (OF_GEMM); call mp_gemm_destroy(this%handle)
            case (OF_LINEAR); call mp_linear_destroy(this%handle)
            case (OF_SAVED); call mp_saved_destroy(this%handle)
            case (OF_SCALER); call mp_scaler_destroy(this%handle)
            case (OF_OPTIMIZER); call mp_optimizer_destroy(this%handle)
            case (OF_PLAN); call mp_step_plan_destroy(this%handle)
            case (OF_COMM); call mp_comm_destroy(this%handle)
            case (OF_REQUEST); call mp_comm_request_destroy(this%handle)
            case (OF_CHECKPOINT); call mp_checkpoint_destroy(this%handle)
            end select
        end if
        this%handle = c_null_ptr
        this%owner = 0
    end subroutine object_close

    !> Whether the variable has an object, its own or a lent one.
    pure logical function object_is_open(this)
        class(mp_object), intent(in) :: this
        object_is_open = c_associated(this%handle)
    end function object_is_open

    !> The C handle, for functions of mixedprec_c. It stays the object's.
    function object_raw(this) result(handle)
        class(mp_object), intent(in) :: this
        type(c_ptr) :: handle
        handle = this%handle
        if (.not. c_associated(handle)) handle = c_loc(nothing)
    end function object_raw

    !> Gives the object to another variable of the same type, which owns it from then on.
    subroutine object_move_to(this, other)
        class(mp_object), intent(inout) :: this
        class(mp_object), intent(inout) :: other
        if (.not. same_type_as(this, other)) error stop "mp_object%move_to: another type"
        if (place(this) == place(other)) return
        call other%close()
        other%handle = this%handle
        other%context = this%context
        other%kind = this%kind
        if (this%owner == place(this)) other%owner = place(other)
        this%handle = c_null_ptr
        this%owner = 0
    end subroutine object_move_to

    impure elemental subroutine object_lend(left, right)
        class(mp_object), intent(inout) :: left
        class(mp_object), intent(in) :: right
        if (.not. same_type_as(left, right)) error stop "mp_object: assignment of another type"
        if (place(left) == place(right)) return
        call left%close()
        left%handle = right%handle
        left%context = right%context
        left%kind = right%kind
    end subroutine object_lend

    impure elemental subroutine object_final(this)
        type(mp_object), intent(inout) :: this
        call object_close(this)
    end subroutine object_final

    ! Takes over what a function of the library made; where that failed the object stays as it was.
    subroutine adopt(this, handle, kind, status, error, context)
        class(mp_object), intent(inout) :: this
        type(c_ptr), intent(in) :: handle
        integer, intent(in) :: kind
        integer(c_int32_t), intent(in) :: status
        type(mp_error), intent(out), optional :: error
        type(c_ptr), intent(in), optional :: context
        call check(status, error)
        if (status < 0 .or. .not. c_associated(handle)) return
        call this%close()
        this%handle = handle
        this%kind = kind
        this%owner = place(this)
        if (present(context)) this%context = context
    end subroutine adopt

    ! The handle of an argument that may be absent.
    function optional_raw(object) result(handle)
        class(mp_object), intent(in), optional :: object
        type(c_ptr) :: handle
        handle = c_null_ptr
        if (present(object)) handle = object%raw()
    end function optional_raw

    ! ---- Arrays of the program's own

    function described(address, bytes, own, dtype, dims) result(array)
        type(c_ptr), value :: address
        integer(c_int64_t), intent(in) :: bytes
        integer(c_int32_t), intent(in) :: own
        integer(c_int32_t), intent(in), optional :: dtype
        integer(c_int64_t), intent(in) :: dims(:)
        type(mp_array) :: array
        integer :: i
        array%element_bytes = bytes
        array%dtype = own
        if (present(dtype)) array%dtype = dtype
        array%count = product(dims)
        array%ndim = size(dims)
        do i = 1, min(size(dims), MP_MAX_DIMS)
            array%shape(i) = dims(size(dims) + 1 - i)
        end do
        if (array%count == 0) return
        array%address = address
        call c_f_pointer(address, array%memory)
    end function described

    function array_r32(a) result(array)
        real(c_float), pointer, contiguous, intent(in) :: a(..)
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 4_c_int64_t, MP_DTYPE_FP32, dims=shape(a, kind=c_int64_t))
    end function array_r32

    function array_r64(a) result(array)
        real(c_double), pointer, contiguous, intent(in) :: a(..)
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 8_c_int64_t, MP_DTYPE_NONE, dims=shape(a, kind=c_int64_t))
    end function array_r64

    function array_i8(a, dtype) result(array)
        integer(c_int8_t), pointer, contiguous, intent(in) :: a(..)
        integer(c_int32_t), intent(in), optional :: dtype
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 1_c_int64_t, MP_DTYPE_INT8, dtype, shape(a, kind=c_int64_t))
    end function array_i8

    function array_i16(a, dtype) result(array)
        integer(c_int16_t), pointer, contiguous, intent(in) :: a(..)
        integer(c_int32_t), intent(in), optional :: dtype
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 2_c_int64_t, MP_DTYPE_INT16, dtype, shape(a, kind=c_int64_t))
    end function array_i16

    function array_i32(a) result(array)
        integer(c_int32_t), pointer, contiguous, intent(in) :: a(..)
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 4_c_int64_t, MP_DTYPE_INT32, dims=shape(a, kind=c_int64_t))
    end function array_i32

    function array_i64(a) result(array)
        integer(c_int64_t), pointer, contiguous, intent(in) :: a(..)
        type(mp_array) :: array
        if (.not. associated(a)) return
        array = described(c_loc(a), 8_c_int64_t, MP_DTYPE_INT64, dims=shape(a, kind=c_int64_t))
    end function array_i64

    ! Whether an array is one the library can use; says so where it is not.
    logical function usable(array, error)
        type(mp_array), intent(in) :: array
        type(mp_error), intent(out), optional :: error
        usable = .false.
        if (array%dtype == MP_DTYPE_NONE) then
            call refuse(MP_STATUS_INVALID_DTYPE, "the library computes in no such kind of number", error)
        else if (mp_dtype_size(array%dtype) /= array%element_bytes) then
            call refuse(MP_STATUS_INVALID_DTYPE, "the array's elements do not have the size of " // &
                mp_dtype_text(array%dtype), error)
        else if (array%ndim > MP_MAX_DIMS) then
            call refuse(MP_STATUS_INVALID_SHAPE, "an array has too many dimensions", error)
        else
            usable = .true.
            if (present(error)) call check(MP_STATUS_OK, error)
        end if
    end function usable

    ! A descriptor from a Fortran shape.
    subroutine fill(desc, dtype, shape)
        type(mp_tensor_desc), intent(inout) :: desc
        integer(c_int32_t), intent(in) :: dtype
        integer, intent(in) :: shape(:)
        integer :: i
        desc%dtype = dtype
        desc%ndim = size(shape)
        do i = 1, min(size(shape), MP_MAX_DIMS)
            desc%shape(i) = shape(size(shape) + 1 - i)
        end do
    end subroutine fill

    ! ---- The library

    !> Version, compiler and what was built in, as one line.
    function mp_build_info() result(text)
        character(:), allocatable :: text
        text = from_c(mp_library_build_info())
    end function mp_build_info

    !> The name of an element type, such as "bf16".
    function mp_dtype_text(dtype) result(text)
        integer(c_int32_t), intent(in) :: dtype
        character(:), allocatable :: text
        text = from_c(mp_dtype_name(dtype))
    end function mp_dtype_text

    !> Whether a device of a kind (MP_DEVICE_CUDA) can be opened; error says why not.
    logical function mp_device_is_available(kind, index, error)
        integer(c_int32_t), intent(in) :: kind
        integer(c_int32_t), intent(in) :: index
        type(mp_error), intent(out) :: error
        call check(mp_device_available(kind, index), error)
        mp_device_is_available = .not. error%failed()
    end function mp_device_is_available

    ! ---- Contexts, queues, events

    !> Opens the host, or with device_kind an accelerator beside it. `log` is a module procedure. `desc` has the rest.
    subroutine context_create(this, threads, device_kind, device_index, backend, bind_threads, log, log_level, desc, &
            error)
        class(mp_context), intent(inout) :: this
        integer, intent(in), optional :: threads, device_index, log_level
        integer(c_int32_t), intent(in), optional :: device_kind
        character(*), intent(in), optional :: backend
        logical, intent(in), optional :: bind_threads
        procedure(mp_log_procedure), optional :: log
        type(mp_context_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(mp_context_desc) :: all
        type(c_ptr) :: handle
        character(kind=c_char), allocatable, target :: name(:)
        integer(c_int32_t) :: status
        if (present(desc)) all = desc
        if (present(threads)) all%num_threads = threads
        if (present(device_kind)) all%device_kind = device_kind
        if (present(device_index)) all%device_index = device_index
        if (present(log_level)) all%log_level = log_level
        if (present(backend)) then
            call to_c(backend, name)
            all%backend = c_loc(name)
        end if
        if (present(bind_threads)) then
            if (bind_threads) all%flags = ior(all%flags, MP_CONTEXT_BIND_THREADS)
        end if
        if (present(log)) then
            all%log = c_funloc(log_trampoline)
            all%log_payload = transfer(c_funloc(log), c_null_ptr)
        end if
        handle = c_null_ptr
        status = mp_context_create(all, handle)
        call adopt(this, handle, OF_CONTEXT, status, error, handle)
    end subroutine context_create

    subroutine log_trampoline(level, message, payload) bind(c)
        integer(c_int32_t), value :: level
        type(c_ptr), value :: message, payload
        procedure(mp_log_procedure), pointer :: log
        call c_f_procpointer(transfer(payload, c_null_funptr), log)
        call log(int(level), from_c(message))
    end subroutine log_trampoline

    !> Waits for the default queue.
    subroutine context_sync(this, error)
        class(mp_context), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_context_sync(this%raw()), error)
    end subroutine context_sync

    !> Host threads the context works with; 0 after a failure.
    integer function context_num_threads(this, error) result(number)
        class(mp_context), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_context_get_num_threads(this%raw(), found), error)
        number = found
    end function context_num_threads

    !> What the context found and decided, as JSON.
    subroutine context_describe(this, text, error)
        class(mp_context), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_context_describe, this%raw(), text, error)
    end subroutine context_describe

    !> Makes a queue on the context's device.
    subroutine queue_create(this, context, error)
        class(mp_queue), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_queue_create(context%raw(), handle)
        call adopt(this, handle, OF_QUEUE, status, error, context%handle)
    end subroutine queue_create

    !> Waits until all its work is done.
    subroutine queue_sync(this, error)
        class(mp_queue), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_queue_sync(this%raw()), error)
    end subroutine queue_sync

    !> What is put on the queue from now on begins after the event.
    subroutine queue_wait_event(this, event, error)
        class(mp_queue), intent(in) :: this
        type(mp_event), intent(in) :: event
        type(mp_error), intent(out), optional :: error
        call check(mp_queue_wait_event(this%raw(), event%raw()), error)
    end subroutine queue_wait_event

    !> The most scratch memory its work has held at once, in bytes.
    integer(c_int64_t) function queue_workspace_peak(this, error) result(bytes)
        class(mp_queue), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_size_t) :: found
        found = 0
        call check(mp_queue_get_workspace_peak(this%raw(), found), error)
        bytes = found
    end function queue_workspace_peak

    !> Makes an event of the context's device.
    subroutine event_create(this, context, error)
        class(mp_event), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_event_create(context%raw(), handle)
        call adopt(this, handle, OF_EVENT, status, error, context%handle)
    end subroutine event_create

    !> The event is now after the queue's work so far.
    subroutine event_record(this, queue, error)
        class(mp_event), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_event_record(this%raw(), optional_raw(queue)), error)
    end subroutine event_record

    !> Whether it has been reached.
    logical function event_reached(this, error)
        class(mp_event), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: status
        status = mp_event_test(this%raw())
        call check(status, error)
        event_reached = status == MP_STATUS_OK
    end function event_reached

    !> Waits until it has been reached.
    subroutine event_sync(this, error)
        class(mp_event), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_event_sync(this%raw()), error)
    end subroutine event_sync

    ! ---- Recipes

    !> A preset by its name, "auto" or "auto_fp8".
    subroutine recipe_create(this, context, name, error)
        class(mp_recipe), intent(inout) :: this
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: name
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call to_c(name, text)
        status = mp_recipe_create(context%raw(), c_loc(text), handle)
        call adopt(this, handle, OF_RECIPE, status, error, context%handle)
    end subroutine recipe_create

    !> From JSON: {"recipe": "preset", "key": value, ...}.
    subroutine recipe_from_json(this, context, json, error)
        class(mp_recipe), intent(inout) :: this
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: json
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call to_c(json, text)
        status = mp_recipe_create_from_json(context%raw(), c_loc(text), size(text, kind=c_size_t) - 1, handle)
        call adopt(this, handle, OF_RECIPE, status, error, context%handle)
    end subroutine recipe_from_json

    !> From a file of JSON.
    subroutine recipe_from_file(this, context, path, error)
        class(mp_recipe), intent(inout) :: this
        type(mp_context), intent(in) :: context
        character(*), intent(in) :: path
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call to_c(path, text)
        status = mp_recipe_create_from_file(context%raw(), c_loc(text), handle)
        call adopt(this, handle, OF_RECIPE, status, error, context%handle)
    end subroutine recipe_from_file

    !> A copy that can be changed.
    subroutine recipe_clone_of(this, source, error)
        class(mp_recipe), intent(inout) :: this
        type(mp_recipe), intent(in) :: source
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_recipe_clone(source%raw(), handle)
        call adopt(this, handle, OF_RECIPE, status, error, source%context)
    end subroutine recipe_clone_of

    !> Sets a key: text, real(real64), or an integer. Refused once the recipe is in use.
    subroutine recipe_set_text(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key, value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:), b(:)
        call to_c(key, a)
        call to_c(value, b)
        call check(mp_recipe_set_string(this%raw(), c_loc(a), c_loc(b)), error)
    end subroutine recipe_set_text

    subroutine recipe_set_real(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        real(c_double), intent(in) :: value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:)
        call to_c(key, a)
        call check(mp_recipe_set_float(this%raw(), c_loc(a), value), error)
    end subroutine recipe_set_real

    subroutine recipe_set_int(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        integer, intent(in) :: value
        type(mp_error), intent(out), optional :: error
        call recipe_set_int64(this, key, int(value, c_int64_t), error)
    end subroutine recipe_set_int

    subroutine recipe_set_int64(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        integer(c_int64_t), intent(in) :: value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:)
        call to_c(key, a)
        call check(mp_recipe_set_int(this%raw(), c_loc(a), value), error)
    end subroutine recipe_set_int64

    !> Reads a key: into text, real(real64) or integer(int64), as the key holds.
    subroutine recipe_get_text(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        character(:), allocatable, intent(out) :: value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:)
        type(c_ptr) :: found
        call to_c(key, a)
        found = c_null_ptr
        call check(mp_recipe_get_string(this%raw(), c_loc(a), found), error)
        value = from_c(found)
    end subroutine recipe_get_text

    subroutine recipe_get_real(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        real(c_double), intent(out) :: value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:)
        call to_c(key, a)
        value = 0
        call check(mp_recipe_get_float(this%raw(), c_loc(a), value), error)
    end subroutine recipe_get_real

    subroutine recipe_get_int64(this, key, value, error)
        class(mp_recipe), intent(in) :: this
        character(*), intent(in) :: key
        integer(c_int64_t), intent(out) :: value
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: a(:)
        call to_c(key, a)
        value = 0
        call check(mp_recipe_get_int(this%raw(), c_loc(a), value), error)
    end subroutine recipe_get_int64

    !> The recipe as JSON, every key.
    subroutine recipe_to_json(this, text, error)
        class(mp_recipe), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_recipe_to_json, this%raw(), text, error)
    end subroutine recipe_to_json

    !> Checks the combination of keys; advice is a note in error.
    subroutine recipe_validate(this, error)
        class(mp_recipe), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_recipe_validate(this%raw()), error)
    end subroutine recipe_validate

    !> Whether something uses it, so that it can no longer change.
    logical function recipe_frozen(this, error) result(frozen)
        class(mp_recipe), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_recipe_get_frozen(this%raw(), found), error)
        frozen = found /= 0
    end function recipe_frozen

    !> Why "auto" chose this preset; empty for others.
    subroutine recipe_reason(this, text, error)
        class(mp_recipe), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_recipe_get_reason, this%raw(), text, error)
    end subroutine recipe_reason

    !> Bytes for tensors of so many elements each, stepped by `rule`; of one rank where ranks is given.
    subroutine recipe_plan_memory(this, rule, counts, report, sharding, rank, ranks, error)
        class(mp_recipe), intent(in) :: this
        integer(c_int32_t), intent(in) :: rule
        integer(c_int64_t), intent(in) :: counts(:)
        type(mp_memory_report), intent(out) :: report
        type(mp_sharding_desc), intent(in), optional :: sharding
        integer, intent(in), optional :: rank, ranks
        type(mp_error), intent(out), optional :: error
        if (present(rank) .and. present(ranks)) then
            call check(mp_recipe_plan_memory_sharded(this%raw(), rule, counts, size(counts, kind=c_int64_t), &
                sharding, int(rank, c_int32_t), int(ranks, c_int32_t), report), error)
        else
            call check(mp_recipe_plan_memory_of_tensors(this%raw(), rule, counts, size(counts, kind=c_int64_t), &
                report), error)
        end if
    end subroutine recipe_plan_memory

    !> The same where tensors differ, each an mp_planned_tensor(count=...), and what a rank sends in a step.
    subroutine recipe_plan_tensors(this, tensors, report, traffic, sharding, rank, ranks, error)
        class(mp_recipe), intent(in) :: this
        type(mp_planned_tensor), intent(in) :: tensors(:)
        type(mp_memory_report), intent(out) :: report
        type(mp_comm_traffic), intent(out), optional :: traffic
        type(mp_sharding_desc), intent(in), optional :: sharding
        integer, intent(in), optional :: rank, ranks
        type(mp_error), intent(out), optional :: error
        type(mp_comm_traffic) :: sent
        integer(c_int32_t) :: of_rank(2)
        of_rank = [0, 1]
        if (present(rank)) of_rank(1) = int(rank, c_int32_t)
        if (present(ranks)) of_rank(2) = int(ranks, c_int32_t)
        call check(mp_recipe_plan_tensors(this%raw(), tensors, size(tensors, kind=c_int64_t), sharding, of_rank(1), &
            of_rank(2), report, sent), error)
        if (present(traffic)) traffic = sent
    end subroutine recipe_plan_tensors

    !> Name and description of a preset; index from 0 to mp_recipe_preset_count() - 1.
    subroutine mp_get_preset(index, name, text, error)
        integer, intent(in) :: index
        character(:), allocatable, intent(out) :: name, text
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: a, b
        a = c_null_ptr
        b = c_null_ptr
        call check(mp_recipe_get_preset_info(int(index, c_int32_t), a, b), error)
        name = from_c(a)
        text = from_c(b)
    end subroutine mp_get_preset

    !> A key of recipes: its name, what it may be, what it means; index from 0 to mp_recipe_key_count() - 1.
    subroutine mp_get_key(index, name, allowed, text, fp32_value, error)
        integer, intent(in) :: index
        character(:), allocatable, intent(out) :: name, allowed, text, fp32_value
        type(mp_error), intent(out), optional :: error
        type(mp_recipe_key_desc) :: desc
        call check(mp_recipe_get_key_info(int(index, c_int32_t), desc), error)
        name = from_c(desc%name)
        allowed = from_c(desc%allowed)
        text = from_c(desc%text)
        fp32_value = from_c(desc%fp32_value)
    end subroutine mp_get_key

    ! ---- Tensors

    !> Makes a tensor of zeros in the library's memory.
    subroutine tensor_create(this, context, dtype, shape, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        integer(c_int32_t), intent(in) :: dtype
        integer, intent(in) :: shape(:)
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call fill(desc, dtype, shape)
        status = mp_tensor_create(context%raw(), desc, handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_create

    !> Makes a tensor of codes with scales; all its values are zero.
    subroutine tensor_create_quantized(this, context, dtype, shape, quant, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        integer(c_int32_t), intent(in) :: dtype
        integer, intent(in) :: shape(:)
        type(mp_quant_desc), intent(in), optional :: quant
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call fill(desc, dtype, shape)
        status = mp_tensor_create_quantized(context%raw(), desc, quant, handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_create_quantized

    !> The weight that a recipe wants, from its values: weight(in, out) is the library's [out, in].
    subroutine tensor_create_weight(this, context, recipe, values, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        real(c_float), intent(in), target, contiguous :: values(..)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle, address
        integer(c_int32_t) :: status
        integer(c_int64_t) :: dims(rank(values))
        real(c_float), pointer :: flat(:)
        handle = c_null_ptr
        dims = shape(values, kind=c_int64_t)
        dims = dims(size(dims):1:-1)
        address = c_loc(values)
        call c_f_pointer(address, flat, [size(values)])
        status = mp_recipe_create_weight(context%raw(), recipe%raw(), size(dims, kind=c_int32_t), dims, flat, handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_create_weight

    !> The weight of an fp8 layer as the codes that its products take.
    subroutine tensor_create_weight_codes(this, context, recipe, values, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        real(c_float), intent(in), target, contiguous :: values(..)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle, address
        integer(c_int32_t) :: status
        integer(c_int64_t) :: dims(rank(values))
        real(c_float), pointer :: flat(:)
        handle = c_null_ptr
        dims = shape(values, kind=c_int64_t)
        dims = dims(size(dims):1:-1)
        address = c_loc(values)
        call c_f_pointer(address, flat, [size(values)])
        status = mp_recipe_create_weight_codes(context%raw(), recipe%raw(), size(dims, kind=c_int32_t), dims, flat, &
            handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_create_weight_codes

    !> A tensor over an array of the program's, which stays the program's: call wrap(context, mp_array(a)). The array
    !! must
    !! not be deallocated, reallocated by assignment, or go out of scope before the tensor and what uses it have ended.
    subroutine tensor_wrap(this, context, array, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_array), intent(in) :: array
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        if (.not. usable(array, error)) return
        desc%dtype = array%dtype
        desc%ndim = array%ndim
        desc%shape = array%shape
        desc%device_kind = MP_DEVICE_HOST
        handle = c_null_ptr
        status = mp_tensor_wrap(context%raw(), desc, array%address, c_null_funptr, c_null_ptr, handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_wrap

    !> A quantized tensor over arrays of codes and scales; see tensor_wrap. `amax` is one real32, or absent.
    subroutine tensor_wrap_quantized(this, context, codes, quant, scale_inv, amax, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_array), intent(in) :: codes, scale_inv
        type(mp_quant_desc), intent(in) :: quant
        type(mp_array), intent(in), optional :: amax
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        type(c_ptr) :: handle
        real(c_float), pointer :: one
        integer(c_int64_t) :: rows, columns, grid_rows, grid_columns
        integer(c_int32_t) :: status, scale_dtype
        nullify (one)
        if (.not. usable(codes, error)) return
        if (present(amax)) then
            if (amax%dtype /= MP_DTYPE_FP32 .or. amax%count /= 1) then
                call refuse(MP_STATUS_INVALID_SHAPE, "amax is one real32", error)
                return
            end if
            call c_f_pointer(amax%address, one)
        end if
        columns = 1
        if (codes%ndim > 0) columns = codes%shape(codes%ndim)
        rows = codes%count / max(columns, 1_c_int64_t)
        grid_rows = 0
        grid_columns = 0
        scale_dtype = 0
        status = mp_tensor_get_scale_grid(quant, rows, columns, grid_rows, grid_columns, scale_dtype)
        if (status < 0) then
            call check(status, error)
            return
        end if
        if (scale_inv%element_bytes /= mp_dtype_size(scale_dtype) .or. scale_inv%count < grid_rows * grid_columns) then
            call refuse(MP_STATUS_INVALID_SHAPE, &
                "scale_inv has fewer elements, or others, than the scaling asks for", error)
            return
        end if
        desc%dtype = codes%dtype
        desc%ndim = codes%ndim
        desc%shape = codes%shape
        desc%device_kind = MP_DEVICE_HOST
        handle = c_null_ptr
        status = mp_tensor_wrap_quantized(context%raw(), desc, quant, codes%address, scale_inv%address, one, &
            c_null_funptr, &
            c_null_ptr, handle)
        call adopt(this, handle, OF_TENSOR, status, error, context%handle)
    end subroutine tensor_wrap_quantized

    !> Some elements of another tensor, without a copy; offset is its first element, from 0.
    subroutine tensor_view_of(this, source, offset, shape, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_tensor), intent(in) :: source
        integer(c_int64_t), intent(in) :: offset
        integer, intent(in) :: shape(:)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        integer(c_int64_t) :: dims(size(shape))
        handle = c_null_ptr
        dims = shape(size(shape):1:-1)
        status = mp_tensor_create_view(source%raw(), offset, size(dims, kind=c_int32_t), dims, handle)
        call adopt(this, handle, OF_TENSOR, status, error, source%context)
    end subroutine tensor_view_of

    !> Its element type.
    integer(c_int32_t) function tensor_dtype(this, error) result(dtype)
        class(mp_tensor), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        call check(mp_tensor_get_desc(this%raw(), desc), error)
        dtype = desc%dtype
    end function tensor_dtype

    !> Its shape in the order of Fortran, fastest first.
    subroutine tensor_shape(this, dims, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int64_t), allocatable, intent(out) :: dims(:)
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        call check(mp_tensor_get_desc(this%raw(), desc), error)
        dims = desc%shape(desc%ndim:1:-1)
    end subroutine tensor_shape

    !> How many elements it has; 0 after a failure.
    integer(c_int64_t) function tensor_elements(this, error) result(elements)
        class(mp_tensor), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        integer(c_int32_t) :: status
        status = mp_tensor_get_desc(this%raw(), desc)
        call check(status, error)
        elements = 0
        if (status >= 0) elements = product(desc%shape(1:desc%ndim))
    end function tensor_elements

    ! Whether dims, of Fortran, are the tensor's; one dimension takes any shape of as many elements.
    logical function fits(this, dims, desc, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int64_t), intent(in) :: dims(:)
        type(mp_tensor_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: status
        status = mp_tensor_get_desc(this%raw(), desc)
        fits = status >= 0
        if (.not. fits) then
            call check(status, error)
            return
        end if
        if (size(dims) == desc%ndim) then
            fits = all(dims == desc%shape(desc%ndim:1:-1))
        else
            fits = size(dims) <= 1 .and. product(dims) == product(desc%shape(1:desc%ndim))
        end if
        if (fits) then
            call check(MP_STATUS_OK, error)
        else
            call refuse(MP_STATUS_INVALID_SHAPE, "the Fortran array has not the tensor's shape, in reverse order", &
                error)
        end if
    end function fits

    !> Copies out its values, as real32 whatever the tensor stores. Blocks.
    subroutine tensor_read_r32(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        real(c_float), intent(inout), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (desc%dtype == MP_DTYPE_FP32) then
            call check(mp_tensor_read(this%raw(), optional_raw(queue), c_loc(values), 4 * size(values, &
                kind=c_size_t)), error)
        else
            call convert(this, queue, c_loc(values), desc, .true., error)
        end if
    end subroutine tensor_read_r32

    !> Copies out codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_read_i8(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int8_t), intent(inout), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 1 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_read(this%raw(), optional_raw(queue), c_loc(values), 1 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_read_i8

    !> Copies out codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_read_i16(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int16_t), intent(inout), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 2 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_read(this%raw(), optional_raw(queue), c_loc(values), 2 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_read_i16

    !> Copies out codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_read_i32(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int32_t), intent(inout), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 4 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_read(this%raw(), optional_raw(queue), c_loc(values), 4 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_read_i32

    !> Copies in values, rounded to what the tensor stores. Quantized tensors get new scales. Blocks.
    subroutine tensor_write_r32(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        real(c_float), intent(in), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (desc%dtype == MP_DTYPE_FP32) then
            call check(mp_tensor_write(this%raw(), optional_raw(queue), c_loc(values), 4 * size(values, &
                kind=c_size_t)), error)
        else
            call convert(this, queue, c_loc(values), desc, .false., error)
        end if
    end subroutine tensor_write_r32

    !> Copies in codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_write_i8(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int8_t), intent(in), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 1 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_write(this%raw(), optional_raw(queue), c_loc(values), 1 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_write_i8

    !> Copies in codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_write_i16(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int16_t), intent(in), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 2 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_write(this%raw(), optional_raw(queue), c_loc(values), 2 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_write_i16

    !> Copies in codes or integers as they are stored: of a type as wide as the array's. Blocks.
    subroutine tensor_write_i32(this, values, queue, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int32_t), intent(in), target, contiguous :: values(..)
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: desc
        if (.not. fits(this, shape(values, kind=c_int64_t), desc, error)) return
        if (mp_dtype_size(desc%dtype) /= 4 .or. desc%dtype == MP_DTYPE_FP32) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the array is not", error)
        else
            call check(mp_tensor_write(this%raw(), optional_raw(queue), c_loc(values), 4 * size(values, &
                kind=c_size_t)), error)
        end if
    end subroutine tensor_write_i32

    ! Reads or writes real32 values of a tensor that stores others, by way of one that does not.
    subroutine convert(this, queue, values, desc, out, error)
        class(mp_tensor), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(c_ptr), intent(in) :: values
        type(mp_tensor_desc), intent(in) :: desc
        logical, intent(in) :: out
        type(mp_error), intent(out), optional :: error
        type(mp_tensor_desc) :: plain
        type(mp_quant_desc) :: quant
        type(c_ptr) :: numbers, on
        integer(c_int32_t) :: status
        integer(c_size_t) :: bytes
        logical :: quantized
        quantized = mp_tensor_get_quant_desc(this%raw(), quant) >= 0
        on = optional_raw(queue)
        plain = desc
        plain%dtype = MP_DTYPE_FP32
        bytes = 4 * product(desc%shape(1:desc%ndim))
        numbers = c_null_ptr
        status = mp_tensor_create(this%context, plain, numbers)
        if (status >= 0 .and. .not. out) status = mp_tensor_write(numbers, on, values, bytes)
        if (status >= 0) then
            if (out .and. quantized) then
                status = mp_tensor_dequantize(this%raw(), on, numbers)
            else if (out) then
                status = mp_tensor_cast(this%raw(), on, numbers)
            else if (quantized) then
                status = mp_tensor_quantize(numbers, on, this%raw(), c_null_ptr)
            else
                status = mp_tensor_cast(numbers, on, this%raw())
            end if
        end if
        if (status >= 0 .and. out) status = mp_tensor_read(numbers, on, values, bytes)
        call check(status, error)
        call mp_tensor_destroy(numbers)
    end subroutine convert

    ! The address of a tensor's memory on the host, for a pointer of `rank` dimensions and of elements of so many bytes.
    function address_of(this, bytes, rank, dims, error) result(address)
        class(mp_tensor), intent(in) :: this
        integer(c_int64_t), intent(in) :: bytes
        integer, intent(in) :: rank
        integer(c_int64_t), intent(out) :: dims(rank)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: address
        type(mp_tensor_desc) :: desc
        integer(c_int32_t) :: status
        dims = 0
        address = c_null_ptr
        status = mp_tensor_get_desc(this%raw(), desc)
        if (status >= 0) status = mp_tensor_get_data(this%raw(), address)
        if (status < 0) then
            call check(status, error)
        else if (desc%device_kind /= MP_DEVICE_HOST) then
            call refuse(MP_STATUS_UNSUPPORTED, "the tensor's memory is on a device", error)
            address = c_null_ptr
        else if (mp_dtype_size(desc%dtype) /= bytes .or. (bytes == 4 .and. desc%dtype /= MP_DTYPE_FP32)) then
            call refuse(MP_STATUS_INVALID_DTYPE, &
                "the tensor is " // mp_dtype_text(desc%dtype) // ", the pointer is not", error)
            address = c_null_ptr
        else if (rank /= 1 .and. rank /= desc%ndim) then
            call refuse(MP_STATUS_INVALID_SHAPE, "the pointer has not as many dimensions as the tensor", error)
            address = c_null_ptr
        else
            if (rank == desc%ndim) then
                dims = desc%shape(rank:1:-1)
            else
                dims = product(desc%shape(1:desc%ndim))
            end if
            call check(MP_STATUS_OK, error)
        end if
    end function address_of

    !> A pointer into the tensor's own memory, in the order of Fortran; null after a failure. It ends with the tensor.
    subroutine tensor_pointer_r1(this, array, error)
        class(mp_tensor), intent(in) :: this
        real(c_float), pointer, contiguous, intent(out) :: array(:)
        type(mp_error), intent(out), optional :: error
        real(c_float), pointer, contiguous :: whole(:)
        type(c_ptr) :: address
        integer(c_int64_t) :: dims(1)
        nullify (array)
        address = address_of(this, 4_c_int64_t, 1, dims, error)
        if (.not. c_associated(address)) return
        call c_f_pointer(address, whole, dims)
        array => whole
    end subroutine tensor_pointer_r1

    !> A pointer into the tensor's own memory, in the order of Fortran; null after a failure. It ends with the tensor.
    subroutine tensor_pointer_r2(this, array, error)
        class(mp_tensor), intent(in) :: this
        real(c_float), pointer, contiguous, intent(out) :: array(:,:)
        type(mp_error), intent(out), optional :: error
        real(c_float), pointer, contiguous :: whole(:,:)
        type(c_ptr) :: address
        integer(c_int64_t) :: dims(2)
        nullify (array)
        address = address_of(this, 4_c_int64_t, 2, dims, error)
        if (.not. c_associated(address)) return
        call c_f_pointer(address, whole, dims)
        array => whole
    end subroutine tensor_pointer_r2

    !> A pointer into the tensor's own memory, in the order of Fortran; null after a failure. It ends with the tensor.
    subroutine tensor_pointer_r3(this, array, error)
        class(mp_tensor), intent(in) :: this
        real(c_float), pointer, contiguous, intent(out) :: array(:,:,:)
        type(mp_error), intent(out), optional :: error
        real(c_float), pointer, contiguous :: whole(:,:,:)
        type(c_ptr) :: address
        integer(c_int64_t) :: dims(3)
        nullify (array)
        address = address_of(this, 4_c_int64_t, 3, dims, error)
        if (.not. c_associated(address)) return
        call c_f_pointer(address, whole, dims)
        array => whole
    end subroutine tensor_pointer_r3

    !> A pointer into the tensor's own memory, in the order of Fortran; null after a failure. It ends with the tensor.
    subroutine tensor_pointer_i8(this, array, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int8_t), pointer, contiguous, intent(out) :: array(:)
        type(mp_error), intent(out), optional :: error
        integer(c_int8_t), pointer, contiguous :: whole(:)
        type(c_ptr) :: address
        integer(c_int64_t) :: dims(1)
        nullify (array)
        address = address_of(this, 1_c_int64_t, 1, dims, error)
        if (.not. c_associated(address)) return
        call c_f_pointer(address, whole, dims)
        array => whole
    end subroutine tensor_pointer_i8

    !> A pointer into the tensor's own memory, in the order of Fortran; null after a failure. It ends with the tensor.
    subroutine tensor_pointer_i16(this, array, error)
        class(mp_tensor), intent(in) :: this
        integer(c_int16_t), pointer, contiguous, intent(out) :: array(:)
        type(mp_error), intent(out), optional :: error
        integer(c_int16_t), pointer, contiguous :: whole(:)
        type(c_ptr) :: address
        integer(c_int64_t) :: dims(1)
        nullify (array)
        address = address_of(this, 2_c_int64_t, 1, dims, error)
        if (.not. c_associated(address)) return
        call c_f_pointer(address, whole, dims)
        array => whole
    end subroutine tensor_pointer_i16

    !> Copies the elements of a tensor of the same type.
    subroutine tensor_copy_from(this, source, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_copy(source%raw(), optional_raw(queue), this%raw()), error)
    end subroutine tensor_copy_from

    !> Converts a tensor's elements to this one's type; desc asks for stochastic rounding, for example.
    subroutine tensor_cast_from(this, source, desc, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_cast_desc), intent(in), optional :: desc
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_cast(source%raw(), optional_raw(queue), this%raw(), desc), error)
    end subroutine tensor_cast_from

    !> Rounds a tensor to this one's codes and renews its scales.
    subroutine tensor_quantize_from(this, source, transposed, args, stats, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_tensor), intent(in), optional :: transposed
        type(mp_quantize_args), intent(in), optional :: args
        type(mp_quant_stats), intent(inout), optional :: stats
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_quantize(source%raw(), optional_raw(queue), this%raw(), optional_raw(transposed), &
            args, stats), error)
    end subroutine tensor_quantize_from

    !> code * scale_inv of a quantized tensor.
    subroutine tensor_dequantize_from(this, source, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_dequantize(source%raw(), optional_raw(queue), this%raw()), error)
    end subroutine tensor_dequantize_from

    !> Sets every byte to zero.
    subroutine tensor_zero(this, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_zero(this%raw(), optional_raw(queue)), error)
    end subroutine tensor_zero

    !> The largest absolute value, into a tensor of one fp32 element.
    subroutine tensor_amax(this, amax, queue, error)
        class(mp_tensor), intent(in) :: this
        type(mp_tensor), intent(in) :: amax
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_amax(this%raw(), optional_raw(queue), amax%raw()), error)
    end subroutine tensor_amax

    !> The scales (scale_inv) of a quantized tensor; they share its memory.
    subroutine tensor_scales_of(this, source, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_tensor_get_scales(source%raw(), handle)
        call adopt(this, handle, OF_TENSOR, status, error, source%context)
    end subroutine tensor_scales_of

    !> The largest absolute value that a tensor was quantized from, one fp32 element.
    subroutine tensor_quantized_amax_of(this, source, error)
        class(mp_tensor), intent(inout) :: this
        type(mp_tensor), intent(in) :: source
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_tensor_get_quantized_amax(source%raw(), handle)
        call adopt(this, handle, OF_TENSOR, status, error, source%context)
    end subroutine tensor_quantized_amax_of

    !> How it is quantized.
    subroutine tensor_quant_desc(this, desc, error)
        class(mp_tensor), intent(in) :: this
        type(mp_quant_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        call check(mp_tensor_get_quant_desc(this%raw(), desc), error)
    end subroutine tensor_quant_desc

    ! ---- Products and layers

    !> Plans a product. Its m, n, k and flags are those of row-major matrices.
    subroutine gemm_create(this, context, desc, error)
        class(mp_gemm), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_gemm_desc), intent(in) :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_gemm_create(context%raw(), desc, handle)
        call adopt(this, handle, OF_GEMM, status, error, context%handle)
    end subroutine gemm_create

    !> Computes d = epilogue(alpha op(a) op(b) + beta c + bias). The last three are for fp8.
    subroutine gemm_run(this, a, b, d, bias, c, scale_a, scale_b, multiply_d, amax_d, queue, error)
        class(mp_gemm), intent(in) :: this
        type(mp_tensor), intent(in) :: a, b, d
        type(mp_tensor), intent(in), optional :: bias, c, scale_a, scale_b, multiply_d, amax_d
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(mp_gemm_args) :: args
        args%a = a%raw()
        args%b = b%raw()
        args%d = d%raw()
        args%bias = optional_raw(bias)
        args%c = optional_raw(c)
        args%scale_a = optional_raw(scale_a)
        args%scale_b = optional_raw(scale_b)
        args%multiply_d = optional_raw(multiply_d)
        args%amax_d = optional_raw(amax_d)
        call check(mp_gemm_run_scaled(this%raw(), optional_raw(queue), args), error)
    end subroutine gemm_run

    !> What was chosen and why.
    subroutine gemm_describe(this, text, error)
        class(mp_gemm), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_gemm_describe, this%raw(), text, error)
    end subroutine gemm_describe

    !> A layer over a weight(in, out) and a bias(out), which it keeps alive. Freezes the recipe.
    subroutine linear_create(this, context, recipe, in, out, weight, bias, flags, error)
        class(mp_linear), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        integer, intent(in) :: in, out
        type(mp_tensor), intent(in) :: weight
        type(mp_tensor), intent(in), optional :: bias
        integer(c_int32_t), intent(in), optional :: flags
        type(mp_error), intent(out), optional :: error
        type(mp_linear_desc) :: desc
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        desc%in_features = in
        desc%out_features = out
        if (present(flags)) desc%flags = flags
        handle = c_null_ptr
        status = mp_linear_create(context%raw(), recipe%raw(), desc, weight%raw(), optional_raw(bias), handle)
        call adopt(this, handle, OF_LINEAR, status, error, context%handle)
    end subroutine linear_create

    !> A layer over arrays of the program's: weight(in, out), bias(out). They must outlive the layer.
    subroutine linear_create_arrays(this, context, recipe, weight, bias, flags, error)
        class(mp_linear), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        type(mp_array), intent(in) :: weight
        type(mp_array), intent(in), optional :: bias
        integer(c_int32_t), intent(in), optional :: flags
        type(mp_error), intent(out), optional :: error
        type(mp_linear_desc) :: desc
        type(mp_array) :: second
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        if (present(bias)) second = bias
        if (.not. usable(weight, error)) return
        if (weight%ndim /= 2 .or. (present(bias) .and. second%count /= weight%shape(1))) then
            call refuse(MP_STATUS_INVALID_SHAPE, "a layer is made of weight(in, out) and bias(out)", error)
            return
        end if
        if (present(bias)) then
            if (.not. usable(bias, error)) return
        end if
        desc%in_features = weight%shape(2)
        desc%out_features = weight%shape(1)
        if (present(flags)) desc%flags = flags
        handle = c_null_ptr
        status = mp_linear_create_pointers(context%raw(), recipe%raw(), desc, weight%address, weight%dtype, &
            second%address, second%dtype, handle)
        call adopt(this, handle, OF_LINEAR, status, error, context%handle)
    end subroutine linear_create_arrays

    !> y(out, rows) of x(in, rows). With `saved` what backward needs is kept there.
    subroutine linear_forward(this, x, y, saved, flags, queue, error)
        class(mp_linear), intent(in) :: this
        type(mp_tensor), intent(in) :: x
        type(mp_tensor), intent(in) :: y
        type(mp_saved), intent(in), optional :: saved
        integer(c_int32_t), intent(in), optional :: flags
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: all
        all = 0
        if (present(flags)) all = flags
        if (present(saved) .or. all /= 0) then
            call check(mp_linear_forward_saved(this%raw(), optional_raw(queue), x%raw(), y%raw(), &
                optional_raw(saved), all), &
                error)
        else
            call check(mp_linear_forward(this%raw(), optional_raw(queue), x%raw(), y%raw()), error)
        end if
    end subroutine linear_forward

    !> dx(in, rows), dw(in, out) and dbias(out) of dy(out, rows); with accumulate dw and dbias are added to.
    subroutine linear_backward(this, dy, dx, dw, dbias, accumulate, saved, queue, error)
        class(mp_linear), intent(in) :: this
        type(mp_tensor), intent(in) :: dy
        type(mp_tensor), intent(in), optional :: dx
        type(mp_tensor), intent(in), optional :: dw
        type(mp_tensor), intent(in), optional :: dbias
        logical, intent(in), optional :: accumulate
        type(mp_saved), intent(in), optional :: saved
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: flags
        flags = 0
        if (present(accumulate)) flags = merge(MP_BACKWARD_ACCUMULATE, 0, accumulate)
        if (present(saved)) then
            call check(mp_linear_backward_saved(this%raw(), optional_raw(queue), saved%raw(), dy%raw(), &
                optional_raw(dx), &
                optional_raw(dw), optional_raw(dbias), flags), error)
        else
            call check(mp_linear_backward(this%raw(), optional_raw(queue), dy%raw(), optional_raw(dx), &
                optional_raw(dw), &
                optional_raw(dbias), flags), error)
        end if
    end subroutine linear_backward

    !> dx alone; needs no forward before it.
    subroutine linear_backward_data(this, dy, dx, queue, error)
        class(mp_linear), intent(in) :: this
        type(mp_tensor), intent(in) :: dy
        type(mp_tensor), intent(in) :: dx
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_backward_data(this%raw(), optional_raw(queue), dy%raw(), dx%raw()), error)
    end subroutine linear_backward_data

    !> dw and dbias alone, with the x that the last forward kept.
    subroutine linear_backward_weight(this, dy, dw, dbias, accumulate, queue, error)
        class(mp_linear), intent(in) :: this
        type(mp_tensor), intent(in) :: dy
        type(mp_tensor), intent(in) :: dw
        type(mp_tensor), intent(in), optional :: dbias
        logical, intent(in), optional :: accumulate
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: flags
        flags = 0
        if (present(accumulate)) flags = merge(MP_BACKWARD_ACCUMULATE, 0, accumulate)
        call check(mp_linear_backward_weight(this%raw(), optional_raw(queue), dy%raw(), dw%raw(), &
            optional_raw(dbias), flags), error)
    end subroutine linear_backward_weight

    ! The rows of an array of `columns` features; says so where they do not fit, or where it is of another type.
    logical function has_rows(array, columns, dtype, rows, error)
        type(mp_array), intent(in) :: array
        integer(c_int64_t), intent(in) :: columns
        integer(c_int32_t), intent(in) :: dtype
        integer(c_int64_t), intent(inout) :: rows
        type(mp_error), intent(out), optional :: error
        has_rows = usable(array, error)
        if (.not. has_rows) return
        if (rows < 0) rows = array%count / max(columns, 1_c_int64_t)
        has_rows = array%dtype == dtype .and. array%count == rows * columns
        if (.not. has_rows) call refuse(MP_STATUS_INVALID_SHAPE, "arrays are (features, rows) of one element type", &
            error)
    end function has_rows

    !> forward on arrays of the program's: x(in, rows), y(out, rows). x must stay as it is until backward.
    subroutine linear_forward_arrays(this, x, y, error)
        class(mp_linear), intent(in) :: this
        type(mp_array), intent(in) :: x, y
        type(mp_error), intent(out), optional :: error
        type(mp_linear_desc) :: desc
        integer(c_int64_t) :: rows
        integer(c_int32_t) :: status
        status = mp_linear_get_desc(this%raw(), desc)
        call check(status, error)
        if (status < 0) return
        rows = -1
        if (.not. has_rows(x, desc%in_features, x%dtype, rows, error)) return
        if (.not. has_rows(y, desc%out_features, x%dtype, rows, error)) return
        call check(mp_linear_forward_pointers(this%raw(), c_null_ptr, rows, x%address, y%address, x%dtype), error)
    end subroutine linear_forward_arrays

    !> backward on arrays of the program's: dy(out, rows), dx(in, rows), dw(in, out), dbias(out).
    subroutine linear_backward_arrays(this, dy, dx, dw, dbias, accumulate, error)
        class(mp_linear), intent(in) :: this
        type(mp_array), intent(in) :: dy
        type(mp_array), intent(in), optional :: dx, dw, dbias
        logical, intent(in), optional :: accumulate
        type(mp_error), intent(out), optional :: error
        type(mp_linear_desc) :: desc
        type(mp_array) :: to_x, to_w, to_bias
        integer(c_int64_t) :: rows, one
        integer(c_int32_t) :: status, flags
        status = mp_linear_get_desc(this%raw(), desc)
        call check(status, error)
        if (status < 0) return
        rows = -1
        if (.not. has_rows(dy, desc%out_features, dy%dtype, rows, error)) return
        if (present(dx)) then
            to_x = dx
            if (.not. has_rows(dx, desc%in_features, dy%dtype, rows, error)) return
        end if
        if (present(dw)) then
            to_w = dw
            one = desc%out_features
            if (.not. has_rows(dw, desc%in_features, dw%dtype, one, error)) return
        end if
        if (present(dbias)) then
            to_bias = dbias
            one = 1
            if (.not. has_rows(dbias, desc%out_features, to_w%dtype, one, error)) return
        end if
        flags = 0
        if (present(accumulate)) flags = merge(MP_BACKWARD_ACCUMULATE, 0, accumulate)
        call check(mp_linear_backward_pointers(this%raw(), c_null_ptr, rows, dy%address, to_x%address, dy%dtype, &
            to_w%address, to_bias%address, to_w%dtype, flags), error)
    end subroutine linear_backward_arrays

    !> What it keeps, and which products it uses and why.
    subroutine linear_describe(this, text, error)
        class(mp_linear), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_linear_describe, this%raw(), text, error)
    end subroutine linear_describe

    !> Its sizes and flags.
    subroutine linear_desc(this, desc, error)
        class(mp_linear), intent(in) :: this
        type(mp_linear_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_get_desc(this%raw(), desc), error)
    end subroutine linear_desc

    !> What happened to an operand (MP_OPERAND_INPUT and the like) since the counts were cleared.
    subroutine linear_stats(this, operand, stats, error)
        class(mp_linear), intent(in) :: this
        integer(c_int32_t), intent(in) :: operand
        type(mp_linear_stats), intent(out) :: stats
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_get_stats(this%raw(), operand, stats), error)
    end subroutine linear_stats

    !> Sets the counts of all operands to zero.
    subroutine linear_clear_stats(this, queue, error)
        class(mp_linear), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_clear_stats(this%raw(), optional_raw(queue)), error)
    end subroutine linear_clear_stats

    !> One sentence that names the recipe key to change; empty where all is well.
    subroutine linear_advice(this, operand, text, error)
        class(mp_linear), intent(in) :: this
        integer(c_int32_t), intent(in) :: operand
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), target :: buffer(1024)
        integer(c_int32_t) :: status
        buffer = c_null_char
        status = mp_linear_get_advice(this%raw(), operand, c_loc(buffer), size(buffer, kind=c_size_t))
        call check(status, error)
        text = from_c(c_loc(buffer))
    end subroutine linear_advice

    !> Has every so many steps' statistics handed to a module procedure; every = 0 ends it.
    subroutine linear_set_monitor(this, name, every, monitor, error)
        class(mp_linear), intent(in) :: this
        character(*), intent(in) :: name
        integer, intent(in) :: every
        procedure(mp_monitor_procedure) :: monitor
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_linear_set_monitor(this%raw(), c_loc(text), int(every, c_int32_t), c_funloc(monitor_trampoline), &
            transfer(c_funloc(monitor), c_null_ptr)), error)
    end subroutine linear_set_monitor

    subroutine monitor_trampoline(payload, name, stats, advice) bind(c)
        type(c_ptr), value :: payload, name, advice
        type(mp_linear_stats), intent(in) :: stats
        procedure(mp_monitor_procedure), pointer :: monitor
        call c_f_procpointer(transfer(payload, c_null_funptr), monitor)
        call monitor(from_c(name), stats, from_c(advice))
    end subroutine monitor_trampoline

    !> The bytes that the layer must remember for training to go on bit for bit.
    subroutine linear_get_scaling(this, bytes, error)
        class(mp_linear), intent(in) :: this
        integer(c_int8_t), allocatable, target, intent(out) :: bytes(:)
        type(mp_error), intent(out), optional :: error
        integer(c_size_t) :: needed
        integer(c_int32_t) :: status
        needed = 0
        status = mp_linear_get_scaling(this%raw(), c_null_ptr, 0_c_size_t, needed)
        if (status < 0) needed = 0
        allocate (bytes(needed))
        if (status >= 0) status = mp_linear_get_scaling(this%raw(), c_loc(bytes), needed)
        call check(status, error)
    end subroutine linear_get_scaling

    !> Puts back what get_scaling gave.
    subroutine linear_set_scaling(this, bytes, error)
        class(mp_linear), intent(in) :: this
        integer(c_int8_t), target, contiguous, intent(in) :: bytes(:)
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_set_scaling(this%raw(), c_loc(bytes), size(bytes, kind=c_size_t)), error)
    end subroutine linear_set_scaling

    !> How dw in fp16 or bf16 is rounded from now on; without desc to nearest.
    subroutine linear_set_gradient_rounding(this, desc, error)
        class(mp_linear), intent(in) :: this
        type(mp_cast_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_set_gradient_rounding(this%raw(), desc), error)
    end subroutine linear_set_gradient_rounding

    !> The form in which a product (MP_PRODUCT_FPROP and the like) takes an operand.
    subroutine linear_operand_format(this, product, operand, dtype, quant, error)
        class(mp_linear), intent(in) :: this
        integer(c_int32_t), intent(in) :: product, operand
        integer(c_int32_t), intent(out) :: dtype
        type(mp_quant_desc), intent(inout) :: quant
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_get_operand_format(this%raw(), product, operand, dtype, quant), error)
    end subroutine linear_operand_format

    !> Rounds an operand as the product would, into codes of the caller's.
    subroutine linear_quantize(this, product, operand, source, codes, queue, error)
        class(mp_linear), intent(in) :: this
        integer(c_int32_t), intent(in) :: product, operand
        type(mp_tensor), intent(in) :: source
        type(mp_tensor), intent(in) :: codes
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_quantize(this%raw(), optional_raw(queue), product, operand, source%raw(), &
            codes%raw()), error)
    end subroutine linear_quantize

    !> Has products take these codes instead of rounding the weight.
    subroutine linear_set_weight_codes(this, fprop, dgrad, error)
        class(mp_linear), intent(in) :: this
        type(mp_tensor), intent(in), optional :: fprop
        type(mp_tensor), intent(in), optional :: dgrad
        type(mp_error), intent(out), optional :: error
        call check(mp_linear_set_weight_codes(this%raw(), optional_raw(fprop), optional_raw(dgrad)), error)
    end subroutine linear_set_weight_codes

    !> The delayed scale of an operand, one fp32 element.
    subroutine linear_multiply_tensor(this, operand, tensor, error)
        class(mp_linear), intent(in) :: this
        integer(c_int32_t), intent(in) :: operand
        type(mp_tensor), intent(inout) :: tensor
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_linear_get_multiply_tensor(this%raw(), operand, handle)
        call adopt(tensor, handle, OF_TENSOR, status, error, this%context)
    end subroutine linear_multiply_tensor

    !> Makes a place for what one forward of this layer keeps.
    subroutine saved_create(this, linear, error)
        class(mp_saved), intent(inout) :: this
        type(mp_linear), intent(in) :: linear
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_saved_create(linear%raw(), handle)
        call adopt(this, handle, OF_SAVED, status, error, linear%context)
    end subroutine saved_create

    !> The end of an optimizer step for layers that are not the optimizer's own (set_linears).
    subroutine mp_end_step(linears, comm, queue, error)
        type(mp_linear), intent(in) :: linears(:)
        type(mp_comm), intent(in), optional :: comm
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handles(size(linears))
        integer :: i
        do i = 1, size(linears)
            handles(i) = linears(i)%raw()
        end do
        call check(mp_linear_end_step(handles, size(handles, kind=c_int32_t), optional_raw(queue), &
            optional_raw(comm)), error)
    end subroutine mp_end_step

    ! ---- Loss scale

    !> A scaler by a rule: a descriptor, also of mp_scaler_preset; without it torch's.
    subroutine scaler_create(this, context, desc, error)
        class(mp_scaler), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_scaler_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_scaler_create(context%raw(), desc, handle)
        call adopt(this, handle, OF_SCALER, status, error, context%handle)
    end subroutine scaler_create

    !> The scaler that a recipe asks for. Freezes the recipe.
    subroutine scaler_from_recipe(this, context, recipe, error)
        class(mp_scaler), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_scaler_create_from_recipe(context%raw(), recipe%raw(), handle)
        call adopt(this, handle, OF_SCALER, status, error, context%handle)
    end subroutine scaler_from_recipe

    !> The rule of a known system: "torch", "megatron", "deepspeed" or "apex".
    subroutine mp_scaler_preset(name, desc, error)
        character(*), intent(in) :: name
        type(mp_scaler_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_scaler_desc_preset(desc, c_sizeof(desc), c_loc(text)), error)
    end subroutine mp_scaler_preset

    !> The loss scale: multiply the loss by it. 0 after a failure.
    real(c_double) function scaler_scale(this, error) result(value)
        class(mp_scaler), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        real(c_double) :: found
        found = 0
        call check(mp_scaler_get_scale(this%raw(), c_null_ptr, found), error)
        value = found
    end function scaler_scale

    !> Moves the scale by the rule, once a step.
    subroutine scaler_update(this, queue, error)
        class(mp_scaler), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_scaler_update(this%raw(), optional_raw(queue)), error)
    end subroutine scaler_update

    !> Looks whether gradients in the program's arrays are finite, for loops without an optimizer.
    subroutine scaler_check(this, grads, error)
        class(mp_scaler), intent(in) :: this
        type(mp_array), intent(in) :: grads(:)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: addresses(size(grads))
        integer(c_int32_t) :: dtypes(size(grads))
        integer(c_int64_t) :: counts(size(grads))
        integer :: i
        do i = 1, size(grads)
            if (.not. usable(grads(i), error)) return
        end do
        addresses = grads%address
        dtypes = grads%dtype
        counts = grads%count
        call check(mp_scaler_check_pointers(this%raw(), c_null_ptr, size(grads, kind=c_int64_t), addresses, dtypes, &
            counts), error)
    end subroutine scaler_check

    !> found_inf becomes 1 where it is on any rank.
    subroutine scaler_combine(this, comm, queue, error)
        class(mp_scaler), intent(in) :: this
        type(mp_comm), intent(in) :: comm
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_scaler_combine(this%raw(), optional_raw(queue), comm%raw()), error)
    end subroutine scaler_combine

    !> The whole state.
    subroutine scaler_get_state(this, state, error)
        class(mp_scaler), intent(in) :: this
        type(mp_scaler_state), intent(out) :: state
        type(mp_error), intent(out), optional :: error
        call check(mp_scaler_get_state(this%raw(), c_null_ptr, state), error)
    end subroutine scaler_get_state

    !> Puts back what get_state gave.
    subroutine scaler_set_state(this, state, error)
        class(mp_scaler), intent(in) :: this
        type(mp_scaler_state), intent(in) :: state
        type(mp_error), intent(out), optional :: error
        call check(mp_scaler_set_state(this%raw(), c_null_ptr, state), error)
    end subroutine scaler_set_state

    !> The loss scale in device memory, one fp32 element.
    subroutine scaler_scale_tensor(this, tensor, error)
        class(mp_scaler), intent(in) :: this
        type(mp_tensor), intent(inout) :: tensor
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_scaler_get_scale_tensor(this%raw(), handle)
        call adopt(tensor, handle, OF_TENSOR, status, error, this%context)
    end subroutine scaler_scale_tensor

    !> found_inf, 0 or 1, likewise.
    subroutine scaler_found_inf_tensor(this, tensor, error)
        class(mp_scaler), intent(in) :: this
        type(mp_tensor), intent(inout) :: tensor
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_scaler_get_found_inf_tensor(this%raw(), handle)
        call adopt(tensor, handle, OF_TENSOR, status, error, this%context)
    end subroutine scaler_found_inf_tensor

    ! ---- Optimizers

    !> An optimizer without groups; with `comm` the ranks share it. Freezes the recipe.
    subroutine optimizer_create(this, context, recipe, desc, comm, sharding, error)
        class(mp_optimizer), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_recipe), intent(in) :: recipe
        type(mp_optimizer_desc), intent(in), optional :: desc
        type(mp_comm), intent(in), optional :: comm
        type(mp_sharding_desc), intent(in), optional :: sharding
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        if (present(comm)) then
            status = mp_optimizer_create_sharded(context%raw(), recipe%raw(), desc, comm%raw(), sharding, handle)
        else
            status = mp_optimizer_create(context%raw(), recipe%raw(), desc, handle)
        end if
        call adopt(this, handle, OF_OPTIMIZER, status, error, context%handle)
    end subroutine optimizer_create

    !> Adds a group. desc begins with the defaults: type(mp_param_group_desc). state_formats: what each state of the rule is
    !! kept in, in its order, as in recipe keys; blank: what the recipe says.
    subroutine optimizer_add_group(this, desc, index, state_formats, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_param_group_desc), intent(in), optional :: desc
        integer(c_int32_t), intent(out), optional :: index
        character(*), intent(in), optional :: state_formats(:)
        type(mp_error), intent(out), optional :: error
        type(mp_param_group_desc) :: all
        character(kind=c_char), allocatable :: text(:)
        character(kind=c_char), allocatable, target :: texts(:, :)
        integer :: k
        if (present(desc)) all = desc
        all%state_formats = c_null_ptr
        if (present(state_formats)) then
            if (size(state_formats) > MP_MAX_RULE_STATES) then
                call refuse(MP_STATUS_INVALID_ARGUMENT, "state_formats has more elements than any rule has states", error)
                return
            end if
            allocate (texts(len(state_formats) + 1, size(state_formats)))
            do k = 1, size(state_formats)
                if (state_formats(k) == "") cycle
                call to_c(state_formats(k), text)
                texts(:size(text), k) = text
                all%state_formats(k) = c_loc(texts(1, k))
            end do
        end if
        call check(mp_optimizer_add_group(this%raw(), all, index), error)
    end subroutine optimizer_add_group

    !> A hyperparameter by name, for `hypers` of a group or of a step: its value is meant as it stands, where 0 in a
    !! component such as beta1 means what is usual for the rule.
    function mp_named_hyper(rule, name, value, error) result(hyper)
        integer(c_int32_t), intent(in) :: rule
        character(*), intent(in) :: name
        real(c_double), intent(in) :: value
        type(mp_error), intent(out), optional :: error
        type(mp_hyper) :: hyper
        type(mp_rule_info) :: info
        type(mp_rule_hyper) :: known
        integer(c_int32_t) :: status, i
        hyper%value = value
        status = mp_rule_get_info(rule, info)
        call check(status, error)
        if (status < 0) return
        do i = 0, info%hyper_count - 1
            call check(mp_rule_get_hyper(rule, i, known))
            if (from_c(known%name) == name) hyper%name = known%name ! static
        end do
        if (.not. c_associated(hyper%name)) &
            call refuse(MP_STATUS_UNKNOWN_NAME, from_c(info%name) // " does not read " // name, error)
    end function mp_named_hyper

    !> Adds a parameter. Without grad one is made: ask for it by state(index, "grad", ...). initial has the exact
    !! fp32 values.
    subroutine optimizer_add_param(this, group, name, param, grad, initial, flags, index, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        character(*), intent(in) :: name
        type(mp_tensor), intent(in) :: param
        type(mp_tensor), intent(in), optional :: grad, initial
        integer(c_int32_t), intent(in), optional :: flags
        integer(c_int32_t), intent(out), optional :: index
        type(mp_error), intent(out), optional :: error
        type(mp_param_desc) :: desc
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        desc%name = c_loc(text)
        desc%param = param%raw()
        desc%grad = optional_raw(grad)
        desc%init_fp32 = optional_raw(initial)
        if (present(flags)) desc%flags = flags
        call check(mp_optimizer_add_param(this%raw(), group, desc, index), error)
    end subroutine optimizer_add_param

    !> One step of all groups; the scaler's scale is divided out.
    subroutine optimizer_step(this, scaler, queue, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_scaler), intent(in), optional :: scaler
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_step(this%raw(), optional_raw(queue), optional_raw(scaler)), error)
    end subroutine optimizer_step

    !> Sets all gradients to zero.
    subroutine optimizer_zero_grad(this, queue, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_zero_grad(this%raw(), optional_raw(queue)), error)
    end subroutine optimizer_zero_grad

    !> Names the layers whose step ends with the optimizer's: call set_linears([linear1, linear2]).
    subroutine optimizer_set_linears(this, linears, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_linear), intent(in) :: linears(:)
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handles(size(linears))
        integer :: i
        do i = 1, size(linears)
            handles(i) = linears(i)%raw()
        end do
        call check(mp_optimizer_set_linears(this%raw(), handles, size(handles, kind=c_int32_t)), error)
    end subroutine optimizer_set_linears

    !> What the last step did.
    subroutine optimizer_stats(this, stats, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_optimizer_stats), intent(out) :: stats
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_stats(this%raw(), c_null_ptr, stats), error)
    end subroutine optimizer_stats

    !> The learning rate of a group from the next step on; -1: of all.
    subroutine optimizer_set_lr(this, group, lr, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        real(c_double), intent(in) :: lr
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_lr(this%raw(), group, lr), error)
    end subroutine optimizer_set_lr

    !> Every step reads a group's learning rate from one fp32 element; absent: the number again.
    subroutine optimizer_set_lr_tensor(this, group, lr, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        type(mp_tensor), intent(in), optional :: lr
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_lr_tensor(this%raw(), group, optional_raw(lr)), error)
    end subroutine optimizer_set_lr_tensor

    !> Every step divides the gradients by one fp32 element; absent: by nothing.
    subroutine optimizer_set_grad_scale_tensor(this, grad_scale, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_tensor), intent(in), optional :: grad_scale
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_grad_scale_tensor(this%raw(), optional_raw(grad_scale)), error)
    end subroutine optimizer_set_grad_scale_tensor

    !> Turns a group on or off; -1: all.
    subroutine optimizer_set_enabled(this, group, enabled, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        logical, intent(in) :: enabled
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_enabled(this%raw(), group, merge(1_c_int32_t, 0_c_int32_t, enabled)), error)
    end subroutine optimizer_set_enabled

    !> The norm that gradients are clipped to; 0: none.
    subroutine optimizer_set_max_grad_norm(this, norm, error)
        class(mp_optimizer), intent(in) :: this
        real(c_double), intent(in) :: norm
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_max_grad_norm(this%raw(), norm), error)
    end subroutine optimizer_set_max_grad_norm

    !> Norm and check for finite gradients cover these ranks, which hold other parameters.
    subroutine optimizer_set_norm_comm(this, comm, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_comm), intent(in), optional :: comm
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_norm_comm(this%raw(), optional_raw(comm)), error)
    end subroutine optimizer_set_norm_comm

    !> A tensor of a parameter: "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master", and their
    !! "_scale_inv".
    subroutine optimizer_state(this, index, name, tensor, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        character(*), intent(in) :: name
        type(mp_tensor), intent(inout) :: tensor
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        call to_c(name, text)
        status = mp_optimizer_get_state(this%raw(), index, c_loc(text), handle)
        call adopt(tensor, handle, OF_TENSOR, status, error, this%context)
    end subroutine optimizer_state

    !> The values of a state, whatever it is stored as: "exp_avg", "exp_avg_sq", "compensation", "fp32_param".
    subroutine optimizer_read_state(this, index, name, values, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        character(*), intent(in) :: name
        type(mp_tensor), intent(in) :: values
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_optimizer_read_state(this%raw(), c_null_ptr, index, c_loc(text), values%raw()), error)
    end subroutine optimizer_read_state

    !> Stores values in a state, rounded once; the names of read_state.
    subroutine optimizer_write_state(this, index, name, values, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        character(*), intent(in) :: name
        type(mp_tensor), intent(in) :: values
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_optimizer_write_state(this%raw(), c_null_ptr, index, c_loc(text), values%raw()), error)
    end subroutine optimizer_write_state

    !> The norm of the last step in device memory, one fp32 element.
    subroutine optimizer_grad_norm_tensor(this, tensor, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_tensor), intent(inout) :: tensor
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_optimizer_get_grad_norm_tensor(this%raw(), handle)
        call adopt(tensor, handle, OF_TENSOR, status, error, this%context)
    end subroutine optimizer_grad_norm_tensor

    !> After writing into parameters: master weights become them. -1: all.
    subroutine optimizer_sync_master(this, index, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_sync_master(this%raw(), c_null_ptr, index), error)
    end subroutine optimizer_sync_master

    !> Steps taken so far.
    subroutine optimizer_set_step(this, step, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int64_t), intent(in) :: step
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_step(this%raw(), c_null_ptr, step), error)
    end subroutine optimizer_set_step

    !> The steps that a group took part in.
    integer(c_int64_t) function optimizer_group_step(this, group, error) result(value)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        type(mp_error), intent(out), optional :: error
        integer(c_int64_t) :: found
        found = 0
        call check(mp_optimizer_get_group_step(this%raw(), c_null_ptr, group, found), error)
        value = found
    end function optimizer_group_step

    !> Sets the steps of one group.
    subroutine optimizer_set_group_step(this, group, step, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        integer(c_int64_t), intent(in) :: step
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_group_step(this%raw(), c_null_ptr, group, step), error)
    end subroutine optimizer_set_group_step

    !> What it was made with.
    subroutine optimizer_desc(this, desc, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_optimizer_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_desc(this%raw(), desc), error)
    end subroutine optimizer_desc

    !> Number of groups.
    integer function optimizer_group_count(this, error) result(value)
        class(mp_optimizer), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_optimizer_get_group_count(this%raw(), found), error)
        value = found
    end function optimizer_group_count

    !> A group as it is now.
    subroutine optimizer_group(this, group, desc, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        type(mp_param_group_desc), intent(out) :: desc
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_group(this%raw(), group, desc), error)
    end subroutine optimizer_group

    !> Whether a group is on.
    logical function optimizer_enabled(this, group, error) result(value)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: group
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_optimizer_get_enabled(this%raw(), group, found), error)
        value = found /= 0
    end function optimizer_enabled

    !> Number of parameters.
    integer function optimizer_param_count(this, error) result(value)
        class(mp_optimizer), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_optimizer_get_param_count(this%raw(), found), error)
        value = found
    end function optimizer_param_count

    !> A parameter's name.
    subroutine optimizer_param_name(this, index, name, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        character(:), allocatable, intent(out) :: name
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), target :: buffer(256)
        buffer = c_null_char
        call check(mp_optimizer_get_param_name(this%raw(), index, c_loc(buffer), size(buffer, kind=c_size_t)), error)
        name = from_c(c_loc(buffer))
    end subroutine optimizer_param_name

    !> Bytes held, by class of tensor.
    subroutine optimizer_memory(this, report, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_memory_report), intent(out) :: report
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_memory(this%raw(), report), error)
    end subroutine optimizer_memory

    !> Skips steps that stand out from now on, see watch.h; without a guard none.
    subroutine optimizer_set_guard(this, guard, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_guard_desc), intent(in), optional :: guard
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_guard(this%raw(), c_null_ptr, guard), error)
    end subroutine optimizer_set_guard

    !> The guard as it is; both bounds are 0 where there is none.
    subroutine optimizer_guard(this, guard, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_guard_desc), intent(out) :: guard
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_guard(this%raw(), guard), error)
    end subroutine optimizer_guard

    !> The loss of the step to come, for the guard and the history.
    subroutine optimizer_set_loss(this, loss, error)
        class(mp_optimizer), intent(in) :: this
        real(c_double), intent(in) :: loss
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_set_loss(this%raw(), loss), error)
    end subroutine optimizer_set_loss

    !> Keeps so many of the last steps, 0: none; and writes them to path when the first goes wrong. Begins anew.
    subroutine optimizer_set_history(this, steps, path, error)
        class(mp_optimizer), intent(in) :: this
        integer, intent(in) :: steps
        character(*), intent(in), optional :: path
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(path)) then
            call to_c(path, text)
            address = c_loc(text)
        end if
        call check(mp_optimizer_set_history(this%raw(), int(steps, c_int32_t), address), error)
    end subroutine optimizer_set_history

    !> Steps that the history has.
    function optimizer_record_count(this) result(count)
        class(mp_optimizer), intent(in) :: this
        integer :: count
        integer(c_int32_t) :: number
        number = 0
        call check(mp_optimizer_get_record_count(this%raw(), number))
        count = number
    end function optimizer_record_count

    !> One of them; index from 0, the oldest.
    subroutine optimizer_record(this, index, record, error)
        class(mp_optimizer), intent(in) :: this
        integer, intent(in) :: index
        type(mp_step_record), intent(out) :: record
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_record(this%raw(), int(index, c_int32_t), record), error)
    end subroutine optimizer_record

    !> The first tensor that was not finite, in words; empty: there was none since the history began.
    subroutine optimizer_bad_tensor(this, text, error)
        class(mp_optimizer), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_optimizer_get_bad_tensor, this%raw(), text, error)
    end subroutine optimizer_bad_tensor

    !> Cuts the parameters of a shared optimizer; the first step does it otherwise.
    subroutine optimizer_shard(this, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_shard(this%raw(), c_null_ptr), error)
    end subroutine optimizer_shard

    !> A gradient has its last addition: it may leave.
    subroutine optimizer_grad_ready(this, index, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_grad_ready(this%raw(), c_null_ptr, index), error)
    end subroutine optimizer_grad_ready

    !> All gradients of one slot are there.
    subroutine optimizer_end_microbatch(this, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_end_microbatch(this%raw(), c_null_ptr), error)
    end subroutine optimizer_end_microbatch

    !> Stages 2 and 3: gives a gradient its memory.
    subroutine optimizer_acquire_grad(this, index, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_acquire_grad(this%raw(), c_null_ptr, index), error)
    end subroutine optimizer_acquire_grad

    !> Stage 3: begins to fetch parameters.
    subroutine optimizer_gather_begin(this, indices, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: indices(:)
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_gather_begin(this%raw(), c_null_ptr, indices, size(indices, kind=c_int32_t)), error)
    end subroutine optimizer_gather_begin

    !> Stage 3: returns when parameters are whole.
    subroutine optimizer_gather_wait(this, indices, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: indices(:)
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_gather_wait(this%raw(), c_null_ptr, indices, size(indices, kind=c_int32_t)), error)
    end subroutine optimizer_gather_wait

    !> Stage 3: gives parameters' memory back.
    subroutine optimizer_gather_free(this, indices, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: indices(:)
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_gather_free(this%raw(), c_null_ptr, indices, size(indices, kind=c_int32_t)), error)
    end subroutine optimizer_gather_free

    !> Which elements of a parameter a rank owns: from start (from 0), count of them.
    subroutine optimizer_slice(this, index, rank, start, count, error)
        class(mp_optimizer), intent(in) :: this
        integer(c_int32_t), intent(in) :: index, rank
        integer(c_int64_t), intent(out) :: start, count
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_slice(this%raw(), index, rank, start, count), error)
    end subroutine optimizer_slice

    !> What moves between the calls of a shared optimizer.
    subroutine optimizer_progress(this, progress, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_sharding_progress), intent(out) :: progress
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_progress(this%raw(), progress), error)
    end subroutine optimizer_progress

    !> What this rank has sent for it.
    subroutine optimizer_traffic(this, traffic, error)
        class(mp_optimizer), intent(in) :: this
        type(mp_comm_traffic), intent(out) :: traffic
        type(mp_error), intent(out), optional :: error
        call check(mp_optimizer_get_traffic(this%raw(), traffic), error)
    end subroutine optimizer_traffic

    ! ---- A step on arrays of the program's own

    !> Adds a parameter to step: param, grad and the states that the rule keeps, all of as many elements. Those of one
    !! scale (MS-AMP) and those in blocks are for mp_optimizer, or for mixedprec_c.
    subroutine slots_add(this, param, grad, exp_avg, exp_avg_sq, compensation, master, uid, error)
        class(mp_slots), intent(inout) :: this
        type(mp_array), intent(in) :: param, grad
        type(mp_array), intent(in), optional :: exp_avg, exp_avg_sq, compensation, master
        integer(c_int64_t), intent(in), optional :: uid
        type(mp_error), intent(out), optional :: error
        type(mp_step_slot), allocatable :: longer(:)
        type(mp_step_slot) :: slot
        slot%count = param%count
        if (present(uid)) slot%uid = uid
        if (.not. put(param, slot%param)) return
        if (.not. put(grad, slot%grad)) return
        if (.not. put(exp_avg, slot%states(1))) return
        if (.not. put(exp_avg_sq, slot%states(2))) return
        if (.not. put(compensation, slot%compensation)) return
        if (.not. put(master, slot%master)) return
        if (.not. allocated(this%slots)) allocate (this%slots(8))
        if (this%count == size(this%slots)) then
            allocate (longer(2 * this%count))
            longer(:this%count) = this%slots
            call move_alloc(longer, this%slots)
        end if
        this%count = this%count + 1
        this%slots(this%count) = slot
    contains
        logical function put(array, to)
            type(mp_array), intent(in), optional :: array
            type(raw_array), intent(inout) :: to
            put = .true.
            if (.not. present(array)) return
            put = usable(array, error)
            if (.not. put) return
            if (array%count /= slot%count) then
                call refuse(MP_STATUS_INVALID_SHAPE, "an array of the slot has not as many elements as param", error)
                put = .false.
            end if
            to%data = array%address
            to%dtype = array%dtype
        end function put
    end subroutine slots_add

    !> One step on the arrays. args%step counts the steps taken, from 1. stats%found_inf is 1 where it was skipped.
    subroutine slots_step(this, context, args, scaler, stats, error)
        class(mp_slots), intent(in) :: this
        type(mp_context), intent(in) :: context
        type(mp_step_args), intent(in) :: args
        type(mp_scaler), intent(in), optional :: scaler
        type(mp_optimizer_stats), intent(inout), optional :: stats
        type(mp_error), intent(out), optional :: error
        if (.not. has_slots(this, error)) return
        call check(mp_optimizer_step_pointers(context%raw(), c_null_ptr, args, this%slots, &
            int(this%count, c_int64_t), optional_raw(scaler), stats), error)
    end subroutine slots_step

    logical function has_slots(slots, error)
        type(mp_slots), intent(in) :: slots
        type(mp_error), intent(out), optional :: error
        has_slots = allocated(slots%slots)
        if (.not. has_slots) call refuse(MP_STATUS_BAD_STATE, "no arrays have been added", error)
    end function has_slots

    !> Prepares a step on the arrays of slots.
    subroutine plan_create(this, context, args, slots, error)
        class(mp_step_plan), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_step_args), intent(in) :: args
        type(mp_slots), intent(in) :: slots
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        if (.not. has_slots(slots, error)) return
        handle = c_null_ptr
        status = mp_step_plan_create(context%raw(), args, slots%slots, int(slots%count, c_int64_t), handle)
        call adopt(this, handle, OF_PLAN, status, error, context%handle)
    end subroutine plan_create

    !> A step.
    subroutine plan_run(this, scaler, queue, error)
        class(mp_step_plan), intent(in) :: this
        type(mp_scaler), intent(in), optional :: scaler
        type(mp_queue), intent(in), optional :: queue
        type(mp_error), intent(out), optional :: error
        call check(mp_step_plan_run(this%raw(), optional_raw(queue), optional_raw(scaler)), error)
    end subroutine plan_run

    !> Other hyperparameters from the next run on.
    subroutine plan_set_args(this, args, error)
        class(mp_step_plan), intent(in) :: this
        type(mp_step_args), intent(in) :: args
        type(mp_error), intent(out), optional :: error
        call check(mp_step_plan_set_args(this%raw(), c_null_ptr, args), error)
    end subroutine plan_set_args

    !> What the plan was told last.
    subroutine plan_get_args(this, args, error)
        class(mp_step_plan), intent(in) :: this
        type(mp_step_args), intent(out) :: args
        type(mp_error), intent(out), optional :: error
        call check(mp_step_plan_get_args(this%raw(), args), error)
    end subroutine plan_get_args

    !> What the last run did.
    subroutine plan_stats(this, stats, error)
        class(mp_step_plan), intent(in) :: this
        type(mp_optimizer_stats), intent(out) :: stats
        type(mp_error), intent(out), optional :: error
        call check(mp_step_plan_get_stats(this%raw(), c_null_ptr, stats), error)
    end subroutine plan_stats

    ! ---- Ranks

    !> The communicator of one rank.
    subroutine comm_create_self(this, desc, error)
        class(mp_comm), intent(inout) :: this
        type(mp_comm_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_comm_create_self(desc, handle)
        call adopt(this, handle, OF_COMM, status, error, c_null_ptr)
    end subroutine comm_create_self

    !> Communicators for ranks that are threads: comms(i) is for rank i - 1, which any one thread may use.
    subroutine mp_create_threads(comms, desc, error)
        type(mp_comm), intent(inout) :: comms(:)
        type(mp_comm_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handles(size(comms))
        integer(c_int32_t) :: status
        integer :: i
        handles = c_null_ptr
        status = mp_comm_create_threads(desc, size(comms, kind=c_int32_t), handles)
        call check(status, error)
        if (status < 0) return
        do i = 1, size(comms)
            call adopt(comms(i), handles(i), OF_COMM, status)
        end do
    end subroutine mp_create_threads

    !> A communicator over MPI: of MPI_COMM_WORLD, or of the integer handle of another (comm%mpi_val of mpi_f08).
    subroutine comm_create_mpi(this, mpi_comm, desc, error)
        class(mp_comm), intent(inout) :: this
        integer, intent(in), optional :: mpi_comm
        type(mp_comm_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr), target :: native
        integer(c_int), target :: number
        procedure(c2f_function), pointer :: comm_f2c
        character(kind=c_char), allocatable, target :: name(:)
        type(c_funptr) :: found
        type(c_ptr) :: handle, address
        integer(c_int32_t) :: status
        address = c_null_ptr
        if (present(mpi_comm)) then
            ! Open MPI has a function for it; where there is none (MPICH) the integer is the MPI_Comm itself.
            number = mpi_comm
            address = c_loc(number)
            call to_c("MPI_Comm_f2c", name)
            found = c_dlsym(c_null_ptr, c_loc(name))
            if (c_associated(found)) then
                call c_f_procpointer(found, comm_f2c)
                native = comm_f2c(number)
                address = c_loc(native)
            end if
        end if
        handle = c_null_ptr
        status = mp_comm_create_mpi(desc, address, handle)
        call adopt(this, handle, OF_COMM, status, error)
    end subroutine comm_create_mpi

    !> A communicator over bind(c) procedures of the program's; see comm.h.
    subroutine comm_create_callbacks(this, callbacks, desc, error)
        class(mp_comm), intent(inout) :: this
        type(mp_comm_callbacks), intent(in) :: callbacks
        type(mp_comm_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_comm_create_callbacks(desc, callbacks, handle)
        call adopt(this, handle, OF_COMM, status, error, c_null_ptr)
    end subroutine comm_create_callbacks

    !> The ranks of one color of another communicator; a color below 0: in none.
    subroutine comm_split_of(this, source, color, key, error)
        class(mp_comm), intent(inout) :: this
        type(mp_comm), intent(in) :: source
        integer, intent(in) :: color, key
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        handle = c_null_ptr
        status = mp_comm_split(source%raw(), int(color, c_int32_t), int(key, c_int32_t), handle)
        call adopt(this, handle, OF_COMM, status, error, c_null_ptr)
    end subroutine comm_split_of

    !> This rank's number, from 0.
    integer function comm_rank(this, error) result(value)
        class(mp_comm), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_comm_get_rank(this%raw(), found), error)
        value = found
    end function comm_rank

    !> The number of ranks.
    integer function comm_size(this, error) result(value)
        class(mp_comm), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_comm_get_size(this%raw(), found), error)
        value = found
    end function comm_size

    !> Which machine a rank is on.
    integer function comm_node(this, rank, error) result(value)
        class(mp_comm), intent(in) :: this
        integer(c_int32_t), intent(in) :: rank
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: found
        found = 0
        call check(mp_comm_get_node(this%raw(), rank, found), error)
        value = found
    end function comm_node

    ! Whether `count` bytes at each offset lie inside an array.
    pure logical function inside(array, counts, offsets)
        type(mp_array), intent(in) :: array
        integer(c_int64_t), intent(in) :: counts(:), offsets(:)
        inside = all(counts >= 0) .and. all(offsets >= 0)
        if (inside) inside = all(counts <= array%count * array%element_bytes - offsets)
    end function inside

    !> Every rank gives every rank its own bytes: counts and offsets in bytes, one for each rank. Waits.
    subroutine comm_all_to_all(this, send, send_bytes, send_offsets, receive, receive_bytes, receive_offsets, error)
        class(mp_comm), intent(in) :: this
        type(mp_array), intent(in) :: send, receive
        integer(c_int64_t), intent(in), target, contiguous :: send_bytes(:), send_offsets(:), receive_bytes(:), &
            receive_offsets(:)
        type(mp_error), intent(out), optional :: error
        call exchange(this, .true., send, send_bytes, send_offsets, receive, receive_bytes, receive_offsets, error)
    end subroutine comm_all_to_all

    !> Every rank gets every rank's array: receive(n, ranks) of send(n). Waits.
    subroutine comm_all_gather(this, send, receive, error)
        class(mp_comm), intent(in) :: this
        type(mp_array), intent(in) :: send, receive
        type(mp_error), intent(out), optional :: error
        integer(c_int64_t), allocatable :: counts(:), offsets(:)
        integer(c_int32_t) :: status, ranks
        integer :: i
        ranks = 0
        status = mp_comm_get_size(this%raw(), ranks)
        call check(status, error)
        if (status < 0) return
        counts = [(send%count * send%element_bytes, i = 1, ranks)]
        offsets = [((i - 1) * send%count * send%element_bytes, i = 1, ranks)]
        call exchange(this, .false., send, counts(1:1), offsets(1:1), receive, counts, offsets, error)
    end subroutine comm_all_gather

    subroutine exchange(this, each, send, send_bytes, send_offsets, receive, receive_bytes, receive_offsets, error)
        class(mp_comm), intent(in) :: this
        logical, intent(in) :: each
        type(mp_array), intent(in) :: send, receive
        integer(c_int64_t), intent(in), target, contiguous :: send_bytes(:), send_offsets(:), receive_bytes(:), &
            receive_offsets(:)
        type(mp_error), intent(out), optional :: error
        type(mp_comm_exchange) :: what
        integer(c_int32_t) :: status, ranks
        ranks = 0
        status = mp_comm_get_size(this%raw(), ranks)
        call check(status, error)
        if (status < 0) return
        if (any([size(receive_bytes), size(receive_offsets)] /= ranks) .or. &
            (each .and. any([size(send_bytes), size(send_offsets)] /= ranks))) then
            call refuse(MP_STATUS_INVALID_SHAPE, "counts and offsets have one number for each rank", error)
            return
        end if
        if (.not. (inside(send, send_bytes, send_offsets) .and. inside(receive, receive_bytes, receive_offsets))) then
            call refuse(MP_STATUS_INVALID_SHAPE, "a part is outside of its array", error)
            return
        end if
        what%send = send%address
        what%send_bytes = c_loc(send_bytes)
        what%send_offsets = c_loc(send_offsets)
        what%receive = receive%address
        what%receive_bytes = c_loc(receive_bytes)
        what%receive_offsets = c_loc(receive_offsets)
        if (each) then
            call check(mp_comm_all_to_all(this%raw(), c_null_ptr, what), error)
        else
            call check(mp_comm_all_gather(this%raw(), c_null_ptr, what), error)
        end if
    end subroutine exchange

    ! Begins something, or waits for it where no request is wanted.
    subroutine hold(status, handle, request, error)
        integer(c_int32_t), intent(in) :: status
        type(c_ptr), intent(in) :: handle
        type(mp_request), intent(inout), optional :: request
        type(mp_error), intent(out), optional :: error
        if (present(request)) then
            call adopt(request, handle, OF_REQUEST, status, error)
        else
            call check(status, error)
        end if
    end subroutine hold

    !> All ranks get the root's array. With a request it goes on: the array must stay until that is done.
    subroutine comm_broadcast(this, array, root, request, error)
        class(mp_comm), intent(in) :: this
        type(mp_array), intent(in) :: array
        integer, intent(in) :: root
        type(mp_request), intent(inout), optional :: request
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle
        handle = c_null_ptr
        if (present(request)) then
            call hold(mp_comm_broadcast(this%raw(), c_null_ptr, array%address, array%count * array%element_bytes, &
                int(root, c_int32_t), handle), handle, request, error)
        else
            call check(mp_comm_broadcast(this%raw(), c_null_ptr, array%address, array%count * array%element_bytes, &
                int(root, c_int32_t)), error)
        end if
    end subroutine comm_broadcast

    !> Returns when every rank has called it.
    subroutine comm_barrier(this, error)
        class(mp_comm), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_comm_barrier(this%raw()), error)
    end subroutine comm_barrier

    !> The same sums of all elements on every rank. The tensors are kept while a request is under way.
    subroutine comm_all_reduce(this, source, destination, desc, request, error)
        class(mp_comm), intent(in) :: this
        type(mp_tensor), intent(in) :: source, destination
        type(mp_comm_reduce_desc), intent(in), optional :: desc
        type(mp_request), intent(inout), optional :: request
        type(mp_error), intent(out), optional :: error
        type(c_ptr) :: handle, sources(1)
        integer(c_int32_t) :: status
        handle = c_null_ptr
        sources = source%raw()
        if (present(request)) then
            status = mp_comm_all_reduce(this%raw(), c_null_ptr, desc, sources, 1_c_int32_t, destination%raw(), handle)
        else
            status = mp_comm_all_reduce(this%raw(), c_null_ptr, desc, sources, 1_c_int32_t, destination%raw())
        end if
        call hold(status, handle, request, error)
    end subroutine comm_all_reduce

    !> This rank's share of the sum of all ranks' elements. counts has each rank's; absent: even shares.
    subroutine comm_reduce_scatter(this, source, destination, counts, desc, error)
        class(mp_comm), intent(in) :: this
        type(mp_tensor), intent(in) :: source, destination
        integer(c_int64_t), intent(in), optional :: counts(:)
        type(mp_comm_reduce_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        if (.not. one_each(this, counts, error)) return
        call check(mp_comm_reduce_scatter(this%raw(), c_null_ptr, desc, [source%raw()], 1_c_int32_t, counts, &
            destination%raw()), error)
    end subroutine comm_reduce_scatter

    !> Every rank gets all ranks' values. counts has each rank's; absent: even shares.
    subroutine comm_all_gather_values(this, shard, destination, counts, desc, error)
        class(mp_comm), intent(in) :: this
        type(mp_tensor), intent(in) :: shard, destination
        integer(c_int64_t), intent(in), optional :: counts(:)
        type(mp_comm_reduce_desc), intent(in), optional :: desc
        type(mp_error), intent(out), optional :: error
        if (.not. one_each(this, counts, error)) return
        call check(mp_comm_all_gather_values(this%raw(), c_null_ptr, desc, shard%raw(), counts, destination%raw()), &
            error)
    end subroutine comm_all_gather_values

    logical function one_each(comm, counts, error)
        class(mp_comm), intent(in) :: comm
        integer(c_int64_t), intent(in), optional :: counts(:)
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: status, ranks
        ranks = 0
        status = mp_comm_get_size(comm%raw(), ranks)
        call check(status, error)
        one_each = status >= 0
        if (.not. present(counts) .or. .not. one_each) return
        one_each = size(counts) == ranks
        if (.not. one_each) call refuse(MP_STATUS_INVALID_SHAPE, "counts has one number for each rank", error)
    end function one_each

    !> The deadline of calls from now on.
    subroutine comm_set_deadline(this, milliseconds, error)
        class(mp_comm), intent(in) :: this
        integer(c_int64_t), intent(in) :: milliseconds
        type(mp_error), intent(out), optional :: error
        call check(mp_comm_set_deadline(this%raw(), milliseconds), error)
    end subroutine comm_set_deadline

    !> Ends the communicator here and tells the other ranks. From any thread.
    subroutine comm_abort(this, reason, error)
        class(mp_comm), intent(in) :: this
        character(*), intent(in) :: reason
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(reason, text)
        call check(mp_comm_abort(this%raw(), c_loc(text)), error)
    end subroutine comm_abort

    !> Whether it still works: error has the failure that ended it.
    subroutine comm_status(this, error)
        class(mp_comm), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_comm_get_status(this%raw()), error)
    end subroutine comm_status

    !> What this rank has sent so far.
    subroutine comm_traffic(this, traffic, error)
        class(mp_comm), intent(in) :: this
        type(mp_comm_traffic), intent(out) :: traffic
        type(mp_error), intent(out), optional :: error
        call check(mp_comm_get_traffic(this%raw(), traffic), error)
    end subroutine comm_traffic

    !> One line: rank, transport, deadline, bytes, what ended it.
    subroutine comm_describe(this, text, error)
        class(mp_comm), intent(in) :: this
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        call ask(mp_comm_describe, this%raw(), text, error)
    end subroutine comm_describe

    !> Waits until the operation is done.
    subroutine request_wait(this, error)
        class(mp_request), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_comm_request_wait(this%raw()), error)
    end subroutine request_wait

    !> Whether it is done; moves it on without waiting.
    logical function request_done(this, error)
        class(mp_request), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: status
        status = mp_comm_request_test(this%raw())
        call check(status, error)
        request_done = status == MP_STATUS_OK
    end function request_done

    ! ---- Checkpoints

    !> An empty checkpoint object. keep: older ones beyond so many are deleted after a save; 0: none is.
    subroutine checkpoint_create(this, context, comm, keep, progress, error)
        class(mp_checkpoint), intent(inout) :: this
        type(mp_context), intent(in) :: context
        type(mp_comm), intent(in), optional :: comm
        integer, intent(in), optional :: keep
        procedure(mp_progress_procedure), optional :: progress
        type(mp_error), intent(out), optional :: error
        type(mp_checkpoint_desc) :: desc
        type(c_ptr) :: handle
        integer(c_int32_t) :: status
        if (present(keep)) desc%keep = keep
        if (present(progress)) then
            desc%progress = c_funloc(progress_trampoline)
            desc%payload = transfer(c_funloc(progress), c_null_ptr)
        end if
        handle = c_null_ptr
        status = mp_checkpoint_create(context%raw(), optional_raw(comm), desc, handle)
        call adopt(this, handle, OF_CHECKPOINT, status, error, context%handle)
    end subroutine checkpoint_create

    subroutine progress_trampoline(done, total, payload) bind(c)
        integer(c_int64_t), value :: done, total
        type(c_ptr), value :: payload
        procedure(mp_progress_procedure), pointer :: progress
        call c_f_procpointer(transfer(payload, c_null_funptr), progress)
        call progress(done, total)
    end subroutine progress_trampoline

    !> Adds an optimizer: parameters, states, groups, seed.
    subroutine checkpoint_add_optimizer(this, optimizer, error)
        class(mp_checkpoint), intent(in) :: this
        type(mp_optimizer), intent(in) :: optimizer
        type(mp_error), intent(out), optional :: error
        call check(mp_checkpoint_add_optimizer(this%raw(), optimizer%raw()), error)
    end subroutine checkpoint_add_optimizer

    !> Adds a scaler.
    subroutine checkpoint_add_scaler(this, scaler, error)
        class(mp_checkpoint), intent(in) :: this
        type(mp_scaler), intent(in) :: scaler
        type(mp_error), intent(out), optional :: error
        call check(mp_checkpoint_add_scaler(this%raw(), scaler%raw()), error)
    end subroutine checkpoint_add_scaler

    !> Adds a layer's scales and amax histories under a name.
    subroutine checkpoint_add_linear(this, name, linear, error)
        class(mp_checkpoint), intent(in) :: this
        character(*), intent(in) :: name
        type(mp_linear), intent(in) :: linear
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_checkpoint_add_linear(this%raw(), c_loc(text), linear%raw()), error)
    end subroutine checkpoint_add_linear

    !> Adds numbers of the program's: call add_data(name, mp_array(a)). They must outlive the object.
    subroutine checkpoint_add_data(this, name, array, error)
        class(mp_checkpoint), intent(in) :: this
        character(*), intent(in) :: name
        type(mp_array), intent(in) :: array
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(name, text)
        call check(mp_checkpoint_add_data(this%raw(), c_loc(text), array%address, &
            array%count * array%element_bytes), error)
    end subroutine checkpoint_add_data

    !> Saves a new checkpoint; in the background it returns when the state is copied.
    subroutine checkpoint_save(this, directory, step, background, error)
        class(mp_checkpoint), intent(in) :: this
        character(*), intent(in) :: directory
        integer(c_int64_t), intent(in) :: step
        logical, intent(in), optional :: background
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        integer(c_int32_t) :: flags
        flags = 0
        if (present(background)) flags = merge(MP_SAVE_BACKGROUND, 0, background)
        call to_c(directory, text)
        call check(mp_checkpoint_save(this%raw(), c_loc(text), step, flags), error)
    end subroutine checkpoint_save

    !> Loads into what was added; flags are MP_LOAD_*.
    subroutine checkpoint_load(this, path, info, flags, error)
        class(mp_checkpoint), intent(in) :: this
        character(*), intent(in) :: path
        type(mp_checkpoint_info), intent(inout), optional :: info
        integer(c_int32_t), intent(in), optional :: flags
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        integer(c_int32_t) :: all
        all = 0
        if (present(flags)) all = flags
        call to_c(path, text)
        call check(mp_checkpoint_load(this%raw(), c_loc(text), all, info), error)
    end subroutine checkpoint_load

    !> Whether no save runs in the background.
    logical function checkpoint_done(this, error)
        class(mp_checkpoint), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        integer(c_int32_t) :: status
        status = mp_checkpoint_test(this%raw())
        call check(status, error)
        checkpoint_done = status == MP_STATUS_OK
    end function checkpoint_done

    !> Waits until a save in the background has ended, and gives its status.
    subroutine checkpoint_wait(this, error)
        class(mp_checkpoint), intent(in) :: this
        type(mp_error), intent(out), optional :: error
        call check(mp_checkpoint_wait(this%raw()), error)
    end subroutine checkpoint_wait

    !> Writes the parameters alone as a safetensors file, which must not exist.
    subroutine checkpoint_export_weights(this, file, error)
        class(mp_checkpoint), intent(in) :: this
        character(*), intent(in) :: file
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(file, text)
        call check(mp_checkpoint_export_weights(this%raw(), c_loc(text)), error)
    end subroutine checkpoint_export_weights

    !> What a checkpoint is, without loading it.
    subroutine mp_inspect(path, info, error)
        character(*), intent(in) :: path
        type(mp_checkpoint_info), intent(out) :: info
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: text(:)
        call to_c(path, text)
        call check(mp_checkpoint_inspect(c_loc(text), info), error)
    end subroutine mp_inspect

    !> The same in words.
    subroutine mp_describe_checkpoint(path, text, error)
        character(*), intent(in) :: path
        character(:), allocatable, intent(out) :: text
        type(mp_error), intent(out), optional :: error
        character(kind=c_char), allocatable, target :: name(:)
        type(c_ptr) :: address
        call to_c(path, name)
        address = c_loc(name)
        call ask(mp_checkpoint_describe, address, text, error)
    end subroutine mp_describe_checkpoint

end module mixedprec_safe

!> What a program uses: the objects, and the library's constants and structs.
module mixedprec
    use mixedprec_types, mp_raw_array => mp_array
    use mixedprec_safe
    implicit none
    public
end module mixedprec
