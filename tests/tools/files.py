#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever the tools write replaces ordinary files only, whole or not at all: every output against everything that may have its
name, against every input, on a disk that is full, and beside files of the user's.
usage: files.py MIXEDPREC_TRAIN MIXEDPREC FIXTURES"""
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile

from common import Checks, run

SMALL = "--layers 1 --dim 16 --heads 2 --context 16 --batch 2 --sample 0 --val-batches 1 --threads 1".split()
RESULTS = ["losses.csv", "losses.svg", "results.json", "report.html", "monitor.csv", "monitor.svg", "last-steps-fp32.json"]


def make_link(place, folder):
    (folder / "target").write_text("kept")
    place.symlink_to(folder / "target")
    return lambda: place.is_symlink() and (folder / "target").read_text() == "kept"


def make_dangling(place, folder):
    place.symlink_to(folder / "nothing")
    return lambda: place.is_symlink() and not (folder / "nothing").exists()


def make_pipe(place, folder):
    os.mkfifo(place)
    return place.is_fifo


def make_socket(place, folder):
    one = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(place.parent)  # a socket's path is short
    one.bind(place.name)
    os.chdir(here)
    one.close()
    return place.is_socket


def make_folder(place, folder):
    place.mkdir()
    return place.is_dir


def make_device(place, folder):
    os.mknod(place, 0o666 | 0o020000, os.makedev(1, 3))
    return place.is_char_device


KINDS = {"a link": make_link, "a link to nothing": make_dangling, "a pipe": make_pipe, "a socket": make_socket,
         "a folder": make_folder, "a device": make_device}


def snapshot(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Files:
    def __init__(self, trainer, command, text, check, folder):
        self.trainer, self.command, self.text, self.check, self.folder = trainer, command, text, check, folder
        self.count = 0

    def new(self):
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        return folder

    def train(self, *options, program=None, **kwargs):
        return subprocess.run([str(w) for w in [program or self.trainer, *SMALL, "--data", self.text, *options]],
                              capture_output=True,
                              text=True, errors="replace", check=False, timeout=120, **kwargs)

    def outputs(self, folder):
        """(option, the file, the words that write it)"""
        out = folder / "out"
        out.mkdir()
        words = ["--steps", 1, "--out", out, "--monitor", 1]
        return [(f"--out's {name}", out / name, words) for name in RESULTS] + \
            [(option, folder / name, ["--steps", 1, "--save", folder / name])
             for option, name in (("--save", "weights"), ("--save *.safetensors", "weights.safetensors"))]

    def kinds(self):
        """Everything that is no ordinary file stays what it is, and nothing is trained."""
        names = [name for name, _, _ in self.outputs(self.new())]
        for i, name in enumerate(names):
            for j, (kind, make) in enumerate(KINDS.items()):
                if j > 0 and 0 < i < len(RESULTS) and i != j:
                    continue  # links for all, and each of the others for one more than --save and losses.csv
                folder = self.new()
                _, place, words = self.outputs(folder)[i]
                try:
                    is_kept = make(place, folder)
                except PermissionError:
                    print(f"skipped: {kind}, which only root can make here")
                    continue
                done = self.train(*words)
                self.check(done.returncode == 1 and is_kept() and "GPT:" not in done.stdout and str(place) in done.stderr,
                           f"{name} is {kind}: {done.stderr.strip()[:150]}")
        losses = self.folder / "losses.csv"
        losses.write_text("recipe,step,train_loss,val_loss\nfp32,1,2,\n")
        for kind, make in KINDS.items():
            folder = self.new()
            place = folder / "plot.svg"
            try:
                is_kept = make(place, folder)
            except PermissionError:
                continue
            done = run(self.command, ["compare", losses, "--svg", place], check=False)
            self.check(done.returncode == 1 and is_kept(), f"compare --svg is {kind}: {done.stderr.strip()[:150]}")

    def inputs(self):
        """No output is a file that is read, under whatever name."""
        folder = self.new()
        text = folder / "text"
        text.write_bytes(pathlib.Path(self.text).read_bytes())
        recipe = folder / "mine.json"
        recipe.write_text('{"recipe": "fp32"}')
        checkpoints, weights = folder / "ck", folder / "w"
        self.train("--steps", 1, "--checkpoint", checkpoints, "--save", weights)
        step = next(checkpoints.glob("step-*"))
        (folder / "link").symlink_to(text)
        os.link(text, folder / "other-name")
        (folder / "out").mkdir()
        os.link(text, folder / "out" / "losses.csv")
        before = snapshot(folder)
        cases = [("--data", ["--data", text, "--save", text]), ("--data by a link", ["--data", folder / "link", "--save", text]),
                 ("--data's other name", ["--data", text, "--save", folder / "other-name"]),
                 ("--data by another path", ["--data", text, "--save", folder / "ck" / ".." / "text"]),
                 ("--data in --out", ["--data", folder / "out" / "losses.csv", "--out", folder / "out"]),
                 ("--init", ["--init", weights, "--save", weights]), ("--recipe", ["--recipe", recipe, "--save", recipe]),
                 ("--save in --out", ["--out", folder, "--save", folder / "report.html"])]
        for file in step.iterdir():
            cases += [(f"{file.name} of --resume {where}", ["--resume", path, "--save", file])
                      for where, path in (("FOLDER", checkpoints), ("STEP", step))]
            cases.append((f"{file.name} of --checkpoint", ["--checkpoint", checkpoints, "--save", file]))
        for what, words in cases:
            done = self.train("--steps", 2, *words)
            self.check(done.returncode == 1
                       and "choose another name" in done.stderr + "choose another name" * ("safetensors" in what)
                       and snapshot(folder) == before, f"{what} is not written: {done.stderr.strip()[:150]}")
        losses = folder / "losses.csv"
        losses.write_text("recipe,step,train_loss,val_loss\nfp32,1,2,\n")
        done = run(self.command, ["compare", losses, "--svg", losses], check=False)
        self.check(done.returncode == 1 and losses.read_text().startswith("recipe"), "compare --svg is not the losses")

    def full_disk(self):
        """Results of an earlier run stay whole, for every size at which the disk is full; nothing is left beside them."""
        folder = self.new()
        words = ["--out", folder / "out", "--save", folder / "w", "--monitor", 1, "--recipe", "fp8_current"]
        self.check(self.train("--steps", 3, *words).returncode == 0, "an earlier run")
        before = snapshot(folder)
        sizes = sorted({0, 100, *(len(data) - 1 for data in before.values())})
        for size in sizes:
            def limit(size=size):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            done = self.train("--steps", 40, *words, preexec_fn=limit)
            after = snapshot(folder)
            whole = all(after.get(path) == data or after[path].endswith(b"\n") for path, data in before.items()
                        if path.name != "w")
            self.check(done.returncode == 1 and set(after) == set(before) and whole
                       and len(after[folder / "w"]) == len(before[folder / "w"])
                       and len(after[folder / "out" / "monitor.csv"]) >= len(before[folder / "out" / "monitor.csv"]),
                       f"files of at most {size} bytes: {done.stderr.strip().splitlines()[-1][:100]}")

    def neighbours(self):
        """Files of the user's whose names ours once took; modes stay; a file that must not be written is not."""
        folder = self.new()
        mine = {folder / (name + end): f"mine {end}" for name in ("w", "losses.csv") for end in (".part", ".tmp", ".new", "~")}
        for path, text in mine.items():
            path.write_text(text)
        (folder / "w").write_text("old")
        os.chmod(folder / "w", 0o640)
        done = self.train("--steps", 1, "--save", folder / "w", "--out", folder)
        self.check(done.returncode == 0 and all(path.read_text() == text for path, text in mine.items()),
                   "a user's files beside ours stay")
        self.check((folder / "w").stat().st_mode & 0o777 == 0o640 and (folder / "w").stat().st_size > 100,
                   "a replaced file keeps its mode")
        self.check(not [path for path in folder.iterdir() if path.name.startswith(".")], "nothing is left over")


def main():
    trainer, command, fixtures = sys.argv[1:4]
    check = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        files = Files(trainer, command, os.path.join(fixtures, "train_gpt", "genesis.txt"), check, pathlib.Path(temporary))
        files.kinds()
        files.inputs()
        files.full_disk()
        files.neighbours()
    check.exit()


if __name__ == "__main__":
    main()
