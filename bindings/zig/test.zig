// SPDX-License-Identifier: Apache-2.0
//! Every part of mixedprec.zig, and all of the C ABI against mixedprec.map and layout.golden.

const std = @import("std");
const mp = @import("mixedprec.zig");
const c = mp.c;
const expect = std.testing.expect;
const expectError = std.testing.expectError;

test "every exported function is there, and every struct has the C compiler's size" {
    @setEvalBranchQuota(2_000_000);
    comptime {
        var functions = 0;
        var lines = std.mem.tokenizeAny(u8, @embedFile("map"), " \n;");
        while (lines.next()) |word| {
            if (!std.mem.startsWith(u8, word, "mp_")) continue;
            if (!@hasDecl(c, word)) @compileError("no " ++ word);
            functions += 1;
        }
        if (functions < 200) @compileError("mixedprec.map was not read");
        var structs = 0;
        var golden = std.mem.tokenizeScalar(u8, @embedFile("golden"), '\n');
        while (golden.next()) |line| {
            if (!std.mem.startsWith(u8, line, "struct ")) continue;
            var words = std.mem.tokenizeScalar(u8, line, ' ');
            _ = words.next();
            const name = words.next().?;
            _ = words.next();
            const size = std.fmt.parseInt(usize, words.next().?, 10) catch unreachable;
            if (@sizeOf(@field(c, name)) != size) @compileError("another size: " ++ name);
            structs += 1;
        }
        if (structs < 30) @compileError("layout.golden was not read");
    }
}

test "errors have the library's message" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    try expectError(error.UnknownName, mp.Recipe.create(context, "fp8_delayd"));
    try expect(std.mem.indexOf(u8, mp.lastMessage(), "fp8_delayed") != null);
    try expectError(error.InvalidArgument, mp.Context.create(.{ .threads = -1 }));
    var small: [3]f32 = @splat(0);
    try expectError(error.InvalidShape, mp.Tensor.wrap(context, f32, &small, &.{4}));
    try expectError(error.InvalidShape, mp.Tensor.create(context, f32, &.{-4}));
    try expectError(error.InvalidShape, mp.slot(small[0..], small[0..2], small[0..], small[0..]));
    const closed = try mp.Tensor.create(context, f32, &.{4});
    closed.deinit();
    closed.deinit();
    try expectError(error.InvalidHandle, closed.read(f32, &small));
}

test "recipes" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    const recipe = try mp.Recipe.create(context, "fp8_delayed");
    defer recipe.deinit();
    try recipe.set("gemm.margin", 1);
    try recipe.set("optimizer.exp_avg.dtype", "bf16");
    try expectError(error.InvalidArgument, recipe.set("gemm.margin", 0.5));
    const json = try recipe.toJson(std.testing.allocator);
    defer std.testing.allocator.free(json);
    const copy = try mp.Recipe.fromJson(context, json);
    defer copy.deinit();
    const again = try copy.toJson(std.testing.allocator);
    defer std.testing.allocator.free(again);
    try std.testing.expectEqualStrings(json, again);
    try copy.set("layers", "lm_*: gemm.margin=3");
    const head = try copy.forLayer("lm_head");
    defer head.deinit();
    const of_head = try head.toJson(std.testing.allocator);
    defer std.testing.allocator.free(of_head);
    try std.testing.expect(std.mem.indexOf(u8, of_head, "\"gemm.margin\": 3") != null);
    try expectError(error.InvalidArgument, copy.forLayer(""));
    try expectError(error.ParseError, mp.Recipe.fromJson(context, "{"));
}

test "tensors" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    const a = try mp.Tensor.create(context, f32, &.{ 2, 3 });
    defer a.deinit();
    const b = try mp.Tensor.create(context, mp.Bf16, &.{ 2, 3 });
    defer b.deinit();
    try a.write(f32, &.{ 1, 2, 3, 4, 5, 6 });
    try b.castFrom(a, null);
    var codes: [6]mp.Bf16 = undefined;
    try b.read(mp.Bf16, &codes);
    try expect(@intFromEnum(codes[0]) == 0x3f80);
    var numbers: [6]f32 = undefined;
    try expectError(error.InvalidDtype, b.read(f32, &numbers));
    try expect(std.meta.isError(a.read(f32, numbers[0..5])));
}

