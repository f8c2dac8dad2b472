# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/migrating as options.py checks them: what they may name, what the library's defaults are, and each row of
their tables."""
import ast
import ctypes
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bindings/generate"), str(ROOT / "bindings/python/mixedprec")]
import capi
import headers

COLUMNS = ["option", "default there", "here", "default here", "note"]
KINDS = ("mapped", "not needed", "not here")
TOKEN = re.compile(r"`([^`]+)`")
DEFAULTS_OF = re.compile(r"^Defaults here: preset `(\w+)`")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
SAME = {"true": "on", "false": "off", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16", "fn": "none"}
# What the C of a page may use without having made it.
BEFORE_C = """#include <stdio.h>
#include <mixedprec.h>
extern mp_context* context; extern mp_recipe* recipe; extern mp_optimizer* optimizer; extern mp_scaler* scaler;
extern mp_comm* comm; extern mp_checkpoint* checkpoint; extern mp_linear* layer; extern mp_linear** layers;
extern mp_tensor *weight, *bias, *initial, *x, *y, *dy, *dx, *dw; extern int32_t group, index, layer_count;
extern int64_t step, steps; extern double loss, scale;
void add_parameters(mp_optimizer* to);
void page(void);
void page(void) {
"""


class Library:
    """Recipes of the library, or of none: then its questions have no answer."""

    def __init__(self, path):
        self.handle = ctypes.CDLL(str(path))
        for name, (result, arguments, *_) in capi.FUNCTIONS.items():
            function = getattr(self.handle, name)
            function.restype, function.argtypes = result, arguments
        self.context = ctypes.POINTER(capi.mp_context)()
        self.must(self.handle.mp_context_create(None, ctypes.byref(self.context)))
        self.recipes = {}
        self.keys, self.presets = {}, []
        for index in range(self.handle.mp_recipe_key_count()):
            key = capi.mp_recipe_key_desc()
            self.must(self.handle.mp_recipe_get_key_info(index, ctypes.byref(key)))
            self.keys[key.name.decode()] = (key.type, key.allowed.decode())
        for index in range(self.handle.mp_recipe_preset_count()):
            name = ctypes.c_char_p()
            self.must(self.handle.mp_recipe_get_preset_info(index, ctypes.byref(name), None))
            self.presets.append(name.value.decode())

    def must(self, status):
        if status < 0:
            raise ValueError(self.handle.mp_last_error_message().decode())

    def recipe(self, text):
        """The keys of a recipe in JSON, all of them."""
        if text not in self.recipes:
            made, needed, data = ctypes.POINTER(capi.mp_recipe)(), ctypes.c_size_t(), text.encode()
            self.must(self.handle.mp_recipe_create_from_json(self.context, data, len(data), ctypes.byref(made)))
            self.must(self.handle.mp_recipe_to_json(made, None, 0, ctypes.byref(needed)))
            buffer = ctypes.create_string_buffer(needed.value)
            self.must(self.handle.mp_recipe_to_json(made, buffer, needed, None))
            self.handle.mp_recipe_destroy(made)
            self.recipes[text] = json.loads(buffer.value)
        return self.recipes[text]

    def usual(self, member, otherwise):
        """What 0 in this member of a group stands for, of AdamW; `otherwise` where it is no hyperparameter."""
        hyper = capi.mp_rule_hyper()
        index = 0
        while self.handle.mp_rule_get_hyper(0, index, ctypes.byref(hyper)) == 0:
            if hyper.name.decode() == member:
                return hyper.usual
            index += 1
        return otherwise

    def default(self, preset, key):
        return self.recipe(json.dumps({"recipe": preset}))[key]


class Names:
    """What a page may name, from the headers."""

    def __init__(self):
        text = (headers.INCLUDE / "mixedprec/recipe_keys.h").read_text()
        self.keys = set(re.findall(r'^#define MP_RECIPE_\w+(?:\s|\\\n)+"([\w.]+)"', text, re.M))
        self.functions = {function.name for function in headers.functions()}
        self.fields = {f"{struct.name}.{field.name}" for struct in headers.structs() for field in struct.fields}
        self.types = {struct.name for struct in headers.structs()} | set(headers.handles()) | {"mp_status"}
        self.types |= {callback.name for callback in headers.callbacks()}
        self.constants = {name for name, _ in headers.constants()} | {name for name, _ in headers.initializers()}
        # All that presets are tested to be; the headers have no list of their own.
        tests = (ROOT / "tests/capi/presets.cpp").read_text()
        self.presets = set(re.findall(r'^    \{"(\w+)", k', tests, re.M)) | {"auto", "auto_fp8"}

    def kind(self, token):
        """What a token of the column `here` is, or None."""
        key, equals, _ = token.partition(" = ")
        if key in self.keys:
            return "value" if equals else "key"
        field, equals, value = token.partition(" = ")
        if field in self.fields:
            return "field"
        for kind, known in (("preset", self.presets), ("function", self.functions), ("constant", self.constants)):
            if token in known:
                return kind
        return None


def plain(text):
    """A default as a word that can be compared: `torch.float32` and fp32, True and on, 1e-3 and 0.001 are equal."""
    text = text.strip().strip("'\"").lower()
    try:
        return float(text.replace("**", "e") if "**" not in text else eval(text, {"__builtins__": {}}))
    except (ValueError, SyntaxError, NameError, TypeError):
        word = text.rsplit(".", 1)[-1]
        return SAME.get(word, word)


def tables(text):
    """(line, preset that defaults are of, cells) of each row of each table of options, and '' where a table begins."""
    preset, inside = None, False
    for number, line in enumerate(text.splitlines(), 1):
        match = DEFAULTS_OF.match(line)
        preset = match[1] if match else preset
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells == COLUMNS:
            inside = True
            yield number, preset, None
        elif inside and not set(line) <= set("|- :"):
            yield number, preset, cells


class Page:
    def __init__(self, path, names, library, text=None):
        self.path, self.names, self.library = path, names, library
        self.text = path.read_text() if text is None else text
        self.problems, self.options = [], []
        self.counts = dict.fromkeys(KINDS, 0)
        self.read_rows()
        self.check_names()

    def fault(self, line, words):
        self.problems.append(f"{self.path.name}:{line}: {words}")

    def read_rows(self):
        seen = set()
        for line, preset, cells in tables(self.text):
            if cells is None:
                seen = set()
            elif len(cells) != len(COLUMNS):
                self.fault(line, f"{len(cells)} columns, not {len(COLUMNS)}")
            else:
                self.read_row(line, preset, cells, seen)

    def read_row(self, line, preset, cells, seen):
        option, there, here, default, note = cells
        options = TOKEN.findall(option)
        if not options:
            self.fault(line, "names no option")
        for name in options:
            if name in seen:
                self.fault(line, f"{name} is in this table twice")
            seen.add(name)
        self.options += options
        originals = TOKEN.findall(there)
        if len(originals) not in (1, len(options)):
            self.fault(line, f"{len(options)} options with {len(originals)} defaults")
        kind = next((kind for kind in KINDS[1:] if here.startswith(kind)), "mapped")
        self.counts[kind] += len(options)
        if kind != "mapped":
            if here != kind:
                self.fault(line, f"reasons belong in the note, not behind '{kind}'")
            if len(note) < 8:
                self.fault(line, f"{options}: {kind}, and no reason")
            return
        tokens = TOKEN.findall(here)
        if not tokens:
            self.fault(line, f"{options}: neither mapped, nor '{KINDS[1]}', nor '{KINDS[2]}'")
        for token in tokens:
            if self.names.kind(token) is None:
                self.fault(line, f"no key, preset, function, field or constant is called {token}")
            elif self.names.kind(token) == "value":
                self.check_value(line, *token.split(" = "))
        if tokens and self.names.kind(tokens[0]) in ("key", "value", "field"):
            self.check_default(line, preset, tokens[0].split(" = ")[0], originals, default, note)

    def check_value(self, line, key, value):
        if not self.library:
            return
        kind, allowed = self.library.keys[key]
        if kind == capi.MP_RECIPE_TYPE_STRING:
            fits = value in allowed.split("|")
        else:
            low, high = (float(bound) for bound in allowed.split(".."))
            fits = low <= float(value) <= high
        if not fits:
            self.fault(line, f"{key} cannot be {value}; it may be {allowed}")

    def check_default(self, line, preset, name, originals, default, note):
        values = TOKEN.findall(default)
        if len(values) != 1:
            self.fault(line, f"{name}: the column 'default here' must have one value")
            return
        if name in self.names.keys:
            if preset is None:
                self.fault(line, f"{name}: no line 'Defaults here: preset `name`' above")
                return
            if preset not in self.names.presets:
                self.fault(line, f"no preset is called {preset}")
                return
            actual = self.library.default(preset, name) if self.library else values[0]
        else:
            struct, field = name.split(".")
            actual = getattr(getattr(capi, struct)(), field)
            actual = actual if isinstance(actual, (int, float)) else "NULL"  # no initializer sets a pointer
            if struct == "mp_param_group_desc" and actual == 0 and not values[0].startswith("MP_"):
                actual = self.library.usual(field, actual) if self.library else values[0]
            if values[0].startswith("MP_"):
                values[0] = str(getattr(capi, values[0], "no constant"))
        if plain(values[0]) != plain(str(actual)):
            self.fault(line, f"{name} is {actual} by default, not {values[0]}")
        if not note and any(plain(original) != plain(values[0]) for original in originals):
            self.fault(line, f"{name}: its default differs ({', '.join(originals)} there), and the note is empty")

    def check_names(self):
        known = self.names.functions | self.names.types
        for number, line in enumerate(self.text.splitlines(), 1):
            for word in re.findall(r"\bmp_\w+(?:\.\w+)?", line):
                struct, _, field = word.partition(".")
                if struct not in known or field and struct in self.names.types and word not in self.names.fields:
                    if not (field and struct in known and field in ("md", "h", "c")):
                        self.fault(number, f"nothing is called {word}")
            for word in re.findall(r"\bMP_\w+\b", line):
                if not any(name == word or word.endswith("_") and name.startswith(word) for name in self.names.constants):
                    self.fault(number, f"no constant is called {word}")

    def check_blocks(self, cc):
        blocks = FENCE.findall(self.text)
        kinds = [kind for kind, _ in blocks]
        if not kinds or kinds[0] not in ("python", "yaml") or not {"json", "c"} & set(kinds):
            self.fault(1, "does not begin with the original's configuration (python, yaml) and ours (json, c)")
        for kind, text in blocks:
            line = self.text[:self.text.index(text)].count("\n") + 1
            try:
                if kind == "json" and self.library:
                    self.library.recipe(text)
                elif kind == "json":
                    json.loads(text)
                elif kind == "python":
                    ast.parse(text)
                elif kind == "c" and cc:
                    compile_c(cc, text)
            except (ValueError, SyntaxError) as failure:
                self.fault(line, failure)

    def total(self):
        return sum(self.counts.values())

    def count_line(self):
        return f"{self.total()} options: " + ", ".join(f"{self.counts[kind]} {kind}" for kind in KINDS) + "."


def compile_c(cc, text):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.c"
        source.write_text(f"{BEFORE_C}{text}}}\n")
        run = subprocess.run([cc, "-std=c99", "-fsyntax-only", "-Wall", "-Werror", f"-I{headers.INCLUDE}", str(source)],
                             capture_output=True, text=True)
        if run.returncode:
            raise ValueError(run.stderr)
