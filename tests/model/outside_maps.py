#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Maps of files that the Python packages safetensors and gguf wrote: what mp_model_file_map makes of them is what numpy makes of
the same arrays, by its reshape, concatenate and transpose, and by the permutation of llama.cpp's convert_hf_to_gguf. Skipped
where the packages are not installed. usage: outside_maps.py LIBMIXEDPREC"""
import ctypes
import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
try:
    import gguf
    import numpy as np
    import safetensors.numpy
except ImportError as missing:
    print(f"LEFT OUT: {missing} (pip install numpy gguf safetensors, of the versions in tests/fixtures/requirements.txt)")
    sys.exit(77)

HEADS, KV_HEADS, WIDTH, HEAD, LAYERS = 4, 2, 48, 8, 3


class FileTensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("shape", ctypes.c_int64 * 8), ("count", ctypes.c_int64),
                ("bytes", ctypes.c_int64), ("name", ctypes.c_char_p), ("type_name", ctypes.c_char_p), ("path", ctypes.c_char_p)]


class Model:
    lib = None

    def __init__(self, verb, *words):
        self.handle = ctypes.c_void_p()
        self.call(verb, *words, ctypes.byref(self.handle))

    @staticmethod
    def call(verb, *words):
        if getattr(Model.lib, f"mp_model_file_{verb}")(*words) != 0:
            Model.lib.mp_last_error_message.restype = ctypes.c_char_p
            raise RuntimeError(Model.lib.mp_last_error_message().decode())

    def map(self, rules):
        made = Model("map", self.handle, rules.encode())
        Model.lib.mp_model_file_destroy(self.handle)  # the map keeps it
        return made

    def tensors(self):
        count = ctypes.c_int64()
        self.call("get_count", self.handle, ctypes.byref(count))
        for index in range(count.value):
            facts = FileTensor(ctypes.sizeof(FileTensor))
            self.call("get_tensor", self.handle, ctypes.c_int64(index), ctypes.byref(facts))
            yield index, facts

    def read(self, index, begin, size):
        data = ctypes.create_string_buffer(size)
        self.call("read", self.handle, ctypes.c_int64(index), ctypes.c_int64(begin), data, ctypes.c_size_t(size))
        return data.raw

    def floats(self, index, count):
        data = np.empty(count, np.float32)
        self.call("read_floats", self.handle, ctypes.c_int64(index), ctypes.c_int64(0), data.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_int64(count))
        return data


def permute(weight, heads):
    """convert_hf_to_gguf.py, LlamaModel.permute, where heads and their keys' are equal."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def expect(model, wanted):
    """All tensors, whole and in pieces that end nowhere in particular."""
    seen = set()
    for index, facts in model.tensors():
        name = facts.name.decode()
        array = np.ascontiguousarray(wanted[name])
        assert list(facts.shape[:facts.ndim]) == list(array.shape), (name, list(facts.shape), array.shape)
        raw = array.tobytes()
        assert facts.bytes == len(raw) and model.read(index, 0, len(raw)) == raw, name
        for step in (7, 1000):
            pieces = [model.read(index, at, min(step, len(raw) - at)) for at in range(0, len(raw), step)]
            assert b"".join(pieces) == raw, name
        if array.dtype in (np.float32, np.float16):
            got = model.floats(index, array.size)
            assert np.array_equal(got, array.astype(np.float32).reshape(-1)), name
        seen.add(name)
    assert seen == set(wanted), seen ^ set(wanted)


