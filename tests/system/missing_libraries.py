#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A library that is opened at run time costs speed where it is missing, and mp_context_describe says why.

usage: missing_libraries.py DESCRIBE_PROGRAM TRAINING_PROGRAM
"""
import json
import os
import subprocess
import sys

ABSENT = "/nonexistent/library.so"
VARIABLES = {"onednn": "MIXEDPREC_ONEDNN_LIBRARY", "topology": "MIXEDPREC_HWLOC_LIBRARY"}


def run(program, hidden):
    environment = os.environ | {VARIABLES[part]: ABSENT for part in hidden}
    return subprocess.run([program], env=environment, check=True, capture_output=True, text=True).stdout


def main():
    describe, training = sys.argv[1:]
    errors = []
    for hidden in ([], ["onednn"], ["topology"], ["onednn", "topology"]):
        host = json.loads(run(describe, hidden))["host"]
        for part, variable in VARIABLES.items():
            says_so = variable in host[part] and ABSENT in host[part]
            built_without = "built without" in host[part]
            if says_so != (part in hidden) and not built_without:
                errors.append(f"without {hidden or 'nothing'}: {part} is described as {host[part]!r}")
        lines = run(training, hidden).splitlines()
        print(f"without {hidden or 'nothing'}: {lines}")
        if len(lines) != 3:
            errors.append(f"without {hidden}: the training printed {lines}")
    print("\n".join(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
