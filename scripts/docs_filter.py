#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What doxygen reads in place of a file: docs_filter.py FILE. Prints as many lines as the file has, so that warnings are right.

Headers: their ordinary comments become doxygen's: the first of a file, those above a constant, a struct or a member, those
behind one. Indented lines in them (formulas, tables) stay as they are. Pages: headings get the names that a forge
gives them, links among pages and to headers become doxygen's, links to other files their names."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADERS = ROOT / "capi/include"


def indented_as_is(comment):
    """Runs of lines that are indented by two or more, of a comment whose lines begin with ` *`, as verbatim text."""
    rows, out, inside, item = comment.split("\n"), [], False, False
    for row in rows:
        deep = re.match(r" \*  +\S", row) is not None and not item
        item = row.startswith(" * - ") or item and row.startswith(" *  ")
        if deep and not inside:
            out[-1] += " @verbatim"
        if inside and not deep:
            row = re.sub(r"^ \*", " * @endverbatim", row)
        inside = deep
        out.append(row)
    text = "\n".join(out)
    return text[:-2] + " @endverbatim */" if inside else text


def without_tags(text):
    """Words in angle brackets stay as they are: outside quotation marks doxygen takes them for tags of HTML."""
    comments = re.split(r"(/\*.*?\*/)", text, flags=re.S)
    for n in range(1, len(comments), 2):
        parts = re.split(r"(@verbatim.*?@endverbatim|\"[^\"\n]*\")", comments[n], flags=re.S)
        parts[::2] = (re.sub(r"<(\w+)>", r"&lt;\1&gt;", part) for part in parts[::2])
        comments[n] = "".join(parts)
    return "".join(comments)


def explained(text):
    """Structs, their defaults and handles say what they are. Any other name has a comment of its own, or doxygen complains."""
    rows = text.split("\n")
    for n, row in enumerate(rows):
        handle = re.match(r"typedef struct (mp_\w+) \1;$", row)
        empty_above = n > 0 and rows[n - 1] == ""
        name = re.match(r"(?:#define |typedef struct )(\w+)", row)
        if handle:
            rows[n] += f" /**< A handle: what functions named {handle[1]}_... work on. */"
        elif name and empty_above and name[1].endswith("_INIT"):
            rows[n - 1] = f"/** The defaults of {name[1].lower()[:-5]}, for a declaration. */"
        elif name and empty_above and row.endswith("{"):
            rows[n - 1] = f"/** Its defaults: {name[1].upper()}_INIT. */"
    return "\n".join(rows)


def header(text):
    """Comments of a header as doxygen's."""
    text = re.sub(r"/\* SPDX-License-Identifier: Apache-2.0\n(.*?)\*/",
                  lambda found: indented_as_is("/** @file\n" + found[1] + "*/"), text, count=1, flags=re.S)
    # A value in front of its comment on a line of its own (clang-format's), or on the same line.
    text = re.sub(r"(#define MP_\w+ +)\\\n( +\S+ )/\* (?!\*)", r"\1\\\n\2/**< ", text)
    text = re.sub(r"^( *#define MP_\w+(?: +[^\n/]*\S)? +|    \w[^\n/]*; +)/\* ", r"\1/**< ", text, flags=re.M)
    text = re.sub(r"^( {8}\w+; )/\* ", r"\1/**< ", text, flags=re.M)
    # Above what it is about. Rules (---- of sections) are no documentation.
    text = re.sub(r"^( *)/\* (?!---|SPDX)", r"\1/** ", text, flags=re.M)
    text = text.replace("@returns nothing;", "@remark Returns nothing;")
    return explained(without_tags(text))


def name_of(path):
    return re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix(""))).lower()


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def page(path, text):
    def link(found):
        title, target = found[1], found[2]
        if re.match(r"[a-z]+:", target):
            return found[0]
        file, _, fragment = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        plain = title.replace("`", "").replace('"', "'")
        if there.suffix == ".md" and there in PAGES:
            return f'@ref {name_of(there)}{"__" + fragment if fragment else ""} "{plain}"'
        if there.suffix == ".h" and HEADERS in there.parents:
            return f'@ref {there.name} "{plain}"'
        inside = str(there.relative_to(ROOT))
        return plain if plain in (inside, there.name) else f"{title} (`{inside}`)"

    out, fenced, first = [], False, True
    for row in text.split("\n"):
        fence = row.lstrip().startswith("```")
        if fence and not fenced:
            row = re.sub(r"```(\w+)", lambda found: "```{.%s}" % {"sh": "sh", "rust": "txt", "text": "txt", "diff": "txt",
                                                                  "python": "py"}.get(found[1], found[1]), row)
        fenced = fenced != fence
        if not fenced and not fence:
            # Not in code: there nothing is a link, and nothing a command of doxygen's.
            parts = re.split(r"(`[^`]*`)", row)
            whole = re.sub(r"!?\[([^\]]*)\]\(([^)\s]+)\)", link, row) if "](" in row else "".join(parts)
            heading = re.match(r"(#+) (.*)$", row)
            if heading:
                label = name_of(path) if first else f"{name_of(path)}__{slug(heading[2])}"
                whole, first = f"{heading[1]} {heading[2].replace('`', '')} {{#{label}}}", False
            row = whole
        out.append(row)
    return "\n".join(out)


PAGES = {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")}

if __name__ == "__main__":
    source = Path(sys.argv[1]).resolve()
    content = source.read_text(encoding="utf-8")
    sys.stdout.write(header(content) if source.suffix == ".h" else page(source, content))
