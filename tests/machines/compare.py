# SPDX-License-Identifier: Apache-2.0
"""Runs machines_bits on this machine and on others, and compares what it prints.

usage: compare.py PROGRAM [--brief] [--machine NAME ISA REFUSED COMMAND]...

Here PROGRAM runs with each instruction set, each number of threads and on the backend "reference" (--brief: once). Each
--machine is a COMMAND that runs it elsewhere: under an emulator, or in another system. ISA is the instruction set that must be
chosen there ("" for any), REFUSED names those, with commas between, that MIXEDPREC_ISA must refuse with a status.

Every hash must be the one of PROGRAM here. A product must be within its bound of the same one on the backend
"reference" of its machine. Exit code 0 when all that holds."""
import argparse
import array
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import time

ISAS = ("baseline", "avx2", "avx512", "avx512_vbmi")
# Unit of the last rounding, half of the smallest number: tests/gemm_bound.hpp.
ROUNDINGS = {"fp32": (2.0**-24, 2.0**-150), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}
NOISE = re.compile(r"warning: TCG doesn't support requested feature")


class Run:
    """One run: what it printed, or how it ended."""

    def __init__(self, command, isa=None):
        environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        environment.pop("MIXEDPREC_ISA", None)
        if isa is not None:
            environment["MIXEDPREC_ISA"] = isa
        start = time.monotonic()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace")
        self.seconds = time.monotonic() - start
        self.code = done.returncode
        self.errors = [line for line in done.stderr.splitlines() if line.strip() and not NOISE.search(line)]
        self.hashes, self.products, self.bounds, self.notes = {}, {}, {}, []
        for line in done.stdout.splitlines():
            self._read(line, line.split())

    def _read(self, line, words):
        if line.startswith("#"):
            self.notes.append(line)
        elif len(words) == 4 and words[0] == "product":
            self.products[words[1]] = (words[2], array.array("f", bytes.fromhex(words[3])))
        elif len(words) == 3 and words[0] == "bounds":
            self.bounds[words[1]] = array.array("d", bytes.fromhex(words[2]))
        elif len(words) == 2:
            self.hashes[words[0]] = words[1]

    @property
    def isa(self):
        found = re.search(r'"instruction_set": "(\w+)"', "\n".join(self.notes))
        return found.group(1) if found else ""

    def ending(self):
        """Empty for a run that went well; otherwise how it ended."""
        if self.code == 0:
            return ""
        last = self.errors[-1] if self.errors else "no message"
        # A shell or a chroot in between turns signal n into the exit code 128 + n.
        number = -self.code if self.code < 0 else self.code - 128
        if number > 0:
            name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
            return f"CRASHED with {name}: {last}"
        return f"exit code {self.code}: {last}"


def other_hashes(run, measure):
    """Names whose hash is another than here, or which one of the two lacks."""
    names = sorted(set(run.hashes) | set(measure.hashes))
    return [name for name in names if run.hashes.get(name) != measure.hashes.get(name)]


def error_bound(dtype, value, bound):
    """How far a rounded result near `value` may be from the exact one, which is itself not known."""
    unit, smallest = ROUNDINGS[dtype]
    exact = (abs(value) + bound + smallest) / (1.0 - unit)
    return bound + unit * (exact + bound) + smallest


def largest_error(run, reference, bounds):
    """The largest difference of a product from the reference's, in units of what is allowed, and its name."""
    worst = (0.0, "")
    for name, (dtype, values) in run.products.items():
        for value, other, bound in zip(values, reference.products[name][1], bounds[name]):
            allowed = error_bound(dtype, value, bound) + error_bound(dtype, other, bound)
            ratio = abs(value - other) / allowed
            if not ratio <= worst[0]: # NaN too
                worst = (ratio, name)
    return worst


class Machine:
    """All runs of one machine: its bits, its products, and those of its reference."""

    def __init__(self, pool, command, isa=None):
        self.bits = pool.submit(Run, command, isa)
        self.products = pool.submit(Run, command + ["--products"], isa)
        self.reference = pool.submit(Run, command + ["--products", "--backend", "reference"], isa)


