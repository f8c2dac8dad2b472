#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_bench with nothing set in the environment, which is what users get, beside the same with what helps: OpenMP's
threads that sleep (OMP_WAIT_POLICY=passive). The two take turns; a figure is the median over the rounds.

    bench/environments.py [--rounds N] build/release/bench/mixedprec_bench [its options]

Prints a table, and JSON of it to a file with --json. `of limit` is of the first environment: memory or instructions, whichever
takes longer.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ENVIRONMENTS = {"nothing set": {}, "passive": {"OMP_WAIT_POLICY": "passive"}}
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "OMP_PROC_BIND")


def environment(**settings):
    """Ours, without what changes how OpenMP waits, and with these."""
    return {**{name: value for name, value in os.environ.items() if name not in SETTINGS}, **settings}


def run(command, settings):
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**settings))
    if done.returncode != 0:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="a file for all rows")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="mixedprec_bench and its options")
    args = parser.parse_args()
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"note: this machine is busy (load {busy:.1f})", file=sys.stderr)
    rows, header = {}, None
    for _ in range(args.rounds):
        for name, settings in ENVIRONMENTS.items():
            result = run(args.command, settings)
            header = header or {key: value for key, value in result.items() if key != "rows"}
            for row in result["rows"]:
                rows.setdefault(row["name"], {}).setdefault(name, []).append(row)
    print(f"{header['cpu']}, {header['threads']} threads; {header['context'].get('openmp', '')}")
    print("\n| | ms | " + " | ".join(f"ratio, {name}" for name in ENVIRONMENTS) + " | of limit |\n|---|---|---|---|---|")
    for name, seen in rows.items():
        first = seen["nothing set"]
        if "ms" not in first[0]:
            continue
        cells = [f"{statistics.median(row['ms'] for row in first):.3g}"]
        for environment in ENVIRONMENTS:
            values = [row["ratio"] for row in seen.get(environment, []) if row.get("ratio")]
            cells.append(f"{statistics.median(values):.2f}" if values else "")
        limits = [row["of_limit"] for row in first if row.get("of_limit")]
        cells.append(f"{statistics.median(limits):.2f}" if limits else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if args.json is not None:
        args.json.write_text(json.dumps({"header": header, "load_before": busy, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
