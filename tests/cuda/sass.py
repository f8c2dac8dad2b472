# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of CUDA kernels (SASS) by NVIDIA's cuobjdump and nvdisasm: resources, instructions, loops, and the
shortest way round a loop. Only what NVIDIA documents of SASS is used: names of instructions and targets of branches."""
import functools
import heapq
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NEVER = float("inf")


def find_tool(name):
    """From PATH, from the variable of the tool's name in capitals, or what scripts/setup.sh --checks installs."""
    bundled = ROOT / ".cache/cuda" / name / "nvidia/cu13/bin" / name
    for path in (os.environ.get(name.upper()), shutil.which(name), str(bundled)):
        if path and Path(path).is_file():
            return path
    return None


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def demangle(names):
    return run("c++filt", input="\n".join(names)).splitlines()


def short(name):
    """The kernel's name, or of one of Kokkos's the functor's, without namespaces and what all of them have."""
    without_types = re.sub(r"\(anonymous namespace\)::|\((?:mp::[\w:]+|bool)\)|mp::DType", "", name)
    kind, functor = "", re.sub(r"^void |\(.*\)$", "", without_types)
    if "ParallelFor<" in name:
        kind = "Kokkos teams: " if "TeamPolicy" in name else "Kokkos range: "
        functor = re.search(r"ParallelFor<(.*?), Kokkos::(?:Team|Range)Policy", functor).group(1)
    return kind + re.sub(r"<Cuda>", "", re.sub(r"\w+::|Cuda, ", "", functor)).replace("> >", ">>")


class Resources(NamedTuple):
    """What a kernel takes, by cuobjdump: bytes of a thread or block."""
    arch: str
    symbol: str
    name: str  # demangled
    short: str
    registers: int
    stack: int
    shared: int
    local: int


def resources(tool, file):
    """Of all kernels of ours in a module or object file, for every architecture."""
    found, arch, symbol = [], "", ""
    for line in run(tool, "-res-usage", file).splitlines():
        if word := re.match(r"arch = (\w+)", line):
            arch = word.group(1)
        elif word := re.match(r"\s*Function (\S+):", line):
            symbol = word.group(1)
        elif word := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            found.append((arch, symbol, *map(int, word.groups())))
    names = demangle([row[1] for row in found])
    return [Resources(*row[:2], name, short(name), *row[2:]) for row, name in zip(found, names) if "mp::" in name]


