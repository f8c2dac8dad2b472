#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run of mixedprec_train that goes on from a checkpoint has the bits of one that did not stop: losses, parameters, states,
scales. Also where it is killed again and again. usage: resume.py MIXEDPREC_TRAIN FIXTURES [--full]"""
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

from common import Checks, results, run

SMALL = ("--layers 2 --dim 64 --heads 2 --context 16 --batch 4 --steps 10 --sample 0 --val-batches 1 --val-every 4 "
         "--accum 2 --threads 1 --lr 3e-3")
RECIPES = ["fp32", "fp16_mixed", "bf16_mixed", "bf16_mixed_dual", "bf16_pure_kahan", "bf16_pure_sr",
           "bf16_pure_remainder", "fp8_delayed", "bf16_with_fp8_mixed", "mxfp8", "msamp_o1", "msamp_o2", "msamp_o3"]
JSON_RECIPES = {
    "int8_states": {"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int8_block256",
                    "optimizer.exp_avg_sq.dtype": "int8_block256"},
    "int4_states": {"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int4_block128",
                    "optimizer.exp_avg_sq.dtype": "int4_block128"},
    "fp8_states": {"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "fp8_e4m3_block256",
                   "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block256"},
}


def tensors(checkpoint):
    """All bytes of a checkpoint, by name, put together from the ranks' pieces; the times of steps are not among what must
    agree."""
    pieces = {}
    for shard in pathlib.Path(checkpoint).glob("shard-*.safetensors"):
        content = shard.read_bytes()
        size, = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        header.pop("__metadata__")
        for key, entry in header.items():
            name, _, start = key.partition("@")
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            pieces.setdefault((name, entry["dtype"]), []).append((int(start or 0), content[begin:end]))
    return {name: (dtype, b"".join(part for _, part in sorted(parts)))
            for (name, dtype), parts in pieces.items() if not name.startswith("step_seconds")}


def numbers(checkpoint):
    manifest = json.loads((pathlib.Path(checkpoint) / "manifest.json").read_text())
    for tensor in manifest["tensors"]:
        del tensor["pieces"]  # they are the ranks'
    return {key: manifest[key] for key in ("step", "recipe", "rng", "tensors", "scalars")}


def at_step(folder, step):
    return next(pathlib.Path(folder).glob(f"step-{step}-*"))


def same(check, what, a, b):
    left, right = tensors(a), tensors(b)
    differ = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    check(not differ and numbers(a) == numbers(b), f"{what}: {len(left)} tensors" + (f" DIFFER: {differ[:5]}" if differ else ""))


def resume_once(check, program, options, recipe, folder, before=(), after=()):
    """`before` and `after`: more options of the run that saves and of the one that goes on."""
    straight, resumed = folder / "straight", folder / "resumed"
    run(program, options + ["--recipe", recipe, "--checkpoint", straight, "--checkpoint-every", 5, "--out", folder / "a",
                            *before])
    run(program, options + ["--recipe", recipe, "--resume", at_step(straight, 5), "--checkpoint", resumed,
                            "--out", folder / "b", *after])
    a, b = (next(iter(results(folder / x).values()))["losses"] for x in "ab")
    check(len(a) == 10 and a == b, "losses")
    same(check, "after the last step", at_step(straight, 10), at_step(resumed, 10))


def killed(check, program, options, recipe, folder, kills):
    """Killed at random times, each time going on from what is there."""
    straight, broken = folder / "straight", folder / "broken"
    random.seed(7)
    count = 0

    def resume():  # a slow machine may not have come to a first checkpoint
        return ["--resume", broken] if broken.exists() and any(broken.glob("step-*")) else []

    for _ in range(kills):
        process = subprocess.Popen([program] + [str(o) for o in options + ["--recipe", recipe, "--checkpoint", broken,
                                                                          "--checkpoint-every", 1] + resume()],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0.02, 0.25))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        count += process.returncode == -signal.SIGKILL
        check.failed += process.returncode not in (0, -signal.SIGKILL)
        if process.returncode not in (0, -signal.SIGKILL):
            print(errors.decode())
    run(program, options + ["--recipe", recipe, "--checkpoint", broken, *resume()])
    same(check, f"killed {count} times", at_step(straight, 10), at_step(broken, 10))


def main():
    program, fixtures = sys.argv[1:3]
    check = Checks()
    options = SMALL.split() + ["--data", os.path.join(fixtures, "train_gpt", "genesis.txt")]
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        recipes = {name: name for name in RECIPES}
        for name, recipe in JSON_RECIPES.items():
            (root / f"{name}.json").write_text(json.dumps(recipe))
            recipes[name] = root / f"{name}.json"
        for name, recipe in recipes.items():
            folder = root / f"run-{name}"
            folder.mkdir()
            print(name, flush=True)
            resume_once(check, program, options, recipe, folder)
        for recipe in ("fp16_mixed", "bf16_pure_sr"):  # a loss scale, random numbers
            folder = root / f"ranks-{recipe}"
            folder.mkdir()
            print(f"{recipe}: 3 ranks, then 2", flush=True)
            resume_once(check, program, options + "--accum 6 --order tree".split(), recipe, folder,
                        "--ranks 3 --zero 2".split(), "--ranks 2 --zero 1".split())
        folder = root / "guarded"
        folder.mkdir()
        print("bf16_mixed with a guard", flush=True)
        resume_once(check, program, options + "--guard-norm 0.8 --guard-loss 2 --guard-window 4".split(), "bf16_mixed", folder)
        check(numbers(at_step(folder / "straight", 5))["scalars"] != numbers(at_step(folder / "straight", 10))["scalars"] and
              any("guard.loss" in name for name, _ in numbers(at_step(folder / "resumed", 10))["scalars"]), "which has a window")
        folder = root / "run-fp8_delayed"
        killed(check, program, options, "fp8_delayed", folder, 200 if "--full" in sys.argv else 12)
        done = run(program, options + ["--recipe", "fp32", "--resume", folder / "straight"], check=False)
        check(done.returncode == 1 and "recipe" in done.stderr, "another recipe is refused")
        done = run(program, options[:-2] + ["--data", options[-1], "--steps", 2000, "--recipe", "fp8_delayed", "--resume",
                                            folder / "straight", "--checkpoint-every", 12, "--checkpoint", folder / "more",
                                            "--val-every", 0, "--lr", "1e-3", "--max-memory", 2048], check=False)
        check(done.returncode == 0 and "goes on with --steps 2000, but was begun with --steps 10" in done.stderr and
              "goes on with --lr 0.001, but was begun with --lr 0.003" in done.stderr, "a finished run goes on for more steps")
    check.exit()


if __name__ == "__main__":
    main()
