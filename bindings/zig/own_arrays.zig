// SPDX-License-Identifier: Apache-2.0
//! Only the optimizer and the loss scaler, on arrays of the program's own: AdamW moves p to a target. Gradients
//! overflow at step 20: the scaler skips that step and halves its scale. Prints what the same program
//! prints in every language.

const std = @import("std");
const mp = @import("mixedprec.zig");
extern fn printf(format: [*:0]const u8, ...) c_int;

const count = 1000;
var p: [count]f32 = @splat(0);
var grad: [count]f32 = undefined;
var exp_avg: [count]f32 = @splat(0);
var exp_avg_sq: [count]f32 = @splat(0);

pub fn main() !void {
    errdefer std.debug.print("{s}\n", .{mp.lastMessage()});
    const context = try mp.Context.create(.{});
    defer context.deinit();
    const scaler = try mp.Scaler.create(context, null);
    defer scaler.deinit();
    const slots = [_]mp.c.mp_step_slot{try mp.slot(p[0..], grad[0..], exp_avg[0..], exp_avg_sq[0..])};
    var args = mp.init("mp_step_args");
    args.lr = 0.1;
    args.step = 1;
    for (1..101) |i| {
        const scale: f32 = @floatCast(try scaler.scale());
        for (&grad, p, 0..) |*g, value, j| g.* = (value - (@as(f32, @floatFromInt(j % 7)) - 3)) * scale;
        if (i == 20) grad[5] = std.math.inf(f32);
        const stats = try mp.step(context, args, &slots, scaler);
        if (stats.found_inf == 0) args.step += 1;
        try scaler.update();
    }

    var sum: f64 = 0;
    for (p) |value| sum += @abs(@as(f64, value));
    const taken: c_int = @intCast(args.step - 1);
    const format = "steps %d  skipped %d  scale %.0f  sum %.9f  p[1] %.9f\n";
    _ = printf(format, taken, 100 - taken, try scaler.scale(), sum, @as(f64, p[1]));
}
