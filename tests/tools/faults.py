#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What befalls a training: disks, folders, signals, other processes. mixedprec_train ends with the right exit code, says why,
and has lost nothing. usage: faults.py MIXEDPREC_TRAIN FIXTURES"""
import csv
import fcntl
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

from common import Checks, run

SMALL = "--layers 1 --dim 16 --heads 2 --context 16 --batch 2 --sample 0 --val-batches 1 --threads 1"


class Faults:
    def __init__(self, program, text, check, folder):
        self.program, self.check, self.folder = program, check, folder
        self.options = SMALL.split() + ["--data", text]

    def train(self, *more, **kwargs):
        return run(self.program, self.options + list(more), check=False, **kwargs)

    def refused(self, what, words, *more):
        """Before anything was trained: the model is not even described."""
        done = self.train("--steps", 5, *more)
        self.check(done.returncode == 1 and words in done.stderr and "GPT:" not in done.stdout, f"{what}: {done.stderr.strip()}")

    def before_training(self):
        file = self.folder / "file"
        file.write_text("kept")
        self.refused("--checkpoint into a file", "for checkpoints: Not a directory", "--checkpoint", file)
        self.refused("--save into nothing", "No such file", "--save", self.folder / "no" / "such")
        taken = self.folder / "taken.safetensors"
        taken.write_text("kept")
        self.refused("--save over a safetensors file", "not overwritten", "--save", taken)
        self.refused("an endless text", "not an ordinary file", "--data", "/dev/zero")
        large = self.folder / "large"
        with open(large, "wb") as sparse:
            sparse.truncate(65 << 20)
        self.refused("a text that is too long", "of --max-memory", "--max-memory", 64, "--data", large)
        large.unlink()
        pipe = self.folder / "pipe"  # that nobody writes to
        os.mkfifo(pipe)
        for option in ("--data", "--init"):
            done = self.train("--steps", 1, option, pipe)
            self.check(done.returncode == 1 and "is not an ordinary file" in done.stderr, f"{option} of a pipe")
        shared = self.folder / "shared"
        shared.mkdir()
        handle = os.open(shared, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        self.refused("a folder in use", "another process trains into", "--checkpoint", shared)
        os.close(handle)
        self.check(self.train("--steps", 1, "--checkpoint", shared).returncode == 0, "the folder is free again")
        self.check(file.read_text() == taken.read_text() == "kept", "nothing was overwritten")

    def full_disks(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([self.program] + self.options + ["--steps", "1"], stdout=full, stderr=subprocess.PIPE,
                                  text=True)
        self.check(done.returncode == 1 and "standard output" in done.stderr, "a full standard output is a failure")
        saved = self.folder / "weights"
        self.train("--steps", 1, "--save", saved)
        before = saved.read_bytes()

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = subprocess.run([self.program] + self.options + ["--steps", "1", "--save", str(saved)], preexec_fn=small_files,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.check(done.returncode == 1 and "cannot write the weights" in done.stderr, "weights that do not fit are a failure")
        self.check(saved.read_bytes() == before and not pathlib.Path(str(saved) + ".part").exists(), "the earlier file stays")

    def descriptors(self):
        """Files of a checkpoint never get the numbers of the standard streams, into which a program may print."""
        words = " ".join(f"'{word}'" for word in [self.program] + self.options)
        folder = self.folder / "closed"
        subprocess.run(["sh", "-c", f"exec {words} --steps 3 --checkpoint '{folder}' <&- >&- 2>&-"], check=False)
        done = self.train("--steps", 3, "--resume", folder)
        self.check(done.returncode == 0 and "resumed after step 3" in done.stdout,
                   "a checkpoint of a program without descriptors 0 to 2")
        for closed in ("2>&-", ">&-", "<&- >&-", "<&- >&- 2>&-"):
            out = self.folder / f"rows{len(closed)}"
            subprocess.run(["sh", "-c", f"exec {words} --steps 2 --compare fp8_current,fp8_delayed --monitor 1 "
                                        f"--out '{out}' {closed}"],
                           check=False, capture_output=True)
            with open(out / "monitor.csv", encoding="utf-8") as file:
                rows = list(csv.reader(file))
            self.check({len(row) for row in rows} == {12} and {row[0] for row in rows[1:]} == {"fp8_current", "fp8_delayed"} and
                       (out / "losses.csv").exists(), f"results of a program with {closed}")

    def hostile_names(self):
        folder = self.folder / "names"
        self.train("--steps", 1, "--checkpoint", folder)
        (folder / f"step-9-9223372036854775807-{'a' * 32}").mkdir()
        (folder / f"step-9223372036854775807-7-{'b' * 32}").mkdir()
        done = self.train("--steps", 2, "--resume", folder, "--checkpoint", folder, "--keep", 1)
        self.check(done.returncode == 0 and len(list(folder.glob("step-2-*"))) == 1, "names that no save makes are passed over")
        real = next(folder.glob("step-2-*"))
        moved = self.folder / "elsewhere"
        real.rename(moved)
        real.symlink_to(moved)
        done = self.train("--steps", 2, "--resume", folder)
        self.check(done.returncode == 1 and "no checkpoint that can be read" in done.stderr, "a link is no checkpoint")
        self.train("--steps", 3, "--checkpoint", folder, "--keep", 1)
        self.check((moved / "manifest.json").exists(), "what a link leads to stays")

    def other_settings(self):
        folder = self.folder / "settings"
        self.train("--steps", 1, "--checkpoint", folder)
        other = self.folder / "other.txt"
        other.write_text("In other words, another text. " * 200)
        done = self.train("--steps", 2, "--resume", folder, "--seed", 7, "--clip", 2, "--data", other)
        notes = [line for line in done.stderr.splitlines() if "goes on with" in line]
        self.check(done.returncode == 0 and [line.split()[5] for line in notes] == ["--seed", "--steps", "--clip", "--data"],
                   f"other settings are told of: {notes}")

    def signals(self):
        cases = [("a validation", signal.SIGINT, ["--steps", "1", "--val-batches", "1000000"]),
                 ("a step", signal.SIGINT, ["--steps", "1", "--accum", "65536", "--batch", "64"]),
                 ("a step of two ranks", signal.SIGTERM, ["--steps", "1", "--accum", "65536", "--batch", "64", "--ranks", "2"]),
                 ("training, as its terminal goes", signal.SIGHUP, ["--steps", "1000000"])]
        for what, number, more in cases:
            folder = self.folder / f"signal-{number}-{len(more)}"
            process = subprocess.Popen([self.program] + self.options + more + ["--checkpoint", str(folder)],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            process.stdout.readline()  # it has begun
            time.sleep(1.0)
            process.send_signal(number)
            try:
                process.communicate(timeout=600)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            self.check(process.returncode == 130 and len(list(folder.glob("step-*"))) == 1, f"{number.name} in {what}: "
                       f"exit code {process.returncode}, a checkpoint")


def main():
    program, fixtures = sys.argv[1:3]
    check = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        faults = Faults(program, os.path.join(fixtures, "train_gpt", "genesis.txt"), check, pathlib.Path(temporary))
        faults.before_training()
        faults.full_disks()
        faults.descriptors()
        faults.hostile_names()
        faults.other_settings()
        faults.signals()
    check.exit()


if __name__ == "__main__":
    main()
