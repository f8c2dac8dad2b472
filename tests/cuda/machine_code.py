#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the machine code of each hot kernel with machine_code.json: registers, blocks a multiprocessor, 128-bit accesses,
hardware conversions, and of the main loop the instructions an element and how many loads come before the first use. What is
more than a tenth better or worse fails, and --write then writes the table anew, with the page docs/gpu.md has of it.

usage: machine_code.py MODULE CASES COMPILER_VERSION [--write]    with cuobjdump and nvdisasm as in sass.py; CASES is the
object of machine_cases.cu
"""
import json
import sys
from pathlib import Path

import prediction
import sass

TABLE = Path(__file__).with_name("machine_code.json")
SKIPPED = 77
TOLERANCE = 0.1

# Of a multiprocessor of compute capability 9.0.
REGISTERS, THREADS, SHARED = 65536, 2048, 227 * 1024

# Cycles for which a warp's instruction keeps its unit in a quarter of a multiprocessor, where it is not one, after the throughput
# of arithmetic instructions in CUDA's programming guide. Those of one line share a unit. Conversions are taken to be slow.
UNITS = [
    (2, "ISETP LOP3 SHF SEL PRMT IADD3 LEA VIADD VIMNMX VIMNMX3 VIADDMNMX IABS FSETP FSEL FMNMX PLOP3 P2R R2P F2FP"),
    (2, "IMAD"),
    (2, "DADD DMUL DFMA DSETP"),
    (8, "MUFU I2F F2I F2F FRND POPC FLO"),
]


def blocks(registers, shared, threads):
    """Of so many threads on a multiprocessor. Registers are given out to warps by 256, and shared memory includes CUDA's KB."""
    per_warp = (registers * 32 + 255) // 256 * 256
    by_registers = REGISTERS // per_warp * 32 // threads
    by_shared = SHARED // shared if shared else THREADS
    return min(by_registers, by_shared, THREADS // threads)


def rounds(code):
    """How often a turn waits for memory, and how many loads come before the first wait."""
    pending, waits, loads, first = set(), 0, 0, None
    for x in code:
        written, read = x.registers()
        if pending & read:
            waits, pending = waits + 1, set()
            first = loads if first is None else first
        if x.bytes() and x.loads():
            loads += 1
            pending |= x.loaded()
    return waits + bool(pending), loads if first is None else first


def issue_cycles(code):
    """Of a scheduler for a warp's turn: the longest of its units."""
    busy = [cycles * sum(1 for x in code if x.name in names.split()) for cycles, names in UNITS]
    return max(busy + [len(code)])


def loop_figures(kernel, read_bytes):
    """Of the main loop, where elements are known by the bytes that are loaded for each."""
    loop = kernel.main_loop()
    if loop is None:
        return {}
    code = kernel.way_round(*loop)
    elements = sum(x.bytes() for x in code if x.loads()) / read_bytes
    waits, first = rounds(code)
    return {"elements": round(elements, 2), "instructions": round(len(code) / elements, 1),
            "issue": round(issue_cycles(code) / elements, 1), "loads_first": first, "rounds": waits}


def figures(row, resources, kernel):
    wide = [x for x in kernel.code if x.bytes() == 16]
    found = {
        "registers": resources.registers,
        "blocks": blocks(resources.registers, resources.shared, row["threads"]),
        "text": sum(x.name != "NOP" for x in kernel.code),
        "wide_loads": sum(x.loads() for x in wide),
        "wide_stores": sum(not x.loads() for x in wide),
        "local": sum(x.name in ("LDL", "STL") for x in kernel.code),
        "conversions": sorted({x.opcode for x in kernel.code if x.name == "F2FP"}),
    }
    return found | (loop_figures(kernel, row["reads"]) if "reads" in row else {})


def read(tools, files, arch):
    """short name -> resources and code, of all files."""
    found = {}
    for file in files:
        code = sass.kernels(tools, file, arch)
        rows = [row for row in sass.resources(tools[0], file) if row.arch == arch]
        assert len({row.short for row in rows} | found.keys()) == len(rows) + len(found), "two kernels of one name"
        found |= {row.short: (row, code[row.symbol]) for row in rows}
    return found


def differs(was, now):
    if isinstance(was, (int, float)) and isinstance(now, (int, float)):
        return abs(now - was) > TOLERANCE * abs(was)
    return was != now


def compare(row, now):
    return [f"{row['kernel']}: {key} is {now.get(key)}, machine_code.json says {row['figures'].get(key)}"
            for key in sorted(row["figures"].keys() | now.keys())
            if differs(row["figures"].get(key), now.get(key))]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    writes = "--write" in sys.argv
    table = json.loads(TABLE.read_text())
    wrong = [] if writes else prediction.check_page(table)
    tools = [sass.find_tool(name) for name in ("cuobjdump", "nvdisasm")]
    version = ".".join(arguments[2].split(".")[:2])
    if None in tools or version != table["compiler"]:
        why = "no cuobjdump or no nvdisasm (scripts/setup.sh --checks installs them)" if None in tools else \
            f"the table is of nvcc {table['compiler']}, this is {version}"
        print(*wrong, f"skipped: {why}", sep="\n")
        return 1 if wrong else SKIPPED
    found = read(tools, arguments[:2], table["architecture"])
    if not found:
        print(*wrong, f"skipped: the module has no code for {table['architecture']}", sep="\n")
        return 1 if wrong else SKIPPED
    known = {row["kernel"] for row in table["kernels"]}
    wrong += [f"{name} is not in machine_code.json" for name in found if name not in known and not name.startswith("Kokkos")]
    for row in table["kernels"]:
        if row["kernel"] not in found:
            wrong.append(f"{row['kernel']} is not in the module; there are {', '.join(sorted(found))}")
            continue
        now = figures(row, *found[row["kernel"]])
        print(row["kernel"], now)
        if writes:
            row["figures"] = now
        else:
            wrong += compare(row, now)
    if writes and not wrong:
        prediction.write(table, TABLE)
    for line in wrong:
        print("FAILED:", line)
    if wrong and not writes:
        print("where that is meant: machine_code.py ... --write")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
