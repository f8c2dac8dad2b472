// SPDX-License-Identifier: Apache-2.0
//! libmixedprec for Zig: errors for statuses, slices for memory, deinit for handles. `c` is the whole C ABI.
//! A handle that was given back is an error of the library's at its next use, not a crash.

const std = @import("std");
pub const c = @cImport(@cInclude("mixedprec.h"));

// ---- Errors

pub const Error = error{
    NullArgument,
    InvalidArgument,
    InvalidShape,
    InvalidDtype,
    UnknownName,
    StructTooNew,
    BadState,
    InvalidHandle,
    ParseError,
    Unsupported,
    DeviceUnavailable,
    ModuleNotFound,
    VersionMismatch,
    OutOfMemory,
    IoError,
    CallbackFailed,
    Timeout,
    PeerLost,
    PeerError,
    RankMismatch,
    Aborted,
    CorruptData,
    VendorError,
    Internal,
};

threadlocal var text: [4096]u8 = undefined;
threadlocal var text_length: usize = 0;

/// What went wrong in this thread's last call that failed, or the note of its last success that had one.
pub fn lastMessage() []const u8 {
    return text[0..text_length];
}

fn keep(words: []const u8) void {
    text_length = @min(words.len, text.len);
    @memcpy(text[0..text_length], words[0..text_length]);
}

/// A status as an error, with the message kept for lastMessage(). For calls of `c` as well. True: success with a note.
pub fn check(status: c.mp_status) Error!bool {
    if (status == c.MP_STATUS_OK) return false;
    keep(std.mem.span(c.mp_last_error_message()));
    if (status > 0) return true;
    return switch (status) {
        c.MP_STATUS_NULL_ARGUMENT => Error.NullArgument,
        c.MP_STATUS_INVALID_ARGUMENT => Error.InvalidArgument,
        c.MP_STATUS_INVALID_SHAPE => Error.InvalidShape,
        c.MP_STATUS_INVALID_DTYPE => Error.InvalidDtype,
        c.MP_STATUS_UNKNOWN_NAME => Error.UnknownName,
        c.MP_STATUS_STRUCT_TOO_NEW => Error.StructTooNew,
        c.MP_STATUS_BAD_STATE => Error.BadState,
        c.MP_STATUS_INVALID_HANDLE => Error.InvalidHandle,
        c.MP_STATUS_PARSE_ERROR => Error.ParseError,
        c.MP_STATUS_UNSUPPORTED => Error.Unsupported,
        c.MP_STATUS_DEVICE_UNAVAILABLE => Error.DeviceUnavailable,
        c.MP_STATUS_MODULE_NOT_FOUND => Error.ModuleNotFound,
        c.MP_STATUS_VERSION_MISMATCH => Error.VersionMismatch,
        c.MP_STATUS_OUT_OF_MEMORY => Error.OutOfMemory,
        c.MP_STATUS_IO_ERROR => Error.IoError,
        c.MP_STATUS_CALLBACK_FAILED => Error.CallbackFailed,
        c.MP_STATUS_TIMEOUT => Error.Timeout,
        c.MP_STATUS_PEER_LOST => Error.PeerLost,
        c.MP_STATUS_PEER_ERROR => Error.PeerError,
        c.MP_STATUS_RANK_MISMATCH => Error.RankMismatch,
        c.MP_STATUS_ABORTED => Error.Aborted,
        c.MP_STATUS_CORRUPT_DATA => Error.CorruptData,
        else => if (status <= -60 and status > -80) Error.VendorError else Error.Internal,
    };
}

/// check() where a note is of no interest; lastMessage() has it all the same.
pub fn must(status: c.mp_status) Error!void {
    _ = try check(status);
}

fn refuse(problem: Error, words: []const u8) Error {
    keep(words);
    return problem;
}

/// A struct of the C ABI with its defaults, which are zeros: init("mp_linear_desc"). A hyperparameter of zero is given by name,
/// in `hypers`, and stage 0 is MP_SHARDING_STAGE_0. The lr of a step is as it stands. Steps count from 1.
pub fn init(comptime name: []const u8) @field(c, name) {
    var desc = std.mem.zeroes(@field(c, name));
    desc.struct_size = @sizeOf(@field(c, name));
    return desc;
}

// ---- Elements

