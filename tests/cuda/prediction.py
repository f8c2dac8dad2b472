# SPDX-License-Identifier: Apache-2.0
"""What share of a copy's speed each kernel of machine_code.json can reach at most, as a table in docs/gpu.md. The page says by
what model."""
import json
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/gpu.md"
BEGIN = "<!-- machine code: made by tests/cuda/machine_code.py --write -->\n"
END = "<!-- end of machine code -->\n"

SCHEDULERS, LANES = 4, 32  # of a multiprocessor, of a warp

# name: multiprocessors, clock in GHz, bytes a copy moves in a nanosecond, nanoseconds until a load under load is there
GPUS = {"H100": (132, 1.7, 3000, 700), "H200": (132, 1.7, 4300, 700), "B200": (148, 1.8, 7200, 800)}


def share(row, gpu):
    """Of a copy's speed: the time of the bytes by the longest of three times, all of one element in nanoseconds."""
    processors, clock, copies, latency = GPUS[gpu]
    figures = row["figures"]
    memory = row["bytes"] / copies
    issue = figures["issue"] / (processors * SCHEDULERS * LANES * clock)
    residents = figures["blocks"] * row["threads"] * processors
    waiting = figures["rounds"] * latency / (figures["elements"] * residents)
    return memory / max(memory, issue, waiting)


def in_flight(row):
    """KB of loads that a full multiprocessor waits for at a time, on average."""
    figures = row["figures"]
    of_thread = row["reads"] * figures["elements"] / figures["rounds"]
    return of_thread * figures["blocks"] * row["threads"] / 1024


def page(table):
    rows = [row for row in table["kernels"] if "reads" in row]
    lines = ["| kernel | bytes | instructions | KB in flight | " + " | ".join(GPUS) + " | measured, H200 |",
             "|---|---:|---:|---:|" + "---:|" * (len(GPUS) + 1)]
    for row in rows:
        shares = " | ".join(f"{share(row, gpu):.2f}" for gpu in GPUS)
        measured = f"{row['measured']:.2f}" if "measured" in row else ""
        lines.append(f"| {row['what']} | {row['bytes']:g} | {row['figures']['instructions']:.0f} | {in_flight(row):.0f} | "
                     f"{shares} | {measured} |")
    return "\n".join(lines) + "\n"


def parts(text):
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside, after


def check_page(table):
    text = PAGE.read_text()
    if BEGIN not in text or END not in text:
        return [f"docs/gpu.md has no table of machine code between {BEGIN.strip()} and {END.strip()}"]
    if parts(text)[1] != "\n" + page(table) + "\n":
        return ["the table in docs/gpu.md is not what machine_code.json makes: machine_code.py ... --write"]
    return []


def write(table, path):
    """The table of figures with one kernel a paragraph, and the page."""
    before, _, after = parts(PAGE.read_text())
    PAGE.write_text(before + BEGIN + "\n" + page(table) + "\n" + END + after)
    rows = []
    for row in table["kernels"]:
        head = {key: value for key, value in row.items() if key != "figures"}
        rows.append("  " + json.dumps(head)[:-1] + ",\n   \"figures\": " + json.dumps(row["figures"]) + "}")
    others = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in table.items() if key != "kernels")
    path.write_text("{\n" + others + " \"kernels\": [\n" + ",\n".join(rows) + "\n ]\n}\n")
