// SPDX-License-Identifier: Apache-2.0
//! A small language model on bytes, the same in every language: same text, same seed, same losses to the last digit.
//!
//!   train TEXT [RECIPE [STEPS [FOLDER]]]        recipe bf16_mixed, 60 steps; FOLDER: resume from there, save there
//!
//! Model: the last 8 bytes, each by an embedding of 16 -> linear 128 -> 128, bias, relu -> linear 128 -> 256, bias ->
//! softmax. The two products are the library's, in the recipe's dtypes; what is between them is here, in fp32, the loss
//! in double. Random numbers: s = 48271 s mod (2^31 - 1).

const std = @import("std");
const mp = @import("mixedprec.zig");
extern fn printf(format: [*:0]const u8, ...) c_int;
// C's, whose last bit all languages have.
extern fn exp(x: f64) f64;
extern fn log(x: f64) f64;

const context_bytes = 8;
const embedding = 16;
const hidden = 128;
const bytes = 256;
const batch = 32;
const features = context_bytes * embedding;

// ---- Random numbers and the model's arrays

var random_state: i64 = 1234;

fn nextRandom() i64 {
    random_state = @rem(random_state * 48271, 2147483647);
    return random_state;
}

fn fill(values: []f32, bound: f64) void {
    for (values) |*value| {
        const unit = @as(f64, @floatFromInt(nextRandom())) / 2147483647.0;
        value.* = @floatCast((2.0 * unit - 1.0) * bound);
    }
}

var embed: [bytes * embedding]f32 = undefined;
var embed_grad: [bytes * embedding]f32 = undefined;
var bias1: [hidden]f32 = @splat(0);
var bias1_grad: [hidden]f32 = undefined;
var bias2: [bytes]f32 = @splat(0);
var bias2_grad: [bytes]f32 = undefined;
var values1: [hidden * features]f32 = undefined;
var values2: [bytes * hidden]f32 = undefined;
var x: [batch * features]f32 = undefined;
var dx: [batch * features]f32 = undefined;
var h: [batch * hidden]f32 = undefined;
var dh: [batch * hidden]f32 = undefined;
var logits: [batch * bytes]f32 = undefined;
var dlogits: [batch * bytes]f32 = undefined;

/// Loss of one row, and its gradient times `factor`.
fn crossEntropy(row: []const f32, target: usize, factor: f64, gradient: []f32) f64 {
    var largest: f64 = row[0];
    for (row) |value| largest = @max(largest, value);
    var e: [bytes]f64 = undefined;
    var sum: f64 = 0;
    for (row, &e) |value, *to| {
        to.* = exp(value - largest);
        sum += to.*;
    }
    for (gradient, e, 0..) |*g, value, j| {
        const wanted: f64 = if (j == target) 1 else 0;
        g.* = @floatCast((value / sum - wanted) * factor);
    }
    return log(sum) - (row[target] - largest);
}

