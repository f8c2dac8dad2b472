#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What cmake/MixedprecCudaArchitectures.cmake makes of CMAKE_CUDA_ARCHITECTURES, as a preset or a user gives it.

    architectures.py CMAKE NVCC ARCHITECTURES.cmake
"""
import pathlib
import re
import subprocess
import sys
import tempfile

cmake, nvcc, included = sys.argv[1:]
listed = subprocess.run([nvcc, "--list-gpu-arch"], check=True, text=True, capture_output=True).stdout
known = re.findall(r"compute_(\d+)\n", listed)
wanted = [number for number in ("80", "86", "89", "90", "100", "110", "120") if number in known]
all_known = ";".join(["90a-real" if number == "90" else f"{number}-real" for number in wanted] + [f"{wanted[-1]}-virtual"])


def unserved(architectures):
    """The GPUs of nvcc's list, from 8.0 on, that none of these have code for: of the same generation and not newer, or PTX that
    is not newer. Code for 9.0a runs on 9.0 only."""
    entries = [re.match(r"(\d+)(\d)(a?)-(real|virtual)$", entry).groups() for entry in architectures.split(";")]

    def serves(entry, major, minor):
        of_major, of_minor, only, kind = int(entry[0]), int(entry[1]), entry[2], entry[3]
        if only:
            return (of_major, of_minor) == (major, minor)
        return (of_major, of_minor) <= (major, minor) and (kind == "virtual" or of_major == major)

    gpus = [(int(number[:-1]), int(number[-1])) for number in known]
    return [f"{major}.{minor}" for major, minor in gpus
            if major >= 8 and not any(serves(entry, major, minor) for entry in entries)]


cases = [
    (None, "90-virtual;90a-real"),
    ("all-known", all_known),
    ("120;80-real;90a", "80-real;90a;120"),
    ("sm_90", None),
]
with tempfile.TemporaryDirectory() as folder:
    script = pathlib.Path(folder) / "print.cmake"
    script.write_text(f'cmake_minimum_required(VERSION 3.25)\ninclude("{included}")\nmessage("${{CMAKE_CUDA_ARCHITECTURES}}")\n')
    failures = 0
    for given, expected in cases:
        # By -D, so it is a cache variable, as a preset's is.
        options = [] if given is None else [f"-DCMAKE_CUDA_ARCHITECTURES={given}"]
        done = subprocess.run([cmake, *options, "-P", script], text=True, capture_output=True)
        got = done.stderr.strip() if done.returncode == 0 else None
        print(f"{given}: {got if got is not None else 'refused'}")
        if got != expected:
            print(f"FAILED: expected {expected}, said {done.stderr.strip()}")
            failures += 1
        if given == "all-known" and (left := unserved(got)):
            print(f"FAILED: no code for compute capability {', '.join(left)}")
            failures += 1
sys.exit(failures != 0)
