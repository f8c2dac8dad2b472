#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main ratios of docs/performance.md and the losses of docs/convergence.md as pictures, docs/images/*.svg. Every number in
them is read from a table of its page, found by the heading above it and the words it begins with. The same pages give the same
bytes.

usage: plots.py [--check]    --check writes nothing: the pictures are those of the tables, and the page shows each
"""
import math
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, LOSSES = ROOT / "docs/performance.md", ROOT / "docs/convergence.md"
IMAGES = ROOT / "docs/images"

WIDTH, MARGIN, ROW, TOP, BOTTOM = 760, 14, 20, 66, 44
INK, FAINT, GRID = "#1b1f24", "#5b636d", "#d8dde3"
COLOURS = ("#0b62a8", "#c25a00")  # of the first series and the second, which is hollow, too
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
RANGE = re.compile(r"(\d+\.\d+)(?: - (\d+\.\d+))?")


def tables_of(text, heading):
    """The tables under a heading: lists of rows of cells, the header first."""
    inside, found, table = False, [], []
    for line in [*text.splitlines(), ""]:
        if table and not line.startswith("|"):
            found.append(table)
            table = []
        if line.startswith("#"):
            inside = line.lstrip("# ") == heading
        elif inside and line.startswith("|") and not set(line) <= set("|-: "):
            table.append([cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")])
    return found


def table_of(text, heading, first):
    """The one table under a heading whose header begins with these cells."""
    fitting = [table for table in tables_of(text, heading) if table[0][:len(first)] == first]
    if len(fitting) != 1:
        raise SystemExit(f"{PAGE.name}: {len(fitting)} tables under '{heading}' begin with {first}")
    return fitting[0]


def ranges(cell):
    """The numbers of a cell, each with where it ends: '0.71 - 0.92, 1.23' is two."""
    return [(float(low), float(high or low)) for low, high in RANGE.findall(cell)]


class Row:
    """One line of a picture: a name, and for each series a cell of the table."""

    def __init__(self, name, *cells):
        self.name, self.cells = name, cells


class Picture:
    def __init__(self, title, series, note, rows, page="docs/performance.md"):
        self.title, self.series, self.note, self.rows, self.page = title, series, note, rows, page


def optimizer_steps(text):
    table = table_of(text, "Optimizer steps", ["state", "ns"])
    return Picture("Optimizer steps: how near to the limit", ("large tensor", "148 tensors"),
                   "the limit is what memory or instructions take, whichever is more; nothing set, and passive waiting",
                   [Row(cells[0], *cells[5:7]) for cells in table[1:]])


def casts(text):
    table = table_of(text, "Casts and quantizers", ["to", "from fp32"])
    return Picture("Casts beside streaming the same bytes", ("16M elements, 2 threads",),
                   "1 is the speed of the streaming kernel; nothing set, and passive waiting",
                   [Row(f"{source.removeprefix('from ')} to {cells[0]}", cells[column])
                    for column, source in enumerate(table[0]) if column > 0 for cells in table[1:] if cells[column]])


def fp8_products(text):
    table = table_of(text, "fp8 products", ["types, scales"])
    return Picture("fp8 products beside our fp32 product", ("nothing set", "passive waiting"),
                   "decoding included; lines are ranges over shapes",
                   [Row(cells[0], *cells[1:3]) for cells in table[1:]])


def products(text):
    table = table_of(text, "Matrix products", ["m x n x k, transposed"])
    return Picture("Products beside the raw oneDNN call", ("fp32", "bf16"),
                   "1 is its speed; nothing set, and passive waiting", [Row(cells[0], *cells[1:3]) for cells in table[1:]])


def trainer(text):
    table = table_of(text, "The trainer beside PyTorch", ["model", "ours"])
    return Picture("The trainer beside PyTorch", ("tokens/s, ours over torch's",), "single ratios move by a tenth and more",
                   [Row(f"{cells[0]}, {cells[1]}; torch {cells[3]}", cells[5]) for cells in table[1:]])


def recipes(text):
    table = table_of(text, "The recipes beside each other", ["recipe", "of fp32"])
    return Picture("The trainer's recipes beside fp32", ("tokens/s over those of fp32",), "nothing set, and passive waiting",
                   [Row(cells[column], cells[column + 1]) for column in (0, 2, 4) for cells in table[1:] if cells[column]])


def convergence(size):
    def make(text):
        table = table_of(text, size.capitalize(), ["recipe", "final loss", "gap to fp32 (%)"])
        rows = [Row(cells[0], " - ".join(f"{1 + float(end) / 100:.4f}" for end in cells[3].split(" to ")))
                for cells in table[1:] if cells[3]]
        rows.sort(key=lambda row: sum(map(sum, ranges(row.cells[0]))))
        return Picture(f"Final loss over that of fp32, {size}", ("95 % interval",),
                       "seeds are paired; below 1 is better than fp32", rows, "docs/convergence.md")
    return make


PICTURES = {PAGE: {"optimizer-steps": optimizer_steps, "casts": casts, "fp8-products": fp8_products,
                   "products": products, "trainer": trainer, "recipes": recipes},
            LOSSES: {f"convergence-{size}": convergence(size) for size in ("small", "large", "images")}}


def text_at(x, y, words, size=12, colour=INK, anchor="start", weight="normal"):
    return (f"<text x='{x:.1f}' y='{y:.1f}' {FONT} font-size='{size}' font-weight='{weight}' fill='{colour}' "
            f"text-anchor='{anchor}'>{escape(words)}</text>")


def mark(series, x, end, y):
    """A dot, or a line with ends; the first series filled, the second hollow."""
    colour = COLOURS[series]
    fill = colour if series == 0 else "#ffffff"
    dot = f"<circle cx='{{:.1f}}' cy='{y:.1f}' r='4' fill='{fill}' stroke='{colour}' stroke-width='1.6'/>"
    if end == x:
        return dot.format(x)
    return f"<path d='M{x:.1f} {y:.1f}H{end:.1f}' stroke='{colour}' stroke-width='2'/>{dot.format(x)}{dot.format(end)}"


def draw(picture):
    values = [value for row in picture.rows for cell in row.cells for pair in ranges(cell) for value in pair] + [1.0]
    spread = max(values) - min(values)
    step = next(size for size in (0.005, 0.02, 0.1, 0.25, 1.0) if spread / size < 9)
    low, high = math.floor(min(values) / step - 0.2), math.ceil(max(values) / step + 0.2)  # in steps
    # A column of names, the marks, and a column of cells for each series.
    left = MARGIN + 7.6 * max(len(row.name) for row in picture.rows) + 12
    columns = [6.6 * max(len(row.cells[index]) for row in picture.rows) + 18 for index in range(len(picture.series))]
    right, bottom = WIDTH - MARGIN - sum(columns) - 6, TOP + ROW * len(picture.rows)
    ends = [WIDTH - MARGIN - sum(columns[index + 1:]) for index in range(len(columns))]
    height = bottom + BOTTOM

    def place(value):
        return left + (value / step - low) / (high - low) * (right - left)

    out = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' "
           f"viewBox='0 0 {WIDTH} {height}' role='img'>",
           f"<title>{escape(picture.title)}</title>",
           f"<desc>{escape('; '.join(picture.series))}. {escape(picture.note)}. Numbers: {picture.page}</desc>",
           f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>", text_at(MARGIN, 24, picture.title, 15, weight="bold"),
           text_at(MARGIN, bottom + 36, picture.note[0].upper() + picture.note[1:] + ".", 11, FAINT)]
    x = MARGIN + 4
    for index, name in enumerate(picture.series):
        out += [mark(index, x, x, 43), text_at(x + 9, 47, name, 11, FAINT)]
        x += 40 + 6.4 * len(name)
    for tick in range(low, high + 1):
        at, is_one = place(tick * step), abs(tick * step - 1) < 1e-9
        out += [f"<path d='M{at:.1f} {TOP - 6}V{bottom}' stroke='{INK if is_one else GRID}' "
                f"stroke-width='{1.4 if is_one else 1}'/>",
                text_at(at, bottom + 15, f"{tick * step:.3f}".rstrip("0").rstrip("."), 11, FAINT, "middle")]
    for index, row in enumerate(picture.rows):
        y = TOP + ROW * index + ROW / 2
        out.append(text_at(left - 12, y + 4, row.name, 12, anchor="end"))
        shift = 3.2 if len(row.cells) > 1 else 0
        for number, cell in enumerate(row.cells):
            at = y - shift + 2 * shift * number
            out += [mark(number, place(begin), place(end), at) for begin, end in ranges(cell)]
            out.append(text_at(ends[number], y + 4, cell, 11, COLOURS[number] if shift else FAINT, "end"))
    return "\n".join([*out, "</svg>"]) + "\n"


def check_or_draw(page, name, make, is_check):
    """What is wrong, in words."""
    text = page.read_text()
    svg, path = draw(make(text)), IMAGES / f"{name}.svg"
    if not is_check:
        IMAGES.mkdir(exist_ok=True)
        path.write_text(svg)
    elif not path.exists() or path.read_text() != svg:
        yield f"{path.relative_to(ROOT)} is not that of the tables; run bench/plots.py"
    if f"](images/{path.name})" not in text:
        yield f"{page.name} does not show images/{path.name}"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    names = {name for pictures in PICTURES.values() for name in pictures}
    problems = [problem for page, pictures in PICTURES.items() for name, make in pictures.items()
                for problem in check_or_draw(page, name, make, bool(sys.argv[1:]))]
    problems += [f"{path.relative_to(ROOT)}: nothing draws it" for path in IMAGES.glob("*.svg") if path.stem not in names]
    print("\n".join(problems) or f"{len(names)} pictures")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