/// The arrays as tensors, for the layers and the optimizer.
const Tensors = struct {
    values1: mp.Tensor,
    values2: mp.Tensor,
    embed: mp.Tensor,
    embed_grad: mp.Tensor,
    bias1: mp.Tensor,
    bias1_grad: mp.Tensor,
    bias2: mp.Tensor,
    bias2_grad: mp.Tensor,
    x: mp.Tensor,
    dx: mp.Tensor,
    h: mp.Tensor,
    dh: mp.Tensor,
    logits: mp.Tensor,
    dlogits: mp.Tensor,

    fn over(context: mp.Context) !Tensors {
        return .{
            .values1 = try mp.Tensor.wrap(context, f32, &values1, &.{ hidden, features }),
            .values2 = try mp.Tensor.wrap(context, f32, &values2, &.{ bytes, hidden }),
            .embed = try mp.Tensor.wrap(context, f32, &embed, &.{ bytes, embedding }),
            .embed_grad = try mp.Tensor.wrap(context, f32, &embed_grad, &.{ bytes, embedding }),
            .bias1 = try mp.Tensor.wrap(context, f32, &bias1, &.{hidden}),
            .bias1_grad = try mp.Tensor.wrap(context, f32, &bias1_grad, &.{hidden}),
            .bias2 = try mp.Tensor.wrap(context, f32, &bias2, &.{bytes}),
            .bias2_grad = try mp.Tensor.wrap(context, f32, &bias2_grad, &.{bytes}),
            .x = try mp.Tensor.wrap(context, f32, &x, &.{ batch, features }),
            .dx = try mp.Tensor.wrap(context, f32, &dx, &.{ batch, features }),
            .h = try mp.Tensor.wrap(context, f32, &h, &.{ batch, hidden }),
            .dh = try mp.Tensor.wrap(context, f32, &dh, &.{ batch, hidden }),
            .logits = try mp.Tensor.wrap(context, f32, &logits, &.{ batch, bytes }),
            .dlogits = try mp.Tensor.wrap(context, f32, &dlogits, &.{ batch, bytes }),
        };
    }

    fn deinit(self: Tensors) void {
        inline for (std.meta.fields(Tensors)) |field| @field(self, field.name).deinit();
    }
};

/// What trains, and what it works on. A failure ends the program, so a part of it is not given back by itself.
const Model = struct {
    context: mp.Context,
    recipe: mp.Recipe,
    scaler: mp.Scaler,
    optimizer: mp.Optimizer,
    tensors: Tensors,
    w1: mp.Tensor,
    w2: mp.Tensor,
    dw1: mp.Tensor,
    dw2: mp.Tensor,
    linear1: mp.Linear,
    linear2: mp.Linear,

    fn create(name: [:0]const u8) !Model {
        const context = try mp.Context.create(.{});
        const recipe = try mp.Recipe.create(context, name);
        const optimizer = try mp.Optimizer.create(context, recipe, .{});
        var group = mp.init("mp_param_group_desc");
        group.lr = 1e-2;
        group.weight_decay = 0.01;
        const g = try optimizer.addGroup(group);

        fill(&embed, 1.0);
        fill(&values1, @sqrt(1.0 / @as(f64, features)));
        fill(&values2, @sqrt(1.0 / @as(f64, hidden)));
        const t = try Tensors.over(context);
        const w1 = try mp.Tensor.weight(context, recipe, &.{ hidden, features }, &values1);
        const w2 = try mp.Tensor.weight(context, recipe, &.{ bytes, hidden }, &values2);
        _ = try optimizer.addParam(g, .{ .name = "embed", .param = t.embed, .grad = t.embed_grad });
        const index1 = try optimizer.addParam(g, .{ .name = "w1", .param = w1, .initial = t.values1 });
        _ = try optimizer.addParam(g, .{ .name = "b1", .param = t.bias1, .grad = t.bias1_grad });
        const index2 = try optimizer.addParam(g, .{ .name = "w2", .param = w2, .initial = t.values2 });
        _ = try optimizer.addParam(g, .{ .name = "b2", .param = t.bias2, .grad = t.bias2_grad });
        const linear1 = try mp.Linear.create(context, recipe, features, hidden, w1, t.bias1);
        const linear2 = try mp.Linear.create(context, recipe, hidden, bytes, w2, t.bias2);
        try optimizer.setLinears(&.{ linear1, linear2 });
        return .{
            .context = context,
            .recipe = recipe,
            .scaler = try mp.Scaler.fromRecipe(context, recipe),
            .optimizer = optimizer,
            .tensors = t,
            .w1 = w1,
            .w2 = w2,
            .dw1 = try optimizer.state(index1, "grad"),
            .dw2 = try optimizer.state(index2, "grad"),
            .linear1 = linear1,
            .linear2 = linear2,
        };
    }

    fn deinit(self: Model) void {
        inline for (std.meta.fields(Model)) |field| @field(self, field.name).deinit();
    }

    fn addTo(self: Model, checkpoint: mp.Checkpoint) !void {
        try checkpoint.addOptimizer(self.optimizer);
        try checkpoint.addScaler(self.scaler);
        try checkpoint.addLinear("linear1", self.linear1);
        try checkpoint.addLinear("linear2", self.linear2);
        try checkpoint.addData("random", std.mem.asBytes(&random_state));
    }

    /// Loss of these places of the text, summed; dlogits gets its gradient.
    fn forward(self: Model, text: []const u8, position: [batch]usize, scale: f64) !f64 {
        for (position, 0..) |at, r| {
            for (0..context_bytes) |b| {
                const row = @as(usize, text[at + b]) * embedding;
                @memcpy(x[r * features + b * embedding ..][0..embedding], embed[row..][0..embedding]);
            }
        }
        try self.linear1.forward(self.tensors.x, self.tensors.h);
        for (&h) |*value| value.* = if (value.* > 0) value.* else 0;
        try self.linear2.forward(self.tensors.h, self.tensors.logits);
        var loss: f64 = 0;
        for (position, 0..) |at, r| {
            const row = logits[r * bytes ..][0..bytes];
            loss += crossEntropy(row, text[at + context_bytes], scale / batch, dlogits[r * bytes ..][0..bytes]);
        }
        return loss;
    }

    fn backward(self: Model, text: []const u8, position: [batch]usize) !void {
        const t = self.tensors;
        try self.linear2.backward(t.dlogits, .{ .dx = t.dh, .dw = self.dw2, .dbias = t.bias2_grad });
        for (&dh, h) |*value, kept| value.* = if (kept > 0) value.* else 0;
        try self.linear1.backward(t.dh, .{ .dx = t.dx, .dw = self.dw1, .dbias = t.bias1_grad });
        @memset(&embed_grad, 0);
        for (position, 0..) |at, r| {
            for (0..features) |i| {
                embed_grad[@as(usize, text[at + i / embedding]) * embedding + i % embedding] += dx[r * features + i];
            }
        }
    }
};