def hugging_face(random):
    tensors = {"model.embed_tokens.weight": (80, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}."
        tensors |= {base + "self_attn.q_proj.weight": (HEADS * HEAD, WIDTH), base + "self_attn.q_proj.bias": (HEADS * HEAD,),
                    base + "self_attn.k_proj.weight": (KV_HEADS * HEAD, WIDTH),
                    base + "self_attn.v_proj.weight": (KV_HEADS * HEAD, WIDTH),
                    base + "mlp.gate_proj.weight": (96, WIDTH), base + "mlp.up_proj.weight": (96, WIDTH),
                    base + "input_layernorm.weight": (WIDTH,)}
    kinds = [np.float32, np.float16]
    return {name: random.standard_normal(shape).astype(kinds[len(name) % 2]) for name, shape in tensors.items()}


def check_llama(folder, random):
    """A sharded model of Hugging Face's under GGUF's names, and under those of a trainer with joined weights."""
    arrays = hugging_face(random)
    names = sorted(arrays)
    parts = [names[i::3] for i in range(3)]
    where = {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05}-of-00003.safetensors"
        safetensors.numpy.save_file({name: arrays[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    rules = f"""
        token_embd.weight = model.embed_tokens.weight
        output.weight = model.embed_tokens.weight     # tied
        blk.*.attn_q.weight = half_to_pairs(model.layers.*.self_attn.q_proj.weight, {HEADS})
        blk.*.attn_q.bias = half_to_pairs(model.layers.*.self_attn.q_proj.bias, {HEADS})
        blk.*.attn_k.weight = half_to_pairs(model.layers.*.self_attn.k_proj.weight, {KV_HEADS})
        blk.*.qkv = join(model.layers.*.self_attn.q_proj.weight, model.layers.*.self_attn.q_proj.weight)
        blk.*.gate_up = join(model.layers.*.mlp.gate_proj.weight, model.layers.*.mlp.up_proj.weight)
        up.* = transpose(model.layers.*.mlp.up_proj.weight)
        * = *
    """
    wanted = {"token_embd.weight": arrays["model.embed_tokens.weight"], "output.weight": arrays["model.embed_tokens.weight"],
              "model.norm.weight": arrays["model.norm.weight"]}
    for layer in range(LAYERS):
        base, own = f"model.layers.{layer}.", f"blk.{layer}."
        q = arrays[base + "self_attn.q_proj.weight"]
        wanted |= {own + "attn_q.weight": permute(q, HEADS),
                   own + "attn_q.bias": permute(arrays[base + "self_attn.q_proj.bias"], HEADS),
                   own + "attn_k.weight": permute(arrays[base + "self_attn.k_proj.weight"], KV_HEADS),
                   own + "qkv": np.concatenate([q, q]),
                   own + "gate_up": np.concatenate([arrays[base + "mlp.gate_proj.weight"], arrays[base + "mlp.up_proj.weight"]]),
                   f"up.{layer}": arrays[base + "mlp.up_proj.weight"].T}
        for name in ("self_attn.v_proj.weight", "input_layernorm.weight"):
            wanted[base + name] = arrays[base + name]
    expect(Model("open", str(folder).encode(), ctypes.c_uint32(0)).map(rules), wanted)
    print(f"safetensors: {len(wanted)} tensors of {len(arrays)} in 3 files")


def check_gpt2(folder, random):
    """Conv1D keeps weights as [in, out], with q, k and v behind each other in out."""
    arrays = {}
    for layer in range(LAYERS):
        arrays[f"h.{layer}.attn.c_attn.weight"] = random.standard_normal((WIDTH, 3 * WIDTH)).astype(np.float32)
        arrays[f"h.{layer}.attn.c_attn.bias"] = random.standard_normal(3 * WIDTH).astype(np.float16)
    safetensors.numpy.save_file(arrays, folder / "gpt2.safetensors")
    rules, wanted = "", {}
    for i, part in enumerate("qkv"):
        rules += f"{part}.*.weight = rows(transpose(h.*.attn.c_attn.weight), {i}/3)\n"
        rules += f"{part}.*.bias = rows(h.*.attn.c_attn.bias, {i * WIDTH}:{(i + 1) * WIDTH})\n"
        for layer in range(LAYERS):
            wanted[f"{part}.{layer}.weight"] = np.split(arrays[f"h.{layer}.attn.c_attn.weight"], 3, axis=1)[i].T
            wanted[f"{part}.{layer}.bias"] = np.split(arrays[f"h.{layer}.attn.c_attn.bias"], 3)[i]
    expect(Model("open", str(folder / "gpt2.safetensors").encode(), ctypes.c_uint32(0)).map(rules), wanted)
    print(f"gpt2: {len(wanted)} tensors")


def check_gguf(folder, random):
    """The way back: rows of blocks keep their bytes, and where they lie half a head apart again they are Hugging Face's."""
    path = folder / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    hf, blocks = {}, {}
    for layer in range(LAYERS):
        hf[layer] = random.standard_normal((HEADS * HEAD, 256)).astype(np.float32)
        for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32):
            quantized = gguf.quantize(permute(hf[layer], HEADS), kind)
            writer.add_tensor(f"blk.{layer}.{kind.name}", quantized, raw_dtype=kind)
        blocks[layer] = gguf.quantize(hf[layer], gguf.GGMLQuantizationType.Q8_0)  # rows quantize by themselves
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = Model("open", str(path).encode(), ctypes.c_uint32(0)).map(
        f"q.*.blocks = pairs_to_half(blk.*.Q8_0, {HEADS})\nq.*.half = rows(pairs_to_half(blk.*.Q8_0, {HEADS}), 1/2)\n"
        f"q.*.float = pairs_to_half(blk.*.F32, {HEADS})")
    seen = 0
    for index, facts in model.tensors():
        _, layer, kind = facts.name.decode().split(".")
        wanted = {"blocks": blocks[int(layer)], "half": np.split(blocks[int(layer)], 2)[1], "float": hf[int(layer)]}[kind]
        assert model.read(index, 0, facts.bytes) == np.ascontiguousarray(wanted).tobytes(), facts.name
        number = wanted if kind == "float" else gguf.dequantize(wanted, gguf.GGMLQuantizationType.Q8_0)
        assert np.array_equal(model.floats(index, facts.count), number.reshape(-1)), facts.name
        seen += 1
    assert seen == 3 * LAYERS
    print(f"gguf: {seen} tensors")


def main():
    Model.lib = ctypes.CDLL(sys.argv[1])
    random = np.random.default_rng(43)
    for check in (check_llama, check_gpt2, check_gguf):
        with tempfile.TemporaryDirectory() as temporary:
            check(pathlib.Path(temporary), random)


if __name__ == "__main__":
    main()
