# SPDX-License-Identifier: Apache-2.0
"""The raw layer in Rust: the crate mixedprec-sys."""

NUMBERS = {"int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64", "uint8_t": "u8", "uint32_t": "u32",
           "uint64_t": "u64", "size_t": "usize", "float": "f32", "double": "f64", "char": "c_char", "void": "c_void"}
KEYWORDS = {"type", "match", "move", "ref", "box", "fn", "in", "loop", "use", "where", "impl", "mod", "self"}
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by bindings/generate/generate.py from the public headers. Do not edit.
use core::ffi::c_void;
use std::{ffi::CStr, os::raw::c_char};

/// 0 is success, negative a failure, positive success with a note.
pub type mp_status = i32;

const fn text(bytes: &'static [u8]) -> &'static CStr {
    // SAFETY: only called below, with texts that end with their only zero byte.
    unsafe { CStr::from_bytes_with_nul_unchecked(bytes) }
}

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// A handle: only ever pointed at, and of no thread as far as the compiler knows.
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
            _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }
    )*};
}
"""


def rust(kind):
    if kind.signature:
        result, parameters = kind.signature
        return function_pointer(result, parameters)
    text = NUMBERS.get(kind.base, kind.base)
    for constant in kind.levels:
        text = f"*{'const' if constant else 'mut'} {text}"
    return text


def named(name):
    return f"r#{name}" if name in KEYWORDS else name


def parameters_of(parameters):
    return ", ".join(f"{named(name)}: {rust(kind)}" for kind, name in parameters)


def arrow(result):
    return "" if str(result) == "void" else f" -> {rust(result)}"


def function_pointer(result, parameters):
    return f'Option<unsafe extern "C" fn({parameters_of(parameters)}){arrow(result)}>'


def doc(lines, indent=""):
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in lines)


def field_type(api, field):
    length = api.length(field)
    return f"[{rust(field.type)}; {length}]" if length else rust(field.type)


def field_value(api, struct, field):
    text = api.initial(struct, field)
    if field.is_struct:
        return f"[{field.type.base}::INIT; {api.length(field)}]" if field.length else f"{field.type.base}::INIT"
    null = field.type.levels and f"core::ptr::null{'' if field.type.levels[-1] else '_mut'}()"
    if field.length:
        zero = null or ("0.0" if field.type.base in ("float", "double") else "0")
        return f"[{zero}; {api.length(field)}]"
    if text == "NULL":
        return null or "None"
    if field.name == "struct_size":
        return f"core::mem::size_of::<{struct.name}>() as u32"
    return repr(float(text)) if field.type.base == "double" else text


def text(api):
    out = [HEAD, "opaque! {\n", *(f"    {name}\n" for name in api.handles), "}\n\n"]
    for name, kind in api.constants:
        value = api.layout.values[name]
        if kind == "string":
            out.append(f'pub const {name}: &CStr = text(b{value[:-1]}\\0");\n')
        else:
            out.append(f"pub const {name}: {'u32' if kind == 'unsigned' or name == 'MP_VERSION' else 'i32'} = {value};\n")
    out.append("\n")
    for callback in api.callbacks:
        out.append(f"pub type {callback.name} = {function_pointer(callback.result, callback.parameters)};\n")
    for struct in api.structs:
        out.append(f"\n/// See {struct.header}.\n#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {struct.name} {{\n")
        out += [f"    pub {named(f.name)}: {field_type(api, f)},\n" for f in struct.fields]
        out.append(f"}}\n\nimpl {struct.name} {{\n    /// The defaults of the header's initializer.\n"
                   "    pub const INIT: Self = Self {\n")
        out += [f"        {named(f.name)}: {field_value(api, struct, f)},\n" for f in struct.fields]
        out.append(f"    }};\n}}\n\nimpl Default for {struct.name} {{\n"
                   "    fn default() -> Self {\n        Self::INIT\n    }\n}\n\n")
        out.append(f"const _: () = assert!(core::mem::size_of::<{struct.name}>() == {api.layout.sizes[struct.name]});\n"
                   "#[cfg(has_offset_of)]\nconst _: () = {\n")
        out += [f"    assert!(core::mem::offset_of!({struct.name}, {named(f.name)}) == "
                f"{api.layout.offsets[struct.name, f.name]});\n" for f in struct.fields]
        out.append("};\n")
    out.append('\nextern "C" {\n')
    for i, function in enumerate(api.functions):
        out.append("\n" if i else "")
        out.append(doc(function.summary(), "    "))
        out.append(f"    pub fn {function.name}({parameters_of(function.parameters)}){arrow(function.result)};\n")
    out.append("}\n")
    return "".join(out)
