# SPDX-License-Identifier: Apache-2.0
"""bindings/c/optimizer_step.c in Python: must print the same lines."""
import math
from ctypes import byref

import numpy as np

import mixedprec as mp

STEPS, COUNT, KAHAN_COUNT, COLUMNS = 10, 37, 300, 15
VALUES = dict(flags=mp.HYPERPARAMETERS_EXPLICIT, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01)


def make_optimizer(context, recipe):
    optimizer, index = mp.optimizer(context, mp.recipe(context, recipe)), mp.i32(-1)
    note = mp.call("mp_optimizer_add_group", optimizer, byref(mp.group_desc(**VALUES)), byref(index))
    if note:
        print(f"note {recipe}: {note}")
    return optimizer, index


def print_step(run, step, *arrays):
    """All elements of the fp32 runs are the same; one that is not shows as a missing line."""
    bits = [array.view(np.uint32) for array in arrays]
    if all((b == b[0]).all() for b in bits):
        g, p, m, v = (f"{b[0]:08x}" for b in bits)
        print(f"{run} step {step} grad {g} param {p} exp_avg {m} exp_avg_sq {v}")


def run_tensors(context):
    p, g = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
    m, v = np.empty_like(p), np.empty_like(p)
    optimizer, group = make_optimizer(context, "fp32")
    mp.add_param(optimizer, group, "p", mp.tensor(context, p), mp.tensor(context, g))
    for t in range(1, STEPS + 1):
        g[:] = math.sin(t)
        mp.call("mp_optimizer_step", optimizer, None, None)
        mp.call("mp_context_sync", context)
        mp.read_state(optimizer, 0, "exp_avg", m)
        mp.read_state(optimizer, 0, "exp_avg_sq", v)
        print_step("tensors", t, g, p, m, v)
    stats = mp.stats(optimizer)
    print(f"stats step {stats.step} skipped {stats.skipped_steps}")


def run_pointers(context):
    p, g, m, v = (np.full(COUNT, x, np.float32) for x in (1, 0, 0, 0))
    slot = mp.step_slot(count=COUNT, param=mp.address(p), grad=mp.address(g), exp_avg=mp.address(m),
                         exp_avg_sq=mp.address(v), param_dtype=mp.FP32, grad_dtype=mp.FP32, exp_avg_dtype=mp.FP32,
                         exp_avg_sq_dtype=mp.FP32)
    for t in range(1, STEPS + 1):
        g[:] = math.sin(t)
        args = mp.step_args(step=t, grad_scale=1.0, **VALUES)
        mp.call("mp_optimizer_step_pointers", context, None, byref(args), byref(slot), mp.i64(1), None, None)
        print_step("pointers", t, g, p, m, v)


def random_numbers(state=1):
    while True:
        state = (state * 1664525 + 1013904223) % 2**32
        yield state


def run_kahan(context):
    random = random_numbers()
    p, g = np.zeros(KAHAN_COUNT, np.uint16), np.zeros(KAHAN_COUNT, np.uint16)
    # 24 bits, so exact in fp32, in [-1, 1).
    start = np.array([((next(random) >> 8) - 8388608) / 8388608 for _ in p], np.float32)
    optimizer, group = make_optimizer(context, "bf16_pure_kahan")
    mp.add_param(optimizer, group, "p", mp.tensor(context, p, mp.BF16), mp.tensor(context, g, mp.BF16),
                 mp.tensor(context, start))
    for _ in range(STEPS):
        # 8 bits, so exact in bf16, whose code is then the upper half of fp32's; in [-0.125, 0.125).
        values = np.array([((next(random) >> 24) - 128) / 1024 for _ in g], np.float32)
        g[:] = values.view(np.uint32) >> 16
        mp.call("mp_optimizer_step", optimizer, None, None)
        mp.call("mp_context_sync", context)
    for name in ("param", "compensation", "exp_avg", "exp_avg_sq"):
        bits = mp.read_state(optimizer, 0, name, np.empty(KAHAN_COUNT, np.uint16))
        for i in range(0, KAHAN_COUNT, COLUMNS):
            print("kahan", name, i, *(f"{b:04x}" for b in bits[i:i + COLUMNS]))


def main():
    print("library", mp.library_version())
    for struct in mp.STRUCTS:
        offsets = [getattr(struct, field).offset for field, _ in struct._fields_]
        print(f"layout {struct.__name__} {mp.ctypes.sizeof(struct)}:", *offsets)
    context = mp.context(num_threads=2)
    try:
        mp.recipe(context, "bf16_pure_kahn")
    except mp.Error as error:
        print("error", error.status, error)
    run_tensors(context)
    run_pointers(context)
    run_kahan(context)


if __name__ == "__main__":
    main()
