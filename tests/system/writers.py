#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that the library writes, under everything that may be in its way.

Each call that writes (a save, a save in the background, an export of weights, the history of steps) meets each hindrance:
another thing under its name (a link, a dangling link, a pipe, a device, a folder, a file), leftovers of others, closed
standard streams, a umask, another current folder, a disk that takes no more, and a link in the place of what it is
writing. A verdict says whether the call must succeed. In any case what was there before stays as it was, and nothing is
left over; what was written is read back.

usage: writers.py PROGRAM
"""
import fcntl
import json
import os
import stat
import struct
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path

WRITERS = ["save", "background", "export", "history"]
FOLDER_WRITERS = ["save", "background"]
ID = "0123456789abcdef" * 2


def describe(path):
    """What is below a path, with its kind and what is in it."""
    found = {}
    for file in sorted([path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]):
        mode = file.lstat().st_mode
        what = os.readlink(file) if stat.S_ISLNK(mode) else file.read_bytes() if stat.S_ISREG(mode) else ""
        found[str(file)] = (stat.S_IFMT(mode), what)
    return found


class Case:
    def __init__(self, program, writer, root):
        self.program, self.writer, self.root = program, writer, root
        self.work = root / "work"
        self.work.mkdir()
        self.path = self.work / {"export": "weights.safetensors", "history": "history.json"}.get(writer, "ck")
        self.victim = root / "victim"
        self.victim.mkdir()
        (self.victim / "precious").write_text("precious")
        self.options = []
        self.umask = 0o022
        self.name = str(self.path)
        self.judges = []  # called after the run

    def run(self, writer, name, options=(), umask=0o022):
        report = self.root / "report"
        subprocess.run([self.program, writer, name, str(report), *options], check=True, umask=umask, cwd=self.work,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100)
        return report.read_text().strip()

    def written(self):
        """Whether there is something whole at the path."""
        if self.writer in FOLDER_WRITERS:
            return self.path.is_dir() and self.run("load", str(self.path)) == "ok"
        if not self.path.exists() or not stat.S_ISREG(self.path.lstat().st_mode) or self.path.stat().st_size < 100:
            return False
        data = self.path.read_bytes()
        if self.writer == "history":
            return json.loads(data)["first_bad"] == "the gradient of 'w'"
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        return header["w"]["data_offsets"] == [0, 800000] and len(data) > 800000

    def new_names(self, before):
        return sorted(set(str(p) for p in self.work.rglob("*")) - set(before))

    def leftovers(self, before):
        return [name for name in self.new_names(before) if ".tmp" in name or ".part" in name or ".trash" in name]


def nothing(case):
    return True


def put_file(case):
    case.path.write_text("mine")
    return case.writer == "history"  # which replaces regular files


def put_link(case):
    case.path.symlink_to(case.victim / "precious")
    return False


def put_link_to_folder(case):
    case.path.symlink_to(case.victim)
    return case.writer in FOLDER_WRITERS  # whose folder may be a link to one


def put_dangling_link(case):
    case.path.symlink_to(case.victim / "new")
    return False


def put_folder(case):
    case.path.mkdir()
    return case.writer in FOLDER_WRITERS


def put_pipe(case):
    os.mkfifo(case.path)
    return False


def put_device(case):
    if os.geteuid() == 0:
        os.mknod(case.path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        case.path.symlink_to("/dev/null")
    return False


def put_leftovers(case):
    """A link, and a folder in use, where another's save would write; files of the user's with names as temporary ones have."""
    case.path.with_name(case.path.name + ".part").write_text("precious")
    case.path.with_name(case.path.name + ".tmp").write_text("precious")
    if case.writer in FOLDER_WRITERS:
        case.path.mkdir()
        (case.path / f".tmp-1-{ID}").symlink_to(case.victim)
        other = case.path / f".tmp-1-{ID[::-1]}"
        other.mkdir()
        (other / "shard").write_text("being written")
        handle = os.open(other, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        case.judges.append(lambda: os.close(handle))
    return True


def close_streams(streams):
    def close(case):
        case.options.append("close=" + streams)
        return True
    return close


def set_umask(mask):
    def change(case):
        case.umask = mask
        case.work.chmod(0o2777)

        def judge():
            for name in [case.path, *(case.path.rglob("*") if case.path.is_dir() else [])]:
                mode = name.lstat().st_mode
                wanted = 0o2777 if stat.S_ISDIR(mode) else 0o666
                if stat.S_IMODE(mode) != wanted & ~mask:
                    return f"{name} has mode {stat.S_IMODE(mode):o} under umask {mask:o}"
            return None
        case.judges.append(judge)
        return True
    return change


def change_folder(case):
    elsewhere = case.root / "elsewhere"
    elsewhere.mkdir()
    case.options.append(f"chdir={elsewhere}")
    case.name = case.path.name  # relative
    case.judges.append(lambda: f"written elsewhere: {os.listdir(elsewhere)}" if os.listdir(elsewhere) else None)
    return True


def limit_size(size):
    def limit(case):
        if case.writer in FOLDER_WRITERS:
            case.run("save", str(case.path))
        case.options.append(f"limit={size}")
        if case.writer in FOLDER_WRITERS:  # the earlier one is whole
            case.judges.append(lambda: None if case.written() else "the earlier checkpoint does not load")
        return False
    return limit


def swap_folder(case):
    if case.writer not in FOLDER_WRITERS:
        return None
    case.options.append(f"swap={case.victim}")
    case.judges.append(lambda: "a link was committed" if list(case.path.glob("step-*")) else None)
    return False


HINDRANCES = {
    "nothing": nothing, "a file": put_file, "a link": put_link, "a link to a folder": put_link_to_folder,
    "a dangling link": put_dangling_link, "a folder": put_folder, "a pipe": put_pipe, "a device": put_device,
    "leftovers of others": put_leftovers, "another current folder": change_folder, "a link while it writes": swap_folder,
    **{f"streams {''.join(s)} closed": close_streams("".join(s)) for n in (1, 2, 3) for s in combinations("012", n)},
    **{f"umask {mask:03o}": set_umask(mask) for mask in (0o000, 0o002, 0o027, 0o077)},
    **{f"no more than {size} bytes": limit_size(size) for size in (1, 100)},
    **{f"no more than {size} bytes (large)": limit_size(size) for size in (5000, 799999, 2400000)},
}


def judge(program, writer, hindrance):
    """None where the case cannot be, else what is wrong with it."""
    with tempfile.TemporaryDirectory(prefix="mixedprec-writers-") as root:
        case = Case(program, writer, Path(root))
        succeeds = HINDRANCES[hindrance](case)
        if (succeeds is None or (writer == "history" and "(large)" in hindrance)
                or (writer == "export" and "2400000" in hindrance)):
            return None
        before = {**describe(case.work), **describe(case.victim)}
        said = case.run(writer, case.name, case.options, case.umask)
        wrong = [text for text in (check() for check in case.judges) if text]
        replaced = {str(case.path)} if writer == "history" and succeeds else set()
        for name, what in before.items():
            if name not in replaced and (not os.path.lexists(name) or describe(Path(name)).get(name) != what):
                wrong.append(f"{name} is not what it was")
        if "link while" not in hindrance:  # there the folder was moved away
            wrong += [f"{name} is left over" for name in case.leftovers(before)]
        if (said == "ok") != succeeds and not (writer == "history" and "no more" in hindrance):  # told in the log only
            wrong.append(f"it said '{said}'")
        if not succeeds and not said == "ok" and len(said) < 20:
            wrong.append(f"'{said}' says nothing")
        if succeeds and not case.written():
            wrong.append("nothing whole was written")
        if not succeeds and not case.judges and case.written():
            wrong.append("it was written")
        return wrong


def main():
    (program,) = sys.argv[1:]
    cases, failed = 0, 0
    for writer in WRITERS:
        for hindrance in HINDRANCES:
            wrong = judge(program, writer, hindrance)
            if wrong is None:
                continue
            cases += 1
            if wrong:
                failed += 1
                print(f"{writer}, {hindrance}: {'; '.join(wrong)}")
    print(f"{cases} cases, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
