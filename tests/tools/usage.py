#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every wrong invocation of mixedprec_train ends with the right exit code and a message that says what to do; Ctrl-C ends
with the table. usage: usage.py MIXEDPREC_TRAIN FIXTURES"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from common import Checks, run

SMALL = "--layers 1 --dim 16 --heads 2 --context 16 --batch 2 --steps 2 --sample 5 --val-batches 1"

# (options, exit code, what stderr must match); {text} is a good text, {dir} an empty folder.
BAD = [
    ("--bogus 1", 2, r"unknown option '--bogus'"),
    ("steps 3", 2, r"'steps' is not an option"),
    ("-x", 2, r"'-x' is not an option"),
    ("--steps", 2, r"--steps wants a value"),
    ("--recipe", 2, r"--recipe wants a value"),
    ("--steps many", 2, r"--steps wants a whole number, not 'many'"),
    ("--steps 3x", 2, r"--steps wants a whole number, not '3x'"),
    ("--steps 2.5", 2, r"--steps wants a whole number"),
    ("--lr fast", 2, r"--lr wants a number, not 'fast'"),
    ("--lr nan", 2, r"--lr wants a number"),
    ("--lr inf", 2, r"--lr must be from 0 to 1000000, not inf"),
    ("--lr -1", 2, r"--lr must be from"),
    ("--steps 0", 2, r"--steps must be from 1 to 1000000000, not 0"),
    ("--steps -5", 2, r"--steps must be from 1"),
    ("--steps 99999999999999999999", 2, r"--steps must be from 1"),
    ("--layers 0", 2, r"--layers must be from 1"),
    ("--batch 0", 2, r"--batch must be from 1"),
    ("--context 0", 2, r"--context must be from 1"),
    ("--accum 0", 2, r"--accum must be from 1"),
    ("--dim 100 --heads 3", 2, r"--dim 100 cannot be shared out to --heads 3: it must be a multiple"),
    ("--dim 65536 --layers 1000", 2, r"would need about \d+ MiB and --max-memory is 2048"),
    ("--context 65536 --batch 65536", 2, r"would need about \d+ MiB"),
    ("--max-memory 1", 2, r"would need about \d+ MiB and --max-memory is 1"),
    ("--beta1 1", 2, r"--beta1 and --beta2 must be below 1"),
    ("--warmup 301", 2, r"--warmup is above --steps"),
    ("--min-lr 1", 2, r"--min-lr is above --lr"),
    ("--recipe fp12", 2, r"unknown recipe 'fp12'.*--list-recipes"),
    ("--compare fp32,", 2, r"--compare has an empty name"),
    ("--compare fp32,,bf16_pure", 2, r"--compare has an empty name"),
    ("--compare " + ",".join(["fp32"] * 65), 2, r"--compare has more than 64"),
    ("--compare all,fp32", 2, r"unknown recipe 'all'"),
    ("--set optimizer.weight.rounding", 2, r"--set wants KEY=VALUE, not 'optimizer.weight.rounding'"),
    ("--set =nearest", 2, r"--set wants KEY=VALUE"),
    ("--set grad.dtyp=bf16", 1, r"grad.dtype"),
    ("--set grad.dtype=bf17", 1, r"bf17"),
    ("--set gemm.margin=much", 1, r"'much' is not a whole number"),
    ("--set gemm.margin=0.5", 1, r"'0.5' is not a whole number"),
    ("--set scaler.init_scale=big", 1, r"'big' is not a number"),
    ("--set optimizer.weight.rounding=nearest_away", 1, r"bf16 weights made from fp32 masters"),
    ("--recipe all", 2, r"unknown recipe 'all'"),
    ("--monitor 1", 2, r"--monitor wants --out: a folder"),
    ("--monitor -1 --out {dir}", 2, r"--monitor must be from 0"),
    ("--monitor often --out {dir}", 2, r"--monitor wants a whole number, not 'often'"),
    ("--monitor 1 --out {dir}/taken", 1, r"cannot write '.*/taken/monitor.csv': Is a directory"),
    ("--compare fp32,bf16_pure --checkpoint {dir}/c", 2, r"--checkpoint and --resume want a single recipe"),
    ("--checkpoint-every 5", 2, r"--checkpoint-every and --keep want --checkpoint"),
    ("--keep 5", 2, r"--checkpoint-every and --keep want --checkpoint"),
    ("--resume {dir} --init {text}", 2, r"--resume has weights of its own"),
    ("--resume {dir}/missing", 1, r"missing.*No such file"),
    ("--resume {dir}", 1, r"has no checkpoint that can be read"),
    ("--checkpoint {dir}/no/such", 1, r"cannot make the folder '.*no/such' for checkpoints: No such file"),
    ("--compare fp32,bf16_pure --save {dir}/w", 2, r"--save wants a single recipe"),
    ("--data {dir}/missing", 1, r"cannot open the text '.*missing': No such file.*--data"),
    ("--data {dir}", 1, r"the text '.*' is not an ordinary file"),
    ("--data {dir}/empty", 1, r"has 0 bytes, too few"),
    ("--data {dir}/short", 1, r"has 160 bytes, too few: its last tenth.*must hold more than --context 16"),
    ("--out {text}", 1, r"--out '.*' is not a folder"),
    ("--out {dir}/no/such", 1, r"cannot make the folder"),
    ("--init {dir}/missing", 1, r"cannot open the weights"),
    ("--init {dir}/empty", 1, r"is not a file that --save has written"),
    ("--init {text}", 1, r"is not a file that --save has written"),
    ("--init {dir}/cut", 1, r"is damaged: it must hold exactly"),
    ("--init {dir}/long", 1, r"is damaged: it must hold exactly"),
    ("--init {dir}/weights --dim 32", 1, r"holds a model with --layers 1 --dim 16"),
    ("--save {dir}/no/such", 1, r"cannot write the weights"),
    ("--recipe {dir}/missing.json", 1, r"mp_recipe_create_from_file"),
    ("--recipe {dir}/bad.json", 1, r"mp_recipe_create_from_file: MP_STATUS_\w+: .*nonsense"),
    ("--compare fp32,{dir}/bad.json", 1, r"mp_recipe_create_from_file"),
    ("--backend bogus", 1, r"mp_context_create: MP_STATUS_UNKNOWN_NAME"),
    ("--lr 1e6 --warmup 0 --clip 0 --steps 60", 1, r"the last 10 losses are not finite; try a smaller --lr"),
]


