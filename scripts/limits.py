#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The limits of CONTRIBUTING, held for all code that git has: files of at most 400 lines, functions of at most 60, lines of at
most 130 characters, and subjects of commits as they are wanted. What was longer when the limits came is listed in limits.txt,
and may only get shorter.

usage: limits.py            say what is longer
       limits.py --update   write limits.txt anew: what is listed there and longer still"""
import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KNOWN = ROOT / "scripts/limits.txt"
FILE, FUNCTION, COLUMNS, SUBJECT = 400, 60, 130, 72
BRACES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh", ".rs", ".zig"}
OTHERS = {".py", ".jl", ".f90", ".f90.in", ".sh", ".cmake"}
# Copies of released headers stay as they are.
LEFT_OUT = re.compile(r"tests/abi/clients/.*/include/")
BEGIN = "7fc2001"  # commits from here on
# area: what it does. Areas are words of the tree, one or several.
WANTED = re.compile(r"[a-z0-9_/]+(?:, [a-z0-9_/]+)*: [^\s.].*[^.]")


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def without_text(source):
    """The source with comments, strings and characters as blanks, line by line as before."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])
    return re.sub(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', blank, source, flags=re.S)


def braced_functions(source):
    """(line, name, lines) of each function: the outermost braces that follow a closing parenthesis, outside of types and
    namespaces."""
    text, found, stack = without_text(source), [], []
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            head = re.split(r"[;{}]", text[:match.start()])[-1]
            names_scope = re.search(r"\b(namespace|struct|class|enum|union|extern|impl|trait|mod|match)\b", head)
            is_value = re.search(r"\w$", head)  # Key{...}, in a table
            is_scope = ")" not in head or is_value or (names_scope and "(" not in head.split("\n")[-1])
            inside = any(kind == "function" for kind, _, _ in stack)
            kind = "block" if inside else "scope" if is_scope else "function"
            name = re.findall(r"([\w~]+)\s*\(", head)
            line = text.count("\n", 0, match.start()) + 1 - head.lstrip().count("\n")
            stack.append((kind, line, name[0] if name else "?"))
        elif stack:
            kind, line, name = stack.pop()
            if kind == "function":
                found.append((line, name, text.count("\n", 0, match.start()) + 2 - line))
    return found


def python_functions(source):
    return [(node.lineno, node.name, node.end_lineno - node.lineno + 1) for node in ast.walk(ast.parse(source))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def too_long():
    """{what: lines} of all that is over a limit; a file's wide lines as one."""
    found = {}
    for name in git("ls-files").splitlines():
        path = ROOT / name
        kind = ".f90.in" if name.endswith(".f90.in") else path.suffix
        if kind not in BRACES | OTHERS or LEFT_OUT.match(name) or not path.is_file():
            continue
        source = path.read_text(encoding="utf-8")
        rows = source.splitlines()
        if len(rows) > FILE:
            found[name] = len(rows)
        wide = sum(len(row) > COLUMNS for row in rows)
        if wide:
            found[f"{name} columns"] = wide
        functions = braced_functions(source) if kind in BRACES else []
        functions = python_functions(source) if kind == ".py" else functions
        for _, function, lines in functions:
            if lines > FUNCTION:
                found[f"{name} {function}"] = max(lines, found.get(f"{name} {function}", 0))
    return found


def bad_subjects():
    if subprocess.run(["git", "cat-file", "-e", BEGIN], cwd=ROOT, capture_output=True).returncode != 0:
        return []  # a release, or a shallow clone
    rows = [line.split(" ", 1) for line in git("log", "--no-merges", "--format=%h %s", f"{BEGIN}..HEAD").splitlines()]
    return [f"{commit} '{subject}'" for commit, subject in rows if len(subject) > SUBJECT or not WANTED.fullmatch(subject)]


def main():
    known = dict((what, int(lines)) for lines, what in (row.split(" ", 1) for row in KNOWN.read_text().splitlines()))
    now = too_long()
    if sys.argv[1:] == ["--update"]:
        KNOWN.write_text("".join(f"{now[what]} {what}\n" for what in sorted(known) if what in now))
        return 0
    errors = [f"{what}: {lines}" for what, lines in sorted(now.items()) if lines > known.get(what, 0)]
    errors += [f"{what} is shorter now: run limits.py --update" for what, lines in sorted(known.items())
               if now.get(what, 0) < lines]
    errors += [f"a commit's subject: {subject}" for subject in bad_subjects()]
    print("\n".join(errors) or f"{len(known)} known places are longer than the limits")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
