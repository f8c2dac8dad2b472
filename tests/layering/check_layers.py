#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every #include of the tree and fails on an edge that points upward (docs/design.md, section 2).

Checks, and nothing else:
  - each file belongs to a layer, and includes only what that layer may include;
  - the folders of core stand in an order, and each sees only those before it;
  - each folder of core has a namespace of its own, but those of the words that all share, which are in mp itself;
  - core names no vendor and no processor's instructions outside comments, and Kokkos only in core/kernels;
  - capi/src names none in its identifiers, but for functions and parameters that a public header names so;
  - the public headers include nothing but themselves, <stddef.h> and <stdint.h>;
  - files and descriptors are the business of core/system alone, the environment that of core/base/process, which see to what
    may be in the way.
Exceptions stand in allowed.txt beside this file, each with its reason; one that is not needed any more is an error.

usage: check_layers.py [ROOT]
"""
import re
import sys
from pathlib import Path

SOURCES = re.compile(r"\.(h|hpp|c|cpp|cu|cuh|def|inc)(\.in)?$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.M)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
# "hip" is in ownership and membership, too.
VENDOR_WORD = re.compile(r"(?i:cuda|cublas|cudnn|nccl|rocm|nvtx|dnnl|mkl|hwloc|\bmpi_|\bmpi\.h|\bomp\.h|kokkos)|"
                         r"(?<![A-Za-z])(?i:hip)(?![a-z])|(?<=[a-z])Hip(?![a-z])|"
                         r"(?i:\b[a-z]mmintrin|immintrin|\b_mm[0-9]*_|\barm_(?:neon|acle|sve)|\b__m(?:128|256|512))")
# What opens, makes, moves or removes files, makes descriptors, or reads the environment, as the system calls it: members
# (files.open) and what other namespaces have (system::remove) are not meant.
RAW_NAMES = ("creat|fopen|freopen|fdopen|opendir|mkdirat|mkdir|mkfifo|mknod|mkdtemp|mkstemp|mkostemp|tmpfile|tmpnam|renameat2|"
             "renameat|unlinkat|unlink|rmdir|symlink|chmod|chown|fcntl|dup2|dup3|pipe2|socketpair|eventfd|epoll_create1|"
             "memfd_create|popen|getenv|secure_getenv|setenv|putenv")
RAW_CALL = re.compile(rf"(?<![\w.>:])(?:(?:::|std::)?(?:{RAW_NAMES})|"
                      r"::(?:open|openat|rename|remove|link|pipe|socket|dup|truncate)|"
                      r"std::rename)(?=\s*\()|(?<![\w.>:])(?:::)?open(?:at)?(?=\([^;{}]*?\bO_[A-Z])|"
                      r"\bstd::remove(?=\([\w.>-]+c_str)|\b(?:std::)?o?fstream(?=\s+\w|\()")
# Who may: what the rest of its part goes through.
RAW_PLACES = ["core/system", "core/base/process"]
RAW_CHECKED = ["core", "capi/src", "backends"]
NAMESPACE = re.compile(r"^namespace (mp\b[\w:]*)", re.M)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

# Where the compiler looks for "x/y.hpp", after the including file's own folder.
INCLUDE_ROOTS = ["core", "core/base", "backends", "capi/include", "capi/src", "tests", "."]

# core/README.md says what is in each. The rest of core stands on the base, and so do the backends, which see nothing else of
# core.
BASE = "core/base"
BASE_ORDER = ["status", "dtype", "numerics", "array", "process", "device", "transport"]
CORE_ORDER = ["system", "model", "runtime", "context", "tensor", "quant", "recipe", "gemm", "comm", "linear", "scaler", "shard",
              "optim", "checkpoint"]
# The device, which has the lists of both, is above them.
HOST_ORDER = ["kernels", "resources", "ops", "gemm"]
# Of what every folder speaks.
SHARED_WORDS = ["status", "dtype", "array", "device", "transport", "runtime", "context", "tensor"]


def in_order(parent, order, below_all):
    """A row for each folder: what is below all of them, and the folders before it."""
    return [(f"{parent}/{name}", [*below_all, *(f"{parent}/{lower}" for lower in order[:i])]) for i, name in enumerate(order)]


# (what, what it may include besides itself). The first row that fits a file decides; a row ending in "/*" stands for
# each folder below it, so that siblings do not see each other. "*" may include everything.
TABLE = [
    ("capi/include", []),
    ("capi/src", ["capi/include", "core", "backends/enabled.hpp", "backends/comm", "backends/topology"]),
    *in_order(BASE, BASE_ORDER, []),
    ("core/kernels", [BASE]),
    *in_order("core", CORE_ORDER, [BASE]),
    ("core/pch.hpp", [BASE, "core/context", "core/tensor"]),
    ("backends/enabled.hpp", [BASE]),
    ("backends/enabled.cpp.in", ["backends/enabled.hpp", BASE]),
    ("backends/vendor", [BASE]),
    ("backends/comm/*", ["backends/vendor", BASE]),
    ("backends/topology", ["backends/vendor", BASE]),
    # The bodies compiled for each instruction set lie below the operations that call them.
    *in_order("backends/host", HOST_ORDER, [BASE, "backends/topology", "backends/vendor"]),
    ("backends/host", [*(f"backends/host/{name}" for name in HOST_ORDER), "backends/topology", "backends/vendor", BASE]),
    # Only what launches Kokkos kernels sees them.
    ("backends/kokkos", ["core/kernels", BASE]),
    ("backends/cuda", ["core/kernels", "backends/kokkos", "backends/comm/nccl", "backends/vendor", BASE]),
    ("backends/hip", ["core/kernels", "backends/kokkos", "backends/vendor", BASE]),
    ("backends/*", [BASE]),
    ("bindings", ["capi/include"]),
    ("examples", ["capi/include"]),
    ("tools", ["capi/include"]),
    ("tests", ["*"]),
    ("bench", ["*"]),
    ("cmake", []),
]
PUBLIC_MAY_INCLUDE = {"stddef.h", "stdint.h"}


def below(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    """(layer, what it may include), or (None, [])."""
    for pattern, uses in TABLE:
        if pattern.endswith("/*"):
            parent = pattern[:-2]
            parts = path[len(parent) + 1:].split("/") if below(path, parent) else []
            if len(parts) > 1:
                return f"{parent}/{parts[0]}", uses
        elif below(path, pattern):
            return pattern, uses
    return None, []


def without_comments(text):
    def blank(match):
        return match[0] if match[0][0] in "\"'" else re.sub(r"[^\n]", " ", match[0])

    return COMMENT_OR_STRING.sub(blank, text)


def read_allowed(path):
    """{(file, what): reason} from lines `file  what  reason`."""
    allowed = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            file, what, reason = line.split(None, 2)
            allowed[file, what.lower()] = reason
    return allowed


class Checker:
    def __init__(self, root):
        self.root = root
        self.allowed = read_allowed(root / "tests/layering/allowed.txt")
        self.used = set()
        self.errors = []
        self.public = {name for header in (root / "capi/include").rglob("*.h")
                       for name in IDENTIFIER.findall(without_comments(header.read_text())) if not name.startswith("MP_")}
        self.files = 0
        self.edges = 0

    def report(self, file, line, what, text):
        if (file, what.lower()) in self.allowed:
            self.used.add((file, what.lower()))
        else:
            self.errors.append(f"{file}:{line}: {text}")

    def resolve(self, file, name):
        """The path below the root that an include means, or None for a header from elsewhere."""
        for folder in [Path(file).parent, *map(Path, INCLUDE_ROOTS)]:
            candidate = (self.root / folder / name).resolve()
            if candidate.is_file() and candidate.is_relative_to(self.root):
                return candidate.relative_to(self.root).as_posix()
        return None

    def check_include(self, file, layer, uses, line, quoted, angled):
        target = self.resolve(file, quoted or angled)
        if target is None:
            if quoted:
                self.report(file, line, quoted,
                            f'"{quoted}" is no file of this tree; write <{quoted}> if it is another library\'s')
            elif layer == "capi/include" and angled not in PUBLIC_MAY_INCLUDE:
                self.report(file, line, angled,
                            f"a public header includes <{angled}>; only {', '.join(sorted(PUBLIC_MAY_INCLUDE))} are allowed")
            return
        self.edges += 1
        same_layer = layer_of(target)[0] == layer
        if not same_layer and "*" not in uses and not any(below(target, use) for use in uses):
            may = ", ".join(uses) if uses else "nothing"
            self.report(file, line, target, f"{layer} includes {target}; besides itself it may include: {may}")

    # In capi/src a message may name a vendor: it is for a person who has its product.
    def check_identifiers(self, file, text):
        text = COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
        for match in IDENTIFIER.finditer(text):
            word = VENDOR_WORD.search(match[0])
            if word and match[0] not in self.public:
                line = text.count("\n", 0, match.start()) + 1
                self.report(file, line, word[0].lower(), f"capi/src names a vendor: '{match[0]}'; ask the table of device kinds")

    def check_words(self, file, text):
        for match in VENDOR_WORD.finditer(text):
            word = match[0].lower()
            if word == "kokkos" and below(file, "core/kernels"):
                continue
            line = text.count("\n", 0, match.start()) + 1
            self.report(file, line, word, f"core names a vendor or its instructions: '{match[0]}'")

    def check_raw_calls(self, file, text):
        for match in RAW_CALL.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            self.report(file, line, match[0].split(":")[-1], f"'{match[0]}' where nothing sees to links, descriptors 0 to 2 and "
                        f"setuid programs; go through {' or '.join(RAW_PLACES)}")

    def check_namespaces(self, file, text):
        folder = file.removeprefix(f"{BASE}/").removeprefix("core/").split("/")[0]
        wanted = "mp" if folder in SHARED_WORDS else f"mp::{folder}"
        for match in NAMESPACE.finditer(text):
            if match[1] != wanted:
                line = text.count("\n", 0, match.start()) + 1
                self.report(file, line, match[1], f"{Path(file).parent} opens namespace {match[1]}; its own is {wanted}")

    def check_file(self, file):
        self.files += 1
        text = without_comments((self.root / file).read_text())
        layer, uses = layer_of(file)
        if layer is None:
            self.errors.append(f"{file}:1: belongs to no layer; give its folder a row in the table of check_layers.py")
            return
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            self.check_include(file, layer, uses, line, match[1], match[2])
        if any(below(file, top) for top in RAW_CHECKED) and not any(below(file, place) for place in RAW_PLACES):
            self.check_raw_calls(file, text)
        if below(file, "core"):
            self.check_words(file, text)
            self.check_namespaces(file, text)
        if below(file, "capi/src"):
            self.check_identifiers(file, text)

    def run(self):
        for top in sorted({pattern.split("/")[0] for pattern, _ in TABLE}):
            for path in sorted((self.root / top).rglob("*")):
                if SOURCES.search(path.name) and path.is_file() and "target" not in path.parts:
                    self.check_file(path.relative_to(self.root).as_posix())
        for file, what in sorted(set(self.allowed) - self.used):
            self.errors.append(f"tests/layering/allowed.txt: '{file} {what}' is not needed any more; delete the line")
        return self.errors


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    checker = Checker(root)
    errors = checker.run()
    if checker.files == 0:
        errors.append(f"{root} has no source files")
    for error in errors:
        print(error)
    print(f"{checker.files} files, {checker.edges} edges inside the tree, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
