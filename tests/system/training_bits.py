#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training has the same bits in every process, however busy the machine is.

Runs so many processes of a program that trains a layer in several recipes and prints a hash for each, always two at a
time and beside a process that keeps every core busy; all must print the same.

usage: training_bits.py PROGRAM COUNT
"""
import collections
import concurrent.futures
import os
import subprocess
import sys


def main():
    program, count = sys.argv[1], int(sys.argv[2])
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            outputs = list(pool.map(
                lambda _: subprocess.run([program], check=True, capture_output=True, text=True).stdout, range(count)))
    finally:
        for process in busy:
            process.kill()
    seen = collections.Counter(outputs)
    for output, times in seen.most_common():
        print(f"{times} of {count} processes:\n{output}")
    return 0 if len(seen) == 1 and outputs[0] else 1


if __name__ == "__main__":
    sys.exit(main())
