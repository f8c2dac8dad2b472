// SPDX-License-Identifier: Apache-2.0
// bindings/zig/README.md: a hundred steps towards 1.
// snippet with: bindings/zig/mixedprec.zig bindings/zig/mixedprec_base.zig
const std = @import("std");

var p: [1000]f32 = @splat(0);
var grad: [1000]f32 = undefined;
var exp_avg: [1000]f32 = @splat(0);
var exp_avg_sq: [1000]f32 = @splat(0);

fn myGradient(gradient: []f32, at: []const f32, scale: f64) void {
    for (gradient, at) |*g, x| g.* = (x - 1) * @as(f32, @floatCast(scale));
}

pub fn main() !void {
    // snippet: step
    for (p) |x| if (!(@abs(x - 1) < 0.2)) return error.FarFromOne;
    if (args.step != 101) return error.StepsWereSkipped;
}
