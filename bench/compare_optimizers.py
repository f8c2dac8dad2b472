#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One AdamW step of libmixedprec beside those of other libraries on the same number of parameters, in one run.

In each round every optimizer makes one step, forwards and backwards in turns. Times are medians over the rounds after
the first two; a ratio is the median of the rounds' ratios, because memory that is shared is at times slower for all. A
peer that is not installed or does not run is listed with its reason. Run it with the Python that has torch and numpy,
and of these what there is: torchao, deepspeed (compiles its kernel at first use), torch-optimi. On a machine that is
doing nothing else, all at once or a part at a time:

    venv/bin/python bench/compare_optimizers.py --prefix build/release
    venv/bin/python bench/compare_optimizers.py --prefix build/release --only 8-bit --peer compiled

Prints a table to stderr and JSON to stdout. The exit code says whether ours was faster than every peer that ran.
"""
import argparse
import contextlib
import importlib
import json
import os
import pathlib
import statistics
import sys
import time

HYPER = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
BLOCKS = {"fp8_block": 256, "dynamic8": 256, "dynamic4": 128}  # elements of a scale


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", required=True, help="the folder with lib/libmixedprec.so.0, from a release build")
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--peer", default="", help="peers whose name contains one of these, with commas")
    return parser.parse_args()


def gradients(torch, args, dtype):
    torch.manual_seed(1)
    return torch.randn(args.elements).mul_(1e-2).to(dtype)


class Ours:
    """A step on arrays that torch made, as the peers' are; moments in blocks have a scale for each block."""

    def __init__(self, mp, torch, args, dtype, moments, coding=None, kahan=False):
        self.mp, self.context, self.count = mp, mp.Context(threads=args.threads), 0
        types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8_e4m3": torch.uint8, "uint8": torch.uint8}

        def zeros(dtype):
            count = (args.elements + 1) // 2 if coding == "dynamic4" and dtype == "uint8" else args.elements
            return torch.zeros(count, dtype=types[dtype])

        def lent(array, dtype):
            return (array.view(torch.int16).numpy() if dtype == "bf16" else array.numpy(), dtype)

        names = ("exp_avg", "exp_avg_sq") if coding else ()
        self.slot = mp.Slot(lent(zeros(dtype), dtype), lent(gradients(torch, args, types[dtype]), dtype),
                            lent(zeros(moments), moments), lent(zeros(moments), moments),
                            lent(zeros(dtype), dtype) if kahan else None, codings={name: coding for name in names},
                            scale_inv={name: torch.zeros(-(-args.elements // BLOCKS[coding])).numpy() for name in names})

    def __call__(self):
        self.count += 1
        self.mp.step(self.context, self.slot, step=self.count, **HYPER)


def peer(args, module, name, dtype, eager=False, **options):
    """A step of module.name on one parameter of that dtype."""
    import torch
    made = getattr(importlib.import_module(module), name)
    param = torch.nn.Parameter(torch.zeros(args.elements, dtype=dtype))
    param.grad = gradients(torch, args, dtype)
    optimizer = made([param], **HYPER, **options)

    def step():
        with torch.compiler.set_stance("force_eager") if eager else contextlib.nullcontext():
            optimizer.step()

    return step


def rows(torch):
    """Name, ours, and the peers that store the same."""
    fp32, bf16 = torch.float32, torch.bfloat16
    deepspeed = dict(module="deepspeed.ops.adam", name="DeepSpeedCPUAdam", adamw_mode=True)
    low_bit = [("torchao, compiled", {}), ("torchao, eager", {"eager": True})]

    def torchao(name, dtype):
        return [(what, dict(module="torchao.optim", name=name, dtype=dtype, **more)) for what, more in low_bit]

    return [
        ("fp32", dict(dtype="fp32", moments="fp32"),
         [("torch fused", dict(module="torch.optim", name="AdamW", dtype=fp32, fused=True)),
          ("DeepSpeed", dict(**deepspeed, dtype=fp32))]),
        ("bf16 p,g; fp32 m,v", dict(dtype="bf16", moments="fp32"),
         [("DeepSpeed", dict(**deepspeed, dtype=bf16, fp32_optimizer_states=True))]),
        ("bf16 everywhere", dict(dtype="bf16", moments="bf16"),
         [("torch fused", dict(module="torch.optim", name="AdamW", dtype=bf16, fused=True)),
          ("DeepSpeed", dict(**deepspeed, dtype=bf16, fp32_optimizer_states=False))]),
        ("bf16 everywhere, Kahan", dict(dtype="bf16", moments="bf16", kahan=True),
         [("optimi", dict(module="optimi", name="AdamW", dtype=bf16, kahan_sum=True))]),
        ("fp32 p,g; 8-bit m,v", dict(dtype="fp32", moments="uint8", coding="dynamic8"), torchao("AdamW8bit", fp32)),
        ("bf16 p,g; 8-bit m,v", dict(dtype="bf16", moments="uint8", coding="dynamic8"), torchao("AdamW8bit", bf16)),
        ("bf16 p,g; 4-bit m,v", dict(dtype="bf16", moments="uint8", coding="dynamic4"), torchao("AdamW4bit", bf16)),
        ("bf16 p,g; fp8 m,v", dict(dtype="bf16", moments="fp8_e4m3", coding="fp8_block"), torchao("AdamWFp8", bf16)),
    ]


def measure(args, own, peers):
    """Seconds of each round by name; a reason instead for a peer that failed."""
    steps, failed = {"ours": own}, {}
    for name, options in peers:
        try:
            steps[name] = peer(args, **options)
            steps[name]()
        except Exception as error:  # whatever a peer may raise is its reason
            steps.pop(name, None)
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
    seconds = {name: [] for name in steps}
    for number in range(args.rounds + 2):
        order = list(steps.items())
        for name, step in order if number % 2 == 0 else reversed(order):
            time.sleep(0.02)  # until the last one's waiting threads have stopped spinning
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    return {name: values[2:] for name, values in seconds.items()}, failed


def main():
    args = parse()
    os.environ["MIXEDPREC_DIR"] = args.prefix
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings" / "python"))
    import mixedprec as mp
    import torch
    torch.set_num_threads(args.threads)
    found = []
    print(f"{'':26}{'ours':>10}   {'peer':20}{'':>10}{'ratio':>8}", file=sys.stderr)
    for name, mine, peers in rows(torch):
        peers = [(who, options) for who, options in peers if any(part in who for part in args.peer.split(","))]
        if args.only not in name or not peers:
            continue
        seconds, failed = measure(args, Ours(mp, torch, args, **mine), peers)
        ns = {who: statistics.median(values) / args.elements * 1e9 for who, values in seconds.items()}
        ratios = {who: statistics.median(theirs / ours for theirs, ours in zip(values, seconds["ours"]))
                  for who, values in seconds.items()}
        for who, _ in peers:
            row = {"name": name, "peer": who, "ours_ns": ns["ours"], "peer_ns": ns.get(who),
                   "ratio": ratios.get(who), "skipped": failed.get(who)}
            found.append(row)
            rest = f"{ns[who]:7.3f} ns{row['ratio']:8.2f}" if who in ns else "skipped: " + failed[who]
            print(f"{name:26}{ns['ours']:7.3f} ns   {who:20}{rest}", file=sys.stderr)
    print(json.dumps({"threads": args.threads, "elements": args.elements, "rows": found}, indent=1))
    sys.exit(0 if all(row["ratio"] is None or row["ratio"] > 1 for row in found) else 1)


if __name__ == "__main__":
    main()
