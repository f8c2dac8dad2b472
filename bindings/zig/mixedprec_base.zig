// SPDX-License-Identifier: Apache-2.0
//! What mixedprec.zig stands on: the C ABI, errors for its statuses, its element types, its handles.

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

/// An error of this layer's own, with its words kept for lastMessage().
pub fn refuse(problem: Error, words: []const u8) Error {
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

// ---- Handles

/// The object that a function of the C ABI makes: the function stores the handle at its last argument.
pub fn made(comptime Object: type, function: anytype, arguments: anytype) Error!Object {
    var out: ?@FieldType(Object, "handle") = null;
    try must(@call(.auto, function, arguments ++ .{&out}));
    return .{ .handle = out.? };
}

/// The handle of an object that may be missing.
pub fn handleOf(comptime T: type, object: anytype) ?*T {
    return if (object) |o| o.handle else null;
}

/// Of a shape that there can be.
pub fn elementsOf(shape: []const i64) Error!usize {
    if (shape.len > c.MP_MAX_DIMS) return refuse(Error.InvalidShape, "a shape has too many dimensions");
    var count: usize = 1;
    for (shape) |size| {
        const n = std.math.cast(usize, size) orelse return refuse(Error.InvalidShape, "a size is negative");
        count = std.math.mul(usize, count, n) catch return refuse(Error.InvalidShape, "a shape is too large");
    }
    return count;
}
