#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python packages safetensors and gguf read what mp_model_writer leaves, bit for bit, and what they make of the same numbers
is the same. Skipped where they are not installed. usage: outside_readers.py LIBMIXEDPREC"""
import ctypes
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fixtures"))
try:
    import gguf
    import numpy as np
    import safetensors

    from make_gguf import hard_numbers
except ImportError as missing:
    print(f"LEFT OUT: {missing} (pip install numpy gguf safetensors, of the versions in tests/fixtures/requirements.txt)")
    sys.exit(77)

DTYPES = {"F32": 1, "F16": 2, "BF16": 3, "F8_E4M3": 4, "I8": 7, "I32": 9, "U8": 11, "Q4_0": 13, "Q4_1": 14, "Q8_0": 17,
          "Q6_K": 20}


class Desc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("format", ctypes.c_int32), ("max_file_bytes", ctypes.c_int64)]


class Writer:
    lib = None

    def __init__(self, path, most=0):
        self.handle, self.tensors = ctypes.c_void_p(), {}
        self.call("create", str(path).encode(), ctypes.byref(Desc(ctypes.sizeof(Desc), 0, most)), ctypes.byref(self.handle))

    def __getattr__(self, verb):
        return lambda *words: self.call(verb, self.handle, *words)

    def call(self, verb, *words):
        library = Writer.lib
        if getattr(library, f"mp_model_writer_{verb}")(*words) != 0:
            library.mp_last_error_message.restype = ctypes.c_char_p
            raise RuntimeError(library.mp_last_error_message().decode())

    def add(self, name, dtype, shape):
        index = ctypes.c_int64()
        self.add_tensor(name.encode(), DTYPES[dtype], len(shape), (ctypes.c_int64 * 8)(*shape), ctypes.byref(index))
        self.tensors[name] = index.value

    def put(self, name, raw, piece):
        """In pieces, the last one first."""
        for at in reversed(range(0, len(raw), piece)):
            part = raw[at:at + piece]
            self.write(ctypes.c_int64(self.tensors[name]), ctypes.c_int64(at), part, ctypes.c_size_t(len(part)))

    def put_floats(self, name, values, piece):
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        for at in reversed(range(0, len(flat), piece)):
            part = flat[at:at + piece]
            self.write_floats(ctypes.c_int64(self.tensors[name]), ctypes.c_int64(at),
                              part.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(part)))

    def close(self):
        self.finish()
        Writer.lib.mp_model_writer_destroy(self.handle)


def check_gguf(folder, random):
    path = folder / "model.gguf"
    writer = Writer(path)
    numbers = {name: hard_numbers(random, 24, 512) for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0")}
    numbers["F16"][:, 0], numbers["BF16"][:, 0] = np.nan, np.inf
    raw = {"Q4_1": (3, 2, 64), "Q6_K": (2, 256), "I32": (5,), "I8": (3, 1)}
    for name in numbers:
        writer.add(f"blk.0.{name}.weight", name, (3, 8, 512))
    for name, shape in raw.items():
        writer.add(name, name, shape)
    writer.add("one", "F32", ())
    writer.add("none", "F32", (0, 4))
    writer.set_text(b"general.architecture", b"llama")
    writer.set_unsigned(b"llama.block_count", 32, ctypes.c_uint64(30))
    writer.set_integer(b"a.integer", 64, ctypes.c_int64(-2**63))
    writer.set_integer(b"a.small", 8, ctypes.c_int64(-128))
    writer.set_boolean(b"a.boolean", 1)
    writer.set_float(b"a.float", ctypes.c_float(1e-5))
    tokens = ["<unk>", "", "\u0120the", "h\u00e9"]
    writer.set_texts(b"tokenizer.ggml.tokens", (ctypes.c_char_p * 4)(*(t.encode() for t in tokens)), ctypes.c_int64(4))
    writer.set_integers(b"tokenizer.ggml.token_type", 32, (ctypes.c_int64 * 4)(1, 2, -3, 4), ctypes.c_int64(4))
    writer.set_floats(b"tokenizer.ggml.scores", (ctypes.c_float * 2)(0.5, -1.5), ctypes.c_int64(2))
    contents = {}
    for name, shape in raw.items():
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        contents[name] = random.bytes(int(np.prod(shape)) // block * size)
        writer.put(name, contents[name], 13)
    for name, values in numbers.items():
        writer.put_floats(f"blk.0.{name}.weight", values, 96)
    writer.put_floats("one", [3.5], 1)
    writer.close()

    reader = gguf.GGUFReader(path)
    tensors = {t.name: t for t in reader.tensors}
    assert len(tensors) == len(numbers) + len(raw) + 2, tensors.keys()
    for name, values in numbers.items():
        kind = gguf.GGMLQuantizationType[name]
        got = tensors[f"blk.0.{name}.weight"]
        assert got.tensor_type == kind and got.shape.tolist() == [512, 8, 3] and got.data_offset % 32 == 0
        wanted = gguf.quantize(values, kind).view(np.uint8).reshape(-1)
        mine = np.ascontiguousarray(got.data).view(np.uint8).reshape(-1)
        assert np.array_equal(mine, wanted), (name, np.flatnonzero(mine != wanted)[:8])
    for name, content in contents.items():
        assert np.ascontiguousarray(tensors[name].data).tobytes() == content, name
    assert tensors["one"].data.reshape(-1).tolist() == [3.5] and tensors["none"].n_elements == 0
    assert path.stat().st_size % 32 == 0  # ggml reads the padding behind the last one
    wanted = {"general.architecture": "llama", "llama.block_count": 30, "a.integer": -2**63, "a.small": -128, "a.boolean": True,
              "a.float": float(np.float32(1e-5)), "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1, 2, -3, 4],
              "tokenizer.ggml.scores": [0.5, -1.5]}
    got = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert got == wanted, got
    kinds = {key: [t.name for t in reader.fields[key].types] for key in wanted}
    assert kinds["llama.block_count"] == ["UINT32"] and kinds["a.small"] == ["INT8"], kinds
    assert kinds["tokenizer.ggml.token_type"] == ["ARRAY", "INT32"], kinds
    print(f"gguf: {len(tensors)} tensors, {len(got)} keys")


def check_safetensors(folder, random):
    """SmolLM2-like names and order, in one file and in several."""
    shapes = {"model.embed_tokens.weight": (49, 16)}
    for layer in range(3):
        for part, shape in (("self_attn.q_proj", (16, 16)), ("self_attn.k_proj", (8, 16)), ("mlp.up_proj", (48, 16))):
            shapes[f"model.layers.{layer}.{part}.weight"] = shape
        shapes[f"model.layers.{layer}.input_layernorm.weight"] = (16,)
    shapes["model.norm.weight"] = (16,)
    types = ["BF16", "F32", "F16", "F8_E4M3", "U8", "I32"]
    sizes = {"BF16": 2, "F32": 4, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4}
    for most in (0, 1500):
        path = folder / f"{most}" / "model.safetensors"
        path.parent.mkdir()
        writer = Writer(path, most)
        writer.set_text(b"format", b"pt")
        wanted = {}
        for i, (name, shape) in enumerate(shapes.items()):
            kind = types[i % len(types)]
            writer.add(name, kind, shape)
            wanted[name] = (kind, list(shape), random.bytes(int(np.prod(shape)) * sizes[kind]))
        writer.add("one", "F32", ())
        wanted["one"] = ("F32", [], random.bytes(4))
        for name, (_, _, content) in wanted.items():
            writer.put(name, content, 101)
        writer.close()
        files = sorted(p.name for p in path.parent.iterdir() if p.suffix == ".safetensors")
        got, where = {}, {}
        for file in files:
            content = (path.parent / file).read_bytes()
            header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
            assert header["__metadata__"] == {"format": "pt"}
            for name, tensor in safetensors.deserialize(content):
                got[name] = (tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
                where[name] = file
        assert got == wanted
        if most == 0:  # the package's own writer leaves the same bytes
            names = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "F8_E4M3": "float8_e4m3fn", "U8": "uint8",
                     "I32": "int32"}
            keep = {name: np.frombuffer(data, np.uint8) for name, (_, _, data) in wanted.items()}
            specs = {name: safetensors.TensorSpec(dtype=names[kind], shape=shape, data_ptr=keep[name].ctypes.data,
                                                  data_len=len(data)) for name, (kind, shape, data) in wanted.items()}
            assert files == ["model.safetensors"] and safetensors.serialize(specs, {"format": "pt"}) == content
            continue
        assert files == [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))] and len(files) > 2
        index = json.loads((path.parent / "model.safetensors.index.json").read_text())
        assert index == {"metadata": {"total_size": sum(len(d) for _, _, d in wanted.values())}, "weight_map": where}, index
    print(f"safetensors: {len(wanted)} tensors in one file and in {len(files)}")


def main():
    Writer.lib = ctypes.CDLL(sys.argv[1])
    random = np.random.default_rng(41)
    with tempfile.TemporaryDirectory() as temporary, np.errstate(all="ignore"):
        check_gguf(pathlib.Path(temporary), random)
        check_safetensors(pathlib.Path(temporary), random)


if __name__ == "__main__":
    main()
