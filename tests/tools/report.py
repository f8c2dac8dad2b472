#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_train's report.html: well formed, alone, every section there. report_browser.py opens it in a browser.
usage: report.py MIXEDPREC_TRAIN FIXTURES"""
import html.parser
import pathlib
import re
import sys
import tempfile

from common import Checks, run

SMALL = "--layers 1 --dim 32 --heads 2 --context 16 --batch 2 --val-batches 1 --sample 0"
SECTIONS = ["settings", "losses", "scale", "skipped", "operands", "memory", "throughput"]


class Page(html.parser.HTMLParser):
    """Tags must close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.errors, self.sections, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [attrs[name] for name in ("href", "src", "xlink:href") if name in attrs]
        if tag in ("script", "link", "a", "img"):
            self.errors.append(f"<{tag}>")
        if tag == "section":
            self.sections.append(attrs.get("id"))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}>")


def main():
    program, text, check = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt", Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(program, f"--data {text} --out {folder} --steps 8 --monitor 2 --compare fp32,fp16_mixed,fp8_delayed {SMALL}")
        content, page = (folder / "report.html").read_text(encoding="utf-8"), Page()
        page.feed(content)
        page.close()
        check(not page.open and not page.errors, f"tags close in order: {page.open} {page.errors}")
        check(page.sections == SECTIONS, "every section is there")
        check(not page.links and not re.search(r"url\(|@import", content), "nothing is linked to")
        check("h0.qkv" in content and "<td>fp16_mixed</td>" in content, "layers and recipes have rows")
    check.exit()


main()
