#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads README.md, CONTRIBUTING.md and docs/*.md: sentences of more than 25 words, lines of more than 130 characters, and
relative links that lead nowhere. Tables, code and lists of names are no sentences.

    prose.py [--allow FILE] [--update] [PAGE...]

FILE (tests/docs/long_sentences.txt) has the pages that may still have long sentences, and how many; --update writes it."""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 25


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


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(page, text):
    code = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", code):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"leads nowhere: {target}"
        elif fragment and file.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.M)
            if fragment not in [anchor(heading.replace("`", "")) for heading in headings]:
                yield f"no such heading: {target}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allow", type=Path, default=Path(__file__).resolve().parent / "long_sentences.txt")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("pages", nargs="*", type=Path)
    args = parser.parse_args()
    pages = [page.resolve() for page in args.pages] or [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
                                                        *sorted((ROOT / "docs").glob("*.md"))]
    allowed = {}
    if args.allow.exists():
        rows = [row.split() for row in args.allow.read_text().splitlines() if row and not row.startswith("#")]
        allowed = {name: int(count) for name, count in rows}
    errors, counts = [], {}
    for page in pages:
        name, text = str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")
        long = [(line, count, sentence) for line, paragraph in paragraphs(text)
                for sentence, count in sentences(paragraph) if count > LIMIT]
        counts[name] = len(long)
        if len(long) > allowed.get(name, 0):
            errors += [f"{name}:{line}: {count} words: {sentence}" for line, count, sentence in long]
        errors += [f"{name}: {error}" for error in broken_links(page, text)]
        if name not in allowed:
            errors += [f"{name}:{n}: {len(row)} characters" for n, row in enumerate(text.split("\n"), 1)
                       if len(row) > 130 and not row.startswith("|")]
    if args.update:
        rows = [f"{name} {count}\n" for name, count in sorted(counts.items()) if count or name in allowed]
        args.allow.write_text("# SPDX-License-Identifier: Apache-2.0\n# Pages that still have sentences of more than 25 words, and how many.\n"
                              + "".join(rows))
        return print(f"{len(rows)} pages with {sum(counts.values())} long sentences")
    print("\n".join(errors) if errors else f"{len(pages)} pages, {sum(counts.values())} long sentences, all in the list")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
