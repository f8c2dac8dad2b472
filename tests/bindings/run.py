#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the binding of a language as it is installed, in a copy of <prefix>/share/mixedprec/<language>: its own tests, and the
two programs that every language has, whose lines must be those of the programs in C. Exit code 77: this machine cannot
run the language; the last line says why."""
import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

RECIPES = ("fp32", "bf16_mixed", "fp16_mixed", "fp8_delayed", "bf16_pure_kahan", "mxfp8", "msamp_o2")
FEW_RECIPES = ("fp32", "fp16_mixed", "fp8_delayed")  # where a program takes seconds to begin
options = None


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def run(command, folder=None, env=None, quiet=False):
    """The output of a command; its failure ends this program with all it said."""
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=folder or options.work, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT if not quiet else subprocess.PIPE, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr or ''}")
    return done.stdout


def tell(text):
    """The end of what a tool said, for the log."""
    print("\n".join(text.strip().splitlines()[-6:]))


def works(command, expected):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
    return done.returncode == 0 and done.stdout.strip() == expected


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            skip(f"{program} is not installed")


def not_under_sanitizers():
    if options.sanitize:
        skip("a library with sanitizers cannot be loaded by a program that was built without them")


def flags():
    """What a stranger writes: pkg-config, and the place where the program finds the library."""
    env = {"PKG_CONFIG_PATH": f"{options.prefix}/{options.libdir}/pkgconfig"}
    words = run(["pkg-config", "--cflags", "--libs", "mixedprec"], env=env, quiet=True).split()
    words.append(f"-Wl,-rpath,{options.prefix}/{options.libdir}")
    return words + ([f"-fsanitize={options.sanitize}"] if options.sanitize else [])


def compile_with(compiler, arguments, sources, program, libraries=()):
    program = options.work / program
    warnings = ["-Wall", "-Wextra"] + (["-Werror"] if options.werror else [])
    run([*compiler, *arguments, *warnings, *sources, "-o", program, *libraries, *flags(), "-lm"])
    return program


def c_programs():
    """The programs in C, which all others are compared with; made once for a prefix."""
    folder = options.prefix.parent / "c_programs"
    folder.mkdir(exist_ok=True)
    sources = options.prefix / "share/mixedprec/c"
    headers = max(path.stat().st_mtime for path in (options.prefix / "include").rglob("*.h"))
    programs = []
    for name in ("own_arrays", "train"):
        program = folder / name
        if options.language == "c" or not program.exists() or program.stat().st_mtime < headers:
            built = compile_with([options.cc], ["-std=c99", "-O2", "-ffp-contract=off", "-pedantic"],
                                 [sources / f"{name}.c"], name)
            shutil.copy(built, f"{program}.{os.getpid()}")
            os.replace(f"{program}.{os.getpid()}", program)  # another test may be reading it
        programs.append(program)
    return programs


def compare(own_arrays, train, recipes=RECIPES, folder=None, env=None):
    """own_arrays and train are commands. Losses to the last digit, also where a run stops halfway and another goes on."""
    c_own_arrays, c_train = c_programs()

    def same(what, found, expected):
        if found != expected:
            sys.exit("\n".join(difflib.unified_diff(expected.splitlines(), found.splitlines(), f"{what} in C",
                                                    f"{what} in {options.language}", lineterm="", n=1)))

    same("own_arrays", run(own_arrays, folder, env, quiet=True), run([c_own_arrays], quiet=True))
    for recipe in recipes:
        same(recipe, run([*train, options.text, recipe], folder, env, quiet=True),
             run([c_train, options.text, recipe], quiet=True))
    checkpoints = options.work / "checkpoints"
    shutil.rmtree(checkpoints, ignore_errors=True)
    halves = [run([*train, options.text, "fp8_delayed", steps, checkpoints], folder, env, quiet=True) for steps in (30, 60)]
    whole = run([c_train, options.text, "fp8_delayed", 60], quiet=True)
    same("fp8_delayed, resumed", "".join(halves), whole.replace("step  40", "resumed at step 30\nstep  40"))
    shutil.rmtree(checkpoints)
    print(f"own_arrays, train under {len(recipes)} recipes, and a resumed run: all lines as in C")


def c(folder):
    own_arrays, train = c_programs()
    line = run([own_arrays], quiet=True)
    # 99 steps of at most about 0.1 reach targets of 0 to 3; the mean of |target| is 12/7.
    match = re.fullmatch(r"steps 99  skipped 1  scale 32768  sum (\d+\.\d{9})  p\[1\] (-\d\.\d{9})\n", line)
    if not match or abs(float(match[1]) / 1000 - 12 / 7) > 0.02 or abs(float(match[2]) + 2) > 0.02:
        sys.exit(f"own_arrays printed '{line}'")
    for recipe in RECIPES:
        losses = [float(x) for x in re.findall(r"loss (\d+\.\d+)", run([train, options.text, recipe], quiet=True))]
        if len(losses) != 6 or not losses[0] < 5.6 or not losses[-1] < 2.6:  # ln 256 is 5.55
            sys.exit(f"train under {recipe} has the losses {losses}")
    compare([own_arrays], [train])


def cpp(folder):
    compiler = [options.cxx, "-O1", "-ffp-contract=off", "-Wpedantic", "-Wshadow"]
    programs = [compile_with(compiler, ["-std=c++17"], [folder / f"examples/{name}.cpp"], name)
                for name in ("own_arrays", "train")]
    compile_with(compiler, ["-std=c++20"], [folder / "examples/train.cpp"], "train_20")
    compare([programs[0]], [programs[1]])


def cpp_libtorch(folder):
    not_under_sanitizers()
    include = next((Path(p) for p in ("/usr/include", "/usr/local/include")
                    if Path(p, "torch/csrc/api/include/torch/torch.h").exists()), None)
    if not include:
        skip("libtorch's headers are not here (Debian: libtorch-dev)")
    program = compile_with([options.cxx, "-O0"], ["-std=c++17", "-isystem", include / "torch/csrc/api/include"],
                           [folder / "examples/libtorch.cpp"], "libtorch", ["-ltorch", "-ltorch_cpu", "-lc10"])
    print(run([program]))


def cpp_ggml(folder):
    not_under_sanitizers()
    if not (options.cache / "ggml/lib/libggml.a").exists():
        skip("ggml is not in .cache/ggml (scripts/setup.sh --checks puts it there)")
    libraries = [options.cache / f"ggml/lib/lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
    program = compile_with([options.cxx, "-O1"], ["-std=c++17", "-isystem", options.cache / "ggml/include"],
                           [folder / "examples/ggml.cpp"], "ggml", [*libraries, "-lpthread", "-ldl"])
    print(run([program]))


def rust(folder):
    not_under_sanitizers()
    need("cargo")
    env = {"MIXEDPREC_DIR": options.prefix, "CARGO_TARGET_DIR": options.work / "target", "CARGO_NET_OFFLINE": "true"}
    if options.werror:
        env["RUSTFLAGS"] = "-Dwarnings"
    env = {name: str(value) for name, value in env.items()}
    tell(run(["cargo", "test", "--offline", "--locked"], folder, env))
    run(["cargo", "build", "--offline", "--locked", "--examples"], folder, env)
    examples = options.work / "target/debug/examples"
    compare([examples / "own_arrays"], [examples / "train"])
    # The crate over `half` where that is on the disk (Debian: librust-half-dev), in place of a registry.
    registry = Path("/usr/share/cargo/registry")
    if any(registry.glob("half-*")):
        (folder / ".cargo").mkdir()
        (folder / ".cargo/config.toml").write_text('[source.crates-io]\nreplace-with = "disk"\n'
                                                   f'[source.disk]\ndirectory = "{registry}"\n')
        tell(run(["cargo", "test", "--offline"], folder / "mixedprec-half", env))


def julia(folder):
    not_under_sanitizers()
    need("julia")
    # Of Debian 11, for its Julia on a later Debian.
    libraries = next((options.cache / "julia").glob("usr/lib/*-linux-gnu"), None)
    if libraries:
        os.environ["LD_LIBRARY_PATH"] = str(libraries)
    if not works(["julia", "-e", 'try; sqrt(-1.0); catch; println("ok"); end'], "ok"):
        skip("this julia crashes at the first exception (on Debian 12 it needs libunwind8 1.3.2 of Debian 11)")
    env = {"MIXEDPREC_DIR": str(options.prefix), "JULIA_DEPOT_PATH": str(options.work / "depot")}
    command = ["julia", "-O0", "--startup-file=no", "--project=."]
    tell(run([*command, "test/runtests.jl", "--no-examples"], folder, env)) # each Julia takes seconds, and they run below
    compare([*command, "examples/own_arrays.jl"], [*command, "examples/train.jl"], FEW_RECIPES, folder, env)
    run([*command, "examples/lux_style.jl"], folder, env)


def python_with(module):
    """An interpreter that has a module; none: the empty string."""
    for interpreter in (sys.executable, "python3", "/usr/bin/python3"):
        if shutil.which(interpreter) and works([interpreter, "-c", f"import {module}; print('ok')"], "ok"):
            return interpreter
    return ""


def python(folder):
    not_under_sanitizers()
    interpreter = python_with("numpy") or skip("no Python here has numpy")
    env = {"MIXEDPREC_DIR": str(options.prefix)}
    tell(run([interpreter, "-B", "-m", "unittest", "discover", "-s", "tests"], folder, env))
    command = [interpreter, "-B"]
    compare([*command, "examples/own_arrays.py"], [*command, "examples/train.py"], RECIPES, folder,
            {**env, "PYTHONPATH": str(folder)})


def python_torch(folder):
    not_under_sanitizers()
    interpreter = python_with("numpy, torch") or skip("no Python here has torch (Debian: python3-torch)")
    env = {"MIXEDPREC_DIR": str(options.prefix), "PYTHONPATH": str(folder)}
    tell(run([interpreter, "-B", "-m", "unittest", "discover", "-s", "tests", "-k", "orch"], folder, env))


def fortran(folder):
    need("gfortran")
    compiler = ["gfortran", "-std=f2018", "-Wno-compare-reals", "-Wno-function-elimination", "-g", "-J."]
    module = ["mixedprec_c.f90", "mixedprec.f90"]

    def build(program, sources, *arguments, compiler=compiler):
        words = [*compiler, "-Wall", "-Wextra", *(["-Werror"] if options.werror else []), *arguments, *module, *sources]
        run([*words, "-o", options.work / program, *flags()], folder)
        return options.work / program

    parts = ["tests/checks.f90", *sorted(f"tests/{part.name}" for part in (folder / "tests").glob("part_*.f90"))]
    checked = ["-O0"] if options.sanitize else ["-O0", "-fcheck=all,no-array-temps"]
    for level in (checked, ["-O2"]):
        run([build("test_mixedprec", [*parts, "tests/test_mixedprec.f90"], *level), options.work / "scratch"])
        shutil.rmtree(options.work / "scratch", ignore_errors=True)
    if not options.sanitize:
        run([build("test_threads", ["tests/test_threads.f90"], "-fopenmp")])
    programs = [build(name, [f"{name}.f90"], "-O2", "-ffp-contract=off") for name in ("own_arrays", "train")]
    # Arrays of a Fortran main program live until it ends, which the search for leaks takes for leaks.
    asan = os.environ.get("ASAN_OPTIONS", "")
    compare([programs[0]], [programs[1]], env={"ASAN_OPTIONS": f"{asan}:detect_leaks=0"})


def zig(folder):
    not_under_sanitizers()
    env = {"PYTHONPATH": str(options.cache / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(options.work / "cache"),
           "ZIG_LOCAL_CACHE_DIR": str(options.work / "cache")}
    command = [sys.executable, "-m", "ziglang"]
    if not (options.cache / "zig/ziglang").is_dir():
        skip("ziglang is not in .cache/zig (scripts/setup.sh --checks puts it there)")
    root = Path(__file__).resolve().parents[2]
    place = ["-lc", f"-I{options.prefix}/include", f"-L{options.prefix}/{options.libdir}", "-lmixedprec",
             "-rpath", options.prefix / options.libdir]
    tell(run([*command, "test", *place, "--dep", "map", "--dep", "golden", "-Mroot=test.zig",
              f"-Mmap={root / 'capi/mixedprec.map'}", f"-Mgolden={root / 'tests/abi/layout.golden'}"], folder, env))
    for name in ("own_arrays", "train"):
        run([*command, "build-exe", "-O", "ReleaseSafe", *place, f"-femit-bin={options.work / name}", f"{name}.zig"], folder, env)
    compare([options.work / "own_arrays"], [options.work / "train"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("language", choices=sorted(name for name, kind in globals().items()
                                                   if callable(kind) and getattr(kind, "__code__", None)
                                                   and kind.__code__.co_varnames[:1] == ("folder",)
                                                   and kind.__code__.co_argcount == 1))
    parser.add_argument("--prefix", type=Path, required=True, help="an installation")
    parser.add_argument("--libdir", default="lib", help="folder of the libraries in it")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is built here")
    parser.add_argument("--text", type=Path, required=True, help="what the programs train on")
    parser.add_argument("--cache", type=Path, default=Path("/nonexistent"), help="what scripts/setup.sh has put into .cache")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--sanitize", default="", help="the library's sanitizers")
    parser.add_argument("--werror", action="store_true", help="warnings are errors")
    global options
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    # In a copy: tools write beside what they build, and an installation is not to be written to.
    folder = options.work / options.language
    shutil.copytree(options.prefix / "share/mixedprec" / options.language.split("_")[0], folder)
    globals()[options.language](folder)


if __name__ == "__main__":
    main()
