#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of the library, before a change and after it, in turns: for each row of compare_steps.c (steps of the optimizer),
or of another program, the ratio old time / new time, as a median of pairs with its 95 % interval. Above 1: the new one is faster.

usage: compare_steps.py OLD_SOURCE OLD_LIBRARY NEW_SOURCE NEW_LIBRARY [--pairs N] [--threads N] [--only TEXT]
                        [--program compare_ops.c]
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).parent


def build(code, source, library, folder, name):
    program = folder / name
    library = pathlib.Path(library).resolve()
    subprocess.run(["cc", "-O2", "-std=c11", "-D_POSIX_C_SOURCE=200809L", f"-I{source}/capi/include", str(HERE / code),
                    str(library), f"-Wl,-rpath,{library.parent}", "-o", str(program)], check=True)
    return program


class Steps:
    def __init__(self, program, threads):
        # Threads of the one that waits must not take the other's time.
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        self.process = subprocess.Popen([program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.names = [self.read() for _ in range(int(self.read()))]

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a program ended")
        return line.strip()

    def seconds(self, row, at_least):
        self.process.stdin.write(f"{row} {at_least}\n")
        self.process.stdin.flush()
        return float(self.read())


def interval(values):
    """The median's, by order statistics: 95 % of binomial(n, 1/2)."""
    values = sorted(values)
    n = len(values)
    below, probability, k = 0.5**n, 0.5**n, 0
    while below <= 0.025:
        k += 1
        probability *= (n - k + 1) / k
        below += probability
    return values[max(k - 1, 0)], statistics.median(values), values[min(n - k, n - 1)]


def main():
    parser = argparse.ArgumentParser()
    for name in ("old_source", "old_library", "new_source", "new_library"):
        parser.add_argument(name)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--program", default="compare_steps.c")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        old = Steps(build(options.program, options.old_source, options.old_library, folder, "old"), options.threads)
        new = Steps(build(options.program, options.new_source, options.new_library, folder, "new"), options.threads)
        missed = 0
        print(f"{'row':<48} {'old ms':>9} {'new ms':>9}  old / new [95 %]")
        for row, name in enumerate(new.names):
            if options.only not in name:
                continue
            old.seconds(row, 0.1), new.seconds(row, 0.1)  # first touches
            pairs = []
            for turn in range(options.pairs):
                order = (old, new) if turn % 2 == 0 else (new, old)
                taken = {steps: steps.seconds(row, 0.04) for steps in order}
                pairs.append((taken[old], taken[new]))
            low, middle, high = interval([a / b for a, b in pairs])
            missed += high < 0.97
            a, b = (statistics.median(side) * 1e3 for side in zip(*pairs))
            print(f"{name:<48} {a:9.4f} {b:9.4f}  {middle:.3f} [{low:.3f}, {high:.3f}]{'  SLOWER' if high < 0.97 else ''}",
                  flush=True)
        print(f"{missed} rows lie wholly below 0.97")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
