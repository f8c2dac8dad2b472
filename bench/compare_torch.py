#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training throughput of mixedprec_train beside the same model in eager PyTorch (torch_gpt.py), in one run.

Both programs train the same model on the same batches with the same threads, in turns; a figure is the median over
the rounds of a run's median step. Nothing is set in the environment, which is what users get; ours runs once more with
OpenMP's threads asleep between loops (OMP_WAIT_POLICY=passive), beside it. Run it with the Python that has torch and
numpy, on a machine that is doing nothing else:

    venv/bin/python bench/compare_torch.py --trainer build/release/tools/train/mixedprec_train --data build/corpus.txt

Prints a table to stderr and JSON to stdout. The exit code says whether every ratio reached its goal.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from environments import environment

HERE = pathlib.Path(__file__).resolve().parent

SIZES = {"small (3.4M)": "--layers 4 --dim 256 --heads 4", "10m (10.9M)": "--layers 6 --dim 384 --heads 6"}
# Our recipe, PyTorch's way of doing the same, and the goal for ours / PyTorch's at each size.
PAIRS = [("fp32", "fp32", (2.0, 2.0)), ("bf16_mixed", "autocast", (1.4, 1.4)), ("bf16_pure_kahan", "bf16", (1.3, 1.3))]
# A 16-bit recipe may be at most 5 % slower than our own fp32.
LEAST_OF_FP32 = 0.95
# With nothing set it must reach this part of its speed with OpenMP's threads asleep.
LEAST_OF_PASSIVE = 0.95


def ours(args, size, recipe, **settings):
    with tempfile.TemporaryDirectory() as out:
        command = [args.trainer, "--data", args.data, "--recipe", recipe, "--steps", args.steps, "--context", 256,
                   "--batch", 8, "--threads", args.threads, "--val-batches", 1, "--sample", 0, "--out", out]
        done = subprocess.run([str(c) for c in command] + size.split(), capture_output=True, text=True,
                              env=environment(**settings))
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        run = json.loads((pathlib.Path(out) / "results.json").read_text())["runs"][0]
    return 8 * 256 / run["step_seconds_median"]


def torchs(args, size, mode):
    command = [sys.executable, HERE / "torch_gpt.py", "--data", args.data, "--mode", mode, "--steps", args.steps,
               "--context", 256, "--batch", 8, "--threads", args.threads]
    done = subprocess.run([str(c) for c in command] + size.split(), capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return json.loads(done.stdout)["tokens_per_second"]


def measure(args):
    rows = []
    for index, (name, size) in enumerate(SIZES.items()):
        seen = {}
        for _ in range(args.rounds):
            for recipe, mode, _ in PAIRS:
                seen.setdefault(recipe, []).append(ours(args, size, recipe))
                seen.setdefault(recipe + " passive", []).append(ours(args, size, recipe, OMP_WAIT_POLICY="passive"))
                seen.setdefault("torch " + mode, []).append(torchs(args, size, mode))
        speed = {what: statistics.median(values) for what, values in seen.items()}
        for recipe, mode, goals in PAIRS:
            rows.append({"model": name, "recipe": recipe, "torch_mode": mode, "tokens_per_second": speed[recipe],
                         "torch_tokens_per_second": speed["torch " + mode],
                         "ratio": speed[recipe] / speed["torch " + mode], "goal": goals[index],
                         "of_our_fp32": speed[recipe] / speed["fp32"],
                         "of_passive": speed[recipe] / speed[recipe + " passive"], "rounds": seen[recipe],
                         "torch_rounds": seen["torch " + mode]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", required=True, help="the program, from a release build")
    parser.add_argument("--data", required=True, help="any text of at least 10 kB")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"note: this machine is busy (load {busy:.1f}); both programs suffer, not equally", file=sys.stderr)
    rows = measure(args)
    print(f"{'model':14}{'recipe':17}{'tok/s':>8}   {'torch':10}{'tok/s':>8}{'ratio':>8}{'goal':>7}{'of our fp32':>13}"
          f"{'of passive':>12}",
          file=sys.stderr)
    for r in rows:
        print(f"{r['model']:14}{r['recipe']:17}{r['tokens_per_second']:8.0f}   {r['torch_mode']:10}"
              f"{r['torch_tokens_per_second']:8.0f}{r['ratio']:8.2f}{r['goal']:7.2f}{r['of_our_fp32']:13.2f}"
              f"{r['of_passive']:12.2f}",
              file=sys.stderr)
    print(json.dumps({"threads": args.threads, "load_before": busy, "rows": rows}, indent=1))
    sys.exit(0 if all(r["ratio"] >= r["goal"] and r["of_our_fp32"] >= LEAST_OF_FP32 and
                      r["of_passive"] >= LEAST_OF_PASSIVE for r in rows) else 1)


if __name__ == "__main__":
    main()
