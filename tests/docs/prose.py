#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for sentences of more than 25 words, lines that are too long or end too early, and relative links that lead nowhere,
in all pages. Tables, code and lists of names are no sentences.

    prose.py [--fill] [PAGE...]     --fill breaks the lines of paragraphs anew"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["backends", "bindings", "core", "docs", "examples", "packaging", "tests", "tools"]
WORDS, CHARACTERS, FILLED = 25, 130, 128


def paragraphs(text):
    """(line number, text) of each paragraph or list item outside of tables, code and comments."""
    found, rows, start, fenced = [], [], 0, False
    for number, line in enumerate(text.split("\n") + [""], 1):
        if line.lstrip().startswith("```"):
            fenced, line = not fenced, ""
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        stop = not line.strip() or fenced or re.match(r"#|\s*\||    |\s*<!--", line) and not (rows and line.startswith("    "))
        if (stop or item) and rows:
            found.append((start, " ".join(rows)))
            rows = []
        if not stop:
            start = start if rows else number
            rows.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line.strip()))
    return found


def sentences(text):
    """Code counts as one word, a link as its text."""
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(\*\*|__)", "", text)
    for sentence in re.split(r"(?<=[.!?:;])[\"')]*\s+(?=\S)", text):
        # Names in a row, parted by commas, are a list: one word each enumeration.
        words = re.sub(r"(?:\bX\b(?:,| and| or|/)? *){3,}", "X ", sentence).split()
        yield sentence, sum(1 for word in words if re.search(r"\w", word))


def anchors(page):
    """What links may name behind a #: each heading as forges do it, the second of a name with -1, the third with -2."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    found = []
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.M):
        name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
        found.append(f"{name}-{count}" if (count := found.count(name)) else name)
    return found


def broken_links(page, text):
    code = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", code):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"leads nowhere: {target}"
        elif fragment and file.suffix == ".md" and fragment not in anchors(file):
            yield f"no such heading: {target}"


def wide_lines(text):
    """Numbers and lengths of lines that are too long, but for tables, comments and code, which cannot always be broken."""
    code = re.sub(r"^```.*?^```", lambda found: "\n" * found[0].count("\n"), text, flags=re.S | re.M)
    for number, line in enumerate(code.split("\n"), 1):
        if len(line) > CHARACTERS and not line.startswith(("|", "<!--")):
            yield number, len(line)


def broken_into_lines(rows):
    """The rows of one paragraph or list item, filled up to FILLED characters. Code and links are not broken."""
    indent, mark = re.match(r"(\s*)((?:[-*]|\d+\.) )?", rows[0]).groups(default="")
    text = re.sub(r"`[^`]+`|\[[^\]]*\]\([^)]*\)", lambda found: found[0].replace(" ", "\0"),
                  " ".join(row.strip() for row in rows))
    lines = textwrap.wrap(text, FILLED, initial_indent=indent, subsequent_indent=indent + " " * len(mark),
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def filled(text):
    """The page with each paragraph's lines as long as they may be."""
    out, rows, fenced = [], [], False
    for line in text.split("\n"):
        is_fence = line.lstrip().startswith("```")
        fenced ^= is_fence
        apart = (is_fence or fenced or not line.strip() or re.match(r"#|\s*\||\s*<!--", line)
                 or (line.startswith("    ") and not rows))
        if rows and (apart or re.match(r"\s*(?:[-*]|\d+\.) ", line)):
            out += broken_into_lines(rows)
            rows = []
        if apart:
            out.append(line)
        else:
            rows.append(line)
    return "\n".join(out + (broken_into_lines(rows) if rows else []))


def ragged_lines(text):
    """Numbers of lines that end before they are full."""
    for number, (line, wanted) in enumerate(zip(text.split("\n"), filled(text).split("\n")), 1):
        if line != wanted:
            yield number
            return


def main():
    words = [word for word in sys.argv[1:] if word != "--fill"]
    pages = [Path(page).resolve() for page in words]
    pages = pages or sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
    errors = []
    for page in pages:
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        if "--fill" in sys.argv:
            page.write_text(filled(text), encoding="utf-8")
            continue
        errors += [f"{name}: {error}" for error in broken_links(page, text)]
        errors += [f"{name}:{line}: {count} words: {sentence}" for line, paragraph in paragraphs(text)
                   for sentence, count in sentences(paragraph) if count > WORDS]
        errors += [f"{name}:{line}: {count} characters" for line, count in wide_lines(text)]
        errors += [f"{name}:{line}: its paragraph is not filled; run prose.py --fill" for line in ragged_lines(text)]
    print("\n".join(errors) or f"{len(pages)} pages")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
