#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many seeded defects the tests find. A clone of HEAD gets defects in core/ and backends/host, all compiled in at once;
each is switched on alone by MIXEDPREC_DEFECT, and of the tests of a preset those run that reach it, until one fails.

usage: mutations.py FOLDER [--count N] [--seed N] [--preset dev] [--without LABELS] [--source CHECKOUT]

FOLDER is new: the clone, its build and report.json go there. Kinds: a condition turned round, a comparison that takes or leaves
its bound, a statement left out, + for - and the reverse.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Compiled into every file; what is reached leaves its number in the folder of MIXEDPREC_DEFECTS_REACHED.
HEADER = """#pragma once
#include <stdlib.h>
#include <stdio.h>
#include <fcntl.h>
#include <unistd.h>
static inline bool mp_seeded_defect(int number) {
    static const int active = [] { const char* text = getenv("MIXEDPREC_DEFECT"); return text ? atoi(text) : -1; }();
    static const char* const reached = getenv("MIXEDPREC_DEFECTS_REACHED");
    if (reached != nullptr) {
        char name[512];
        snprintf(name, sizeof name, "%s/%d", reached, number);
        const int file = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (file >= 0) close(file);
    }
    return active == number;
}
"""
IF = re.compile(r"^(\s+)(\} else )?if \((.+)\) \{$")
COMPARISON = re.compile(r"^([^&|?<>=!;{}]+) (<|<=|>|>=) ([^&|?<>=!;{}]+)$")
ASSIGNMENT = re.compile(r"^(\s+)([A-Za-z_][\w.\[\]]*(?:->[\w.\[\]]+)* [-+|]?= [^;{}]+;)$")
CALL = re.compile(r"^(\s+)((?!return|throw|static_assert|delete|case|using)[a-z_][\w.]*(?:->\w+)*\([^;{}]*\);)$")
SUM = re.compile(r"^(\s+(?:return|(?:const )?(?:auto|int|int64_t|std::size_t|int32_t) \w+ =) )([^;{}?]* [-+] [^;{}?]*)(;)$")
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
START = (";", "{", "}", ":")


def balanced(text):
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0


def defects_of(line, before):
    """(kind, the line, with @ for the number) of each defect that fits a line."""
    found = []
    match = IF.match(line)
    if match and balanced(match[3]) and not re.search(r";|\bauto\b|[^=!<>]=[^=]", match[3]):
        head = match[1] + (match[2] or "") + "if ("
        found.append(("condition", f"{head}mp_seeded_defect(@) != static_cast<bool>({match[3]})) {{"))
        compared = COMPARISON.match(match[3])
        if compared and balanced(compared[1]) and balanced(compared[3]):
            other = f"{compared[1]} {OTHER[compared[2]]} {compared[3]}"
            found.append(("bound", f"{head}mp_seeded_defect(@) ? {other} : {match[3]}) {{"))
    if before.endswith(START):
        for pattern in (ASSIGNMENT, CALL):
            match = pattern.match(line)
            if match and balanced(match[2]):
                found.append(("statement", f"{match[1]}if (!mp_seeded_defect(@)) {{ {match[2]} }}"))
        match = SUM.match(line)
        if match and balanced(match[2]) and '"' not in match[2]:
            other = re.sub(r" ([-+]) ", lambda m: " - " if m[1] == "+" else " + ", match[2], count=1)
            found.append(("sum", f"{match[1]}mp_seeded_defect(@) ? ({other}) : ({match[2]}){match[3]}"))
    return found


def sites(root):
    for folder in ("core", "backends/host"):
        for file in sorted((root / folder).rglob("*.cpp")):
            if "kernels" in file.parts:
                continue  # compiled for each instruction set, where nothing may be shared
            lines = file.read_text().splitlines()
            for number in range(1, len(lines)):
                before = lines[number - 1].split("//")[0].rstrip()
                for kind, text in defects_of(lines[number], before):
                    yield kind, file, number, text


def choose(root, count, seed):
    by_kind = {}
    for site in sites(root):
        by_kind.setdefault(site[0], []).append(site)
    chance = random.Random(seed)
    kinds = sorted(by_kind)
    for kind in kinds:
        chance.shuffle(by_kind[kind])
    chosen, taken = [], set()
    while len(chosen) < count and any(by_kind.values()):
        for kind in kinds:
            while by_kind[kind]:
                site = by_kind[kind].pop()
                if (site[1], site[2]) not in taken:
                    taken.add((site[1], site[2]))
                    chosen.append(site)
                    break
    return chosen[:count]


