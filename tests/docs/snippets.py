#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the code of the pages, all .md files, and compares what it prints with what the text shows.

    snippets.py --prefix DIR [--work DIR] [--list] [PAGE...]       DIR: an installation with headers and pkg-config

The line above a block of a language that programs or shells read says what it is, in a comment that no reader sees; without
it the block is a failure:

    <!-- snippet: NAME -->                a whole program or script
    <!-- snippet: NAME = OTHER + diff -->  a diff of the page's program OTHER, which makes NAME
    <!-- snippet: part NAME of FRAME -->  stands in tests/docs/frames/FRAME, in place of the comment `snippet: NAME`
    <!-- snippet: not run: REASON -->
    <!-- output: NAME -->                 above a block of text: what NAME prints

After a NAME come options; a frame has them in lines of its own, `snippet flags: ...`:

    | run: mpirun -n 4     before the program            | args: ...     behind it
    | flags: ...           of the compiler               | exit: 1       what it ends with
    | needs: WORD...       skipped where one of these programs is missing; python:NAME is a module of some Python here
    | with: FILE[=NAME]... copied from the repository, or from the prefix where FILE begins with PREFIX/; wildcards
    | few: PROGRAM=ARGS    a script of that name hands on ARGS as well, so that a run takes seconds; ${NAME} is expanded

