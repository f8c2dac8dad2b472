# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers: functions with their comments, structs, callbacks, constants. Not a C parser: it knows the
shapes that our own headers are written in, and each user fails when it meets one that it cannot read."""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "capi/include"
GOLDEN = ROOT / "tests/abi/layout.golden"  # what the C compiler says of the same headers

COMMENT = re.compile(r"/\*.*?\*/", re.S)
DECLARATION = re.compile(r"(?:/\*\*((?:(?!\*/).)*)\*/\s*)?^MP_API\s+([^;]*);", re.S | re.M)
STRUCT = re.compile(r"typedef struct (\w+)\s*\{(.*?)\}\s*(\w+)\s*;", re.S)
OPAQUE = re.compile(r"^typedef struct (\w+) (\w+);", re.M)
CALLBACK = re.compile(r"(?:/\*\*((?:(?!\*/).)*)\*/\s*)?^typedef\s+([\w\s*]+?)\s*\(\*(\w+)\)\(([^;]*)\);", re.S | re.M)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?[ \t]*((?:[^\n]*\\\n)*[^\n]*)$", re.M)
FIELD = re.compile(r"(.*?[\s*])(\w+)\s*(?:\[(\w+)\])?")
PARAMETER = re.compile(r"(.*?[\s*])(\w+)\s*(?:\[\w*\])?", re.S)
FUNCTION_PARAMETER = re.compile(r"([\w\s*]+?)\s*\(\*(\w+)\)\s*\((.*)\)", re.S)


@dataclass(frozen=True)
class Type:
    """A C type: its base, and for each level of pointers, the innermost first, whether what it points to is const."""
    base: str
    levels: tuple = ()
    signature: tuple = ()  # of a pointer to a function without a name: (result, parameters)

    def __str__(self):
        text = self.base
        for constant in self.levels:
            text = (f"const {text}" if "*" not in text else f"{text} const") + "*" if constant else text + "*"
        return text


@dataclass
class Function:
    name: str
    result: Type
    parameters: list  # (Type, name)
    comment: str  # empty when there is none
    header: str
    line: int

    def summary(self):
        """What the comment says before its first tag, in lines without stars."""
        text = re.sub(r"^[ \t]*\*[ \t]?", "", self.comment, flags=re.M).split("\n@")[0]
        return [line.rstrip() for line in text.strip().splitlines()]

    def waits(self):
        """Whether the call may be long or wait for others: a collector or an interpreter should be let go meanwhile."""
        return bool(re.search(r"\bBlocks\b|\bEnqueues\b|@threads\s+C", self.comment))


@dataclass
class Field:
    name: str
    type: Type
    length: str  # of an array, as written; empty without one

    @property
    def is_struct(self):
        """Whether it is a struct of ours, or an array of them."""
        base = self.type.base
        return not self.type.levels and base.startswith("mp_") and base != "mp_status" and not base.endswith("_fn")

    @property
    def kind(self):
        if self.is_struct:
            return "struct"
        if self.length:
            return "array"
        return "pointer" if self.type.levels or self.type.base.endswith("_fn") else "number"


@dataclass
class Struct:
    name: str
    fields: list
    header: str

    @property
    def is_part(self):
        """Whether it lies in other structs, whose struct_size counts for it."""
        return self.fields[0].name != "struct_size"


@dataclass
class Callback:
    name: str
    result: Type
    parameters: list
    comment: str


def header_files(include=INCLUDE):
    return sorted(include.rglob("*.h"))


def type_of(text):
    words = re.findall(r"\*|\w+", text)
    base = [word for word in words[:words.index("*") if "*" in words else None] if word not in ("const", "struct")]
    if len(base) != 1:
        raise ValueError(f"cannot read the type '{text.strip()}'")
    levels, constant = [], words[0] == "const"
    for word in words[words.index(base[0]) + 1:]:
        if word == "*":
            levels.append(constant)
            constant = False
        elif word == "const":
            constant = True
    return Type(base[0], tuple(levels))


def parameters_of(text):
    """(Type, name) of each; commas inside of a function pointer's parentheses part nothing."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    result = []
    for part in re.findall(r"(?:[^,(]|\((?:[^()]|\([^()]*\))*\))+", text):
        function = FUNCTION_PARAMETER.fullmatch(part.strip())
        if function:
            result.append((Type("function", (), (type_of(function[1]), tuple(parameters_of(function[3])))), function[2]))
            continue
        match = PARAMETER.fullmatch(part.strip())
        if not match:
            raise ValueError(f"cannot read the parameter '{part.strip()}'")
        result.append((type_of(match[1]), match[2]))
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
            found.append(Function(declaration[2], type_of(declaration[1]), parameters_of(declaration[3]),
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
                fields.append(Field(field[2], type_of(field[1]), field[3] or ""))
            if match[1] != match[3]:
                raise ValueError(f"{path}: struct {match[1]} and its typedef {match[3]} differ")
            found.append(Struct(match[1], fields, path.relative_to(include).as_posix()))
        begun = len(re.findall(r"\{\s*uint32_t struct_size", text))
        if begun > len(STRUCT.findall(text)) or re.search(r"\bunion\b|\benum\b", text):
            raise ValueError(f"{path}: a struct, union or enum that this check cannot read")
    return found


def handles(include=INCLUDE):
    """Structs that are never defined: what is only ever pointed at."""
    found = []
    for path in header_files(include):
        for name, typedef in OPAQUE.findall(path.read_text()):
            if name != typedef:
                raise ValueError(f"{path}: struct {name} and its typedef {typedef} differ")
            found.append(name)
    return found


def callbacks(include=INCLUDE):
    found = []
    for path in header_files(include):
        text = path.read_text()
        for comment, result, name, parameters in CALLBACK.findall(text):
            found.append(Callback(name, type_of(result), parameters_of(parameters), comment))
        if len(re.findall(r"^typedef[^;{]*\(\*", text, re.M)) != len(CALLBACK.findall(text)):
            raise ValueError(f"{path}: some typedef of a function pointer could not be read")
    return found


def constants(include=INCLUDE):
    """(name, kind): kind is 'integer', 'unsigned', 'real' or 'string'. Initializers and linkage macros are neither."""
    found = []
    for path in header_files(include):
        text = path.read_text()
        for name, arguments, body in DEFINE.findall(text):
            body = COMMENT.sub("", body.split("/*")[0]).replace("\\\n", " ").strip()
            if path.name == "export.h" or not body or body.startswith("{") or name.endswith("_INIT"):
                continue
            if arguments:
                raise ValueError(f"{path}: {name} is a function-like macro; other languages cannot call it")
            kind = ("string" if body.startswith('"') else "real" if re.search(r"\d\.|\d[eE]", body) else
                    "unsigned" if re.fullmatch(r"\d+u", body) else "integer")
            found.append((name, kind))
    return found


def initializers(include=INCLUDE):
    """(macro, struct) for every MP_..._INIT of a struct with a size."""
    found = []
    for path in header_files(include):
        for name, _, body in DEFINE.findall(path.read_text()):
            if name.endswith("_INIT"):
                match = re.search(r"sizeof\((\w+)\)", body)
                if not match and any(struct.is_part and f"{struct.name.upper()}_INIT" == name for struct in structs(include)):
                    continue
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


@dataclass
class Layout:
    """What the C compiler found, read from layout.golden."""
    sizes: dict  # struct: bytes
    offsets: dict  # (struct, field): bytes
    initial: dict  # (struct, field): text of what the initializer sets; "NULL" for pointers
    values: dict  # constant: text

    @classmethod
    def read(cls, path=GOLDEN):
        layout = cls({}, {}, {}, {})
        for line in path.read_text().splitlines():
            word, name, *rest = line.split(" ")
            if word == "struct":
                layout.sizes[name] = int(rest[1])
            elif word == "field":
                layout.offsets[tuple(name.split("."))] = int(rest[1])
                if rest[4:]:
                    layout.initial[tuple(name.split("."))] = rest[5]
            elif word == "constant":
                layout.values[name] = " ".join(rest)
        return layout
