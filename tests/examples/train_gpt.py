#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/train_gpt: its losses are PyTorch's, also after a stop; every recipe trains; wrong usage is explained.
usage: train_gpt.py TRAIN_GPT FIXTURES torch | resume | recipes | usage"""
import pathlib
import re
import subprocess
import sys
import tempfile

SMALL = "--layers 1 --dim 32 --heads 2 --context 16 --batch 2 --print 1 --warmup 0".split()
TOLERANCE = 1e-3  # as for mixedprec_train: tests/tools/torch_parity.py

# (options, exit code, what stderr must match)
BAD = [
    ("", 2, r"--data wants a text file: --data FILE"),
    ("--bogus 1", 2, r"wants options that --help lists, not '--bogus'"),
    ("{data} --steps", 2, r"--steps wants a value behind it"),
    ("{data} --steps 0", 2, r"--steps wants a whole number from 1 to 1e\+09, not '0'"),
    ("{data} --steps 3x", 2, r"--steps wants a whole number .*, not '3x'"),
    ("{data} --layers 65", 2, r"--layers wants a whole number from 1 to 64, not '65'"),
    ("{data} --lr nan", 2, r"--lr wants a number from 0 to 1e\+06, not 'nan'"),
    ("{data} --dim 33", 2, r"--dim wants a multiple of --heads"),
    ("{data} --recipe fp12", 2, r"--recipe: .*fp12.*--list-recipes"),
    ("--data {folder}/missing", 1, r"'.*missing' cannot be opened: No such file"),
    ("--data {folder}", 1, r"is too short: a tenth of it must hold more bytes than --context"),
    ("{data} --context 900", 1, r"is too short: a tenth of it must hold more bytes than --context"),
    ("{data} --resume {folder}/missing", 1, r"mp_checkpoint_load: .*missing"),
    ("{data} --checkpoint {folder}/no/such", 1, r"mp_checkpoint_\w+: .*no/such"),
]
failed = 0


def check(good, text):
    global failed
    print(("ok      " if good else "FAILED  ") + text, flush=True)
    failed += 0 if good else 1


def run(options, code=0):
    done = subprocess.run([program] + [str(o) for o in options], capture_output=True, text=True)
    if code is not None and done.returncode != code:
        sys.exit(f"train_gpt {options}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def steps(options):
    """The lines of the steps, without their times; and the losses."""
    lines = re.findall(r"^(step .*)  \d+ tokens/s$", run(options).stdout, re.M)
    return lines, [float(re.search(r"loss (\S+)", line)[1]) for line in lines]


def check_torch():
    options, *expected = (fixtures / "small.txt").read_text().splitlines()
    options = options.split() + ["--data", text, "--print", 1]
    for recipe, tolerance in (("fp32", TOLERANCE), ("bf16_mixed", 0.005), ("bf16_pure_kahan", 0.005)):
        _, losses = steps(options + ["--recipe", recipe])
        worst = max(abs(a - float(b)) for a, b in zip(losses, expected, strict=True))
        check(worst <= tolerance, f"{recipe}: {len(losses)} losses, largest difference from PyTorch's {worst:.2g}")


def check_resume():
    for recipe in ("fp16_mixed", "bf16_pure_sr", "fp8_delayed", "msamp_o2"):
        with tempfile.TemporaryDirectory() as folder:
            options = SMALL + ["--data", text, "--recipe", recipe, "--steps", 8]
            straight, _ = steps(options + ["--checkpoint", folder, "--every", 3])
            middle = next(pathlib.Path(folder).glob("step-3-*"))
            resumed, _ = steps(options + ["--resume", middle])
            check(len(straight) == 8 and resumed == straight[3:], f"{recipe}: steps 4 to 8 again after a stop")


def check_recipes():
    names = [line.split()[0] for line in run(["--list-recipes"]).stdout.splitlines()]
    check(len(names) > 15, f"--list-recipes lists {len(names)}")
    for name in names + ["auto"]:
        # A dynamic loss scale starts with steps that overflow, which change nothing.
        _, losses = steps(SMALL + ["--data", text, "--steps", 3, "--lr", "1e-2", "--recipe", name])
        check(len(losses) == 3 and all(5.0 < loss < 6.0 for loss in losses), f"{name}: {losses}")
    done = run(SMALL + ["--data", text, "--steps", 30, "--lr", "1e-2", "--recipe", "fp8_current"])
    losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+) ", done.stdout)]
    check(losses[-1] < losses[0] - 0.5, f"fp8_current learns: {losses[0]} to {losses[-1]}")
    check(re.search(r"^validation loss \d\.\d+\n--- sample ---\n", done.stdout, re.M) is not None, "it ends with a sample")


def check_usage():
    with tempfile.TemporaryDirectory() as folder:
        for options, code, pattern in BAD:
            words = options.format(data=f"--data {text}", folder=folder).split()
            done = run(SMALL + words, code=None)
            good = done.returncode == code and re.search(pattern, done.stderr) is not None
            check(good, f"{options}: exit code {done.returncode}" + ("" if good else f", wanted {code}\n{done.stderr}"))
    check("--recipe" in run(["--help"]).stdout, "--help explains")


program, fixtures = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt"
text = fixtures / "genesis.txt"
globals()["check_" + sys.argv[3]]()
sys.exit(1 if failed else 0)
