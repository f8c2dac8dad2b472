#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mixedprec_train draws and writes for people: curves inside their axes, means without a lag, labels that do not lie
over titles, shares from 0 %, legends; and text that is UTF-8. usage: plots.py MIXEDPREC_TRAIN FIXTURES"""
import csv
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from common import Checks, run

SMALL = "--layers 1 --dim 32 --heads 2 --context 16 --batch 2 --val-batches 1 --sample 0"
DIGIT = 0.6  # of the font's size: how wide a digit of a sans-serif font is


def tags(root, name):
    return list(root.iter("{http://www.w3.org/2000/svg}" + name))


def read(path):
    return xml.etree.ElementTree.parse(path).getroot()


def text_of(element):
    return "".join(element.itertext())


def points(path):
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", path.get("d"))]


def curves(root):
    """[(colour, opacity, points)]"""
    return [(p.get("stroke"), float(p.get("stroke-opacity")), points(p)) for p in tags(root, "path")
            if p.get("stroke-opacity")]


def panels(root):
    """[(left, top, right, bottom)] of the axes, drawn as a line down and a line to the right."""
    shapes = [re.fullmatch(r"M([-\d.]+) ([-\d.]+)V([-\d.]+)H([-\d.]+)", p.get("d")) for p in tags(root, "path")]
    return [tuple(float(s[i]) for i in (1, 2, 4, 3)) for s in shapes if s]


def titles(root):
    """[(x, y)] where titles that run upwards stand."""
    found = [re.match(r"translate\(([-\d.]+) ([-\d.]+)\) rotate\(-90\)", t.get("transform", "")) for t in tags(root, "text")]
    return [(float(t[1]), float(t[2])) for t in found if t]


def y_labels(root):
    """[(x, y, text)] of the numbers left of axes: each ends at x."""
    groups = [g for g in tags(root, "g") if g.get("text-anchor") == "end"]
    return [(float(t.get("x")), float(t.get("y")), text_of(t)) for g in groups for t in tags(g, "text")]


def is_straight(values, pixels):
    """Whether pixels are a straight line's image of values: nothing was cut off."""
    low, high = min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__)
    slope = (pixels[high] - pixels[low]) / (values[high] - values[low])
    return max(abs(pixels[low] + slope * (v - values[low]) - p) for v, p in zip(values, pixels, strict=True)) < 0.2


def does_not_lag(raw, mean):
    """Whether each point is the mean of as many before as behind it, from the first on; at the end of those that there are."""
    for i, (_, y) in enumerate(mean):
        reach = min(10, i)
        around = [p[1] for p in raw[i - reach:i + reach + 1]]
        if abs(sum(around) / len(around) - y) > 0.2:
            return False
    return True


def check_losses(check, program, text, folder):
    recipes = ["fp32", "bf16_pure", "fp16_mixed"]
    run(program, f"--data {text} --out {folder} --steps 40 --lr 3e-3 --compare {','.join(recipes)} {SMALL}")
    root = read(folder / "losses.svg")
    with open(folder / "losses.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    faint = [c for c in curves(root) if c[1] < 1.0]
    bold = [c for c in curves(root) if c[1] == 1.0]
    left, top, right, bottom = panels(root)[0]
    check(len(faint) == 3 and len({c[0] for c in faint}) == 3, "losses.svg: a faint curve in a colour of its own for each recipe")
    check([c[0] for c in faint] == [c[0] for c in bold[:3]], "losses.svg: the smoothed curves have the same colours")
    for recipe, raw, mean in zip(recipes, faint, bold):
        losses = [float(row["train_loss"]) for row in rows if row["recipe"] == recipe]
        inside = all(left <= x <= right and top <= y <= bottom for x, y in raw[2] + mean[2])
        check(inside and is_straight(losses, [y for _, y in raw[2]]), f"losses.svg: {recipe} lies inside the axes, whole")
        check(len(mean[2]) == 40 and does_not_lag(raw[2], mean[2]), f"losses.svg: {recipe}'s mean has no lag")
    legend = [text_of(t) for g in tags(root, "g") if g.get("class") == "legend" for t in tags(g, "text")]
    check([entry.split(":")[0] for entry in legend] == recipes, "losses.svg: a legend")
    check_labels(check, root, "losses.svg")
    # Gaps of less than a percent, whose labels are long.
    run(program, f"--data {text} --out {folder} --steps 3 --lr 0 --compare fp32,bf16_mixed {SMALL}")
    check_labels(check, read(folder / "losses.svg"), "losses.svg with small gaps")


def check_labels(check, root, name):
    over = [(label, title) for label in y_labels(root) for title in titles(root)
            if label[0] > title[0] and abs(label[1] - title[1]) < 100
            and label[0] - 12 * DIGIT * len(label[2]) < title[0] + 3]  # what of a title is right of its base
    check(len(titles(root)) > 0 and not over, f"{name}: no label lies over a title: {over}")


def check_monitor(check, program, text, folder):
    recipe = folder / "narrow.json"
    recipe.write_text('{"recipe": "fp8_current", "gemm.margin": 16}')
    run(program, f"--data {text} --out {folder} --steps 8 --monitor 2 --compare fp8_delayed,mxfp8,{recipe} {SMALL}")
    root = read(folder / "monitor.svg")
    boxes = panels(root)
    check(len(boxes) == 9, "monitor.svg: nine panels")
    shares = [label for label in y_labels(root) for box in boxes[1:3] + boxes[4:6] + boxes[7:]
              if box[0] - label[0] == 8 and box[1] - 5 <= label[1] <= box[3] + 5]
    check(len(shares) >= 12 and all(0.0 <= float(label[2]) <= 100.0 for label in shares), "monitor.svg: shares from 0 to 100 %")
    check(all(any(l - 0.1 <= x <= r + 0.1 and t - 0.1 <= y <= b + 0.1 for l, t, r, b in boxes)
              for _, _, path in curves(root) for x, y in path), "monitor.svg: curves lie inside the axes")
    legend = [text_of(t) for g in tags(root, "g") if g.get("class") == "legend" for t in tags(g, "text")]
    check(legend == ["fp8_delayed", "mxfp8", str(recipe)], "monitor.svg: a legend")
    check_labels(check, root, "monitor.svg")


def check_sample(check, program, folder):
    """A model that has seen every byte writes every byte."""
    (folder / "noise").write_bytes(random.Random(1).randbytes(4000) + "größer €𝄞 \u0085".encode() * 50)
    words = f"--data {folder / 'noise'} --steps 2 --sample 400 --temperature 100 {SMALL.replace(' --sample 0', '')}".split()
    done = subprocess.run([program] + words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    text = done.stdout.decode(errors="strict").split("--- text by fp32 ---\n")[1]
    check(text.count("\N{REPLACEMENT CHARACTER}") > 100, "the sample is UTF-8, with U+FFFD for bytes that are none")
    check("größer" in text, "characters of several bytes stay")
    check(all(c == "\n" or c == "\t" or c >= " " and not "\x7f" <= c <= "\x9f" for c in text), "nothing in it steers a terminal")


def main():
    program, text, check = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt", Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_losses(check, program, text, folder)
        check_monitor(check, program, text, folder)
        check_sample(check, program, folder)
    check.exit()


main()
