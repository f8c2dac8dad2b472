#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/migrating: every option of another library, what it is here, and how many there are.

A table of options has the columns of COLUMNS. A row is one of three kinds, by its column `here`:
  mapped      names in backticks, each of which must exist: a recipe key, `key = value`, a preset, a function, `struct.field`
              or a constant. Where the first is a key or a field, the default must be the library's; a key's is that of the
              preset in the line "Defaults here: preset `name`" above the table. Where it differs from the original's the note
              must say a word
  not needed  what the option is for happens anyway, and the note says how
  not here    there is nothing, and the note says why
Also checked: names of the library anywhere in a page, blocks of json (recipes), of c (compiled) and of python (parsed), that
a page begins with the original's configuration and ours, and the counts at its end and in README.md.

usage: options.py [--prefix DIR] [--library FILE] [--cc CC] [--update] [--self-test] [--against PAGE SOURCE CLASS...]
  --prefix     an installation; also MIXEDPREC_DIR. --library: the file itself. Without either what needs the library is left out
  --update     writes the counts
  --self-test  every rule refuses what it is for
  --against    that PAGE lists each field or argument of the classes and functions of the original's SOURCE
"""
import argparse
import ast
import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from option_tables import COLUMNS, KINDS, ROOT, Library, Names, Page

PAGES = ROOT / "docs/migrating"


def title_of(page):
    return page.text.splitlines()[0].removeprefix("# From ")


def index_table(pages):
    rows = ["| from | options | mapped | not needed | not here |", "|---|---|---|---|---|"]
    for page in pages:
        rows.append(f"| [{title_of(page)}]({page.path.name}) | {page.total()} | "
                    + " | ".join(str(page.counts[kind]) for kind in KINDS) + " |")
    rows.append(f"| all | {sum(page.total() for page in pages)} | "
                + " | ".join(str(sum(page.counts[kind] for page in pages)) for kind in KINDS) + " |")
    return "\n".join(rows)


def check_counts(pages, update):
    """The last line of each page, and the table of the index."""
    problems = []
    for page in pages:
        lines = page.text.rstrip("\n").split("\n")
        if update and re.match(r"\d+ options: ", lines[-1]):
            page.path.write_text("\n".join(lines[:-1] + [page.count_line()]) + "\n")
        elif lines[-1] != page.count_line():
            problems.append(f"{page.path.name}: the last line must be: {page.count_line()}")
    index = PAGES / "README.md"
    text = index.read_text()
    table = re.search(r"^\| from \|.*?(?=\n\n|\Z)", text, re.S | re.M)
    if not table:
        return problems + ["README.md: has no table that begins with | from |"]
    wanted = index_table(pages)
    if update:
        index.write_text(text.replace(table[0].rstrip("\n"), wanted))
    elif table[0].rstrip("\n") != wanted:
        problems.append("README.md: its table is not that of the pages; run options.py --update")
    return problems


def fields_of(source, wanted):
    """Fields with annotations and arguments of __init__ of classes, values of enumerations, and arguments of functions."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "name", None) not in wanted:
            continue
        names = []
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
        for part in getattr(node, "body", []) if isinstance(node, ast.ClassDef) else []:
            if isinstance(part, ast.AnnAssign):
                names.append(part.target.id)
            elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
                names += [argument.arg for argument in part.args.args + part.args.kwonlyargs]
        found[node.name] = [name for name in names if name not in ("self", "cls", "params") and not name.startswith("_")]
    return found


def against(page, source, classes):
    """0 where the page has each option of the classes, also as `Class.name`, `name.field`, `name[0]` or `name="value"`."""
    found = fields_of(Path(source).read_text(), classes)
    listed = {part for option in page.options for part in re.split(r"[.=:\[]", option)}
    missing = [f"{name}: not found in {source}" for name in classes if name not in found]
    missing += [f"{name}.{field}" for name, fields in found.items() for field in fields if field not in listed]
    print("\n".join(missing) or f"{page.path.name}: all {sum(map(len, found.values()))} of {', '.join(classes)}")
    return bool(missing)


