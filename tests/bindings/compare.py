# SPDX-License-Identifier: Apache-2.0
"""Builds and runs bindings/<language>'s optimizer_step and compares its lines with those of the program in C, which
in turn must have the numbers of AdamW. Exit code 77: this machine cannot run the language; the last line says why."""
import argparse
import difflib
import math
import os
import re
import shutil
import struct
import subprocess
import sys

BINDINGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bindings")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def run(command, folder, env=None):
    """The output of a command; its failure ends this program with all it said."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    sys.stderr.write(done.stderr)
    return done.stdout


def works(command, expected):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
    return done.returncode == 0 and done.stdout.strip() == expected


def rust(options):
    if not shutil.which("cargo"):
        skip("cargo is not installed")
    folder = os.path.join(BINDINGS, "rust")
    env = {"MIXEDPREC_DIR": options.build, "CARGO_TARGET_DIR": options.work}
    if options.werror:
        env["RUSTFLAGS"] = "-Dwarnings"
    print(run(["cargo", "test", "--offline", "--locked"], folder, env))
    return run(["cargo", "run", "--quiet", "--offline", "--locked", "--example", "optimizer_step"], folder, env)


def julia(options):
    if not shutil.which("julia"):
        skip("julia is not installed")
    if not works(["julia", "-e", 'try; sqrt(-1.0); catch; println("ok"); end'], "ok"):
        skip("this julia crashes at the first exception (on Debian 12 it needs libunwind8 1.3.2 of Debian 11)")
    env = {"MIXEDPREC_DIR": options.build, "JULIA_DEPOT_PATH": options.work}
    return run(["julia", "--project=.", "--startup-file=no", "optimizer_step.jl"], os.path.join(BINDINGS, "julia"), env)


def python(options):
    for interpreter in (sys.executable, "python3", "/usr/bin/python3"):
        if shutil.which(interpreter) and works([interpreter, "-c", "import numpy; print('ok')"], "ok"):
            env = {"MIXEDPREC_DIR": options.build, "PYTHONDONTWRITEBYTECODE": "1"}
            return run([interpreter, "optimizer_step.py"], os.path.join(BINDINGS, "python"), env)
    skip("no Python here has numpy")


def fortran(options):
    if not shutil.which("gfortran"):
        skip("gfortran is not installed")
    flags = ["-std=f2018", "-g", "-O1", "-fcheck=all", "-Wall", "-Wextra", f"-J{options.work}"]
    if options.werror:
        flags.append("-Werror")
    if options.sanitize:
        flags.append(f"-fsanitize={options.sanitize}")
    libraries = os.path.join(options.build, "lib")
    program = os.path.join(options.work, "optimizer_step")
    run(["gfortran", *flags, "mixedprec.f90", "optimizer_step.f90", "-o", program, f"-L{libraries}", "-lmixedprec",
         f"-Wl,-rpath,{libraries}"], os.path.join(BINDINGS, "fortran"))
    return run([program], options.work)


def adamw_in_double(steps=10, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    p, m, v = 1.0, 0.0, 0.0
    for t in range(1, steps + 1):
        g = math.sin(t)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p -= lr * weight_decay * p + lr / (1 - beta1**t) * m / (math.sqrt(v) / math.sqrt(1 - beta2**t) + eps)
    return p, m, v


def as_float(code):
    return struct.unpack(">f", bytes.fromhex(code))[0]


def code_of(value):
    return struct.unpack(">i", struct.pack(">f", value))[0]


def check_reference(lines):
    """What the C program printed, against what is known without it."""
    problems = []

    def need(condition, text):
        if not condition:
            problems.append(text)

    runs = {name: [line.split(" ", 1)[1] for line in lines if line.startswith(f"{name} step ")]
            for name in ("tensors", "pointers")}
    need(len(runs["tensors"]) == 10, "the elements of a step differ from each other")
    need(runs["tensors"] == runs["pointers"], "mp_optimizer_step and mp_optimizer_step_pointers differ")
    need("stats step 10 skipped 0" in lines, "the statistics are not those of 10 steps")
    p, m, v = adamw_in_double()
    need(abs(p - 0.99624567607096415) < 1e-15, "the reference in double is wrong")
    words = lines and runs["tensors"][-1].split()
    last = dict(zip(words[2::2], words[3::2]))
    need(abs(int(last["param"], 16) - code_of(p)) <= 2, f"param {as_float(last['param'])} is not {p} within 2 ulp")
    # Two roundings a step of half an ulp (of 0.2 and 0.005), and the gradient's own half an ulp.
    need(abs(as_float(last["exp_avg"]) - m) <= 1.2e-7, f"exp_avg {as_float(last['exp_avg'])} is not {m}")
    need(abs(as_float(last["exp_avg_sq"]) - v) <= 6e-9, f"exp_avg_sq {as_float(last['exp_avg_sq'])} is not {v}")
    error = next((line for line in lines if line.startswith("error ")), "")
    need(re.match(r"error -5 MP_STATUS_UNKNOWN_NAME: .*'bf16_pure_kahn'.*\bbf16_pure_kahan\b", error),
         f"an unknown recipe gives no error with the nearest names: '{error}'")
    need(sum(line.startswith("layout ") for line in lines) == 8, "not every struct's layout was printed")
    codes = [line.split()[3:] for line in lines if line.startswith("kahan ")]
    need(len(codes) == 80 and all(len(row) == 15 for row in codes), "not every state of the bf16 run was printed")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=["c", "rust", "julia", "python", "fortran"])
    parser.add_argument("--reference", required=True, help="the program in C")
    parser.add_argument("--build", required=True, help="folder with lib/libmixedprec.so")
    parser.add_argument("--work", required=True, help="folder for what is built here")
    parser.add_argument("--sanitize", default="", help="the library's sanitizers")
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)

    expected = run([options.reference], options.work).splitlines()
    if options.language == "c":
        sys.exit("\n".join(check_reference(expected)) or 0)
    if options.sanitize and options.language != "fortran":
        skip(f"a library with sanitizers cannot be loaded by {options.language}, which is built without them")
    found = globals()[options.language](options).splitlines()
    if found != expected:
        sys.exit("\n".join(difflib.unified_diff(expected, found, "c", options.language, lineterm="", n=1)))
    print(f"{len(found)} lines, all as in C")


if __name__ == "__main__":
    main()
