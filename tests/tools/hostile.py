#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files and names from anybody in the tools: what reaches a terminal, CSV and SVG; folders of checkpoints beside which damage
lies; manifests that claim what is not there; streams without an end. usage: hostile.py MIXEDPREC_TRAIN MIXEDPREC FIXTURES"""
import csv
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree

from common import Checks

SMALL = "--layers 1 --dim 16 --heads 2 --context 16 --batch 2 --sample 0 --val-batches 1 --threads 1".split()
STEERING = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def forge(source, target, change):
    """A copy of a checkpoint with another manifest, whose checksum is right."""
    shutil.copytree(source, target)
    text = (target / "manifest.json").read_bytes()
    text = change(text[:text.rindex(b',"crc32c"')], target)
    (target / "manifest.json").write_bytes(text + b',"crc32c":"%08x"}\n' % crc32c(text))
    return target


class Hostile:
    def __init__(self, trainer, command, text, check, folder):
        self.trainer, self.command, self.text, self.check, self.folder = trainer, command, text, check, folder

    def train(self, *options):
        return self.run(self.trainer, *SMALL, "--data", self.text, *options)

    def run(self, *words, limit=None):
        def bound():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return subprocess.run([w if isinstance(w, bytes) else str(w) for w in words], capture_output=True, check=False,
                              timeout=120,
                              preexec_fn=bound if limit else None)

    def checkpoint(self):
        folder = self.folder / "ck"
        self.train("--steps", 2, "--checkpoint", folder)
        return folder, next(folder.glob("step-*"))

    def terminal(self):
        """Every control character, in every place where a file's text is printed."""
        _, step = self.checkpoint()
        codes = [c for c in [*range(1, 32), *range(127, 160)] if c not in (9, 10)]
        everything = "".join(map(chr, codes))
        escapes = json.dumps(everything)[1:-1].encode().replace(b"\x7f", b"\\u007f")

        def change(text, target):
            shard = next(target.glob("shard-*"))
            data = bytearray(shard.read_bytes())
            old = b"%08x" % crc32c(data)
            at = data.find(b"--seed 1")
            raw = everything.encode()[:len(b"--steps 2\n--warmup 0\n--lr 0.001")]
            data[at + 2:at + 2 + len(raw)] = raw
            shard.write_bytes(data)
            return text.replace(old, b"%08x" % crc32c(data)).replace(b'"device":"host', b'"device":"' + escapes + b"host")
        forged = forge(step, self.folder / "forged", change)
        recipe = self.folder / "r.json"
        recipe.write_bytes(b'{"recipe":"' + escapes + b'"}')
        named = os.fsencode(self.folder) + b"/\x1b]0;title\x07\xc2\x9b31m\xff.json"
        pathlib.Path(os.fsdecode(named)).write_text('{"recipe": "bf16_pure"}')
        runs = [self.train("--steps", 3, "--resume", forged), self.train("--steps", 1, "--recipe", recipe),
                self.train("--steps", 1, "--recipe", named, "--out", self.folder / "named"),
                self.train("--steps", 1, "--data", named + b"x"), self.train("--steps", 1, named), self.train("--" + everything)]
        for words in (["inspect", forged], ["inspect", forged, "--tensors"], ["verify", forged],
                      ["recipe", "check", recipe, named],
                      ["recipe", "show", named], ["plan", "--params", "1M", "--recipe", named], ["inspect", named],
                      ["compare", self.folder / "named" / "losses.csv"], [named], ["plan", "--safetensors", named]):
            runs += [self.run(self.command, *words), self.run(self.command, *words, "--json")]
        for done in runs:
            found = STEERING.search(done.stdout + done.stderr)
            said = f"no control characters: {done.args[-2:]}: {done.stdout[-40:] + done.stderr[-40:]!r}"
            self.check(found is None, said if found is not None else "no control characters")
        self.check(any(b"goes on with" in done.stderr for done in runs), "the settings were printed")
        read = json.loads(self.run(self.command, "inspect", forged, "--json").stdout)
        self.check(read["checkpoints"][0]["device"].startswith(everything), "JSON has all of them as escapes")

    def names(self):
        """A recipe's file may be called anything: its losses can be read, and its plots are XML."""
        for name in ("a,b", 'q"uote"d', "new\nline", "]]>", "<&>", "\x1b[31m", "\ufffe\uffff", "\x7f\x9b", " "):
            folder = self.folder / "out"
            recipe = self.folder / (name + ".json")
            recipe.write_text('{"recipe": "fp8_current"}')
            done = self.train("--steps", 2, "--recipe", recipe, "--out", folder, "--monitor", 1)
            with open(folder / "losses.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            with open(folder / "monitor.csv", newline="") as file:
                looks = list(csv.DictReader(file))
            self.check(done.returncode == 0 and [row["recipe"] for row in rows] == [str(recipe)] * 2 and
                       {row["recipe"] for row in looks} == {str(recipe)}, f"CSV of {name!r}")
            compared = json.loads(self.run(self.command, "compare", folder / "losses.csv", "--svg", folder / "compare.svg",
                                           "--json").stdout)
            self.check(compared["recipes"][0]["recipe"] == str(recipe), f"compare of {name!r}")
            for plot in ("losses.svg", "monitor.svg", "compare.svg"):
                xml.etree.ElementTree.parse(folder / plot)
            self.check("h0.qkv" in (folder / "report.html").read_text(), f"the report of {name!r} has its operands")

    def newest(self):
        """Beside an intact checkpoint anything under a newer name: what the trainer goes on from, every command takes."""
        _, step = self.checkpoint()
        other = self.folder / "elsewhere"
        shutil.copytree(step, other)
        newer = f"step-9-99-{'a' * 32}"

        def cut(to):
            shutil.copytree(step, to)
            text = (to / "manifest.json").read_bytes()
            (to / "manifest.json").write_bytes(text[:len(text) // 2])

        def piped(to):
            to.mkdir()
            os.mkfifo(to / "manifest.json")

        def linked_manifest(to):
            to.mkdir()
            (to / "manifest.json").symlink_to(step / "manifest.json")
        cases = {"an empty folder": (newer, pathlib.Path.mkdir), "a file": (newer, lambda to: to.write_text("x")),
                 "a link": (newer, lambda to: to.symlink_to(other)), "a cut manifest": (newer, cut), "a pipe": (newer, piped),
                 "a linked manifest": (newer, linked_manifest)}
        for name in ("step-9-99-x", "step-9-99", f"step-9-{10**23}-{'a' * 32}", f"step--1-99-{'a' * 32}",
                     f"step-9-99-{'A' * 32}"):
            cases[name] = (name, lambda to: shutil.copytree(step, to))
        for what, (name, make) in cases.items():
            folder = self.folder / ("newest-" + re.sub(r"\W", "-", what))
            folder.mkdir()
            shutil.copytree(step, folder / step.name)
            make(folder / name)
            resumed = self.train("--steps", 2, "--resume", folder)
            self.check(b"resumed after step 2" in resumed.stdout, f"{what}: the trainer goes on from the intact one")
            for words in (["reshard", folder, folder / "r", "--ranks", 1],
                          ["convert", folder, folder / "c", "--recipe", "bf16_pure"]):
                done = self.run(self.command, *words, "--json")
                self.check(done.returncode == 0 and json.loads(done.stdout)["from"] == str(folder / step.name),
                           f"{what}: {words[0]} takes it")
                self.check(("note" in json.loads(done.stdout)) == (name == newer), f"{what}: {words[0]} says what it passed over")
            for word in ("inspect", "verify"):
                done = self.run(self.command, word, folder, "--json")
                found = [one["path"] for one in json.loads(done.stdout)["checkpoints"] if "problem" not in one
                         and one.get("good", True)]
                self.check(found == [str(folder / step.name)] and (done.returncode != 0) == (name == newer),
                           f"{what}: {word} sees what a load sees")

    def race(self):
        """A manifest that is a pipe every other moment: no command waits for it."""
        _, step = self.checkpoint()
        folder = self.folder / "race"
        shutil.copytree(step, folder)
        real, pipe, manifest = folder / "real", folder / "pipe", folder / "manifest.json"
        os.link(manifest, real)
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                os.mkfifo(pipe)
                os.replace(pipe, manifest)
                os.link(real, pipe)
                os.replace(pipe, manifest)
        thread = threading.Thread(target=swap)
        thread.start()
        codes = [self.run(self.command, word, folder, *more).returncode for _ in range(8)
                 for word, more in (("inspect", []), ("verify", []), ("reshard", [self.folder / "raced", "--ranks", 1]))]
        stop.set()
        thread.join()
        self.check(set(codes) <= {0, 1}, f"24 commands end: {codes.count(0)} well")

    def claims(self):
        """A manifest with right checksums that claims what its files do not have: refused, in memory that is bounded."""
        _, step = self.checkpoint()
        for state, pattern in (("data", rb'("name":"losses","state":"data","format":"uint8",'
                                        rb'"shape":\[)\d+(\],"pieces":\[\[0,0,)\d+'),
                               ("param", rb'("name":"head[^"]*","state":"param","format":"fp32",'
                                         rb'"shape":\[)[\d,]+(\],"pieces":\[\[0,0,)\d+')):
            for claim in (10**6, 2**31, 2**36, 2**58):
                for grow in (False, True):  # the file's size is a claim, too
                    def change(text, target, claim=claim, pattern=pattern, grow=grow):
                        text, count = re.subn(pattern, rb"\g<1>%d\g<2>%d" % (claim, claim), text)
                        assert count >= 1, pattern
                        if grow:
                            size = next(target.glob("shard-*")).stat().st_size
                            chunks = (size + 5 * claim) // 2**30 + 1
                            if chunks < 1000:
                                text = re.sub(rb'"chunk_bytes":\d+', b'"chunk_bytes":%d' % 2**30, text)
                                text = re.sub(rb'"bytes":\d+,"crc32c":"\w+"',
                                              b'"bytes":%d,"crc32c":"%s"' % (size + 5 * claim, b"00000000" * chunks), text)
                        return text
                    forged = forge(step, self.folder / "claims", change)
                    for words in (["reshard", forged, self.folder / "n", "--ranks", 2],
                                  ["convert", forged, self.folder / "n", "--recipe", "fp32"],
                                  ["inspect", forged], ["verify", forged], ["diff", step, forged]):
                        if words[0] == "inspect" and grow:
                            continue
                        done = self.run(self.command, *words, limit=2 << 30)
                        self.check(done.returncode == 1 and b"bad_alloc" not in done.stderr
                                   and b"OUT_OF_MEMORY" not in done.stderr,
                                   f"{state} of {claim}{' in a larger file' * grow}: {words[0]}: "
                                   f"{(done.stderr or done.stdout)[:90]}")
                    shutil.rmtree(forged)

    def indexes(self):
        """An index takes its own size in memory, and some for its weight_map, whatever else is in it."""
        for name, part, end in (("brackets", "[", ""), ("objects", "{},", "0]"), ("numbers", "1,", "1]"), ("texts", '"",', "0]")):
            index = self.folder / f"{name}.index.json"
            index.write_text(("" if name == "brackets" else "[") + part * ((30 << 20) // len(part)) + end)
            done = self.run(self.command, "plan", "--safetensors", index, limit=512 << 20)
            self.check(done.returncode == 1 and b"bad_alloc" not in done.stderr, f"an index of {name}: {done.stderr[:90]}")
        index = self.folder / "nul.index.json"
        index.write_text('{"weight_map": {"w": "a.safetensors\\u0000b"}}')
        done = self.run(self.command, "plan", "--safetensors", index)
        self.check(done.returncode == 1 and b"not in a file beside" in done.stderr, "an index with a NUL in a file's name")

    def scales(self):
        """A scale that no quantizer makes, with right checksums."""
        folder = self.folder / "scaled"
        self.train("--steps", 1, "--dim", 64, "--recipe", "msamp_o2", "--checkpoint", folder)
        step = next(folder.glob("step-*"))
        for value in (float("nan"), float("inf"), -1.0, -0.0):
            def change(text, target, value=value):
                shard = next(target.glob("shard-*"))
                data = bytearray(shard.read_bytes())
                old = b"%08x" % crc32c(data)
                length = struct.unpack("<Q", data[:8])[0]
                header = json.loads(data[8:8 + length])
                begin = next(e["data_offsets"][0] for k, e in header.items() if k.endswith("_scale_inv"))
                data[8 + length + begin:12 + length + begin] = struct.pack("<f", value)
                shard.write_bytes(data)
                return text.replace(old, b"%08x" % crc32c(data))
            forged = forge(step, self.folder / "bad-scale", change)
            done = self.run(self.command, "verify", forged)
            self.check(done.returncode == 1 and b"has the scale" in done.stdout, f"verify: a scale of {value}")
            shutil.rmtree(forged)
        self.check(self.run(self.command, "verify", folder).returncode == 0, "verify: scales as they were written")

    def groups(self):
        """A parameter in the group behind the last one, with a right checksum."""
        folder, step = self.checkpoint()

        def change(text, _):
            count = re.search(rb'"optimizer\.groups","([0-9a-f]{16})"', text)[1]
            return re.sub(rb'(\.group",")[0-9a-f]{16}', rb"\g<1>" + count, text, count=1)
        forged = forge(step, self.folder / "bad-group", change)
        done = self.train("--steps", 3, "--resume", forged)
        self.check(done.returncode != 0 and b"in a group that is not in the file" in done.stderr, f"resume: {done.stderr[:200]}")
        done = self.run(self.command, "reshard", forged, self.folder / "bad-group-out", "--ranks", 2)
        self.check(done.returncode == 1 and b"in a group that the checkpoint lacks" in done.stderr,
                   f"reshard: {done.stderr[:200]}")
        shutil.rmtree(forged)

    def streams(self):
        """Nothing without an end is read into memory; a loss that is no number is a failure, whoever has it."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        endless = [["/dev/zero"], ["/dev/urandom"], [pipe]]
        for words in endless:
            done = self.run(self.command, "compare", *words, limit=1 << 30)
            self.check(done.returncode == 1 and b"bad_alloc" not in done.stderr, f"compare {words[0]}: {done.stderr[:90]}")
        head = "recipe,step,train_loss,val_loss\n"
        for name, text, code in (("long", head + "x" * 100000, 1), ("nan", head + "fp32,1,nan,\n", 1),
                                 ("inf", head + "fp32,1,inf,\n", 1),
                                 ("both", head + "fp32,1,1,\nb,1,nan,\n", 1), ("good", head + "fp32,1,1,\n", 0),
                                 ("crlf", head.replace("\n", "\r\n") +
                                 "fp32,1,1,\r\n", 0), ("open", head + '"fp32,1,1,\n', 1)):
            (self.folder / name).write_text(text)
            done = self.run(self.command, "compare", self.folder / name)
            self.check(done.returncode == code, f"compare of {name}: {done.returncode} {done.stderr[:90]}")
        for program, words in ((self.trainer, ["--help"]), (self.trainer, ["--list-recipes"]), (self.command, ["--help"]),
                               (self.command, ["plan", "--help"]), (self.command, ["--version"]),
                               (self.command, ["recipe", "list"])):
            with open("/dev/full", "w") as full:
                done = subprocess.run([program, *words], stdout=full, stderr=subprocess.PIPE, check=False)
            self.check(done.returncode == 1 and b"standard output" in done.stderr, f"{words} into a full output")


def main():
    trainer, command, fixtures = sys.argv[1:4]
    check = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        hostile = Hostile(trainer, command, os.path.join(fixtures, "train_gpt", "genesis.txt"), check, pathlib.Path(temporary))
        for part in sys.argv[4:] or ["terminal", "names", "newest", "race", "claims", "indexes", "scales", "groups", "streams"]:
            hostile.folder = pathlib.Path(temporary) / part
            hostile.folder.mkdir()
            getattr(hostile, part)()
    check.exit()


if __name__ == "__main__":
    main()
