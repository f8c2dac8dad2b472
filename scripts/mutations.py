#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many seeded defects the tests find. A clone of HEAD gets defects in core/ and backends/host, all compiled in at once;
each is switched on alone by MIXEDPREC_DEFECT, and of the tests of a preset those run that reach it, until one fails.

usage: mutations.py FOLDER [--count N] [--seed N] [--like REPORT] [--source CHECKOUT] [--preset dev] [-D OPTION=VALUE ...]
                    [--without LABELS] [--all SECONDS] [--jobs N]

FOLDER is new: the clone, its build and report.json go there. --like takes the defects of another report, those whose lines
this tree has, too: so two trees are compared. A defect is missed when those that reach it have run, the quickest first, for --all
seconds in vain. Kinds: a condition turned round, a comparison that takes
or leaves its bound, a statement left out, + for - and the reverse.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Compiled into each file that has a defect; what is reached leaves its number in the folder of MIXEDPREC_DEFECTS_REACHED.
HEADER = """#pragma once
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wreturn-type"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#include <stdlib.h>
#include <stdio.h>
#include <fcntl.h>
#include <unistd.h>
static inline bool mp_seeded_defect(int number) {
    static const int active = [] { const char* text = getenv("MIXEDPREC_DEFECT"); return text ? atoi(text) : -1; }();
    static const char* const reached = getenv("MIXEDPREC_DEFECTS_REACHED");
    static bool said[4096]; // of this file; a race writes the same twice
    if (reached != nullptr && !said[number]) {
        said[number] = true;
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


def choose_like(root, report):
    """The sites that another report has, by kind, file and the line's text; the first where there are several."""
    wanted = {(entry["kind"], pathlib.Path(entry["where"]).name.split(":")[0], entry["text"]) for entry in json.loads(report)}
    chosen = []
    for site in sites(root):
        text = site[1].read_text().splitlines()[site[2]].strip()
        if (site[0], site[1].name, text) in wanted:
            wanted.remove((site[0], site[1].name, text))
            chosen.append(site)
    return chosen


def configure(clone, preset, definitions):
    options = [f"-D{definition}" for definition in definitions]
    subprocess.run(["cmake", "--preset", preset, *options], cwd=clone, check=True, stdout=subprocess.DEVNULL)


