#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Policy by layer in mixedprec_train: all layers under another recipe's rule train as under that recipe, to the bit, and one
layer under a rule is between. usage: layers.py MIXEDPREC_TRAIN FIXTURES"""
import os
import sys
import tempfile

from common import Checks, results, run

OPTIONS = ("--layers 2 --dim 32 --heads 2 --context 32 --batch 4 --steps 6 --sample 0 --val-batches 1 --threads 1 "
           "--lr 0.01").split()
# Presets whose weights, gradients and optimizer are fp32's: they differ by layers alone.
LAYERS_ALONE = ("bf16_mixed", "fp8_delayed", "fp8_current", "fp8_rowwise_gw_hp", "fp8_block", "mxfp8")


def main():
    program, fixtures = sys.argv[1:3]
    check, data = Checks(), ["--data", os.path.join(fixtures, "train_gpt", "genesis.txt")]

    def losses(recipe, *more):
        with tempfile.TemporaryDirectory() as out:
            run(program, OPTIONS + data + ["--recipe", recipe, "--out", out, *more])
            return results(out)[recipe]["losses"]

    own = {recipe: losses(recipe) for recipe in ("fp32",) + LAYERS_ALONE}
    check(len({tuple(values) for values in own.values()}) >= len(LAYERS_ALONE), "recipes differ")
    for recipe in LAYERS_ALONE:
        check(losses(recipe, "--set", "layers=*: recipe=fp32") == own["fp32"], f"{recipe}, all layers fp32: fp32's losses")
        check(losses("fp32", "--set", f"layers=*: recipe={recipe}") == own[recipe], f"fp32, all layers {recipe}: its losses")
    for pattern in ("head", "h1.*", "*.qkv"):
        some = losses("fp8_current", "--set", f"layers={pattern}: recipe=fp32")
        check(some not in (own["fp32"], own["fp8_current"]), f"{pattern} in fp32 under fp8_current")
    check(losses("fp8_current", "--set", "layers=nobody: recipe=fp32") == own["fp8_current"], "a rule for nobody")
    ranks = ("--ranks", "2", "--accum", "2", "--zero", "1", "--set", "weight.gather.codes=on", "--set")
    check(losses("fp8_current", *ranks, "layers=h0.*: recipe=fp32") != losses("fp8_current", *ranks, "layers="),
          "ranks gather codes of the other layers")
    done = run(program, OPTIONS + data + ["--recipe", "fp8_current", *ranks, "layers=*: recipe=fp32"], check=False)
    check(done.returncode == 1 and "weight.gather.codes" in done.stderr, f"no layer has codes: {done.stderr.strip()}")
    check.exit()


if __name__ == "__main__":
    main()