A diff has the marks of a unified one without line numbers: hunks begin with @@, and what a hunk takes away must be in the
program exactly once. Programs and scripts of a page run in one folder, in the order of the page; its folder bin is on their
path. In output a line `...` stands for any lines, and numbers with a point may differ by a fiftieth: products depend on the
processor."""

import argparse
import os
import re
import shutil
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRAMES = Path(__file__).resolve().parent / "frames"
LANGUAGES = {"c", "cpp", "sh", "bash", "python", "rust", "fortran", "julia", "zig", "cmake", "diff"}
SUFFIX = {"c": ".c", "cpp": ".cpp", "sh": ".sh", "python": ".py", "fortran": ".f90", "julia": ".jl", "zig": ".zig"}
OPTIONS = {"run": "", "args": "", "flags": "", "exit": "0", "needs": "", "with": "", "few": ""}
PLACE = re.compile(r"^( *)(?:/\*|//|#|!) snippet: (\w+)(?: \*/)?\n", re.M)
# Where pages are, and folders in there that tools make.
FOLDERS = ("backends", "bench", "bindings", "capi", "core", "docs", "examples", "packaging", "scripts", "tests", "tools")
BUILT = {"build", "dist", "target"}
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
    options = dict(OPTIONS)
    for option in rest:
        key, _, value = option.partition(":")
        if key not in OPTIONS:
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
        self.path, self.work = path, work
        self.programs, self.printed, self.parts, self.skipped = {}, {}, {}, set()
        shutil.rmtree(work, ignore_errors=True)  # what a run before has saved would be found
        work.mkdir(parents=True)
        self.tools = {**tools, "env": {**tools["env"], "PATH": f"{work / 'bin'}:{tools['env']['PATH']}"}}

    def command(self, words, limit=900):
        done = subprocess.run(words, cwd=self.work, env=self.tools["env"], text=True, timeout=limit, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def compile(self, name, language, text, flags):
        source = self.work / (name + SUFFIX[language])
        source.write_text(text, encoding="utf-8")
        strict = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{FRAMES}", *shlex.split(flags), "-o", str(self.work / name)]
        compiler = {"c": [self.tools["cc"], "-std=c11", "-D_GNU_SOURCE", *strict],
                    "cpp": [self.tools["cxx"], "-std=c++17", f"-I{ROOT}/bindings/cpp/include", *strict],
                    "fortran": ["gfortran", "-std=f2018", "-fcheck=all,no-array-temps", *strict],
                    "zig": ["zig", "build-exe", f"-femit-bin={self.work / name}", "-lc"]}[language]
        code, output = self.command([*compiler, str(source), *self.tools["flags"], "-lm"])
        if code != 0:
            raise Failure(f"{name} does not compile:\n{output}")

    def bring(self, what):
        """A file for the page's folder, perhaps under another name."""
        pattern, _, name = what.partition("=")
        base = self.tools["prefix"] if pattern.startswith("PREFIX/") else ROOT
        found = sorted(base.glob(pattern.removeprefix("PREFIX/")))
        if not found:
            raise Failure(f"there is no {pattern}")
        for file in found:
            to = self.work / (name or file.name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(file, to) if file.is_dir() else shutil.copy(file, to)

    def fewer(self, what):
        """A script in place of a program, which hands on more arguments."""
        name, _, args = what.partition("=")
        script = self.work / (name if "/" in name else f"bin/{name}")
        program = self.tools["prefix"] / "bin" / script.name
        if script.exists():  # a block above has made it
            program = script.rename(script.with_name(f"{script.name}.whole"))
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {program} "$@" {args}\n')
        script.chmod(0o755)

    def run(self, name, language, text, options):
        """Makes it and runs it."""
        if language not in SUFFIX:
            raise Failure(f"{language} is not run here: say who runs it, or why nobody")
        needs = options["needs"].split() + shlex.split(options["run"])[:1]
        needs += {"fortran": ["gfortran"], "julia": ["julia"], "zig": ["zig"]}.get(language, [])
        modules = [word.partition(":")[2] for word in needs if word.startswith("python:")]
        python = self.python_with(modules)
        missing = [word for word in needs if ":" not in word and not self.has(word)] + modules[:1] * (python is None)
        if missing:
            self.skipped.add(name)
            return print(f"skipped: {self.path.relative_to(ROOT)}: {name}: no {missing[0]} here")
        for what in options["with"].split():
            self.bring(what)
        if options["few"]:
            self.fewer(options["few"])
        scripts = {"sh": ["bash", "-eu"], "python": [python, "-B"], "julia": ["julia", f"--project={ROOT / 'bindings/julia'}"]}
        if language in scripts:
            (self.work / (name + SUFFIX[language])).write_text(text, encoding="utf-8")
            words = scripts[language] + [name + SUFFIX[language]]
        else:
            self.compile(name, language, text, options["flags"])
            words = [f"./{name}"]
        start = time.monotonic()
        code, output = self.command(shlex.split(options["run"]) + words + shlex.split(options["args"]))
        if code != int(options["exit"]):
            raise Failure(f"{name} ended with {code}:\n{output}")
        self.printed[name] = output
        print(f"ok: {self.path.relative_to(ROOT)}: {name} ({time.monotonic() - start:.1f} s)")

    def python_with(self, modules):
        """An interpreter that has them all, or None."""
        for python in (sys.executable, "python3", "/usr/bin/python3"):
            if not modules or self.has(python) and self.command([python, "-c", "import " + ", ".join(modules)])[0] == 0:
                return python
        return None

    def has(self, word):
        return word not in self.tools["broken"] and self.command(["bash", "-c", f"command -v {shlex.quote(word)}"])[0] == 0

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
        if name in self.skipped:
            return
        if name not in self.printed:
            raise Failure(f"{name} has not run")
        shown = [row.rstrip() for row in text.strip("\n").split("\n")]
        printed = [row.rstrip() for row in self.printed[name].strip("\n").split("\n")]
        if not matches(shown, printed):
            raise Failure(f"{name} printed\n{self.printed[name]}and the page shows\n{text}")

    def frames(self):
        for frame, parts in self.parts.items():
            text = (FRAMES / frame).read_text(encoding="utf-8")
            places = [name for _, name in PLACE.findall(text)]
            if sorted(places) != sorted(parts):
                raise Failure(f"{frame} has places for {sorted(places)}, the page parts {sorted(parts)}")
            said = dict(re.findall(r"\bsnippet (" + "|".join(OPTIONS) + r"): (.*?)(?: \*/)?$", text, flags=re.M))
            text = PLACE.sub(lambda place: textwrap.indent(parts[place[2]], place[1]), text)
            languages = {suffix: language for language, suffix in SUFFIX.items()}
            self.run(Path(frame).stem, languages[Path(frame).suffix], text, {**OPTIONS, **said})

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


def own_tools(folder, env):
    """Scripts for what scripts/setup.sh --checks puts into .cache, where the machine has none, and the names of programs that are
    there and do not work."""
    folder.mkdir(parents=True, exist_ok=True)

    def script(name, text):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    if not shutil.which("zig") and (ROOT / ".cache/zig/ziglang").is_dir():
        script("zig", f'PYTHONPATH="{ROOT}/.cache/zig" exec "{sys.executable}" -m ziglang "$@"')
    if julia := shutil.which("julia"):
        # The unwinder of Debian 11, without which its Julia crashes at the first exception on Debian 12.
        paths = [str(path) for path in (ROOT / ".cache/julia").glob("usr/lib/*-linux-gnu")] + ["$LD_LIBRARY_PATH"]
        script("julia", f'LD_LIBRARY_PATH="{":".join(paths)}" exec "{julia}" -O0 --startup-file=no "$@"')
        tried = subprocess.run([folder / "julia", "-e", 'try; sqrt(-1.0); catch; println("ok"); end'], env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return set() if tried.stdout == "ok\n" else {"julia"}
    return set()


def all_pages():
    """The .md files of the project."""
    pages = sorted(ROOT.glob("*.md"))
    for top in FOLDERS:
        for folder, folders, files in os.walk(ROOT / top):
            folders[:] = sorted(name for name in folders if name not in BUILT and not name.startswith("."))
            pages += [Path(folder) / name for name in sorted(files) if name.endswith(".md")]
    return pages


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
    pages = [page.resolve() for page in args.pages] or all_pages()
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
               PYTHONPATH=str(ROOT / "bindings/python"),
               PATH=f"{prefix / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="2",
               OMP_WAIT_POLICY="passive", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_btl_vader_single_copy_mechanism="none")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "mixedprec"], env=env, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    tools = {"broken": set(), "env": env, "cc": args.cc, "cxx": args.cxx, "flags": flags, "prefix": prefix}
    with tempfile.TemporaryDirectory() as temporary:
        work = (args.work or Path(temporary)).resolve()
        tools["broken"] = own_tools(work / "tools", env)
        env.update(PATH=f"{work / 'tools'}:{env['PATH']}", JULIA_DEPOT_PATH=str(work / "tools/depot"), JULIA_NUM_THREADS="2",
                   ZIG_GLOBAL_CACHE_DIR=str(work / "tools/zig_cache"), ZIG_LOCAL_CACHE_DIR=str(work / "tools/zig_cache"))
        failures = sum(Page(page, work / page.relative_to(ROOT).with_suffix(""), tools).check() for page in pages)
    print(f"{failures} failures" if failures else "all snippets are as the pages say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
