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

fn train(text: []const u8, name: [:0]const u8, steps: i64, folder: ?[:0]const u8) !void {
    const context = try mp.Context.create(.{});
    defer context.deinit();
    const recipe = try mp.Recipe.create(context, name);
    defer recipe.deinit();
    const scaler = try mp.Scaler.fromRecipe(context, recipe);
    defer scaler.deinit();
    const optimizer = try mp.Optimizer.create(context, recipe, .{});
    defer optimizer.deinit();
    var group = mp.init("mp_param_group_desc");
    group.lr = 1e-2;
    group.weight_decay = 0.01;
    const g = try optimizer.addGroup(group);

    fill(&embed, 1.0);
    fill(&values1, @sqrt(1.0 / @as(f64, features)));
    fill(&values2, @sqrt(1.0 / @as(f64, hidden)));
    const w1 = try mp.Tensor.weight(context, recipe, &.{ hidden, features }, &values1);
    defer w1.deinit();
    const w2 = try mp.Tensor.weight(context, recipe, &.{ bytes, hidden }, &values2);
    defer w2.deinit();
    const v1 = try mp.Tensor.wrap(context, f32, &values1, &.{ hidden, features });
    defer v1.deinit();
    const v2 = try mp.Tensor.wrap(context, f32, &values2, &.{ bytes, hidden });
    defer v2.deinit();
    const t_embed = try mp.Tensor.wrap(context, f32, &embed, &.{ bytes, embedding });
    defer t_embed.deinit();
    const t_embed_grad = try mp.Tensor.wrap(context, f32, &embed_grad, &.{ bytes, embedding });
    defer t_embed_grad.deinit();
    const b1 = try mp.Tensor.wrap(context, f32, &bias1, &.{hidden});
    defer b1.deinit();
    const db1 = try mp.Tensor.wrap(context, f32, &bias1_grad, &.{hidden});
    defer db1.deinit();
    const b2 = try mp.Tensor.wrap(context, f32, &bias2, &.{bytes});
    defer b2.deinit();
    const db2 = try mp.Tensor.wrap(context, f32, &bias2_grad, &.{bytes});
    defer db2.deinit();
    _ = try optimizer.addParam(g, .{ .name = "embed", .param = t_embed, .grad = t_embed_grad });
    const dw1 = try optimizer.state(try optimizer.addParam(g, .{ .name = "w1", .param = w1, .initial = v1 }), "grad");
    defer dw1.deinit();
    _ = try optimizer.addParam(g, .{ .name = "b1", .param = b1, .grad = db1 });
    const dw2 = try optimizer.state(try optimizer.addParam(g, .{ .name = "w2", .param = w2, .initial = v2 }), "grad");
    defer dw2.deinit();
    _ = try optimizer.addParam(g, .{ .name = "b2", .param = b2, .grad = db2 });
    const linear1 = try mp.Linear.create(context, recipe, features, hidden, w1, b1);
    defer linear1.deinit();
    const linear2 = try mp.Linear.create(context, recipe, hidden, bytes, w2, b2);
    defer linear2.deinit();
    try optimizer.setLinears(&.{ linear1, linear2 });

    const t_x = try mp.Tensor.wrap(context, f32, &x, &.{ batch, features });
    defer t_x.deinit();
    const t_dx = try mp.Tensor.wrap(context, f32, &dx, &.{ batch, features });
    defer t_dx.deinit();
    const t_h = try mp.Tensor.wrap(context, f32, &h, &.{ batch, hidden });
    defer t_h.deinit();
    const t_dh = try mp.Tensor.wrap(context, f32, &dh, &.{ batch, hidden });
    defer t_dh.deinit();
    const t_logits = try mp.Tensor.wrap(context, f32, &logits, &.{ batch, bytes });
    defer t_logits.deinit();
    const t_dlogits = try mp.Tensor.wrap(context, f32, &dlogits, &.{ batch, bytes });
    defer t_dlogits.deinit();

    var step: i64 = 0;
    const checkpoint = try mp.Checkpoint.create(context, null);
    defer checkpoint.deinit();
    if (folder) |directory| {
        try checkpoint.addOptimizer(optimizer);
        try checkpoint.addScaler(scaler);
        try checkpoint.addLinear("linear1", linear1);
        try checkpoint.addLinear("linear2", linear2);
        try checkpoint.addData("random", std.mem.asBytes(&random_state));
        if (mp.inspect(directory)) |_| {
            step = (try checkpoint.load(directory, 0)).step;
            _ = printf("resumed at step %d\n", @as(c_int, @intCast(step)));
        } else |_| {}
    }

    while (step < steps) {
        var position: [batch]usize = undefined;
        var loss: f64 = 0;
        const scale = try scaler.scale();
        for (&position, 0..) |*at, r| {
            at.* = @intCast(@rem(nextRandom(), @as(i64, @intCast(text.len - context_bytes))));
            for (0..context_bytes) |b| {
                const row = @as(usize, text[at.* + b]) * embedding;
                @memcpy(x[r * features + b * embedding ..][0..embedding], embed[row..][0..embedding]);
            }
        }
        try linear1.forward(t_x, t_h);
        for (&h) |*value| value.* = if (value.* > 0) value.* else 0;
        try linear2.forward(t_h, t_logits);
        for (position, 0..) |at, r| {
            const row = logits[r * bytes ..][0..bytes];
            loss += crossEntropy(row, text[at + context_bytes], scale / batch, dlogits[r * bytes ..][0..bytes]);
        }

        try linear2.backward(t_dlogits, .{ .dx = t_dh, .dw = dw2, .dbias = db2 });
        for (&dh, h) |*value, kept| value.* = if (kept > 0) value.* else 0;
        try linear1.backward(t_dh, .{ .dx = t_dx, .dw = dw1, .dbias = db1 });
        @memset(&embed_grad, 0);
        for (position, 0..) |at, r| {
            for (0..features) |i| {
                embed_grad[@as(usize, text[at + i / embedding]) * embedding + i % embedding] += dx[r * features + i];
            }
        }
        try optimizer.step(scaler);
        try scaler.update();

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