fn train(text: []const u8, name: [:0]const u8, steps: i64, folder: ?[:0]const u8) !void {
    const model = try Model.create(name);
    defer model.deinit();
    const checkpoint = try mp.Checkpoint.create(model.context, null);
    defer checkpoint.deinit();
    var step: i64 = 0;
    if (folder) |directory| {
        try model.addTo(checkpoint);
        if (mp.inspect(directory)) |_| {
            step = (try checkpoint.load(directory, 0)).step;
            _ = printf("resumed at step %d\n", @as(c_int, @intCast(step)));
        } else |_| {}
    }

    while (step < steps) {
        const scale = try model.scaler.scale();
        var position: [batch]usize = undefined;
        for (&position) |*at| {
            at.* = @intCast(@rem(nextRandom(), @as(i64, @intCast(text.len - context_bytes))));
        }
        const loss = try model.forward(text, position, scale);
        try model.backward(text, position);
        try model.optimizer.step(model.scaler);
        try model.scaler.update();

        step += 1;
        if (@rem(step, 10) == 0) {
            _ = printf("step %3d  loss %.9f  scale %.0f\n", @as(c_int, @intCast(step)), loss / batch, scale);
        }
    }
    if (folder) |directory| try checkpoint.save(directory, step, 0);
}

pub fn main() !void {
    errdefer std.debug.print("{s}\n", .{mp.lastMessage()});
    var arguments = std.process.args();
    _ = arguments.next();
    const path = arguments.next() orelse {
        std.debug.print("usage: train TEXT [RECIPE [STEPS [FOLDER]]]\n", .{});
        std.process.exit(2);
    };
    const name = arguments.next() orelse "bf16_mixed";
    const steps = try std.fmt.parseInt(i64, arguments.next() orelse "60", 10);
    const text = try std.fs.cwd().readFileAlloc(std.heap.c_allocator, path, 1 << 30);
    defer std.heap.c_allocator.free(text);
    try train(text, name, steps, arguments.next());
}
