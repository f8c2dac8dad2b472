#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models as files: plan, inspect and verify of one file, several, a folder and an index; every element type; files that are none.
usage: models.py MIXEDPREC"""
import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from common import Checks

BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16,
        "U16": 16,
        "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6,
        "F6_E3M2": 6}
TRAINED = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4"}


def write(path, tensors, padding=b"", data=None):
    """tensors: {name: (type, shape)}"""
    header, at, count = {"__metadata__": {"format": "pt"}}, 0, 0
    for name, (dtype, shape) in tensors.items():
        count = 1
        for extent in shape:
            count *= extent
        size = count * BITS.get(dtype, 8) // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode() + padding
    path.write_bytes(struct.pack("<Q", len(text)) + text + (data or bytes(at)))


class Models:
    def __init__(self, command, check, folder):
        self.command, self.check, self.folder = command, check, folder

    def run(self, *words, code=0):
        done = subprocess.run([str(w) for w in [self.command, *words]], capture_output=True, text=True, check=False, timeout=120)
        self.check(done.returncode == code, f"{' '.join(map(str, words))[:150]}: exit code {done.returncode}" +
                   f", wanted {code}: {done.stdout}{done.stderr}" * (done.returncode != code))
        return done

    def plan(self, *paths):
        return json.loads(self.run("plan", "--recipe", "fp32", "--safetensors", *paths, "--json").stdout)

    def types(self):
        """Every type in one model with weights: those that are trained count, the others are named."""
        path = self.folder / "types.safetensors"
        for dtype, bits in BITS.items():
            write(path, {"w": ("F32", [2, 3]), "other": (dtype, [4, 8])})
            for word in ("inspect", "verify"):
                self.run(word, path)
            if dtype.startswith("F6_"):
                done = self.run("plan", "--safetensors", path, code=1)
                self.check(dtype in done.stderr and "not supported" in done.stderr and "damaged" not in done.stderr,
                           f"{dtype} by name")
                continue
            found = self.plan(path)
            self.check(found["parameters"] == (38 if dtype in TRAINED else 6) and
                       found["not_counted"] == ([] if dtype in TRAINED else [f"other ({dtype})"]), f"{dtype} is trained or named")
            if bits < 8:
                write(path, {"w": (dtype, [3])})
                done = self.run("plan", "--safetensors", path, code=1)
                self.check("whole bytes" in done.stderr, f"an odd {dtype}: {done.stderr.strip()}")
        for dtype in ("F33", "F8_E3M4", "", "f32", "BF16 "):
            write(path, {"w": (dtype, [4])})
            done = self.run("plan", "--safetensors", path, code=1)
            self.check("not supported" in done.stderr and "damaged" not in done.stderr,
                       f"the type {dtype!r}: {done.stderr.strip()}")
        write(path, {"position_ids": ("I64", [512])})
        self.check("position" not in self.run("plan", "--safetensors", path, code=1).stdout, "a model without parameters")
        write(path, {"w": ("F32", [0, 5])})
        self.check("nan" not in self.run("plan", "--safetensors", path).stdout, "a plan of no elements has no nan")

    def several(self):
        """Two files, their folder and their index are one model."""
        folder = self.folder / "model"
        folder.mkdir()
        parts = [{"a": ("BF16", [8, 8]), "norm.weight": ("F32", [8])}, {"b": ("F16", [4, 4])}]
        names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        for name, tensors in zip(names, parts):
            write(folder / name, tensors)
        index = folder / "model.safetensors.index.json"
        good = {"metadata": {"total_size": 192}, "weight_map": {"a": names[0], "norm.weight": names[0], "b": names[1]}}
        index.write_text(json.dumps(good))
        files = [folder / name for name in names]
        for paths in (files, files[::-1], [folder], [index], [folder, folder]):
            for word in ("inspect", "verify"):
                found = json.loads(self.run(word, *paths, "--json").stdout)
                self.check(len(found["files"]) == 2, f"{word} of {len(paths)} paths")
            self.check(self.plan(*paths)["parameters"] == 88, "a plan of all of it")
        write(folder / "consolidated.safetensors", {"a": ("BF16", [8, 8])})
        self.check(self.plan(folder)["parameters"] == 88, "what an index does not name is another form of the model")
        done = self.run("plan", "--safetensors", *files, folder / "consolidated.safetensors", code=1)
        self.check("tensor 'a' is in both" in done.stderr, "a tensor in two files")
        for what, text in (("missing", {"weight_map": {"a": "no.safetensors"}}),
                           ("elsewhere", {"weight_map": {"a": "../x.safetensors"}}),
                           ("root", {"weight_map": {"a": "/etc/passwd"}}), ("wrong", {"weight_map": {"a": names[1]}}),
                           ("absent", {"weight_map": {"c": names[1]}}), ("number", {"weight_map": {"a": 3}}), ("none", {}),
                           ("list", []),
                           ("empty", {"weight_map": {}}), ("map", {"weight_map": []})):
            index.write_text(json.dumps(text))
            for path in (folder, index):
                self.run("plan", "--safetensors", path, code=1)
        index.write_bytes(json.dumps(good).encode() + b"\0")
        self.run("inspect", index, code=1)
        index.unlink()
        (folder / "consolidated.safetensors").unlink()
        self.check(self.plan(folder)["parameters"] == 88, "a folder without an index")
        self.run("plan", "--safetensors", self.folder / "nothing", code=1)

    def gguf(self):
        """Blocks are parameters as other numbers are; a folder with one such file is a model."""
        folder = self.folder / "gguf"
        folder.mkdir()
        tensor = struct.pack("<Q", 1) + b"w" + struct.pack("<IQQIQ", 2, 64, 3, 8, 0)
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor
        (folder / "m.gguf").write_bytes(head + bytes(-len(head) % 32 + 6 * 34))
        for path in (folder, folder / "m.gguf"):
            self.check(self.plan(path)["parameters"] == 192, "a plan of a GGUF's blocks")
            self.check("Q8_0" in self.run("inspect", path).stdout, "their type")

    def none(self):
        """Files that are none are called what they are."""
        path = self.folder / "none.safetensors"
        cases = [("git-lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
                 ("web page", b"<!DOCTYPE html><html>"),
                 ("web page", b"\n  <html><head>"), ("JSON", b'{"weight_map": {"a": "b"}}'), ("zip", b"PK\x03\x04" + bytes(100)),
                 ("pickle", b"\x80\x02}q\x00(X" + bytes(50)), ("GGUF header", b"GGUF\x01" + bytes(100)), ("too few", b""),
                 ("too few", b"123"),
                 ("would have", b"\xff" * 64), ("begin with {", struct.pack("<Q", 4) + b"[]  "),
                 ("would have", struct.pack("<Q", 99) + b"{}")]
        for (word, data), command in itertools.product(cases, (["plan", "--safetensors"], ["inspect"], ["verify"])):
            path.write_bytes(data)
            done = self.run(*command, path, code=1)
            told = word in done.stderr and ("neither safetensors nor GGUF" in done.stderr or word == "GGUF header")
            self.check(told, f"{data[:12]}: {done.stderr.strip()[-120:]}")
        for padding, good in ((b" ", True), (b"  \n", True), (b"\0", False), (b" \0 ", False), (b"x", False)):
            write(path, {"w": ("F32", [2])}, padding)
            self.run("plan", "--safetensors", path, code=0 if good else 1)
        os.mkfifo(self.folder / "pipe")
        for command in (["plan", "--safetensors"], ["inspect"], ["verify"]):
            self.run(*command, self.folder / "pipe", code=1)
        for value, code in ((1.0, 0), (0.0, 0), (float("nan"), 1), (float("inf"), 1), (-2.0, 1)):
            write(path, {"w": ("F8_E4M3", [4]), "w_scale_inv": ("F32", [1])}, data=bytes(4) + struct.pack("<f", value))
            self.run("verify", path, code=code)

    def patterns(self):
        """--keep-fp32 as in a shell, in bounded time and memory whatever is asked."""
        shapes = ("plan", "--shapes", "8x8,8,16", "--recipe", "bf16_mixed", "--json", "--keep-fp32")
        for pattern, kept in (("8", 1), ("8*", 2), ("*", 3), ("*x*", 1), ("?", 1), ("[89],16", 2), ("8,8", 1), ("nothing", 0),
                              ("(a+)+b", 0)):
            self.check(json.loads(self.run(*shapes, pattern).stdout)["kept_in_fp32"] == kept, f"{pattern} keeps {kept}")
        self.check("whole names" in self.run("plan", "--shapes", "8x8", "--keep-fp32", "x").stdout,
                   "a pattern that fits nothing is told of")
        for pattern in ("(" * 60000, "," * 3, "a,", "*a" * 3000, "[", "[]", "a[b", "[" * 4000):
            self.run("plan", "--shapes", "8x8", "--keep-fp32", pattern, code=2)
        path = self.folder / "long.safetensors"
        write(path, {f"{'a' * 5000}{i}": ("F32", [1]) for i in range(200)})
        for pattern in ("*a" * 2000 + "b", "*" * 4000 + "b", "[" * 4000 + "]]", "[a-" * 1000 + "]]", "?*" * 2000 + "b"):
            self.run("plan", "--safetensors", path, "--keep-fp32", pattern, "--recipe", "bf16_mixed")

    def large(self):
        """Plans of very many tensors and ranks end: what they say is held by tests of the library."""
        self.run("plan", "--shapes", "4096*999999,1", "--ranks", 64, "--recipe", "bf16_mixed,msamp_o2", "--stage", "1")
        found = json.loads(self.run("plan", "--params", "7B", "--ranks", 4096, "--stage", "0,1,2,3", "--json").stdout)
        names = {one["recipe"] for one in found["plans"]}
        self.check(len(found["plans"]) == 4 * len(names) and names.isdisjoint({"fp8_inference", "bf16_full"}),
                   "all recipes that train, all stages")
        self.check("not for training" in self.run("plan", "--params", "1M", "--recipe", "fp8_inference").stdout,
                   "one that does not says so")
        for words in (("plan", "--params", "1M", "--ranks", 2, "--zero", 3),
                      ("plan", "--params", "1M", "--ranks", 2, "--stage", 3)):
            self.check("3" in self.run(*words, "--recipe", "fp32").stdout, f"{words[-2]} is taken")
        done = self.run("plan", "--params", "1M", "--zer", 3, "--recipes", "fp32", code=2)
        self.check("unknown option '--zer'. See mixedprec plan --help" in done.stderr,
                   f"the first that is not understood: {done.stderr}")


def main():
    check = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        models = Models(sys.argv[1], check, pathlib.Path(temporary))
        for part in (models.types, models.several, models.gguf, models.none, models.patterns, models.large):
            part()
    check.exit()


if __name__ == "__main__":
    main()
