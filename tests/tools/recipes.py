#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the recipes are for, shown by training.

1. 300 steps: fp16_mixed, bf16_mixed and bf16_pure_remainder end within 1 % of fp32's loss, bf16_pure_kahan and every
   recipe with fp8 products, weights or states within 2 %; fp32 and bf16_mixed with both moments in 8-bit blocks within
   1 %. All hold the memory they promise. (When bf16_pure_remainder is bf16_mixed bit for bit: masters.py.)
2. A small learning rate, 1e-5, on a model that has learnt a little: the updates are below half a unit in the last
   place of most bf16 weights. Rounded to nearest they are lost and plain bf16 makes less than half of fp32's progress
   in validation loss; with Kahan summation or stochastic rounding it makes more than nine tenths.

Of the recipes with fp8 one of each kind; with MP_ALL_RECIPES=1 all of them.

usage: recipes.py MIXEDPREC_TRAIN TEXT"""
import json
import os
import pathlib
import re
import sys
import tempfile

from common import Checks, results, run

OF_EACH_KIND = ["fp8_delayed", "fp8_rowwise", "fp8_block", "mxfp8", "msamp_o2"]
MODEL = "--layers 4 --dim 128 --heads 4 --context 64 --batch 8 --sample 0 --val-batches 32"


def train(program, text, options):
    with tempfile.TemporaryDirectory() as out:
        run(program, ["--data", text, "--out", out] + MODEL.split() + options.split())
        return results(out)


def eight_bit(folder, preset):
    """The name of a file with this recipe, but for moments in 8-bit blocks."""
    path = pathlib.Path(folder) / f"{preset}_8bit.json"
    moments = ("optimizer.exp_avg.dtype", "optimizer.exp_avg_sq.dtype")
    path.write_text(json.dumps({"recipe": preset} | dict.fromkeys(moments, "int8_block256")))
    return str(path)


def check_losses(check, program, text):
    limits = {"fp16_mixed": 0.01, "bf16_mixed": 0.01, "bf16_pure_remainder": 0.01, "bf16_pure_kahan": 0.02}
    names = [line.split()[0] for line in run(program, ["--list-recipes"]).stdout.splitlines()]
    with_fp8 = [name for name in names if re.search("fp8_|mxfp8|msamp", name) and "auto" not in name]
    if not os.environ.get("MP_ALL_RECIPES"):
        assert set(OF_EACH_KIND) <= set(with_fp8), with_fp8
        with_fp8 = OF_EACH_KIND
    limits.update(dict.fromkeys(with_fp8, 0.02))
    with tempfile.TemporaryDirectory() as folder:
        for preset in ("fp32", "bf16_mixed"):
            limits[eight_bit(folder, preset)] = 0.01
        runs = train(program, text, "--steps 300 --compare fp32," + ",".join(limits))
    for recipe, limit in limits.items():
        for loss in ("train_loss", "val_loss"):
            gap = abs(runs[recipe][loss] / runs["fp32"][loss] - 1.0)
            check(gap <= limit, f"{recipe}: {loss} {runs[recipe][loss]:.4f} is {gap:.2%} from fp32's")
        speed = runs[recipe]["tokens_per_second"] / runs["fp32"]["tokens_per_second"]
        print(f"        {recipe}: {speed:.2f} of fp32's tokens/s")
    check(runs["fp32"]["val_loss"] < 2.45, f"fp32 has learnt: validation loss {runs['fp32']['val_loss']:.4f}")
    for recipe, run_ in runs.items():
        check(run_["bytes_expected"] == run_["bytes_measured"], f"{recipe}: memory is what the recipe promised")


def check_small_steps(check, program, text):
    with tempfile.NamedTemporaryFile() as weights:
        start = train(program, text, f"--steps 100 --lr 2e-3 --save {weights.name}")["fp32"]["val_loss"]
        runs = train(program, text, f"--init {weights.name} --steps 200 --lr 1e-5 --min-lr 1e-5 --warmup 0 "
                                    "--compare fp32,bf16_pure,bf16_pure_kahan,bf16_pure_sr")
    gain = start - runs["fp32"]["val_loss"]
    check(gain > 0.005, f"lr 1e-5, fp32: validation loss falls from {start:.4f} by {gain:.4f}")
    for recipe, low, high in (("bf16_pure", -1.0, 0.5), ("bf16_pure_kahan", 0.9, 1.1), ("bf16_pure_sr", 0.9, 1.1)):
        part = (start - runs[recipe]["val_loss"]) / gain
        check(low < part < high, f"lr 1e-5, {recipe}: {part:.0%} of fp32's progress, wanted {low:.0%} to {high:.0%}")


def main():
    check = Checks()
    check_losses(check, *sys.argv[1:3])
    check_small_steps(check, *sys.argv[1:3])
    check.exit()


main()
