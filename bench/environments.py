#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_bench with nothing set in the environment, which is what users get, and with what helps: OpenMP's threads that
sleep (OMP_WAIT_POLICY=passive). Prints the tables of docs/performance.md; a cell has both, "nothing set, passive".

    bench/environments.py [--json FILE] build/release/bench/mixedprec_bench [its options]
    bench/environments.py --from FILE      the tables of an earlier run
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "OMP_PROC_BIND")
DTYPES = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8_e4m3": "E4M3", "fp8_e5m2": "E5M2"}
MANY = ", 148 tensors of GPT-2 124M"


def environment(**settings):
    """Ours, without what changes how OpenMP waits, and with these."""
    return {**{name: value for name, value in os.environ.items() if name not in SETTINGS}, **settings}


def measured(command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**settings))
    if done.returncode != 0:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return json.loads(done.stdout)


class Both:
    """The rows of the two runs by name."""

    def __init__(self, runs):
        self.runs = [{row["name"]: row for row in run["rows"] if "ms" in row} for run in runs]
        self.names = [name for name in self.runs[0] if name in self.runs[1]]

    def cell(self, name, key="ratio", digits=2):
        values = [run[name].get(key) for run in self.runs if name in run]
        return ", ".join(f"{value:.{digits}f}" for value in values if value is not None)

    def first(self, name, key):
        return self.runs[0][name].get(key)


def table(header, rows):
    if rows:
        print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
        for row in rows:
            print("| " + " | ".join(row) + " |")


def casts(both):
    table(["to", *("from " + name for name in DTYPES.values())],
          [[DTYPES[to], *(both.cell(f"cast {source} -> {to}") for source in DTYPES)] for to in DTYPES
           if any(f"cast {source} -> {to}" in both.names for source in DTYPES)])


def quantizers(both):
    found = {}
    for name in both.names:
        parts = re.fullmatch(r"(quantize|dequantize) (.+) (\S+) -> (\S+?)( with transpose)?", name)
        if parts is not None and "e5m2" not in name:
            what, scales, source, to, transpose = parts.groups()
            row = f"{scales}{transpose or ''}" if what == "quantize" else f"from {scales}"
            found.setdefault(row, {})[source if what == "quantize" else to] = both.cell(name)
    table(["quantizers", "from or to fp32", "from or to bf16"],
          [[row, cells.get("fp32", ""), cells.get("bf16", "")] for row, cells in found.items()])


def steps(both):
    rows = []
    for name in both.names:
        if name.startswith("adamw ") and not name.endswith(MANY):
            rows.append([name.removeprefix("adamw "), both.cell(name, "ns_per_element"),
                         both.cell(name + MANY, "ns_per_element"), f"{both.first(name, 'in_cache_ns_per_element') or 0:.2f}",
                         both.first(name, "limit") or "", both.cell(name, "of_limit"), both.cell(name + MANY, "of_limit")])
    table(["state", "ns", "148 tensors", "in the caches", "limit", "of the limit", "148 tensors"], rows)


def products(both):
    shapes = {}
    for name in both.names:
        parts = re.fullmatch(r"gemm (fp32|bf16) (\S+ [NT]{2}) by (\S+)", name)
        if parts is not None:
            shapes.setdefault(parts[2], {})[parts[1]] = both.cell(name)
    table(["m x n x k, transposed", "fp32", "bf16"],
          [[shape.replace("x", " x "), cells.get("fp32", ""), cells.get("bf16", "")] for shape, cells in shapes.items()])


def fp8_products(both):
    kinds = {}
    for name in both.names:
        parts = re.fullmatch(r"gemm (e4m3 x e\dm2|e4m3 x e4m3) (\S+) .* to our fp32", name)
        if parts is not None:
            kinds.setdefault(f"{parts[1]}, {parts[2]}", []).append(name)
    rows = []
    for kind, names in kinds.items():
        values = [[run[name]["ratio"] for name in names] for run in both.runs]
        rows.append([kind, *(f"{min(seen):.2f} - {max(seen):.2f}" for seen in values)])
    table(["types, scales", "nothing set", "passive"], rows)


def others(both):
    table(["", "ms", "ratio"], [[name, f"{both.first(name, 'ms'):.3g}", both.cell(name)] for name in both.names
                               if name.split()[0] in ("layer", "all-reduce", "zero", "checkpoint")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="a file for both runs")
    parser.add_argument("--from", dest="earlier", type=pathlib.Path, help="a file of --json")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="mixedprec_bench and its options")
    args = parser.parse_args()
    if args.earlier is not None:
        runs = json.loads(args.earlier.read_text())
    else:
        if os.getloadavg()[0] > 0.5:
            print(f"note: this machine is busy (load {os.getloadavg()[0]:.1f})", file=sys.stderr)
        runs = [measured(args.command), measured(args.command, OMP_WAIT_POLICY="passive")]
    if args.json is not None:
        args.json.write_text(json.dumps(runs))
    print(f"{runs[0]['cpu']}, {runs[0]['threads']} threads; {runs[0]['context']['host'].get('openmp', '')}")
    for family in (casts, quantizers, steps, products, fp8_products, others):
        family(Both(runs))


if __name__ == "__main__":
    main()