def build(clone, folder, preset):
    subprocess.run(["cmake", "--preset", preset, f"-DCMAKE_CXX_FLAGS=-include {folder / 'defect.hpp'} -w"], cwd=clone, check=True,
                   stdout=subprocess.DEVNULL)
    return subprocess.run(["cmake", "--build", f"build/{preset}", "--", "-k", "0"], cwd=clone, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def seed_defects(clone, folder, chosen, preset):
    """Builds with all of them but those that do not compile, which are taken back; returns the ones that are in."""
    original = {file: file.read_text() for _, file, _, _ in chosen}
    kept = list(chosen)
    while True:
        for file, text in original.items():
            lines = text.splitlines()
            for number, (_, where, line, changed) in enumerate(kept):
                if where == file:
                    lines[line] = changed.replace("(@)", f"({number})", 1)
            new = "\n".join(lines) + "\n"
            if file.read_text() != new:
                file.write_text(new)
        result = build(clone, folder, preset)
        if result.returncode == 0:
            return kept
        wrong = {(m[1], int(m[2]) - 1) for m in re.finditer(r"^(\S+?):(\d+):\d+: error", result.stdout, re.M)}
        left = [site for site in kept
                if not any(str(site[1]).endswith(name.lstrip("./")) and site[2] == line for name, line in wrong)]
        if len(left) == len(kept):
            sys.exit(result.stdout[-4000:])
        kept = left


def passes(clone, preset, test, environment, seconds):
    """Whether a test passes, and after how many seconds."""
    began = time.monotonic()
    command = ["ctest", "--test-dir", f"build/{preset}", "-R", f"^{re.escape(test)}$", "--timeout", str(seconds)]
    result = subprocess.run(command, cwd=clone, env=dict(os.environ, **environment), stdout=subprocess.DEVNULL,
                            stderr=subprocess.STDOUT)
    return result.returncode == 0, time.monotonic() - began


def measure(clone, folder, preset, label):
    """Of each test that passes without a defect, the quickest first: (seconds, name, numbers of what it reaches)."""
    command = ["ctest", "--test-dir", f"build/{preset}", "--show-only=json-v1", "-LE", label]
    listed = json.loads(subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout)
    measured = []
    for test in (entry["name"] for entry in listed["tests"]):
        reached = folder / "reached" / test
        reached.mkdir(parents=True)
        good, seconds = passes(clone, preset, test, {"MIXEDPREC_DEFECTS_REACHED": str(reached)}, 600)
        if good:
            measured.append((seconds, test, {int(path.name) for path in reached.iterdir()}))
        else:
            print(f"left out, as it fails without a defect: {test}", flush=True)
    return sorted(measured, key=lambda entry: entry[0])


def found_by(clone, preset, number, tests):
    """The first test that fails with this defect; None."""
    for seconds, test, reached in tests:
        environment = {"MIXEDPREC_DEFECT": str(number)}
        if number in reached and not passes(clone, preset, test, environment, int(60 + 5 * seconds))[0]:
            return test
    return None


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--preset", default="dev")
    parser.add_argument("--without", default="slow", help="labels of tests that do not run")
    parser.add_argument("--source", type=pathlib.Path, default=ROOT, help="another checkout")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True)
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", arguments.source, clone], check=True)
    (folder / "defect.hpp").write_text(HEADER)
    kept = seed_defects(clone, folder, choose(clone, arguments.count, arguments.seed), arguments.preset)
    tests = measure(clone, folder, arguments.preset, arguments.without)
    report = []
    for number, (kind, file, line, _) in enumerate(kept):
        is_reached = any(number in reached for _, _, reached in tests)
        by = found_by(clone, arguments.preset, number, tests)
        where = f"{file.relative_to(clone)}:{line + 1}"
        report.append({"kind": kind, "where": where, "reached": is_reached, "by": by})
        verdict = f"found by {by}" if by else "missed" if is_reached else "not reached"
        print(f"{number} {kind} {where}: {verdict}", flush=True)
        (folder / "report.json").write_text(json.dumps(report, indent=1))
    found = sum(entry["by"] is not None for entry in report)
    print(f"{found} of {len(report)} found, {sum(not entry['reached'] for entry in report)} not reached")


if __name__ == "__main__":
    main()
