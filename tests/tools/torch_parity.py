#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first 20 losses of mixedprec_train in fp32 are PyTorch's (tests/fixtures/make_train_gpt.py) within 1e-3.
usage: torch_parity.py MIXEDPREC_TRAIN FIXTURES"""
import pathlib
import sys
import tempfile

from common import Checks, results, run

TOLERANCE = 1e-3


def losses(program, text, options, recipe="fp32"):
    with tempfile.TemporaryDirectory() as out:
        run(program, ["--data", text, "--recipe", recipe, "--sample", 0, "--out", out] + options)
        return results(out)[recipe]["losses"]


def main():
    program, fixtures = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt"
    text, check = fixtures / "genesis.txt", Checks()

    def compare(what, got, expected):
        worst = max(abs(a - b) for a, b in zip(got, expected, strict=True))
        check(worst <= TOLERANCE, f"{what}: {len(got)} losses, largest difference {worst:.2g}")

    for name in ("small", "blocks"):
        options, *expected = (fixtures / f"{name}.txt").read_text().splitlines()
        options, expected = options.split(), [float(e) for e in expected]
        check(len(expected) == 20 and expected[-1] < expected[0] - 0.5, f"{name}: the fixture is one of learning")
        compare(f"{name}, fp32", losses(program, text, options), expected)
        # Half the batch twice is the same batch.
        half = options + ["--batch", int(options[options.index("--batch") + 1]) // 2, "--accum", 2]
        compare(f"{name}, fp32, accumulated", losses(program, text, half), expected)
        # Not PyTorch's numbers, but they have to be near: 16-bit weights, and 16-bit main gradients accumulated.
        got = losses(program, text, half, "bf16_pure_kahan")
        worst = max(abs(a / b - 1.0) for a, b in zip(got, expected, strict=True))
        check(worst < 0.02, f"{name}, bf16_pure_kahan, accumulated: largest difference {worst:.2%}")
    check.exit()


main()
