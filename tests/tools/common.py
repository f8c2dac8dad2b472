# SPDX-License-Identifier: Apache-2.0
"""Running mixedprec_train from tests."""
import csv
import json
import pathlib
import subprocess
import sys


def run(program, options, check=True):
    """Runs with a list or a string of options. Returns the finished process with its text."""
    if isinstance(options, str):
        options = options.split()
    done = subprocess.run([program] + [str(o) for o in options], capture_output=True, text=True, errors="replace")
    if check and done.returncode != 0:
        sys.exit(f"mixedprec_train {' '.join(map(str, options))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def results(folder):
    """What --out left: {recipe: its entry of results.json, with "losses"}."""
    folder = pathlib.Path(folder)
    runs = {r["recipe"]: dict(r, losses=[]) for r in json.loads((folder / "results.json").read_text())["runs"]}
    with open(folder / "losses.csv", newline="") as file:
        for row in csv.DictReader(file):
            runs[row["recipe"]]["losses"].append(float(row["train_loss"]))
    return runs


class Checks:
    """Collects failures, so that one run shows them all."""

    def __init__(self):
        self.failed = 0

    def __call__(self, good, text):
        print(("ok      " if good else "FAILED  ") + text, flush=True)
        self.failed += 0 if good else 1

    def exit(self):
        sys.exit(1 if self.failed else 0)