test "an optimizer refuses the same memory under two names, and steps" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    const recipe = try mp.Recipe.create(context, "fp32");
    defer recipe.deinit();
    const optimizer = try mp.Optimizer.create(context, recipe, .{});
    defer optimizer.deinit();
    const group = try optimizer.addGroup(mp.init("mp_param_group_desc"));
    var values: [10]f32 = @splat(1);
    const param = try mp.Tensor.wrap(context, f32, &values, &.{10});
    defer param.deinit();
    const index = try optimizer.addParam(group, .{ .name = "p", .param = param });
    try expectError(error.InvalidArgument, optimizer.addParam(group, .{ .name = "tied", .param = param }));
    const grad = try optimizer.state(index, "grad");
    defer grad.deinit();
    try grad.write(f32, &@as([10]f32, @splat(1)));
    try optimizer.step(null);
    try context.sync();
    try expect(values[0] < 1 and (try optimizer.stats()).step == 1);
    try expectError(error.InvalidArgument, optimizer.setLr(0, -1));
    var other = mp.init("mp_param_group_desc");
    other.hypers = &c.mp_hyper{ .name = "beta1", .value = 0 };
    other.hyper_count = 1;
    other.state_formats[0] = "bf16";
    const second = try optimizer.addGroup(other);
    var found = mp.init("mp_param_group_desc");
    try mp.must(c.mp_optimizer_get_group(optimizer.handle, second, &found));
    try expect(found.beta1 == 0 and found.beta2 != 0);
    try std.testing.expectEqualStrings("bf16", std.mem.span(found.state_formats[0]));
}

test "memory is named in advance, and gradients are the host's" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    const recipe = try mp.Recipe.create(context, "fp32");
    defer recipe.deinit();
    var desc = mp.init("mp_optimizer_desc");
    desc.flags = c.MP_OPTIMIZER_OFFLOAD | c.MP_OPTIMIZER_OFFLOAD_GRADS;
    const optimizer = try mp.Optimizer.create(context, recipe, .{ .desc = &desc });
    defer optimizer.deinit();
    const group = try optimizer.addGroup(mp.init("mp_param_group_desc"));
    var place: [10]f32 = @splat(7);
    const param = try mp.Tensor.wrapDeferred(context, f32, &place, &.{10});
    defer param.deinit();
    var values: [10]f32 = undefined;
    try expectError(error.BadState, param.read(f32, &values));
    const index = try optimizer.addParam(group, .{ .name = "p", .param = param });
    try expect(place[9] == 0);
    place = @splat(1);
    try mp.must(c.mp_optimizer_sync_master(optimizer.handle, null, index));
    try mp.must(c.mp_optimizer_acquire_grad(optimizer.handle, null, index));
    const grad = try optimizer.state(index, "grad");
    defer grad.deinit();
    try grad.write(f32, &@as([10]f32, @splat(1)));
    try mp.must(c.mp_optimizer_grad_ready(optimizer.handle, null, index));
    try optimizer.step(null);
    try context.sync();
    try expect(place[9] < 1 and (try optimizer.stats()).step == 1);
}

fn rankOf(comm: mp.Comm, result: *[40000]f32, failure: *?anyerror) void {
    trainRank(comm, result) catch |problem| {
        failure.* = problem;
    };
}

fn trainRank(comm: mp.Comm, result: *[40000]f32) !void {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    const recipe = try mp.Recipe.create(context, "fp32");
    defer recipe.deinit();
    const optimizer = try mp.Optimizer.create(context, recipe, .{ .comm = comm });
    defer optimizer.deinit();
    const group = try optimizer.addGroup(mp.init("mp_param_group_desc"));
    const param = try mp.Tensor.wrap(context, f32, result, &.{result.len});
    defer param.deinit();
    const grad = try optimizer.state(try optimizer.addParam(group, .{ .name = "p", .param = param }), "grad");
    defer grad.deinit();
    const number: f32 = @floatFromInt(try comm.rank());
    for (0..10) |_| {
        const values: [40000]f32 = @splat(number + 1);
        try grad.write(f32, &values);
        try optimizer.step(null);
    }
    try comm.barrier();
}

test "two threads share an optimizer" {
    const comms = try mp.Comm.createThreads(2, null);
    defer for (comms) |comm| comm.deinit();
    const results = try std.testing.allocator.create([2][40000]f32);
    defer std.testing.allocator.destroy(results);
    results.* = @splat(@splat(1));
    var failures: [2]?anyerror = .{ null, null };
    var threads: [2]std.Thread = undefined;
    for (&threads, 0..) |*thread, i| {
        thread.* = try std.Thread.spawn(.{}, rankOf, .{ comms[i], &results[i], &failures[i] });
    }
    for (threads) |thread| thread.join();
    for (failures) |failure| if (failure) |problem| return problem;
    try expect(results[0][0] < 1);
    try std.testing.expectEqualSlices(f32, &results[0], &results[1]);
}

test "handles are given back" {
    const context = try mp.Context.create(.{ .threads = 1 });
    defer context.deinit();
    for (0..3000) |_| (try mp.Tensor.create(context, f32, &.{1000})).deinit();
}
