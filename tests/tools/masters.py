#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""300 steps: bf16_pure_remainder is bf16_mixed with an fp32 master, bit for bit.

bf16_mixed with an fp32 master is bf16_mixed_dual: the same bf16 weights, products, gradients and fp32 moments, but 4
bytes for the master where the remainder takes 2. What is left is how a half is rounded when the weight is made from its
master: a remainder allows only away from zero, so the other run is asked for the same. Then losses, fp32 masters and
bf16 weights have the same bits. Without that key they have not, which shows that halves do occur.

usage: masters.py MIXEDPREC_TRAIN TEXT"""
import json
import pathlib
import struct
import sys
import tempfile

from common import Checks, results, run

MODEL = "--layers 2 --dim 64 --heads 4 --context 64 --batch 4 --steps 300 --sample 0 --val-batches 4"
DUAL = ["--recipe", "bf16_mixed", "--set", "weight.dtype=bf16", "--set", "master.dtype=fp32"]


def bf16_tensors(folder):
    """{name: bytes} of the bf16 tensors of a checkpoint of one rank."""
    file = next(pathlib.Path(folder).rglob("*.safetensors")).read_bytes()
    size = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + size])
    data = file[8 + size:]
    return {name: data[slice(*entry["data_offsets"])]
            for name, entry in header.items() if entry.get("dtype") == "BF16"}


def train(program, text, recipe):
    """Losses, the fp32 weights as bytes, and the bf16 weights."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(program, ["--data", text, "--out", folder, "--save", folder / "w", "--checkpoint", folder / "c"] +
            MODEL.split() + recipe)
        (result,) = results(folder).values()
        return result["losses"], (folder / "w").read_bytes(), bf16_tensors(folder / "c")


def main():
    check = Checks()
    program, text = sys.argv[1:3]
    remainder = train(program, text, ["--recipe", "bf16_pure_remainder"])
    half_away = train(program, text, DUAL + ["--set", "optimizer.weight.rounding=nearest_away"])
    to_even = train(program, text, DUAL)
    check(len(remainder[0]) == 300 and len(remainder[2]) == 29, "300 losses, and bf16 weights in the checkpoint")
    for what, a, b in zip(("losses", "fp32 masters", "bf16 weights"), remainder, half_away):
        check(a == b, f"{what}: the bits of bf16_pure_remainder are those of bf16_mixed with an fp32 master")
    check(remainder[1] != to_even[1], "with halves to even they are not")
    gap = abs(to_even[0][-1] / remainder[0][-1] - 1.0)
    check(gap < 0.01, f"though the loss is within 1 % ({gap:.3%})")
    check.exit()


main()