class Table:
    def __init__(self):
        self.failures = 0
        self.isas = set()
        print(f"{'machine':34} {'instructions':12} {'hashes':>6} {'other':>6} {'products':>8} {'of bound':>8} {'s':>5}")

    def fail(self, text):
        self.failures += 1
        print(f"    FAILED: {text}", flush=True)

    def row(self, name, run, measure, products=None):
        """products: the run that has them, their number, the largest error and whose it is."""
        shown = ("-", "-") if products is None else (products[1], f"{products[2]:.3f}")
        seconds = run.seconds + (0.0 if products is None else products[0].seconds)
        other = other_hashes(run, measure)
        print(f"{name:34} {run.isa or '-':12} {len(run.hashes):6} {len(other):6} {shown[0]:>8} {shown[1]:>8} {seconds:5.1f}",
              flush=True)
        if run.ending():
            self.fail(run.ending())
            return
        self.isas.add(run.isa)
        if other or not run.hashes:
            self.fail(f"{len(other)} results have other bits than here: {', '.join(other[:6])}")
        if products is not None and not products[2] <= 1.0:
            self.fail(f"{products[3]}: {products[2]:.3g} times as far from the reference as the bound allows")

    def machine(self, name, machine, measure, bounds):
        products, reference = machine.products.result(), machine.reference.result()
        result = None
        if products.products and set(products.products) == set(reference.products) == set(bounds):
            result = (products, len(products.products), *largest_error(products, reference, bounds))
        self.row(name, machine.bits.result(), measure, result)
        if result is None and not machine.bits.result().ending():
            self.fail(f"no products to compare: {products.ending() or reference.ending() or 'they differ in number'}")

    def refusal(self, name, isa, run):
        is_status = run.code == 3 and any("MIXEDPREC_ISA" in line for line in run.errors)
        print(f"{name + ', MIXEDPREC_ISA=' + isa:34} {'refused' if is_status else '-':12}", flush=True)
        if not is_status:
            self.fail(f"a status that names MIXEDPREC_ISA must come; came {run.ending() or 'a context'}")


def native(table, pool, program, is_brief):
    """The runs on this machine. Returns the one that all are compared with, and the bounds of all products."""
    here = Machine(pool, [program])
    bounds = Run([program, "--bounds"]).bounds
    measure = here.bits.result()
    table.machine("here", here, measure, bounds)
    if is_brief:
        return measure, bounds
    reference = pool.submit(Run, [program, "--backend", "reference"])
    variants = [(isa, Run([program], isa)) for isa in ISAS]
    threads = [(n, pool.submit(Run, [program, "--threads", str(n)])) for n in (1, 3, 8)]
    table.row("here, backend reference", reference.result(), measure)
    for isa, run in variants:
        if run.code == 3:
            table.refusal("here", isa, run)
        else:
            table.machine(f"here, MIXEDPREC_ISA={isa}", Machine(pool, [program], isa), measure, bounds)
    for count, run in threads:
        table.row(f"here, threads: {count}", run.result(), measure)
    return measure, bounds


def elsewhere(table, pool, machines, measure, bounds):
    started = []
    for name, isa, refused, command in machines:
        words = shlex.split(command)
        refusals = [(wrong, pool.submit(Run, words, wrong)) for wrong in refused.split(",") if wrong]
        started.append((name, isa, Machine(pool, words), refusals))
    for name, isa, machine, refusals in started:
        table.machine(name, machine, measure, bounds)
        chosen = machine.bits.result()
        if isa and chosen.isa != isa and not chosen.ending():
            table.fail(f"{name} chose '{chosen.isa}' where '{isa}' is the best that it has")
        for wrong, run in refusals:
            table.refusal(name, wrong, run.result())


def print_what_did_not_run(isas):
    """Instruction sets for which the library has code that nothing above ran."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = set(file.read().split())
    # Only products use these two, and no emulator of ours has them.
    not_run = [isa for isa in ISAS if isa not in isas]
    not_run += [name for name, flag in (("avx512_bf16", "avx512_bf16"), ("amx", "amx_bf16")) if flag not in flags]
    print(f"not run here: {', '.join(not_run) or 'nothing'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--machine", nargs=4, action="append", default=[], metavar=("NAME", "ISA", "REFUSED", "COMMAND"))
    options = parser.parse_args()
    table = Table()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        measure, bounds = native(table, pool, options.program, options.brief)
        elsewhere(table, pool, options.machine, measure, bounds)
    if not options.brief:
        print_what_did_not_run(table.isas)
    sys.exit(1 if table.failures else 0)


if __name__ == "__main__":
    main()
