#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the code of README.md and docs/*.md, and compares what it prints with what the text shows.

    snippets.py --prefix DIR [--work DIR] [--list] [PAGE...]       DIR: an installation with headers and pkg-config

The line above a block of c, cpp, sh, python, rust or diff says what it is, in a comment that no reader sees:

    <!-- snippet: NAME -->                a whole program or script
    <!-- snippet: NAME = OTHER + diff -->  a diff of the page's program OTHER, which makes NAME
    <!-- snippet: part NAME of FRAME -->  stands in tests/docs/frames/FRAME, in place of the line /* snippet: NAME */
    <!-- snippet: not run: REASON -->
    <!-- output: NAME -->                 above a block of text: what NAME prints

After a NAME come options: `| run: mpirun -n 4` before the program, `| args: ...` behind it, `| flags: ...` of the compiler,
`| exit: 1`. A diff has the marks of a unified one without line numbers: hunks begin with @@, and what a hunk takes away must
be in the program exactly once. A frame's line with `snippet flags:` has its compiler's flags. Programs and scripts of a page
run in one folder, in the order of the page. In output a line `...` stands for any lines, and numbers with a point may differ
by a fiftieth: products depend on the processor."""

import argparse
import os
import re
import shutil
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRAMES = Path(__file__).resolve().parent / "frames"
LANGUAGES = {"c", "cpp", "sh", "python", "rust", "diff"}
SUFFIX = {"c": ".c", "cpp": ".cpp", "sh": ".sh", "python": ".py", "rust": ".rs"}
NUMBER = re.compile(r"[-+]?\d+\.\d+(?:e[-+]?\d+)?")


class Failure(Exception):
    pass


def blocks_of(page):
    """(line number, language, text, mark) of each fenced block."""
    blocks, lines = [], page.read_text(encoding="utf-8").split("\n")
    number, mark = 0, ""
    while number < len(lines):
        line = lines[number]
        fence = re.match(r"( *)```(\w*)\s*$", line)
        if fence:
            end = next((n for n in range(number + 1, len(lines)) if lines[n].strip() == "```"), None)
            if end is None:
                raise Failure(f"{page}:{number + 1}: a block without end")
            indent = len(fence[1])
            text = "\n".join(row[indent:] for row in lines[number + 1:end]) + "\n"
            blocks.append((number + 1, fence[2], text, mark))
            number, mark = end, ""
        elif line.strip():
            comment = re.match(r" *<!-- ((?:snippet|output): .*) -->\s*$", line)
            mark = comment[1] if comment else ""
        number += 1
    return blocks


def options_of(text):
    """A name and its options."""
    name, *rest = [word.strip() for word in text.split("|")]
    options = {"run": "", "args": "", "flags": "", "exit": "0"}
    for option in rest:
        key, _, value = option.partition(":")
        if key not in options:
            raise Failure(f"an unknown option: {option}")
        options[key] = value.strip()
    return name, options


def apply_diff(program, diff):
    for hunk in re.split(r"^@@.*\n", diff, flags=re.M):
        rows = [row for row in hunk.split("\n")[:-1]]
        if not rows:
            continue
        old = "".join(row[1:] + "\n" for row in rows if row[:1] != "+")
        new = "".join(row[1:] + "\n" for row in rows if row[:1] != "-")
        if program.count(old) != 1:
            raise Failure(f"{program.count(old)} places of the program have these lines:\n{old}")
        program = program.replace(old, new)
    return program


def same(shown, printed):
    """Whether a line of the page is the line of the program."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(map(float, NUMBER.findall(shown)), map(float, NUMBER.findall(printed)))
    return all(abs(a - b) <= 0.02 * max(abs(a), abs(b)) for a, b in pairs)