class Instruction:
    def __init__(self, predicate, text):
        self.predicate = predicate
        self.opcode, _, self.operands = text.partition(" ")
        self.name = self.opcode.partition(".")[0]
        self.target = None
        if found := re.search(r"`\((\.L_\w+)\)", self.operands):
            self.target = found.group(1)
        self.targets = re.findall(r"\.L_\w+", text.partition("BRANCH_TARGETS")[2])

    def is_conditional(self):
        """Of what leads elsewhere: `@P0 BRA there`, or `BRA P0, there`."""
        return self.predicate is not None or "," in self.operands

    def bytes(self):
        """What one thread moves from or to global memory."""
        if self.name not in ("LDG", "STG", "LD", "ST"):
            return 0
        if found := re.search(r"\.(128|64|U16|S16|U8|S8)\b", self.opcode):
            return {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}[found.group(1)]
        return 4

    def loads(self):
        return self.name in ("LDG", "LD")

    def registers(self):
        """Those that are named: what is written, as a set of one or none, and what is read."""
        parts = self.operands.split(",") if self.operands else []
        has_result = self.name not in ("STG", "ST", "STS", "STL", "RED", "REDG", "BRA", "BRX", "EXIT")
        numbers = [set(map(int, re.findall(r"\bR(\d+)", part))) for part in parts]
        written = numbers[0] if has_result and numbers else set()
        return written, set().union(*(numbers[1:] if has_result else numbers))

    def loaded(self):
        """The registers that a load fills."""
        return {first + i for first in self.registers()[0] for i in range(max(self.bytes() // 4, 1))}


class Kernel:
    """The code of one kernel, in basic blocks, with its loops."""

    def __init__(self, code, labels):
        self.code = code
        self._split(labels)
        self._link(labels)

    def _split(self, labels):
        ends = {"BRA", "BRX", "EXIT", "RET", "BSYNC", "CALL", "BREAK"}
        starts = {0} | set(labels.values()) | {i + 1 for i, x in enumerate(self.code) if x.name in ends}
        starts = sorted(start for start in starts if start < len(self.code))
        self.block_of = {start: block for block, start in enumerate(starts)}
        self.blocks = [self.code[a:b] for a, b in zip(starts, starts[1:] + [len(self.code)])]

    def _link(self, labels):
        place = {label: self.block_of.get(index) for label, index in labels.items()}
        joins = {}
        self.next, self.call = [], {}
        for number, block in enumerate(self.blocks):
            last, following = block[-1], [number + 1] if number + 1 < len(self.blocks) else []
            for x in block:
                if x.name == "BSSY":
                    joins[x.operands.partition(",")[0]] = place[x.target]
            if last.name == "BRX":
                following = [place[label] for label in last.targets]  # of a jump table
            elif last.name == "BRA":
                following = [place[last.target]] + (following if last.is_conditional() else [])
            elif last.name in ("EXIT", "RET"):
                following = following if last.is_conditional() else []
            elif last.name == "BSYNC" and not last.is_conditional():
                following = [joins.get(last.operands.split()[0], number + 1)]
            elif last.name == "CALL" and last.target:
                self.call[number] = place[last.target]
            self.next.append([block for block in following if block is not None])

    def _dominators(self, order):
        place = {block: i for i, block in enumerate(order)}
        before = {block: [] for block in order}
        for block in order:
            for after in self.next[block]:
                before[after].append(block)
        parent = {order[0]: order[0]}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                new = None
                for other in before[block]:
                    if other in parent:
                        new = other if new is None else self._common(parent, place, new, other)
                if parent.get(block) != new:
                    parent[block], changed = new, True
        return parent, before

    @staticmethod
    def _common(parent, place, a, b):
        while a != b:
            while place[a] > place[b]:
                a = parent[a]
            while place[b] > place[a]:
                b = parent[b]
        return a

    def _order(self, first=0, inside=None):
        """Blocks that can be reached, of `inside` if given, each before those that follow it unless a loop leads back."""
        order, seen, stack = [], {first}, [(first, iter(self.next[first]))]
        while stack:
            block, rest = stack[-1]
            for after in rest:
                if after not in seen and (inside is None or after in inside):
                    seen.add(after)
                    stack.append((after, iter(self.next[after])))
                    break
            else:
                order.append(block)
                stack.pop()
        return order[::-1]

    @functools.cached_property
    def loops(self):
        """Natural loops: header -> its blocks."""
        order = self._order()
        parent, before = self._dominators(order)

        def dominates(a, b):
            while b != parent[b]:
                if a == b:
                    return True
                b = parent[b]
            return a == b

        loops = {}
        for block in order:
            for header in self.next[block]:
                if dominates(header, block):
                    body, todo = loops.setdefault(header, {header}), [block]
                    while todo:
                        inside = todo.pop()
                        if inside not in body:
                            body.add(inside)
                            todo += before[inside]
        return loops

    def size(self, blocks):
        return sum(len(self.blocks[block]) for block in blocks)

    def main_loop(self):
        """Header and blocks of the largest loop that reads memory and has no other in it, or None."""
        inner = [header for header, body in self.loops.items()
                 if not any(other in body for other in self.loops if other != header)
                 and any(x.bytes() and x.loads() for block in body for x in self.blocks[block])]
        return max(((header, self.loops[header]) for header in inner), key=lambda loop: self.size(loop[1]), default=None)

    def way_round(self, header, body):
        """The instructions of one turn of a loop, in order: with as many of its widest loads and stores as one turn can have,
        which is how whole groups of elements go, and of such turns the one of fewest instructions."""
        widest = {loads: max((x.bytes() for block in body for x in self.blocks[block] if x.loads() == loads), default=0)
                  for loads in (True, False)}

        def worth(block):
            code = self.blocks[block] + self._callee(block)
            wide = sum(1 for x in code if x.bytes() and x.bytes() == widest[x.loads()])
            return wide, -len(code)

        best, came = {header: worth(header)}, {}
        ends = []
        for block in self._order(header, body):
            for after in self.next[block]:
                if after == header:
                    ends.append(block)
                elif after in body:
                    value = tuple(map(sum, zip(best[block], worth(after))))
                    if after not in best or value > best[after]:
                        best[after], came[after] = value, block
        block = max(ends, key=best.get)
        blocks = [block]
        while block != header:
            block = came[block]
            blocks.append(block)
        return [x for block in reversed(blocks) for x in self.blocks[block] + self._callee(block)]

    def _callee(self, block):
        """The instructions of the subroutine that a block ends with a call of, by the shortest way to its end."""
        if block not in self.call:
            return []
        first = self.call[block]
        cost, came, heap = {first: 0}, {}, [(0, first)]
        while heap:
            so_far, at = heapq.heappop(heap)
            if self.blocks[at][-1].name == "RET":
                blocks = [at]
                while at != first:
                    at = came[at]
                    blocks.append(at)
                return [x for block in reversed(blocks) for x in self.blocks[block]]
            for after in self.next[at]:
                if so_far + len(self.blocks[at]) < cost.get(after, NEVER):
                    cost[after], came[after] = so_far + len(self.blocks[at]), at
                    heapq.heappush(heap, (cost[after], after))
        return []


def kernels(tools, file, arch):
    """All kernels of a module or object file for one architecture: mangled name -> Kernel."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tools[0], "-xelf", "all", str(Path(file).resolve())], check=True, capture_output=True, cwd=folder)
        for cubin in sorted(Path(folder).glob(f"*.{arch}.cubin")):
            found.update(parse(run(tools[1], "-c", cubin)))
    return found


def parse(text):
    found, name, code, labels = {}, None, [], {}

    def close():
        if name is not None and code:
            found[name] = Kernel(code, labels)

    for line in text.splitlines():
        if line.startswith("\t.section"):
            close()
            name, code, labels = None, [], {}
        elif begin := re.match(r"\.text\.(\S+):$", line):
            name = begin.group(1)
        elif label := re.match(r"(\.L_\w+):", line):
            labels[label.group(1)] = len(code)
        elif word := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@(\S+)\s+)?([^;]*);?\s*(\(\*.*\*\))?", line):
            code.append(Instruction(word.group(1), (word.group(2) or "").strip() + " " + (word.group(3) or "")))
    close()
    return found
