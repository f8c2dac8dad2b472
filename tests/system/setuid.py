#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code that somebody else has put somewhere is not loaded.

Runs programs that ask for a device and open a context: one with the shared library, one with the library inside. A module
that tells when it is loaded, a trap, lies where each way of naming a folder leads: the environment's variables, argv[0],
the current folder, plugins of hwloc. All with a program as it is, and as a setuid program of root's that the user nobody
runs, where the environment counts for nothing, and where no library of others that reads it is opened. Control runs show
that the traps work. The setuid part needs root; says so and is skipped otherwise.

usage: setuid.py PROGRAM PROGRAM_WITH_LIBRARY_INSIDE LIBRARY MODULE
"""
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
TRAP = "the trap was loaded"


class Programs:
    """Copies in a folder of their own, which everybody may read: the library is in lib beside them, without modules."""

    def __init__(self, root, program, inside, library, module):
        self.trap = root / "trap"  # with the module under every name that is looked for
        self.bin = root / "bin"
        self.lib = root / "bin/lib"
        self.vendor = root / "vendor"  # not in the trap: the loader finds other libraries where LD_LIBRARY_PATH leads it
        for folder in (root, self.trap, self.trap / "lib", self.bin, self.lib, self.vendor):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        for name in ("trap/libmixedprec-cuda.so", "trap/lib/libmixedprec-cuda.so", "vendor/hwloc_trap.so",
                     "vendor/libhwloc.so.15",
                     "vendor/libdnnl.so.2"):
            shutil.copy(module, root / name)
        shutil.copy(library, self.lib / "libmixedprec.so.0")
        self.plain = {"shared": self.copy(program, "shared"), "inside": self.copy(inside, "inside")}

    def copy(self, program, name, mode=0o755):
        shutil.copy(program, self.bin / name)
        (self.bin / name).chmod(mode)
        return self.bin / name


def output(program, argv=None, environment=None, cwd="/", arguments=(), user=None):
    command = [str(argv or program), *map(str, arguments)]
    who = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return subprocess.run(command, executable=str(program), env=environment or {}, check=True, capture_output=True, text=True,
                          cwd=cwd, errors="replace", **who).stdout


def plain_cases(programs):
    """(name, whether the trap is to be loaded, how to run it)."""
    lib = {"LD_LIBRARY_PATH": str(programs.lib)}
    for kind, program in programs.plain.items():
        trap = {"MIXEDPREC_MODULE_PATH": str(programs.trap)}
        yield f"{kind}: MIXEDPREC_MODULE_PATH, a control", True, (program, None, lib | trap)
        yield f"{kind}: argv[0] in another folder", False, (program, programs.trap / "x", lib)
        yield f"{kind}: called by its name there", False, (program, program.name, lib, programs.trap)
        yield f"{kind}: goes there", False, (program, None, lib, "/", [programs.trap])
        yield f"{kind}: a relative name, then goes there", False, (program, "./x", lib, programs.bin, [programs.trap])
        yield f"{kind}: LD_LIBRARY_PATH=lib, then goes there", False, (program, None, {"LD_LIBRARY_PATH": "lib"}, programs.bin,
                                                                     [programs.trap])
        yield f"{kind}: LD_LIBRARY_PATH with an empty name", False, (program, None, {"LD_LIBRARY_PATH": f"{programs.lib}:"}, "/",
                                                                   [programs.trap])


def beside(programs, module):
    """The module beside the library, or beside what a link to it leads to, is found wherever the program is."""
    errors = []
    for kind, folder in (("shared", programs.lib), ("inside", programs.bin)):
        shutil.copy(module, folder / "libmixedprec-cuda.so")
        program = programs.plain[kind]
        link = programs.trap.parent / f"link-{kind}"
        link.symlink_to(program)
        for environment in (str(programs.lib), "lib"):
            for run in (program, link):
                said = output(run, None, {"LD_LIBRARY_PATH": environment}, programs.bin, ["/"])
                if TRAP not in said:
                    errors.append(f"{kind} from {run}, LD_LIBRARY_PATH={environment}: the module beside it is not found:\n{said}")
        (folder / "libmixedprec-cuda.so").unlink()
    return errors


def setuid_cases(programs):
    everything = {name: f"{programs.vendor}:{programs.trap}"
                  for name in ("MIXEDPREC_MODULE_PATH", "LD_LIBRARY_PATH", "HWLOC_PLUGINS_PATH")}
    everything |= {"MIXEDPREC_HWLOC_LIBRARY": f"{programs.vendor}/libhwloc.so.15", "ONEDNN_JIT_PROFILE": "4",
                   "MIXEDPREC_ONEDNN_LIBRARY": f"{programs.vendor}/libdnnl.so.2", "JITDUMPDIR": str(programs.trap)}
    for argv in (None, programs.trap / "x", "x"):
        for environment in ({}, everything):
            for cwd in ("/", programs.trap):
                yield argv, environment, cwd


def judge_setuid(programs, inside):
    """Errors, or why nothing could be seen."""
    nobody = pwd.getpwnam("nobody")
    program = programs.copy(inside, "setuid")
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    errors, count = [], 0
    if TRAP not in output(programs.plain["inside"], environment={"HWLOC_PLUGINS_PATH": str(programs.vendor)}):
        print("the control with a plugin of hwloc was not loaded: hwloc is missing, or without plugins")
    for argv, environment, cwd in setuid_cases(programs):
        said = output(program, argv, environment, cwd, user=nobody)
        if "secure 1" not in said:
            return [], "this file system has no setuid programs"
        host = json.loads(said[said.index("\n{") + 1:])["host"]
        count += 1
        if TRAP in said:
            errors.append(f"setuid, argv[0] {argv}, {environment}, in {cwd}: the trap was loaded")
        for part in ("onednn", "topology"):
            if "setuid" not in host[part] and "built without" not in host[part]:
                errors.append(f"setuid: {part} is described as {host[part]!r}")
    print(f"{count} runs as a setuid program")
    return errors, None


def main():
    program, inside, library, module = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="mixedprec-setuid-") as name:
        programs = Programs(Path(name), program, inside, library, module)
        errors, count = [], 0
        for case, wants_trap, how in plain_cases(programs):
            said = output(*how)
            count += 1
            if (TRAP in said) != wants_trap:
                errors.append(f"{case}: the trap was {'not ' if wants_trap else ''}loaded:\n{said}")
        errors += beside(programs, module)
        print(f"{count} runs with a trap")
        why_not = "only root can make a setuid program of root's"
        if os.geteuid() == 0:
            found, why_not = judge_setuid(programs, inside)
            errors += found
    for error in errors:
        print(error)
    if not errors and why_not:
        print(f"skipped in part: {why_not}")
        return SKIPPED
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