/// Codes of types that Zig does not have.
pub const Bf16 = enum(u16) { _ };
pub const Fp8E4m3 = enum(u8) { _ };
pub const Fp8E5m2 = enum(u8) { _ };

/// The MP_DTYPE_* of an element type.
pub fn dtypeOf(comptime T: type) i32 {
    return switch (T) {
        f32 => c.MP_DTYPE_FP32,
        f16 => c.MP_DTYPE_FP16,
        Bf16 => c.MP_DTYPE_BF16,
        Fp8E4m3 => c.MP_DTYPE_FP8_E4M3,
        Fp8E5m2 => c.MP_DTYPE_FP8_E5M2,
        i8 => c.MP_DTYPE_INT8,
        u8 => c.MP_DTYPE_UINT8,
        i16 => c.MP_DTYPE_INT16,
        i32 => c.MP_DTYPE_INT32,
        i64 => c.MP_DTYPE_INT64,
        else => @compileError("the library has no element type " ++ @typeName(T)),
    };
}

// ---- Objects. All keep what they need; deinit them in any order, once.

pub const Context = struct {
    handle: *c.mp_context,

    pub const Options = struct {
        threads: i32 = 0,
        device_kind: i32 = 0,
        device_index: i32 = 0,
        backend: ?[:0]const u8 = null,
    };

    pub fn create(options: Options) Error!Context {
        var desc = init("mp_context_desc");
        desc.api_version = c.MP_VERSION;
        desc.num_threads = options.threads;
        desc.device_kind = options.device_kind;
        desc.device_index = options.device_index;
        if (options.backend) |name| desc.backend = name.ptr;
        var out: ?*c.mp_context = null;
        try must(c.mp_context_create(&desc, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Context) void {
        c.mp_context_destroy(self.handle);
    }

    /// Waits for the default queue.
    pub fn sync(self: Context) Error!void {
        try must(c.mp_context_sync(self.handle));
    }
};

pub const Recipe = struct {
    handle: *c.mp_recipe,

    /// A preset by its name.
    pub fn create(context: Context, name: [:0]const u8) Error!Recipe {
        var out: ?*c.mp_recipe = null;
        try must(c.mp_recipe_create(context.handle, name.ptr, &out));
        return .{ .handle = out.? };
    }

    pub fn fromJson(context: Context, json: []const u8) Error!Recipe {
        var out: ?*c.mp_recipe = null;
        try must(c.mp_recipe_create_from_json(context.handle, json.ptr, json.len, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Recipe) void {
        c.mp_recipe_destroy(self.handle);
    }

    /// Sets a key: text, a float or an integer.
    pub fn set(self: Recipe, key: [:0]const u8, value: anytype) Error!void {
        try must(switch (@typeInfo(@TypeOf(value))) {
            .int, .comptime_int => c.mp_recipe_set_int(self.handle, key.ptr, value),
            .float, .comptime_float => c.mp_recipe_set_float(self.handle, key.ptr, value),
            else => c.mp_recipe_set_string(self.handle, key.ptr, @as([:0]const u8, value).ptr),
        });
    }

    /// The recipe as JSON; the caller frees it.
    pub fn toJson(self: Recipe, allocator: std.mem.Allocator) Error![]u8 {
        var needed: usize = 0;
        try must(c.mp_recipe_to_json(self.handle, null, 0, &needed));
        const buffer = allocator.alloc(u8, needed) catch return refuse(Error.OutOfMemory, "no memory for the text");
        defer allocator.free(buffer);
        try must(c.mp_recipe_to_json(self.handle, buffer.ptr, buffer.len, &needed));
        return allocator.dupe(u8, buffer[0 .. needed - 1]) catch refuse(Error.OutOfMemory, "no memory for the text");
    }
};

fn elementsOf(shape: []const i64) Error!usize {
    if (shape.len > c.MP_MAX_DIMS) return refuse(Error.InvalidShape, "a shape has too many dimensions");
    var count: usize = 1;
    for (shape) |size| {
        const n = std.math.cast(usize, size) orelse return refuse(Error.InvalidShape, "a size is negative");
        count = std.math.mul(usize, count, n) catch return refuse(Error.InvalidShape, "a shape is too large");
    }
    return count;
}

pub const Tensor = struct {
    handle: *c.mp_tensor,

    fn describe(comptime T: type, shape: []const i64) c.mp_tensor_desc {
        var desc = init("mp_tensor_desc");
        desc.dtype = dtypeOf(T);
        desc.ndim = @intCast(shape.len);
        for (shape, 0..) |size, i| desc.shape[i] = size;
        return desc;
    }

    /// Zeros in the library's memory. Shapes are row-major.
    pub fn create(context: Context, comptime T: type, shape: []const i64) Error!Tensor {
        _ = try elementsOf(shape);
        var out: ?*c.mp_tensor = null;
        try must(c.mp_tensor_create(context.handle, &describe(T, shape), &out));
        return .{ .handle = out.? };
    }

    /// A tensor over a slice, which must outlive it and all that uses it.
    pub fn wrap(context: Context, comptime T: type, data: []T, shape: []const i64) Error!Tensor {
        if (try elementsOf(shape) != data.len) return refuse(Error.InvalidShape, "the slice has another size");
        var desc = describe(T, shape);
        desc.device_kind = c.MP_DEVICE_HOST;
        var out: ?*c.mp_tensor = null;
        try must(c.mp_tensor_wrap(context.handle, &desc, data.ptr, null, null, &out));
        return .{ .handle = out.? };
    }

    /// The weight that a recipe wants, from its values.
    pub fn weight(context: Context, recipe: Recipe, shape: []const i64, values: []const f32) Error!Tensor {
        if (try elementsOf(shape) != values.len) return refuse(Error.InvalidShape, "the slice has another size");
        var out: ?*c.mp_tensor = null;
        const ndim: i32 = @intCast(shape.len);
        try must(c.mp_recipe_create_weight(context.handle, recipe.handle, ndim, shape.ptr, values.ptr, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Tensor) void {
        c.mp_tensor_destroy(self.handle);
    }

    fn has(self: Tensor, comptime T: type) Error!void {
        var desc = init("mp_tensor_desc");
        try must(c.mp_tensor_get_desc(self.handle, &desc));
        if (desc.dtype != dtypeOf(T)) return refuse(Error.InvalidDtype, "the tensor has other elements");
    }

    pub fn write(self: Tensor, comptime T: type, values: []const T) Error!void {
        try self.has(T);
        try must(c.mp_tensor_write(self.handle, null, values.ptr, values.len * @sizeOf(T)));
    }

    pub fn read(self: Tensor, comptime T: type, values: []T) Error!void {
        try self.has(T);
        try must(c.mp_tensor_read(self.handle, null, values.ptr, values.len * @sizeOf(T)));
    }

    /// Converts the elements of `source` to this tensor's type; a desc asks for stochastic rounding, for example.
    pub fn castFrom(self: Tensor, source: Tensor, desc: ?*const c.mp_cast_desc) Error!void {
        try must(c.mp_tensor_cast(source.handle, null, self.handle, desc));
    }
};

fn handleOf(comptime T: type, object: anytype) ?*T {
    return if (object) |o| o.handle else null;
}

pub const Linear = struct {
    handle: *c.mp_linear,

    /// A layer over weight [out, in] and bias [out].
    pub fn create(
        context: Context,
        recipe: Recipe,
        in: i64,
        out_features: i64,
        weight: Tensor,
        bias: ?Tensor,
    ) Error!Linear {
        var desc = init("mp_linear_desc");
        desc.in_features = in;
        desc.out_features = out_features;
        var out: ?*c.mp_linear = null;
        const b = handleOf(c.mp_tensor, bias);
        try must(c.mp_linear_create(context.handle, recipe.handle, &desc, weight.handle, b, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Linear) void {
        c.mp_linear_destroy(self.handle);
    }

    /// y [rows, out] of x [rows, in].
    pub fn forward(self: Linear, x: Tensor, y: Tensor) Error!void {
        try must(c.mp_linear_forward(self.handle, null, x.handle, y.handle));
    }

    pub const Gradients = struct { dx: ?Tensor = null, dw: Tensor, dbias: ?Tensor = null, accumulate: bool = false };

    /// The gradients of dy [rows, out], for the last forward.
    pub fn backward(self: Linear, dy: Tensor, to: Gradients) Error!void {
        const flags: u32 = if (to.accumulate) c.MP_BACKWARD_ACCUMULATE else 0;
        const dx = handleOf(c.mp_tensor, to.dx);
        const dbias = handleOf(c.mp_tensor, to.dbias);
        try must(c.mp_linear_backward(self.handle, null, dy.handle, dx, to.dw.handle, dbias, flags));
    }
};

pub const Scaler = struct {
    handle: *c.mp_scaler,

    /// torch's rule, or that of a desc.
    pub fn create(context: Context, desc: ?*const c.mp_scaler_desc) Error!Scaler {
        var out: ?*c.mp_scaler = null;
        try must(c.mp_scaler_create(context.handle, desc, &out));
        return .{ .handle = out.? };
    }

    pub fn fromRecipe(context: Context, recipe: Recipe) Error!Scaler {
        var out: ?*c.mp_scaler = null;
        try must(c.mp_scaler_create_from_recipe(context.handle, recipe.handle, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Scaler) void {
        c.mp_scaler_destroy(self.handle);
    }

    /// Multiply the loss by it.
    pub fn scale(self: Scaler) Error!f64 {
        var value: f64 = 0;
        try must(c.mp_scaler_get_scale(self.handle, null, &value));
        return value;
    }

    /// Moves the scale, once a step.
    pub fn update(self: Scaler) Error!void {
        try must(c.mp_scaler_update(self.handle, null));
    }
};

pub const Optimizer = struct {
    handle: *c.mp_optimizer,

    pub const Options = struct {
        desc: ?*const c.mp_optimizer_desc = null,
        comm: ?Comm = null,
        sharding: ?*const c.mp_sharding_desc = null,
    };

    /// With a comm its ranks share the optimizer.
    pub fn create(context: Context, recipe: Recipe, options: Options) Error!Optimizer {
        var out: ?*c.mp_optimizer = null;
        try must(if (options.comm) |comm|
            c.mp_optimizer_create_sharded(
                context.handle,
                recipe.handle,
                options.desc,
                comm.handle,
                options.sharding,
                &out,
            )
        else
            c.mp_optimizer_create(context.handle, recipe.handle, options.desc, &out));
        return .{ .handle = out.? };
    }

    pub fn deinit(self: Optimizer) void {
        c.mp_optimizer_destroy(self.handle);
    }

    pub fn addGroup(self: Optimizer, desc: c.mp_param_group_desc) Error!i32 {
        var index: i32 = 0;
        try must(c.mp_optimizer_add_group(self.handle, &desc, &index));
        return index;
    }

    /// Without grad one is made: state(index, "grad"). initial has the exact values.
    pub const Param = struct { name: [:0]const u8, param: Tensor, grad: ?Tensor = null, initial: ?Tensor = null };

    pub fn addParam(self: Optimizer, group: i32, param: Param) Error!i32 {
        var desc = init("mp_param_desc");
        desc.name = param.name.ptr;
        desc.param = param.param.handle;
        desc.grad = handleOf(c.mp_tensor, param.grad);
        desc.init_fp32 = handleOf(c.mp_tensor, param.initial);
        var index: i32 = 0;
        try must(c.mp_optimizer_add_param(self.handle, group, &desc, &index));
        return index;
    }

    /// "param", "grad", "exp_avg" and the like; deinit it.
    pub fn state(self: Optimizer, index: i32, name: [:0]const u8) Error!Tensor {
        var out: ?*c.mp_tensor = null;
        try must(c.mp_optimizer_get_state(self.handle, index, name.ptr, &out));
        return .{ .handle = out.? };
    }

    /// The layers whose step ends with the optimizer's; at most 256 here.
    pub fn setLinears(self: Optimizer, linears: []const Linear) Error!void {
        var handles: [256]?*c.mp_linear = undefined;
        if (linears.len > handles.len) return refuse(Error.InvalidArgument, "more layers than setLinears takes");
        for (linears, 0..) |linear, i| handles[i] = linear.handle;
        try must(c.mp_optimizer_set_linears(self.handle, &handles, @intCast(linears.len)));
    }

    pub fn step(self: Optimizer, scaler: ?Scaler) Error!void {
        try must(c.mp_optimizer_step(self.handle, null, handleOf(c.mp_scaler, scaler)));
    }

    pub fn stats(self: Optimizer) Error!c.mp_optimizer_stats {
        var result = init("mp_optimizer_stats");
        try must(c.mp_optimizer_get_stats(self.handle, null, &result));
        return result;
    }

    pub fn setLr(self: Optimizer, group: i32, lr: f64) Error!void {
        try must(c.mp_optimizer_set_lr(self.handle, group, lr));
    }
};

/// A parameter in slices of the program's, for step(). T of each is its own element type.
pub fn slot(param: anytype, grad: anytype, exp_avg: anytype, exp_avg_sq: anytype) Error!c.mp_step_slot {
    var result = init("mp_step_slot");
    result.count = @intCast(param.len);
    const places = .{ &result.param, &result.grad, &result.states[0], &result.states[1] };
    inline for (.{ "param", "grad", "exp_avg", "exp_avg_sq" }, .{ param, grad, exp_avg, exp_avg_sq }, places) |name, data, place| {
        if (data.len != param.len) return refuse(Error.InvalidShape, name ++ " has not as many elements as param");
        place.data = @ptrCast(data.ptr);
        place.dtype = dtypeOf(std.meta.Elem(@TypeOf(data)));
    }
    return result;
}

/// One step on the program's slices.
pub fn step(
    context: Context,
    args: c.mp_step_args,
    slots: []const c.mp_step_slot,
    scaler: ?Scaler,
) Error!c.mp_optimizer_stats {
    var stats = init("mp_optimizer_stats");
    const s = handleOf(c.mp_scaler, scaler);
    try must(c.mp_optimizer_step_pointers(context.handle, null, &args, slots.ptr, @intCast(slots.len), s, &stats));
    return stats;
}

pub const Comm = struct {
    handle: *c.mp_comm,

    /// Communicators for ranks that are threads, one for each.
    pub fn createThreads(comptime count: usize, desc: ?*const c.mp_comm_desc) Error![count]Comm {
        var handles: [count]?*c.mp_comm = @splat(null);
        try must(c.mp_comm_create_threads(desc, count, &handles));
        var result: [count]Comm = undefined;
        for (handles, 0..) |handle, i| result[i] = .{ .handle = handle.? };
        return result;
    }

    pub fn deinit(self: Comm) void {
        c.mp_comm_destroy(self.handle);
    }

    pub fn barrier(self: Comm) Error!void {
        try must(c.mp_comm_barrier(self.handle, null));
    }

    pub fn rank(self: Comm) Error!i32 {
        var number: i32 = 0;
        try must(c.mp_comm_get_rank(self.handle, &number));
        return number;
    }
};

pub const Checkpoint = struct {
    handle: *c.mp_checkpoint,

    pub fn create(context: Context, comm: ?Comm) Error!Checkpoint {
        var out: ?*c.mp_checkpoint = null;
        try must(c.mp_checkpoint_create(context.handle, handleOf(c.mp_comm, comm), null, &out));
        return .{ .handle = out.? };
    }

    /// Waits for a save that runs.
    pub fn deinit(self: Checkpoint) void {
        c.mp_checkpoint_destroy(self.handle);
    }

    pub fn addOptimizer(self: Checkpoint, optimizer: Optimizer) Error!void {
        try must(c.mp_checkpoint_add_optimizer(self.handle, optimizer.handle));
    }

    pub fn addScaler(self: Checkpoint, scaler: Scaler) Error!void {
        try must(c.mp_checkpoint_add_scaler(self.handle, scaler.handle));
    }

    pub fn addLinear(self: Checkpoint, name: [:0]const u8, linear: Linear) Error!void {
        try must(c.mp_checkpoint_add_linear(self.handle, name.ptr, linear.handle));
    }

    /// Bytes of the program's, which must outlive the object.
    pub fn addData(self: Checkpoint, name: [:0]const u8, data: []u8) Error!void {
        try must(c.mp_checkpoint_add_data(self.handle, name.ptr, data.ptr, data.len));
    }

    pub fn save(self: Checkpoint, directory: [:0]const u8, number: i64, flags: u32) Error!void {
        try must(c.mp_checkpoint_save(self.handle, directory.ptr, number, flags));
    }

    pub fn load(self: Checkpoint, path: [:0]const u8, flags: u32) Error!c.mp_checkpoint_info {
        var info = init("mp_checkpoint_info");
        try must(c.mp_checkpoint_load(self.handle, path.ptr, flags, &info));
        return info;
    }
};

/// What a checkpoint is, without loading it.
pub fn inspect(path: [:0]const u8) Error!c.mp_checkpoint_info {
    var info = init("mp_checkpoint_info");
    try must(c.mp_checkpoint_inspect(path.ptr, &info));
    return info;
}
