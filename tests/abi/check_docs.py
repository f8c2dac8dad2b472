#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public function says what its users must know: what it does, each parameter with its direction, what it
returns, its thread class, since when, and, where it takes a queue, whether it blocks or enqueues.

usage: check_docs.py
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers


def errors_of(function, statuses):
    text = re.sub(r"^\s*\* ?", "", function.comment, flags=re.M)
    if not text.strip():
        return ["has no comment (/** ... */ directly before MP_API)"]
    errors = []
    summary = text.split("@")[0].strip()
    if not summary.endswith((".", ":")) or len(summary) < 10:
        errors.append("does not begin with a sentence that says what it does")

    documented = re.findall(r"@param\s*(?:\[(in|out|in,out)\])?\s*(\w+)([^@]*)", text)
    names = [name for _, name in function.parameters]
    if [name for _, name, _ in documented] != names:
        errors.append(f"has @param {[name for _, name, _ in documented]}, but its parameters are {names}")
    for direction, name, words in documented:
        if not direction:
            errors.append(f"@param {name} lacks [in], [out] or [in,out]")
        if not words.strip():
            errors.append(f"@param {name} says nothing")
    types = {name: str(kind) for kind, name in function.parameters}
    for direction, name, _ in documented:
        if "out" in direction and ("*" not in types.get(name, "*") or re.match(r"const [^*]*\*$", types.get(name, ""))):
            errors.append(f"@param {name} is [{direction}], but its type {types[name]} cannot be written through")

    returns = re.search(r"@returns\s+([^@]*)", text)
    if not returns:
        errors.append("lacks @returns")
    elif str(function.result) == "mp_status" and not re.search(r"MP_STATUS_\w+|\bas mp_\w+", returns[1]):
        errors.append("@returns names no status")
    errors += [f"names {word}, which is no status" for word in re.findall(r"(?<!\")MP_STATUS_\w+", text) if word not in statuses]
    if not re.search(r"@threads\s+[ABC]\b", text):
        errors.append("lacks @threads with class A, B or C")
    if not re.search(r"@since\s+\d+\.\d+\b", text):
        errors.append("lacks @since with a version")
    if any(re.search(r"mp_queue\*$", str(kind)) for kind, _ in function.parameters) and str(function.result) == "mp_status" \
            and not re.search(r"\b(Blocks|Enqueues)\b", text):
        errors.append("takes a queue, but does not say 'Blocks' or 'Enqueues'")
    return errors


def main():
    functions = headers.functions()
    statuses = {name for name, _ in headers.constants() if name.startswith("MP_STATUS_")}
    errors = [f"capi/include/{f.header}:{f.line}: {f.name} {error}" for f in functions for error in errors_of(f, statuses)]
    print("\n".join(errors))
    print(f"{len(functions)} functions, {len(errors)} errors")
    return 1 if errors or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
