# SPDX-License-Identifier: Apache-2.0
"""The parts of an array that ranks exchange: their sizes and offsets, checked."""

from __future__ import annotations

from ._memory import int64_array, memory


def part_sizes(data, sizes, ranks, noun):
    if sizes is None:
        nbytes = 0 if data is None else memory(data, noun, writable=False).nbytes
        if nbytes % ranks:
            raise ValueError(f"{noun} has {nbytes} bytes, which {ranks} ranks cannot share evenly: say {noun}_bytes")
        return [nbytes // ranks] * ranks
    sizes = list(int64_array(sizes))
    if len(sizes) != ranks:
        raise ValueError(f"{noun}_bytes has {len(sizes)} numbers; it must have one for each of {ranks} ranks")
    return sizes


def part_offsets(sizes, offsets, ranks):
    if offsets is None:
        offsets, end = [], 0
        for size in sizes:
            offsets.append(end)
            end += size
        return offsets
    offsets = list(int64_array(offsets))
    if len(offsets) != ranks:
        raise ValueError(f"there are {len(offsets)} offsets; there must be one for each of {ranks} ranks")
    return offsets


def check_parts(noun, nbytes, sizes, offsets, apart):
    end = 0
    for offset, size in sorted(zip(offsets, sizes)):
        if size < 0 or offset < 0 or offset + size > nbytes:
            raise ValueError(f"{noun}: {size} bytes from {offset} on are not inside of its {nbytes} bytes")
        if apart and size and offset < end:
            raise ValueError(f"{noun}: the parts overlap at {offset}")
        end = max(end, offset + size)
