#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abidiff of the library against the last release's baseline: functions may be added, nothing else may change.
Exit code 77 (skipped) where abidiff is missing, or the library has no debug information to compare.

usage: check_baseline.py LIBRARY          compare
       check_baseline.py LIBRARY --write  write the baseline: at a release (scripts/abi.sh freeze)
"""
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

BASELINE = Path(__file__).with_name("baseline") / "libmixedprec.abi"
SKIPPED = 77


def write(library, include, baseline, root):
    """The ABI as text: exported functions and the types of the public headers, without paths of this machine."""
    text = subprocess.run(["abidw", "--exported-interfaces-only", "--headers-dir", str(include), "--drop-private-types",
                           "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed", str(library)],
                          capture_output=True, text=True, check=True).stdout
    baseline.parent.mkdir(exist_ok=True)
    baseline.write_text(text.replace(f"path='{root}/", "path='"))


def compare(baseline, library, include):
    """abidiff's verdict: exit code 0 when nothing changed but that functions were added. --harmless also reports a
    changed sign or name of a field, which abidiff would leave out."""
    return subprocess.run(["abidiff", "--exported-interfaces-only", "--no-added-syms", "--harmless", "--headers-dir2",
                           str(include), "--drop-private-types",
                           str(baseline), str(library)], capture_output=True, text=True)


def main():
    library = sys.argv[1]
    if not shutil.which("abidiff"):
        print("skipped: no abidiff (Debian: abigail-tools)")
        return SKIPPED
    sections = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    if ".debug_info" not in sections:
        print(f"skipped: {library} has no debug information (the preset dev has)")
        return SKIPPED
    if "--write" in sys.argv:
        write(library, headers.INCLUDE, BASELINE, headers.ROOT)
        return 0
    result = compare(BASELINE, library, headers.INCLUDE)
    print(result.stdout + result.stderr)
    print("the ABI is that of the baseline" if result.returncode == 0 else
          "The ABI is not that of the last release.")
    return 1 if result.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
