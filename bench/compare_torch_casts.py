#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Casts and quantizers beside those of PyTorch and torchao, on the same data with the same threads, in turns.

    MIXEDPREC_DIR=build/release venv/bin/python bench/compare_torch_casts.py

Needs torch; rows of torchao are left out where it is missing. A figure is the best of all rounds. PyTorch's casts
write into a tensor that is there already; what torchao makes is new memory each time, since it has no other way.
Prints a table to stderr and JSON to stdout. The exit code says whether we are faster in every row.
"""
import argparse
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bindings" / "python"))
import mixedprec as mp  # noqa: E402

COLUMNS = 4096
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8_e4m3",
         torch.float8_e5m2: "fp8_e5m2"}
# The rule of torchao's scales, and of to_mx's.
TENSOR, ROW, MX = mp.Quant("tensor", "float64"), mp.Quant("row", "float64"), mp.Quant("mx_1x32", "mx_floor")


def cast_pair(context, source, to):
    target = torch.empty(source.shape, dtype=to)
    ours, into = mp.from_dlpack(context, source), mp.Tensor(context, source.shape, NAMES[to])
    return (lambda: ours.cast(into)), (lambda: target.copy_(source))


def quantizer(context, source, quant):
    ours, into = mp.from_dlpack(context, source), mp.Tensor(context, source.shape, "fp8_e4m3", quant=quant)
    return lambda: ours.quantize(into)


def torchao_rows():
    """Name, our Quant, and torchao's function of a matrix."""
    try:
        from torchao.float8.config import ScalingGranularity
        from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
        from torchao.float8.float8_training_tensor import LinearMMConfig
        from torchao.prototype.mx_formats.mx_tensor import to_mx
    except ImportError as error:
        print(f"without torchao: {error}", file=sys.stderr)
        return []

    def scaled(granularity, dim=None):
        return lambda x: hp_tensor_to_float8_dynamic(x, torch.float8_e4m3fn, LinearMMConfig(),
                                                     scaling_granularity=granularity, axiswise_dim=dim)

    return [("one scale", TENSOR, scaled(ScalingGranularity.TENSORWISE)),
            ("rows", ROW, scaled(ScalingGranularity.AXISWISE, -1)),
            ("MX 1x32", MX, lambda x: to_mx(x, torch.float8_e4m3fn, 32))]


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--elements", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    context = mp.Context(threads=args.threads)
    exact = torch.randn(args.elements // COLUMNS, COLUMNS)
    wide = {dtype: exact.to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}
    pairs = [(torch.float32, torch.bfloat16), (torch.float32, torch.float16), (torch.float32, torch.float8_e4m3fn),
             (torch.bfloat16, torch.float32), (torch.bfloat16, torch.float8_e4m3fn),
             (torch.bfloat16, torch.float8_e5m2), (torch.float16, torch.float8_e4m3fn)]
    cases = [("cast", f"{NAMES[a]} -> {NAMES[b]}", "torch", *cast_pair(context, wide[a], b)) for a, b in pairs]
    for name, way, theirs in torchao_rows():
        for dtype in (torch.float32, torch.bfloat16):
            cases.append((name, f"{NAMES[dtype]} -> fp8_e4m3", "torchao", quantizer(context, wide[dtype], way),
                          lambda theirs=theirs, x=wide[dtype]: theirs(x)))
    rows = []
    for kind, types, peer, ours, theirs in cases:
        ours(), theirs()
        best = [float("inf")] * 2
        with torch.no_grad():
            for _ in range(args.rounds):
                best = [min(best[0], seconds(ours)), min(best[1], seconds(theirs))]
        rows.append({"case": kind, "types": types, "peer": peer, "ours_ms": best[0] * 1e3, "peer_ms": best[1] * 1e3,
                     "ratio": best[1] / best[0]})
        print(f"{kind:10} {types:14} {best[0] * 1e3:8.2f} ms  {peer:8} {best[1] * 1e3:8.2f} ms  "
              f"ratio {best[1] / best[0]:6.2f}", file=sys.stderr)
    print(json.dumps({"elements": args.elements, "threads": args.threads, "torch": torch.__version__, "rows": rows},
                     indent=1))
    return 0 if all(row["ratio"] > 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