def check_bad(check, program, text, folder):
    for options, code, pattern in BAD:
        words = options.format(text=text, dir=folder).split()
        known = SMALL.split() if "--max-memory 1" not in options and "--warmup 301" not in options else []
        done = run(program, ["--data", text] + known + words, check=False)
        good = done.returncode == code and re.search(pattern, done.stderr) is not None
        check(good, f"{options}: exit code {done.returncode}" + ("" if good else f", wanted {code}\n{done.stderr}"))


def check_empty(check, program, text):
    """A value that is the empty text is no option left out, whichever option it is of."""
    options = sorted(set(re.findall(r"(--[a-z0-9-]+) [A-Z]", run(program, ["--help"]).stdout)))
    check(len(options) > 30, f"{len(options)} options with a value")
    for option in options:
        done = run(program, ["--data", text, option, ""], check=False)
        check(done.returncode == 2 and "is empty" in done.stderr, f"{option} '': {done.returncode} {done.stderr.strip()[:80]}")


def check_good(check, program, text, folder):
    done = run(program, ["--help"])
    check("--compare" in done.stdout and "Exit codes" in done.stdout, "--help explains")
    done = run(program, ["--list-recipes"])
    check(re.search(r"^bf16_pure_kahan ", done.stdout, re.M) is not None, "--list-recipes lists")
    for backend in ("host", "reference"):
        done = run(program, ["--data", text, "--backend", backend] + SMALL.split())
        check(re.search(r"^fp32 +\d\.\d+", done.stdout, re.M) is not None, f"{backend}: the table has the run")
    recipe = folder / "mine.json"
    recipe.write_text('{"recipe": "bf16_mixed", "gemm.fprop.dtype": "fp16"}')
    done = run(program, ["--data", text, "--recipe", recipe] + SMALL.split())
    check("mine.json" in done.stdout, "a recipe from a file")
    done = run(program, ["--data", text, "--compare", "auto,auto_fp8"] + SMALL.split())
    for name in ("auto", "auto_fp8"):
        reason = re.search(rf"^{name}: .*; so (\w+)$", done.stdout, re.M)
        check(reason is not None and reason[1].startswith("fp8") == (name == "auto_fp8"), f"{name} says what it chose")
    codes = folder / "codes.json"
    codes.write_text('{"recipe": "fp16_mixed", "grad.dtype": "fp8_e5m2_scaled"}')
    mixed = folder / "mixed.json"
    mixed.write_text('{"recipe": "msamp_o2", "optimizer.exp_avg.dtype": "int8_block256"}')
    for recipe in ("msamp_o3", codes, mixed):  # weights, gradients, or both with scales
        model = ["--data", text] + SMALL.split() + ["--recipe", recipe, "--accum", 2, "--dim", 64]
        first = run(program, model + ["--save", folder / "w"])
        again = run(program, model + ["--init", folder / "w"])
        losses = [float(re.search(r"(msamp_o3|\.json) +(\d\.\d+)", done.stdout)[0].split()[1])
                  for done in (first, again)]
        check(losses[1] < losses[0] and "(not " not in first.stdout, f"{recipe}: trains, is saved, goes on")
    for recipe in ("bf16_mixed_dual", "bf16_pure_remainder"):  # a step of length 0 loses no bit of the weights
        run(program, ["--data", text, "--recipe", recipe, "--init", folder / "weights", "--save", folder / "w"] +
            SMALL.split() + ["--lr", 0])
        check((folder / "w").read_bytes() == (folder / "weights").read_bytes(), f"{recipe}: saves its exact weights")
    out = folder / "out"
    done = run(program, ["--data", text, "--compare", "fp32,bf16_pure", "--out", out] + SMALL.split())
    wanted = ["losses.csv", "losses.svg", "report.html", "results.json"]
    check(sorted(p.name for p in out.iterdir()) == wanted, "--out has its files")
    check(len((out / "losses.csv").read_text().splitlines()) == 5, "losses.csv has a line for each step and recipe")
    check((out / "losses.svg").read_text().count("<path fill") >= 4, "losses.svg has the curves")


