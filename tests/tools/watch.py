#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training says of itself: bytes by class and advice, the share of the machine's peak, steps that stand out, and the
last steps before the first number that is not finite. usage: watch.py MIXEDPREC_TRAIN FIXTURES"""
import json
import pathlib
import re
import sys
import tempfile

from common import Checks, run

SMALL = "--layers 1 --dim 16 --heads 2 --context 16 --batch 4 --sample 0 --val-batches 1 --threads 1".split()


def main():
    program, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text"
        text.write_text("".join(f"{n} and {n * 7 % 31} are numbers. " for n in range(2000)))

        def train(*options):
            return run(program, [*SMALL, "--data", text, *options], check=False)

        done = train("--steps", 40, "--guard-norm", 0.8, "--guard-window", 4, "--out", folder / "guarded")
        result = json.loads((folder / "guarded/results.json").read_text())["runs"][0]
        checks(done.returncode == 0 and 0 < result["outliers"] == result["skipped"] < 40,
               f"{result['outliers']} of 40 steps lie 0.8 deviations above the four before, and are skipped")
        checks(len(re.findall(r"step \d+ skipped: its gradient norm", done.stderr)) == result["outliers"], "each is told of")
        checks("it stood out" in (folder / "guarded/report.html").read_text(), "the report has them")
        checks(re.search(r"tok/s \(\d+\.\d % of peak\)", done.stderr) is not None and 0 < result["share_of_peak"] < 1,
               f"a line has the share of the peak: {result['share_of_peak']:.4f}")
        checks("memory (MiB): weights" in done.stdout and "activations at most" in done.stdout, "bytes by class at the start")
        done = train("--steps", 1, "--batch", 64)
        checks("advice: most of it are activations: --batch 32 --accum 2" in done.stdout, "advice where activations are most")
        done = train("--steps", 1, "--batch", 1, "--dim", 64)
        checks("advice: --recipe bf16_pure_sr would hold" in done.stdout, "advice where states are most")
        checks(not list((folder / "guarded").glob("last-steps*")), "nothing was not finite")
        done = train("--steps", 40, "--lr", 1e6, "--min-lr", 1e6, "--warmup", 0, "--out", folder / "wild", "--set",
                     "grad.dtype=fp32")
        checks(done.returncode == 1 and "losses are not finite; first was the gradient of '" in done.stderr,
               f"a training that ends tells what was bad first: {done.stderr.strip().splitlines()[-1]}")
        last = json.loads((folder / "wild/last-steps-fp32.json").read_text())
        checks(last["first_bad"].startswith("the gradient of '") and last["steps"][-1]["outcome"] == "not finite" and
               all(step["outcome"] == "taken" for step in last["steps"][:-1]), "the last steps before it are in a file")
        done = train("--steps", 30, "--guard-norm", 0.8, "--guard-loss", 9, "--guard-window", 4, "--ranks", 2, "--accum", 2,
                     "--zero", 2,
                     "--out", folder / "ranks")
        result = json.loads((folder / "ranks/results.json").read_text())["runs"][0]
        checks(done.returncode == 0 and 0 < result["outliers"] < 30, f"ranks skip the same {result['outliers']} steps")
        done = train("--steps", 4, "--guard-window", 1)
        checks(done.returncode == 2 and "from 2 to 1024" in done.stderr, "a window of one step is refused")
    checks.exit()


if __name__ == "__main__":
    main()
