#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of names and arguments in docs/abi.md."""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

NOUNS = ("adapter", "comm_request", "checkpoint", "comm", "context", "device", "dlpack", "dtype", "event", "gemm",
         "last_error", "library", "linear", "model_file", "model_writer", "optimizer", "queue", "recipe", "rule", "saved",
         "scaler", "step_plan", "status", "tensor")
# What makes an object, or belongs to none: their arguments begin with what they are made of.
MAKES = re.compile(r"_(create|open|wrap|import|map)(_|$)")
# Verbs of functions that only give something out, other than get.
TELLS = re.compile(r"_(describe|to_json|plan_memory\w*|split|export|clone(_for_\w+)?)$")


def noun_of(name):
    rest = name.removeprefix("mp_")
    return next((noun for noun in NOUNS if rest == noun or rest.startswith(noun + "_")), None)


def is_object(kind, noun):
    return kind.replace("const", "").replace("*", "").strip() == f"mp_{noun}"


def order_problems(function):
    """object (or its array and count), queue, the rest; `out` last."""
    parameters, name = function.parameters, function.name
    noun = noun_of(name)
    if noun is None:
        return [f"{name}: it begins with none of the nouns {', '.join(NOUNS)}"]
    problems = []
    makes = MAKES.search(name) is not None
    kinds = [str(kind) for kind, _ in parameters]
    has_object = any(is_object(kind, noun) for kind in kinds)
    if has_object and not makes and not is_object(kinds[0], noun):
        problems.append(f"{name}: its {noun} must be the first argument")
    queues = [i for i, kind in enumerate(kinds) if kind == "mp_queue*"]
    first = 2 if kinds and "* const*" in kinds[0] else 1  # an array and its count are one thing
    if noun != "queue" and queues and queues[0] != first:
        problems.append(f"{name}: the queue must follow {'the array and its count' if first == 2 else 'the first argument'}")
    outs = [i for i, kind in enumerate(kinds) if kind.endswith("**") and "const" not in kind and "void" not in kind
            and "request" not in kind]
    if outs and outs[-1] != len(kinds) - 1:
        problems.append(f"{name}: the new object must be the last argument")
    return problems


def getter_problems(function):
    """What reads a constant object into an argument is a _get_."""
    name, kinds = function.name, [str(kind) for kind, _ in function.parameters]
    given = r"(int32_t|int64_t|uint32_t|uint64_t|double|size_t)\*|void\*\*|const char\*\*|mp_\w+\*\*"
    gives = [kind for kind in kinds[1:] if re.fullmatch(given, kind)]
    reads = bool(kinds) and kinds[0].startswith("const mp_") and str(function.result) == "mp_status"
    if reads and gives and "_get_" not in name and not TELLS.search(name) and not MAKES.search(name):
        return [f"{name}: it reads a {kinds[0][6:-1]}, so its name needs _get_"]
    return []


def struct_problems(structs, constants):
    return [f"{name} has no {name.upper()}_INIT" for name in structs if f"{name.upper()}_INIT" not in constants]


def flag_sets(include=headers.INCLUDE):
    """The prefixes of flags, by the comment that names their set."""
    sets = {}
    for path in headers.header_files(include):
        current = None
        for line in path.read_text().splitlines():
            if found := re.match(r"/\* (mp_\w+)( and mp_\w+)?(\.flags| flags)", line):
                current = found[1] + (found[2] or "")
            if current and (found := re.match(r"#define (MP_[A-Z]+_)\w+ [0-9]+u\b", line)):
                sets.setdefault(found[1], set()).add(current)
    return sets


def problems(include=headers.INCLUDE):
    functions = headers.functions(include)
    structs = [struct.name for struct in headers.structs(include)]
    text = "".join(path.read_text() for path in headers.header_files(include))
    found = struct_problems(structs, set(re.findall(r"#define (\w+)", text)))
    for function in functions:
        found += order_problems(function) + getter_problems(function)
    found += [f"{prefix}* is of several sets of flags: {', '.join(sorted(sets))}"
              for prefix, sets in flag_sets(include).items() if len(sets) > 1]
    return found


def main():
    found = problems()
    print("\n".join(found) or f"{len(headers.functions())} functions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