def build(clone, preset):
    return subprocess.run(["cmake", "--build", f"build/{preset}", "--", "-k", "0"], cwd=clone, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def seed_defects(clone, header, chosen, preset):
    """Builds with all of them but those that do not compile, which are taken back; returns the ones that are in."""
    original = {file: file.read_text() for _, file, _, _ in chosen}
    kept = list(chosen)
    while True:
        for file, text in original.items():
            lines = text.splitlines()
            if not lines[0].startswith("//"):
                sys.exit(f"{file}: the first line is not a comment, which makes room for an include")
            lines[0] = f'#include "{header}"\n#line 2'
            for number, (_, where, line, changed) in enumerate(kept):
                if where == file:
                    lines[line] = changed.replace("(@)", f"({number})", 1)
            new = "\n".join(lines) + "\n"
            if file.read_text() != new:
                file.write_text(new)
        result = build(clone, preset)
        if result.returncode == 0:
            return kept
        wrong = {(m[1], int(m[2]) - 1) for m in re.finditer(r"^(\S+?):(\d+):\d+: error", result.stdout, re.M)}
        left = [site for site in kept
                if not any(str(site[1]).endswith(name.lstrip("./")) and site[2] == line for name, line in wrong)]
        if len(left) == len(kept):
            sys.exit(result.stdout[-4000:])
        kept = left


class Tests:
    """The tests of a built clone, each by itself: two defects may want one at the same time, and its files are its own."""

    def __init__(self, clone, preset, without):
        self.base = ["ctest", "--test-dir", str(clone / "build" / preset)]
        listed = subprocess.run([*self.base, "--show-only=json-v1", "-LE", without], check=True, capture_output=True, text=True)
        self.names = [entry["name"] for entry in json.loads(listed.stdout)["tests"]]
        self.locks = {name: threading.Lock() for name in self.names}

    def passes(self, name, environment, seconds):
        """Whether a test passes, and after how many seconds."""
        command = [*self.base, "-R", f"^{re.escape(name)}$"]
        with self.locks[name]:
            began = time.monotonic()
            with subprocess.Popen(command, env=dict(os.environ, **environment), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.STDOUT, start_new_session=True) as run:
                try:
                    code = run.wait(seconds)
                except subprocess.TimeoutExpired: # ctest's own limit gives way to the test's
                    os.killpg(run.pid, signal.SIGKILL)
                    code = run.wait()
            return code == 0, time.monotonic() - began


def measure(tests, folder, pool):
    """Of each test that passes without a defect, the quickest first: (seconds, name, numbers of what it reaches)."""
    def one(name):
        reached = folder / "reached" / name
        reached.mkdir(parents=True)
        good, seconds = tests.passes(name, {"MIXEDPREC_DEFECTS_REACHED": str(reached)}, 600)
        if not good:
            print(f"left out, for it fails without a defect: {name}", flush=True)
        return good, seconds, name, {int(path.name) for path in reached.iterdir()}
    return sorted((entry[1:] for entry in pool.map(one, tests.names) if entry[0]), key=lambda entry: entry[0])


def found_by(tests, number, measured, seconds_left):
    """The first test that fails with this defect; None."""
    for seconds, name, reached in measured:
        if number in reached and seconds_left > 0:
            good, took = tests.passes(name, {"MIXEDPREC_DEFECT": str(number)}, 60 + 5 * seconds)
            if not good:
                return name
            seconds_left -= took
    return None


def judge(tests, clone, kept, measured, arguments, pool):
    """The report: of each defect, which test found it."""
    def one(number):
        kind, file, line, _ = kept[number]
        is_reached = any(number in reached for _, _, reached in measured)
        by = found_by(tests, number, measured, arguments.all)
        where = f"{file.relative_to(clone)}:{line + 1}"
        verdict = f"found by {by}" if by else "missed" if is_reached else "not reached"
        print(f"{number} {kind} {where}: {verdict}", flush=True)
        return {"kind": kind, "where": where, "reached": is_reached, "by": by}
    return list(pool.map(one, range(len(kept))))


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--like", type=pathlib.Path, help="a report.json")
    parser.add_argument("--source", type=pathlib.Path, default=ROOT, help="another checkout")
    parser.add_argument("--preset", default="dev")
    parser.add_argument("-D", dest="definitions", action="append", default=[], help="options for CMake")
    parser.add_argument("--without", default="slow", help="labels of tests that do not run")
    parser.add_argument("--all", type=float, default=3600, help="seconds of tests after which a defect is missed")
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True)
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", arguments.source, clone], check=True)
    (folder / "defect.hpp").write_text(HEADER)
    chosen = choose_like(clone, arguments.like.read_text()) if arguments.like else choose(clone, arguments.count, arguments.seed)
    texts = {(file, line): file.read_text().splitlines()[line].strip() for _, file, line, _ in chosen}
    configure(clone, arguments.preset, arguments.definitions)
    kept = seed_defects(clone, folder / "defect.hpp", chosen, arguments.preset)
    tests = Tests(clone, arguments.preset, arguments.without)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        measured = measure(tests, folder, pool)
        report = judge(tests, clone, kept, measured, arguments, pool)
    for entry, (_, file, line, _) in zip(report, kept):
        entry["text"] = texts[(file, line)]
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    found = sum(entry["by"] is not None for entry in report)
    print(f"{found} of {len(report)} found, {sum(not entry['reached'] for entry in report)} not reached")


if __name__ == "__main__":
    main()
