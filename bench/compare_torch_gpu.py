#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does on this GPU, to be read beside `mixedprec_bench --device cuda`: products, fp8 products, casts, AdamW.

    python3 bench/compare_torch_gpu.py

Medians of 15 turns of at least 5 ms by CUDA's events. Prints JSON, whose names are those of our rows. Exit code 77 where
there is no torch or no GPU.
"""
import json
import math
import statistics
import sys

try:
    import torch
except ImportError:
    print("skipped: no torch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: no CUDA device")
    sys.exit(77)

ELEMENTS = 1 << 27
SHAPES = [(1024, 1024, 2048), (4096, 16384, 8192), (8192, 8192, 8192)]  # m, n, k; B transposed
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8_e4m3"}


def milliseconds(run):
    run()

    def turn(calls):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / calls

    calls = min(1000, max(1, math.ceil(5 / turn(1))))
    return statistics.median(turn(calls) for _ in range(15))


def numbers(dtype, *shape):
    return torch.randn(*shape, device="cuda").to(dtype)


def rows():
    for m, n, k in SHAPES:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            a, b = numbers(dtype, m, k), numbers(dtype, n, k)
            yield f"gemm {NAMES[dtype]} {m}x{n}x{k} NT", 2e-9 * m * n * k, "GFLOP/s", lambda: a @ b.T
        a, b = numbers(torch.float8_e4m3fn, m, k), numbers(torch.float8_e4m3fn, n, k)
        one = torch.ones((), device="cuda")
        yield (f"gemm e4m3 x e4m3 tensor {m}x{n}x{k} NT", 2e-9 * m * n * k, "GFLOP/s",
               lambda: torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
    source = torch.randn(ELEMENTS, device="cuda")
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        target = torch.empty_like(source, dtype=dtype)
        moved = 1e-9 * ELEMENTS * (4 + target.element_size())
        yield f"cast fp32 -> {NAMES[dtype]}", moved, "GB/s", lambda: target.copy_(source)
    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.nn.Parameter(source.to(dtype, copy=True))
        weight.grad = source.to(dtype, copy=True)
        optimizer = torch.optim.AdamW([weight], fused=True)
        moved = 1e-9 * ELEMENTS * weight.element_size() * 7
        yield f"adamw {NAMES[dtype]}" + (" everywhere" if dtype != torch.float32 else ""), moved, "GB/s", optimizer.step


result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "elements": ELEMENTS, "rows": []}
for name, amount, unit, run in rows():
    try:
        ms = milliseconds(run)
        result["rows"].append({"name": name, "ms": ms, unit: amount / ms * 1e3})
    except RuntimeError as error:  # a product that this GPU does not have
        result["rows"].append({"name": name, "unsupported": str(error).splitlines()[0]})
print(json.dumps(result, indent=1))
