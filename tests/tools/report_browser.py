#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_train's report.html in a browser without a network: nothing fails to load, every section and plot is drawn, also on
a phone. Exit code 77: there is no chromium.
usage: report_browser.py MIXEDPREC_TRAIN FIXTURES [FOLDER]    FOLDER keeps the report and the pictures"""
import html
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

from common import Checks, run

SMALL = "--layers 1 --dim 32 --heads 2 --context 16 --batch 2 --val-batches 1 --sample 0"
SECTIONS = ["settings", "losses", "scale", "skipped", "operands", "memory", "throughput"]
DESKTOP, PHONE = 1000, 400  # widths

# Goes into a copy of the page, which tells what it measured to the page around it.
PROBE = """<script>
const failed = [];
addEventListener("error", event => failed.push(event.message || event.target.outerHTML), true);
addEventListener("load", () => {
    const size = e => { const r = e.getBoundingClientRect(); return [r.left, r.width, r.height]; };
    const page = document.documentElement, found = {failed};
    found.width = innerWidth;
    found.inside = page.clientWidth;
    found.overflow = page.scrollWidth - page.clientWidth;
    found.sections = Object.fromEntries([...document.querySelectorAll("section")].map(e => [e.id, size(e)]));
    // Boxes that scroll may hold more than they show; they themselves must fit.
    found.outside = [...document.querySelectorAll("body *")].filter(e => !e.closest(".wide > *") &&
        e.getBoundingClientRect().right > page.clientWidth + 1).map(e => e.tagName);
    found.plots = [...document.querySelectorAll("svg")].map(e => ({
        box: size(e), curves: [...e.querySelectorAll("path")].filter(p => p.getTotalLength() > 50).length,
        // Text beyond its plot's edge is cut off.
        cut: [...e.querySelectorAll("text")].filter(t => { const a = t.getBoundingClientRect(), b = e.getBoundingClientRect();
            return a.left < b.left - 1 || a.right > b.right + 1 || a.bottom > b.bottom + 1; }).map(t => t.textContent)}));
    found.loaded = performance.getEntriesByType("resource").map(e => e.name);
    parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""
# A browser's window has a least width, a frame in it has not.
AROUND = """<!DOCTYPE html><meta charset="utf-8"><pre id="told"></pre><script>
addEventListener("message", event => { document.getElementById("told").textContent = event.data; });
</script><iframe style="border:0;width:{width}px;height:3000px" srcdoc="{page}"></iframe>
"""


def pixels(path):
    """The colours of a PNG with 8 bits a channel, as rows of bytes triples or quadruples: {colour: how often}."""
    data, at, packed, counts = path.read_bytes(), 8, b"", {}
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6), "8 bits of red, green and blue"
    step = 3 if kind == 2 else 4
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw, before = zlib.decompress(packed), bytearray(width * step)
    for y in range(height):
        start = y * (width * step + 1)
        line, rule = bytearray(raw[start + 1:start + 1 + width * step]), raw[start]
        if rule == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, before))
        elif rule != 0:
            for i, b in enumerate(before):
                a = line[i - step] if i >= step else 0
                c = before[i - step] if i >= step else 0
                near = sorted((a, b, c), key=lambda v: abs(a + b - c - v))[0] if rule == 4 else 0
                line[i] = (line[i] + (a if rule == 1 else (a + b) // 2 if rule == 3 else near)) & 255
        for i in range(0, width * step, step):
            colour = bytes(line[i:i + 3])
            counts[colour] = counts.get(colour, 0) + 1
        before = line
    return width, height, counts


class Browser:
    def __init__(self, folder):
        self.folder = folder
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        # A network of its own, which is empty, where this user may make one; names lead nowhere in any case.
        alone = ["unshare", "--net"]
        if subprocess.run(alone + ["true"], capture_output=True).returncode != 0:
            alone = []
        self.words = alone + [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                              "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
                              "--enable-logging=stderr", "--virtual-time-budget=2000", f"--user-data-dir={folder}/profile"]

    def __call__(self, page, width, *options):
        """The finished process, and the lines of its log that are about the page."""
        done = subprocess.run(self.words + [f"--window-size={width},3600", *options, page.as_uri()],
                              capture_output=True, text=True, errors="replace", timeout=600)
        # Not what the browser's own pages say, of a slow machine for one.
        return done, [line for line in done.stderr.splitlines()
                      if re.search(r"CONSOLE|ERR_|net_error", line) and "source: chrome://" not in line]

    def measure(self, page, width):
        copy = self.folder / f"probed_{width}.html"
        probed = page.read_text(encoding="utf-8").replace("</head>", PROBE + "</head>")
        around = AROUND.replace("{width}", str(width)).replace("{page}", html.escape(probed))
        copy.write_text(around, encoding="utf-8")
        done, complaints = self(copy, width + 100, "--dump-dom")
        told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.S)
        return (json.loads(html.unescape(told[1])) if told else None), complaints

    def picture(self, page, width):
        path = self.folder / f"report_{width}.png"
        _, complaints = self(page, width, f"--screenshot={path}")
        return pixels(path) if path.exists() else None, complaints


def check_page(check, browser, page, width):
    found, complaints = browser.measure(page, width)
    check(found is not None, f"{width} wide: the page was read to its end")
    if found is None:
        return
    check(found["width"] == width, f"{width} wide: so is the window ({found['width']})")
    wrong = complaints + found["failed"] + found["loaded"]
    check(not wrong, f"{width} wide: nothing fails, nothing else is loaded: {wrong}")
    check(list(found["sections"]) == SECTIONS and all(box[2] > 40 for box in found["sections"].values()),
          f"{width} wide: every section has a height: {found['sections']}")
    check(len(found["plots"]) == 3 and all(p["box"][1] >= 0.8 * min(width, 600) and p["box"][2] > 100 and p["curves"] > 0
                                           for p in found["plots"]), f"{width} wide: three plots with curves: {found['plots']}")
    check(not any(plot["cut"] for plot in found["plots"]), f"{width} wide: no text of a plot is cut off")
    check(found["overflow"] == 0 and not found["outside"], f"{width} wide: nothing sticks out at the side: {found['outside']}")


def check_picture(check, browser, page, width):
    found, complaints = browser.picture(page, width)
    check(found is not None and found[0] == width and not complaints, f"a picture {width} wide: {complaints}")
    if found is None:
        return
    counts = found[2]
    white = counts.get(b"\xff\xff\xff", 0) / sum(counts.values())
    # Curves of the second and third recipe have colours that nothing else has; their edges are paler.
    curves = [sum(n for colour, n in counts.items() if sum(abs(a - b) for a, b in zip(colour, bytes.fromhex(wanted))) < 150)
              for wanted in ("D55E00", "0072B2")]
    check(len(counts) > 50 and 0.5 < white < 0.99 and min(curves) > 50,
          f"{width} wide: drawn, on white: {len(counts)} colours, {white:.0%} white, {curves} pixels of curves")


def check_checks(check, browser, page):
    """A page that asks for another file, fails and sticks out must be found."""
    broken = browser.folder / "broken.html"
    worse = '<img src="nowhere.png"><div style="width:900px">x</div><script>nowhere()</script></body>'
    broken.write_text(page.read_text(encoding="utf-8").replace("</body>", worse), encoding="utf-8")
    found, complaints = browser.measure(broken, PHONE)
    good = found is not None and found["overflow"] > 0 and "DIV" in found["outside"] and len(found["failed"]) == 2
    check(good and any("nowhere is not defined" in line for line in complaints), "what is wrong with a page is found" +
          ("" if good else f": {complaints} {found and (found['overflow'], found['outside'], found['failed'])}"))


def main():
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        print("skipped: no chromium to open the report with (Debian: chromium)")
        sys.exit(77)
    program, text, check = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt", Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if len(sys.argv) > 3:
            folder = pathlib.Path(sys.argv[3]).absolute()
        run(program, f"--data {text} --out {folder} --steps 8 --monitor 2 --compare fp32,fp16_mixed,fp8_delayed {SMALL}")
        browser, page = Browser(folder), folder / "report.html"
        check(re.search('<meta name="viewport"', page.read_text(encoding="utf-8")) is not None,
              "phones are told to keep their width")
        for width in (DESKTOP, PHONE):
            check_page(check, browser, page, width)
            check_picture(check, browser, page, width)
        check_checks(check, browser, page)
    check.exit()


main()