def check_all_recipes(check, program, text):
    """Every preset trains, two steps of it, and holds the memory it promises."""
    presets = [line.split()[0] for line in run(program, ["--list-recipes"]).stdout.splitlines()]
    presets = [name for name in presets if not name.startswith("auto")]
    done = run(program, ["--data", text, "--compare", "all"] + SMALL.split())
    rows = [line.split() for line in done.stdout.splitlines()]
    rows = [row for row in rows if row and row[0] in presets]
    check([row[0] for row in rows] == presets, f"--compare all has the {len(presets)} presets in their order")
    check("(not " not in done.stdout, "--compare all: everyone's memory is as promised")
    check(all(re.fullmatch(r"\d+\.\d\dx", row[8]) for row in rows[1:]), "--compare all: speeds beside fp32's")


def check_interrupt(check, program, text, recipes, number):
    words = [program, "--data", text] + SMALL.split() + ["--steps", "100000000"] + recipes
    process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the first step is done
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    check(process.returncode == 130 and re.search(r"^fp32 .* stopped after \d+ steps", out, re.M) is not None,
          f"{signal.Signals(number).name} with {' '.join(recipes)}: exit code {process.returncode}, the table so far")


def check_killed_child(check, program, text):
    """One recipe's process is lost, the other's results stay."""
    words = [program, "--data", text] + SMALL.split() + ["--steps", "100000000", "--compare", "bf16_pure,fp8_delayed"]
    process = subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for number in (signal.SIGKILL, signal.SIGINT):  # the first recipe's process, then the whole
        process.stderr.readline()  # its first step is done
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]) if number == signal.SIGKILL else process.pid, number)
        if number == signal.SIGKILL:
            while "ended by signal 9" not in process.stderr.readline():
                pass
    out, _ = process.communicate(timeout=600)
    check(process.returncode == 1 and re.search(r"^bf16_pure .* FAILED after 0 steps", out, re.M) is not None and
          re.search(r"^fp8_delayed .* stopped after [1-9]\d* steps", out, re.M) is not None,
          f"a recipe whose process is killed: exit code {process.returncode}, the table has the others")


def main():
    program, text, check = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt", Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "taken" / "monitor.csv").mkdir(parents=True)
        (folder / "empty").write_bytes(b"")
        (folder / "short").write_bytes(b"x" * 160)
        (folder / "bad.json").write_text('{"recipe": "fp32", "nonsense": 1}')
        run(program, ["--data", text, "--save", folder / "weights"] + SMALL.split())
        weights = (folder / "weights").read_bytes()
        (folder / "cut").write_bytes(weights[:-4])
        (folder / "long").write_bytes(weights + b"x")
        check_bad(check, program, text, folder)
        check_empty(check, program, text)
        check_good(check, program, text, folder)
        check_all_recipes(check, program, text)
        check_interrupt(check, program, text, ["--recipe", "fp32"], signal.SIGINT)
        check_interrupt(check, program, text, ["--compare", "fp32,bf16_pure"], signal.SIGINT)
        check_interrupt(check, program, text, ["--compare", "fp32,bf16_pure"], signal.SIGTERM)
        check_killed_child(check, program, text)
    check.exit()


main()
