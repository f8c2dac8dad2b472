// SPDX-License-Identifier: Apache-2.0
//! libmixedprec for Zig: errors for statuses, slices for memory, deinit for handles. `c` is the whole C ABI.
//! A handle that was given back is an error of the library's at its next use, not a crash.

const std = @import("std");
const base = @import("mixedprec_base.zig");
const made = base.made;
const handleOf = base.handleOf;
const refuse = base.refuse;
const elementsOf = base.elementsOf;

pub const c = base.c;
pub const Error = base.Error;
pub const lastMessage = base.lastMessage;
pub const check = base.check;
pub const must = base.must;
pub const init = base.init;
pub const Bf16 = base.Bf16;
pub const Fp8E4m3 = base.Fp8E4m3;
pub const Fp8E5m2 = base.Fp8E5m2;
pub const dtypeOf = base.dtypeOf;

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
        return made(Context, c.mp_context_create, .{&desc});
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
        return made(Recipe, c.mp_recipe_create, .{ context.handle, name.ptr });
    }

    pub fn fromJson(context: Context, json: []const u8) Error!Recipe {
        return made(Recipe, c.mp_recipe_create_from_json, .{ context.handle, json.ptr, json.len });
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

    /// The recipe as a layer of this name has it: the rules of key "layers" resolved.
    pub fn forLayer(self: Recipe, name: [:0]const u8) Error!Recipe {
        return made(Recipe, c.mp_recipe_clone_for_layer, .{ self.handle, name.ptr });
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
        return made(Tensor, c.mp_tensor_create, .{ context.handle, &describe(T, shape) });
    }

    /// A tensor over a slice, which must outlive it and all that uses it.
    pub fn wrap(context: Context, comptime T: type, data: []T, shape: []const i64) Error!Tensor {
        return over(context, T, data, shape, 0);
    }

    /// The same for a parameter or its gradient, which has the slice while an optimizer has it in use; others may name it too.
    pub fn wrapDeferred(context: Context, comptime T: type, data: []T, shape: []const i64) Error!Tensor {
        return over(context, T, data, shape, c.MP_TENSOR_DEFERRED);
    }

    fn over(context: Context, comptime T: type, data: []T, shape: []const i64, flags: u32) Error!Tensor {
        if (try elementsOf(shape) != data.len) return refuse(Error.InvalidShape, "the slice has another size");
        var desc = describe(T, shape);
        desc.flags = flags;
        desc.device_kind = c.MP_DEVICE_HOST;
        return made(Tensor, c.mp_tensor_wrap, .{ context.handle, &desc, data.ptr, null, null });
    }

    /// The weight that a recipe wants, from its values.
    pub fn weight(context: Context, recipe: Recipe, shape: []const i64, values: []const f32) Error!Tensor {
        if (try elementsOf(shape) != values.len) return refuse(Error.InvalidShape, "the slice has another size");
        const ndim: i32 = @intCast(shape.len);
        return made(Tensor, c.mp_recipe_create_weight, .{ context.handle, recipe.handle, ndim, shape.ptr, values.ptr });
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
        const b = handleOf(c.mp_tensor, bias);
        return made(Linear, c.mp_linear_create, .{ context.handle, recipe.handle, &desc, weight.handle, b });
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
        return made(Scaler, c.mp_scaler_create, .{ context.handle, desc });
    }

    pub fn fromRecipe(context: Context, recipe: Recipe) Error!Scaler {
        return made(Scaler, c.mp_scaler_create_from_recipe, .{ context.handle, recipe.handle });
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
        const of = .{ context.handle, recipe.handle, options.desc };
        const comm = options.comm orelse return made(Optimizer, c.mp_optimizer_create, of);
        return made(Optimizer, c.mp_optimizer_create_sharded, of ++ .{ comm.handle, options.sharding });
    }

    pub fn deinit(self: Optimizer) void {
        c.mp_optimizer_destroy(self.handle);
    }

    pub fn addGroup(self: Optimizer, desc: c.mp_param_group_desc) Error!i32 {
        var index: i32 = 0;
        try must(c.mp_optimizer_add_group(self.handle, &desc, &index));
        return index;
    }

    /// Without grad one is made: state(index, "grad"). initial has the exact values. flags: c.MP_PARAM_*.
    pub const Param = struct { name: [:0]const u8, param: Tensor, grad: ?Tensor = null, initial: ?Tensor = null, flags: u32 = 0 };

    pub fn addParam(self: Optimizer, group: i32, param: Param) Error!i32 {
        var desc = init("mp_param_desc");
        desc.flags = param.flags;
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
        return made(Tensor, c.mp_optimizer_get_state, .{ self.handle, index, name.ptr });
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
    const names = .{ "param", "grad", "exp_avg", "exp_avg_sq" };
    inline for (names, .{ param, grad, exp_avg, exp_avg_sq }, places) |name, data, place| {
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
        return made(Checkpoint, c.mp_checkpoint_create, .{ context.handle, handleOf(c.mp_comm, comm), null });
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
