# SPDX-License-Identifier: Apache-2.0
"""Runs tests of a build on processors that qemu plays, and prints a table.

usage: emulated_tests.py BUILD REGEX LIMIT CPU...           runs them, each for LIMIT seconds at most
       emulated_tests.py --programs BUILD REGEX             prints the programs that they are, for the build

REGEX chooses tests by name, of those that are programs of the build. Exit code 0 when none failed."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

NOISE = re.compile(r"warning: TCG doesn't support requested feature")


def chosen_tests(build, regex):
    """(name, command, environment) of each."""
    done = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-R", regex], check=True,
                          stdout=subprocess.PIPE, encoding="utf-8")
    tests = []
    for test in json.loads(done.stdout)["tests"]:
        command = test.get("command", [])
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if command and os.path.abspath(command[0]).startswith(os.path.abspath(build) + os.sep):
            tests.append((test["name"], command, dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))))
    return tests


def programs(build, regex):
    """Names of the programs; read from the files for ctest, which itself hides programs that are not built yet."""
    names = set()
    for path in pathlib.Path(build).rglob("CTestTestfile.cmake"):
        for name, rest in re.findall(r"^add_test\(\[=*\[(.*?)\]=*\] (.*)", path.read_text(encoding="utf-8"), re.M):
            # The first word may be an emulator with its options, or python.
            words = re.findall(r'"(.*?)"', rest)
            ours = [word for word in words if word.startswith(os.path.abspath(build) + os.sep)]
            if re.search(regex, name) and ours:
                names.add(os.path.basename(ours[0]))
    return sorted(names)


def run(test, cpu, limit):
    """(name, processor, seconds, verdict, what it printed)"""
    name, command, environment = test
    start = time.monotonic()
    try:
        done = subprocess.run(["qemu-x86_64", "-cpu", cpu] + command, env={**os.environ, **environment}, timeout=limit,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                              errors="replace")
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        code, output = None, ""
    verdict = {0: "ok", 77: "skipped", None: f"FAILED: not done after {limit} s",
               -signal.SIGILL: f"FAILED: SIGILL, an instruction that {cpu} lacks"}.get(code, f"FAILED: exit code {code}")
    lines = [line for line in output.splitlines() if not NOISE.search(line)]
    return name, cpu, time.monotonic() - start, verdict, lines


def main():
    if sys.argv[1:2] == ["--programs"]:
        print("\n".join(programs(*sys.argv[2:4])))
        return
    build, regex, limit, cpus = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    tests = chosen_tests(build, regex)
    if not tests:
        sys.exit(f"no test of {build} matches {regex}")
    failed = 0
    print(f"{'processor':10} {'test':34} {'s':>5}  verdict")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(run, test, cpu, limit) for cpu in cpus for test in tests]:
            name, cpu, seconds, verdict, lines = done.result()
            print(f"{cpu:10} {name:34} {seconds:5.0f}  {verdict}", flush=True)
            if verdict.startswith("FAILED"):
                failed += 1
                print("\n".join("    | " + line for line in lines[-30:]), flush=True)
    print(f"{failed} of {len(tests) * len(cpus)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
