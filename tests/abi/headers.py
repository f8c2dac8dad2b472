# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers: functions with their comments, structs, constants. Not a C parser: it knows the shapes
that our own headers are written in, and each check fails when it meets one that it cannot read."""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "capi/include"

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DECLARATION = re.compile(r"(?:/\*\*((?:(?!\*/).)*)\*/\s*)?^MP_API\s+([^;]*);", re.S | re.M)
STRUCT = re.compile(r"typedef struct (\w+)\s*\{(.*?)\}\s*(\w+)\s*;", re.S)
OPAQUE = re.compile(r"typedef struct (\w+) (\w+);")
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?[ \t]*((?:[^\n]*\\\n)*[^\n]*)$", re.M)
FIELD = re.compile(r"[\w\s]*?[\w*]\s*\**\s*(\w+)\s*(\[[^\]]*\])?$")


@dataclass
class Function:
    name: str
    result: str
    parameters: list  # (type, name)
    comment: str  # empty when there is none
    header: str
    line: int


@dataclass
class Struct:
    name: str
    fields: list  # (name, kind): kind is "number", "pointer" or "array"
    header: str


def header_files(include=INCLUDE):
    return sorted(include.rglob("*.h"))


def parameters_of(text):
    if text.strip() in ("", "void"):
        return []
    result = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?)(\w+)\s*(?:\[\w*\])?\s*", part, re.S)
        if not match or not match[1].strip():
            raise ValueError(f"cannot read the parameter '{part.strip()}'")
        result.append((" ".join(match[1].split()), match[2]))
    return result


def functions(include=INCLUDE):
    found = []
    for path in header_files(include):
        text = path.read_text()
        for match in DECLARATION.finditer(text):
            line = text.count("\n", 0, match.start(2)) + 1
            declaration = re.fullmatch(r"(.*?)(\w+)\s*\((.*)\)\s*(MP_MUST_CHECK)?\s*", match[2], re.S)
            if not declaration:
                raise ValueError(f"{path}:{line}: cannot read '{match[2]}'")
            found.append(Function(declaration[2], declaration[1].strip(), parameters_of(declaration[3]),
                                  match[1] or "", path.relative_to(include).as_posix(), line))
        if len(re.findall(r"^MP_API\b", text, re.M)) != len(DECLARATION.findall(text)):
            raise ValueError(f"{path}: some MP_API line could not be read")
    return found


def structs(include=INCLUDE):
    found = []
    for path in header_files(include):
        text = COMMENT.sub("", path.read_text())
        for match in STRUCT.finditer(text):
            fields = []
            for declaration in filter(str.strip, match[2].split(";")):
                field = FIELD.fullmatch(" ".join(declaration.split()))
                if not field:
                    raise ValueError(f"{path}: cannot read the field '{declaration.strip()}' of {match[1]}")
                kind = "array" if field[2] else "pointer" if "*" in declaration or re.search(r"_fn\s", declaration) else "number"
                fields.append((field[1], kind))
            if match[1] != match[3]:
                raise ValueError(f"{path}: struct {match[1]} and its typedef {match[3]} differ")
            found.append(Struct(match[1], fields, path.relative_to(include).as_posix()))
        if len(re.findall(r"\{\s*uint32_t struct_size", text)) > len(STRUCT.findall(text)) or re.search(r"\bunion\b|\benum\b", text):
            raise ValueError(f"{path}: a struct, union or enum that this check cannot read")
    return found


def constants(include=INCLUDE):
    """(name, kind): kind is 'integer', 'real' or 'string'. Initializers and linkage macros are neither."""
    found = []
    for path in header_files(include):
        text = path.read_text()
        for name, arguments, body in DEFINE.findall(text):
            body = COMMENT.sub("", body.split("/*")[0]).strip()
            if path.name == "export.h" or not body or body.startswith("{") or name.endswith("_INIT"):
                continue
            if arguments:
                raise ValueError(f"{path}: {name} is a function-like macro; other languages cannot call it")
            kind = "string" if body.startswith('"') else "real" if re.search(r"\d\.|\d[eE]", body) else "integer"
            found.append((name, kind))
    return found


def initializers(include=INCLUDE):
    """(macro, struct) for every MP_..._INIT."""
    found = []
    for path in header_files(include):
        for name, _, body in DEFINE.findall(path.read_text()):
            if name.endswith("_INIT"):
                match = re.search(r"sizeof\((\w+)\)", body)
                if not match:
                    raise ValueError(f"{path}: {name} does not set struct_size")
                found.append((name, match[1]))
    return found


def map_symbols(path=ROOT / "capi/mixedprec.map"):
    """{symbol: version node, empty for a map without versions}; a wildcard other than `local: *` is an error."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    found = {}
    for node, body in re.findall(r"([\w.]*)\s*\{(.*?)\}[^;]*;", text, re.S):
        scope = "global"
        for word in re.findall(r"global:|local:|[^\s;]+", body):
            if word in ("global:", "local:"):
                scope = word[:-1]
            elif scope == "global":
                if "*" in word:
                    raise ValueError(f"{path}: wildcard '{word}'; every symbol is listed by name")
                found[word] = node
    return found
