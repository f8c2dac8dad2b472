#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that runs with more rights than its caller must not load code that the caller's environment names.

Runs the program as the user nobody, once as it is and once as a setuid program of root's, both with
MIXEDPREC_MODULE_PATH at a folder whose module tells when it is loaded. Needs root; says so and is skipped otherwise.

usage: setuid.py PROGRAM LIBRARY MODULE
"""
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77


def output(program, folder):
    nobody = pwd.getpwnam("nobody")
    environment = {"MIXEDPREC_MODULE_PATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
    return subprocess.run([program], env=environment, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], check=True,
                          capture_output=True, text=True, cwd="/").stdout


def main():
    program, library, module = map(Path, sys.argv[1:])
    if os.geteuid() != 0:
        print("skipped: only root can make a setuid program of root's")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="mixedprec-setuid-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file in (program, module):
            shutil.copy(file, folder)
        shutil.copy(library, folder / "libmixedprec.so.0")
        plain = folder / program.name
        plain.chmod(0o755)
        control = output(plain, folder)
        if "the trap was loaded" not in control:
            print(f"the control run did not load the module, so nothing is shown:\n{control}")
            return 1
        setuid = folder / "setuid"
        shutil.copy(plain, setuid)
        os.chown(setuid, 0, 0)
        setuid.chmod(0o4755)
        try:
            found = output(setuid, folder)
        except subprocess.CalledProcessError as error:
            # The build's own folder is not readable by everybody, so the loader finds no library.
            print(f"skipped: the setuid program does not start here: {error.stderr}")
            return SKIPPED
    if "secure 1" not in found:
        print(f"skipped: this file system has no setuid programs:\n{found}")
        return SKIPPED
    print(found)
    return 1 if "the trap was loaded" in found else 0


if __name__ == "__main__":
    sys.exit(main())
