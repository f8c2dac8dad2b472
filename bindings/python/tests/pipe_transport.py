# SPDX-License-Identifier: Apache-2.0
"""A transport of queues between threads, for tests."""

import array
import queue

import mixedprec as mp

shared = {}


class Pipes(mp.Transport):
    """All-to-all and the like over queues between threads."""

    has_sum_f32 = True

    def __init__(self, rank, boxes, fail_at=None):
        self.rank, self.size, self.boxes, self.fail_at = rank, len(boxes), boxes, fail_at
        self.waiting, self.closed, self.aborted, self.over = {}, 0, [], []

    def begin(self, operation):
        if operation.sequence == self.fail_at:
            raise RuntimeError("the cable is cut")
        self.over.append(operation)
        if operation.kind == "broadcast":
            if operation.root == self.rank:
                for to in range(self.size):
                    self.boxes[to].put((self.rank, operation.sequence, operation.send(self.rank)))
            return operation, {operation.root}
        for to in range(self.size):
            data = b"" if operation.kind == "barrier" else operation.send(to)
            self.boxes[to].put((self.rank, operation.sequence, data))
        return operation, set(range(self.size))

    def poll(self, request):
        operation, missing = request
        while True:
            try:
                rank, sequence, data = self.boxes[self.rank].get_nowait()
            except queue.Empty:
                break
            self.waiting[rank, sequence] = data
        for rank in list(missing):
            if (rank, operation.sequence) in self.waiting:
                missing.discard(rank)
                if operation.kind in ("all_to_all", "all_gather"):
                    operation.receive(rank, self.waiting.pop((rank, operation.sequence)))
        if missing:
            return False
        if operation.kind == "broadcast" and operation.root != self.rank:
            operation.receive(operation.root, self.waiting[operation.root, operation.sequence])
        if operation.kind in ("max_u32", "sum_f32"):
            code, combine = ("I", max) if operation.kind == "max_u32" else ("f", lambda values: sum(values))
            parts = [array.array(code, self.waiting[r, operation.sequence]) for r in range(self.size)]
            operation.receive(0, array.array(code, [combine(column) for column in zip(*parts)]))
        return True

    def abort(self, status, reason):
        self.aborted.append(reason)

    def split(self, color, key, members, rank, number):
        if color < 0:
            return None
        boxes = shared.setdefault((number, color), [queue.Queue() for _ in members])
        return Pipes(rank, boxes)

    def close(self):
        self.closed += 1