def self_test(names, library):
    head = "Defaults here: preset `fp8_delayed`.\n\n|" + "|".join(COLUMNS) + "|\n|---|---|---|---|---|\n"
    good = head + "| `margin` | `0` | `gemm.margin` | `0` | |\n| `a`, `b` | `1`, `2` | not here | | nobody asked |\n"
    bad = {
        "| `a` | `0` | not here | | |": "no reason",
        "| `a` | `0` | not needed | | - |": "no reason",
        "| `a` | `0` | something | | |": "neither mapped",
        "| `a` | `0` | `fp8.marg` | `0` | |": "is called fp8.marg",
        "| `a` | `0` | `mp_context_make` | | |": "is called mp_context_make",
        "| `a` | `0` | `mp_sharding_desc.stages` | `1` | |": "mp_sharding_desc.stages",
        "| `a` | `0` | `fp8_delay` | | |": "is called fp8_delay",
        "| `a` | `1` | `mp_sharding_desc.stage` | `2` | x |": "is 0 by default",
        "| `a` | `1` | `mp_sharding_desc.stage` | `0` | |": "differs",
        "| `a` | `0` | `gemm.margin` | | |": "must have one value",
        "| `a`, `b`, `c` | `0`, `1` | not here | | because of it |": "3 options with 2 defaults",
        "| `a` | `0` | not here | | because of it |\n| `a` | `0` | not here | | because of it |": "twice",
        "| `a` | `0` | not here |": "columns",
        "mp_optimizer_stepp": "nothing is called",
        "MP_SHARD_ROUND": "no constant",
    }
    if library:
        bad["| `a` | `0` | `gemm.margin` | `1` | x |"] = "is 0 by default"
        bad["| `a` | `0` | `gemm.scaling = tiny` | `delayed` | x |"] = "cannot be tiny"
    problems = Page(Path("good"), names, library, good).problems
    for row, words in bad.items():
        found = Page(Path("bad"), names, library, head + row + "\n").problems
        if not any(words in problem for problem in found):
            problems.append(f"self-test: {row!r} gave {found}, not '{words}'")
    page = Page(Path("blocks"), names, library, '# From X\n```python\nx = 1\n```\n```json\n{"recipe": "fp9"}\n```\n')
    page.check_blocks(None)
    if library and not page.problems:
        problems.append("self-test: a recipe of no preset went through")
    return problems


def library_of(prefix, file):
    if file:
        return Library(file)
    folders = [Path(prefix) / name for name in ("lib", "lib64")] + sorted((Path(prefix) / "lib").glob("*-linux-gnu"))
    for folder in folders:
        if (folder / "libmixedprec.so.0").exists():
            return Library(folder / "libmixedprec.so.0")
    raise SystemExit(f"no libmixedprec.so.0 in {prefix}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default=os.environ.get("MIXEDPREC_DIR"))
    parser.add_argument("--library")
    parser.add_argument("--cc", default="")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--against", nargs="+")
    arguments = parser.parse_args()
    names = Names()
    library = library_of(arguments.prefix, arguments.library) if arguments.prefix or arguments.library else None
    if arguments.against:
        page, source, *classes = arguments.against
        return against(Page(PAGES / page, names, library), source, classes)
    problems = self_test(names, library) if arguments.self_test else []
    if library and (set(library.keys) != names.keys or set(library.presets) != names.presets - {"auto", "auto_fp8"}):
        problems.append("the library's keys or presets are not those of the headers and of tests/capi/presets.cpp")
    paths = [path for path in sorted(PAGES.glob("*.md")) if path.name not in ("README.md", "own-program.md")]
    pages = [Page(path, names, library) for path in paths]
    for page in pages:
        page.check_blocks(arguments.cc)
        problems += page.problems
    problems += check_counts(pages, arguments.update)
    print("\n".join(str(problem) for problem in problems) or
          f"{len(pages)} pages, {sum(page.total() for page in pages)} options" + ("" if library else "; without the library"))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
