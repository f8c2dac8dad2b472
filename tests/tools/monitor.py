#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_train --monitor: every layer's operands are in monitor.csv with plausible figures, monitor.svg shows them, and
what the library advises is printed. usage: monitor.py MIXEDPREC_TRAIN FIXTURES"""
import csv
import math
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

from common import Checks, results, run

MODEL = "--layers 2 --dim 32 --heads 2 --context 16 --batch 2 --accum 2 --sample 0 --val-batches 1"
TOKENS = 2 * 16 * 2  # of one step
SIZES = {"qkv": (32, 96), "proj": (32, 32), "fc": (32, 128), "fc2": (128, 32), "head": (32, 256)}  # in, out
LAYERS = [f"h{block}.{name}" for block in range(2) for name in ("qkv", "proj", "fc", "fc2")] + ["head"]
TENSORS = ["input", "weight", "grad_output"]
E5M2 = {"fp8_delayed", "fp8_current"}  # hybrid: their gradients


def train(program, text, out, options):
    return run(program, ["--data", text, "--out", out] + MODEL.split() + options.split()).stdout


def rows_of(folder):
    with open(folder / "monitor.csv", newline="") as file:
        return list(csv.DictReader(file))


def elements(layer, tensor):
    """How many elements are quantized in two steps where each operand is quantized once; weights once for the two
    passes of a step."""
    features_in, features_out = SIZES[layer.split(".")[-1]]
    return 2 * {"input": TOKENS * features_in, "weight": features_in * features_out,
                "grad_output": TOKENS * features_out}[tensor]


def is_plausible(row):
    amax, shares = float(row["amax"]), [float(row["saturated"]), float(row["underflowed"])]
    return 0.0 < amax < math.inf and all(0.0 <= share <= 1.0 for share in shares) and row["non_finite"] == "0"


def has_delayed_scale(row):
    """The largest code of its type over the largest amax remembered."""
    largest = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}[row["dtype"]]
    return math.isclose(float(row["scale_inv"]) * largest, float(row["history_amax"]), rel_tol=1e-5)


def check_rows(check, folder, recipes):
    rows = rows_of(folder)
    check({row["recipe"] for row in rows} == set(recipes), f"rows are those of {', '.join(recipes)}")
    for recipe in recipes:
        mine = [row for row in rows if row["recipe"] == recipe]
        seen = [(row["step"], row["layer"], row["tensor"]) for row in mine]
        wanted = [(str(step), layer, tensor) for step in (2, 4, 6) for layer in LAYERS for tensor in TENSORS]
        check(seen == wanted, f"{recipe}: steps 2, 4, 6 of every layer and tensor, in order")
        check(all(is_plausible(row) for row in mine), f"{recipe}: amax above 0, shares from 0 to 1, all finite")
        grad = "fp8_e5m2" if recipe in E5M2 else "fp8_e4m3"
        check(all(row["dtype"] == (grad if row["tensor"] == "grad_output" else "fp8_e4m3") for row in mine),
              f"{recipe}: gradients are {grad}, the rest fp8_e4m3")
        if recipe == "fp8_delayed":
            check(all(has_delayed_scale(row) for row in mine), f"{recipe}: scales follow from the histories")
        else:
            check(all(row["scale_inv"] == row["history_amax"] == "" for row in mine), f"{recipe}: no lasting scale")
        if recipe in E5M2:
            check(all(int(row["elements"]) == elements(row["layer"], row["tensor"]) for row in mine),
                  f"{recipe}: each operand is quantized once a pass, weights once a step")


def check_plot(check, folder, recipes):
    root = xml.etree.ElementTree.parse(folder / "monitor.svg").getroot()
    paths = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("stroke-dasharray")]
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    check(len(paths) == 9 * len(recipes), f"monitor.svg: {len(paths)} curves in 9 panels")
    check(all(recipe in texts for recipe in recipes), "monitor.svg: a legend")


def check_advice(check, program, text, folder):
    recipe = folder / "narrow.json"
    recipe.write_text('{"recipe": "fp8_current", "gemm.margin": 16}')
    out = train(program, text, folder / "narrow", f"--steps 6 --monitor 2 --recipe {recipe}")
    lines = re.findall(r"^advice: (\S+) (\w+): \S+ % became zero: lower gemm.margin \(the last of 3 times\)$", out, re.M)
    wanted = [(layer, tensor) for layer in LAYERS for tensor in ("input", "weight")]  # e5m2 has room enough
    check([line for line in lines if line[1] != "grad_output"] == wanted, "advice once for each layer and tensor")


def check_validation_leaves_no_trace(check, program, text, folder):
    curves = []
    for name, options in (("without", ""), ("with", "--val-every 1")):
        train(program, text, folder / name, "--steps 6 --recipe fp8_delayed " + options)
        curves.append(results(folder / name)["fp8_delayed"]["losses"])
    check(curves[0] == curves[1], "fp8_delayed: validation between the steps changes no training loss")


def main():
    program, text, check = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt", Checks()
    recipes = ["fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_rowwise_gw_hp", "fp8_block", "mxfp8"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        train(program, text, folder / "out", "--steps 6 --monitor 2 --compare fp32," + ",".join(recipes))
        check_rows(check, folder / "out", recipes)
        check_plot(check, folder / "out", recipes)
        check_advice(check, program, text, folder)
        check_validation_leaves_no_trace(check, program, text, folder)
    check.exit()


main()