def matches(shown, printed):
    """Lines, of which `...` in shown stands for any."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(matches(shown[1:], printed[n:]) for n in range(len(printed) + 1))
    return bool(printed) and same(shown[0], printed[0]) and matches(shown[1:], printed[1:])


class Page:
    def __init__(self, path, work, tools):
        self.path, self.work, self.tools = path, work, tools
        self.programs, self.options, self.printed, self.parts = {}, {}, {}, {}
        shutil.rmtree(work, ignore_errors=True)  # what a run before has saved would be found
        work.mkdir(parents=True)

    def command(self, words, limit=300):
        done = subprocess.run(words, cwd=self.work, env=self.tools["env"], text=True, timeout=limit, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def compile(self, name, language, text, flags):
        source, program = self.work / (name + SUFFIX[language]), self.work / name
        source.write_text(text, encoding="utf-8")
        compiler = {"c": [self.tools["cc"], "-std=c11", "-D_GNU_SOURCE"],
                    "cpp": [self.tools["cxx"], "-std=c++17", f"-I{ROOT}/bindings/cpp/include"],
                    "rust": ["rustc", "--edition", "2021", "-o", str(program), str(source)]}[language]
        if language != "rust":
            compiler += ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)]
            compiler += self.tools["flags"] + shlex.split(flags) + ["-lm"]
        code, output = self.command(compiler)
        if code != 0:
            raise Failure(f"{name} does not compile:\n{output}")

    def run(self, name, language, text, options):
        """Makes it and runs it."""
        if language in ("c", "cpp", "rust"):
            self.compile(name, language, text, options["flags"])
            words = [f"./{name}"]
        else:
            (self.work / (name + SUFFIX[language])).write_text(text, encoding="utf-8")
            words = (["bash", "-eu"] if language == "sh" else [sys.executable]) + [name + SUFFIX[language]]
        missing = [word for word in shlex.split(options["run"])[:1] if not self.has(word)]
        if missing:
            return print(f"skipped: {self.path.name}: {name}: no {missing[0]} here")
        code, output = self.command(shlex.split(options["run"]) + words + shlex.split(options["args"]))
        if code != int(options["exit"]):
            raise Failure(f"{name} ended with {code}:\n{output}")
        self.printed[name] = output
        print(f"ok: {self.path.name}: {name}")

    def has(self, word):
        return subprocess.run(["bash", "-c", f"command -v {word}"], env=self.tools["env"], capture_output=True).returncode == 0

    def snippet(self, language, text, mark):
        part = re.match(r"part (\S+) of (\S+)$", mark)
        if part:
            return self.parts.setdefault(part[2], {}).update({part[1]: text})
        name, options = options_of(mark)
        derived = re.match(r"(\S+) = (\S+) \+ diff$", name)
        if derived:
            name, other = derived.groups()
            if other not in self.programs:
                raise Failure(f"there is no program {other} above")
            language, text = self.programs[other][0], apply_diff(self.programs[other][1], text)
        elif language == "diff":
            raise Failure("a diff says of what: NAME = OTHER + diff")
        if not re.match(r"[\w.-]+$", name):
            raise Failure(f"no name: {name}")
        self.programs[name] = (language, text)
        self.run(name, language, text, options)

    def output(self, name, text):
        if name not in self.printed:
            raise Failure(f"{name} has not run")
        shown = [row.rstrip() for row in text.strip("\n").split("\n")]
        printed = [row.rstrip() for row in self.printed[name].strip("\n").split("\n")]
        if not matches(shown, printed):
            raise Failure(f"{name} printed\n{self.printed[name]}and the page shows\n{text}")

    def frames(self):
        for frame, parts in self.parts.items():
            text = (FRAMES / frame).read_text(encoding="utf-8")
            places = re.findall(r"^ */\* snippet: (\S+) \*/\n", text, flags=re.M)
            if sorted(places) != sorted(parts):
                raise Failure(f"{frame} has places for {sorted(places)}, the page parts {sorted(parts)}")
            for name, part in parts.items():
                text = re.sub(rf"^ */\* snippet: {re.escape(name)} \*/\n", lambda _: part, text, flags=re.M)
            flags = re.search(r"snippet flags: (.*?)(?: \*/)?$", text, flags=re.M)
            name, language = Path(frame).stem, {".c": "c", ".cpp": "cpp"}[Path(frame).suffix]
            self.run(name, language, text, {"run": "", "args": "", "flags": flags[1] if flags else "", "exit": "0"})

    def check(self):
        failures = 0
        steps = [(f"{line}", language, text, mark) for line, language, text, mark in blocks_of(self.path)]
        for line, language, text, mark in steps + [("frames", "", "", "frames")]:
            try:
                kind, _, rest = mark.partition(": ")
                if mark == "frames":
                    self.frames()
                elif kind == "output":
                    self.output(rest, text)
                elif language in LANGUAGES and not mark:
                    raise Failure(f"a block of {language} with no mark: how is it run?")
                elif kind == "snippet" and not rest.startswith("not run: "):
                    self.snippet(language, text, rest)
            except (Failure, subprocess.TimeoutExpired) as failure:
                failures += 1
                print(f"FAILED: {self.path.relative_to(ROOT)}:{line}: {failure}")
        return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, help="where the library is installed")
    parser.add_argument("--libdir", default="lib")
    parser.add_argument("--work", type=Path, help="where programs are built; a temporary folder otherwise")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--list", action="store_true", help="what is marked, and how, without running it")
    parser.add_argument("pages", nargs="*", type=Path)
    args = parser.parse_args()
    pages = [page.resolve() for page in args.pages] or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if args.list:
        for page in pages:
            for line, language, _, mark in blocks_of(page):
                print(f"{page.relative_to(ROOT)}:{line}: {language or 'text'}: {mark or '-'}")
        return 0
    if args.prefix is None:
        parser.error("--prefix is needed")
    prefix = args.prefix.resolve()
    libraries = prefix / args.libdir
    env = dict(os.environ, PKG_CONFIG_PATH=str(libraries / "pkgconfig"), PREFIX=str(prefix), REPOSITORY=str(ROOT),
               LD_LIBRARY_PATH=f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"), MIXEDPREC_DIR=str(prefix),
               PATH=f"{prefix / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="2", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_btl_vader_single_copy_mechanism="none")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "mixedprec"], env=env, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    tools = {"env": env, "cc": args.cc, "cxx": args.cxx, "flags": flags}
    with tempfile.TemporaryDirectory() as temporary:
        work = (args.work or Path(temporary)).resolve()
        failures = sum(Page(page, work / page.stem, tools).check() for page in pages)
    print(f"{failures} failures" if failures else "all snippets are as the pages say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
