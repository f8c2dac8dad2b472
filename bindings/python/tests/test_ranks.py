# SPDX-License-Identifier: Apache-2.0
"""Communicators and reductions of ranks that are threads."""

import array
import gc
import os
import subprocess
import sys
import threading
import time
import unittest

import mixedprec as mp
from common import context, run, words


class Exchanges(unittest.TestCase):
    def test_alone(self):
        comm = mp.Comm(deadline=2.5)
        self.assertEqual((comm.rank, comm.size, comm.deadline, comm.node(0)), (0, 1, 2.5, 0))
        received = bytearray(4)
        comm.all_gather(b"abcd", received)
        self.assertEqual(bytes(received), b"abcd")
        comm.barrier()
        comm.check()
        self.assertEqual(comm.traffic.calls, 2)
        self.assertIn("rank 0", comm.describe())
        for wrong in (0, -1, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                comm.deadline = wrong

    def test_threads(self):
        def rank(comm):
            r = comm.rank
            received = words(*[0] * 3)
            comm.all_to_all(words(*[10 * r + i for i in range(3)]), received)
            gathered = words(*[0] * 3)
            comm.all_gather(words(r), gathered)
            uneven = bytearray(6)
            comm.all_gather(b"abc"[: r + 1], uneven, receive_bytes=[1, 2, 3], site="uneven")
            data = bytearray(b"root") if r == 1 else bytearray(4)
            comm.broadcast(data, root=1)
            largest = words(r, 7 - r)
            comm.max_u32(largest)
            comm.barrier()
            return list(received), list(gathered), bytes(uneven), bytes(data), list(largest)

        for r, result in enumerate(run(3, rank)):
            self.assertEqual(result, ([r, 10 + r, 20 + r], [0, 1, 2], b"aababc", b"root", [2, 7]))

    def test_requests(self):
        def rank(comm):
            received = [words(0, 0) for _ in range(3)]
            requests = [comm.all_gather(words(comm.rank + 10 * i), r, wait=False) for i, r in enumerate(received)]
            with self.assertRaises(BufferError):
                received[0].append(1)
            while not requests[0].done:
                time.sleep(0.001)
            for request in requests:
                request.wait()
                request.wait()
                request.close()
            received[0].append(1)
            return [list(r[:2]) for r in received]

        self.assertEqual(run(2, rank), [[[0, 1], [10, 11], [20, 21]]] * 2)

    def test_a_request_that_is_dropped_gives_its_memory_back(self):
        comms = mp.Comm.threads(2, deadline=5)
        received = words(0, 0)
        request = comms[0].all_gather(words(1), received, wait=False)
        del request
        gc.collect()
        received.append(1)
        with self.assertRaises(mp.AbortedError):
            comms[0].barrier()

    def test_split(self):
        def rank(comm):
            group = comm.split(comm.rank % 2, -comm.rank)
            none = comm.split(-1)
            return group.rank, group.size, none

        self.assertEqual(run(4, rank), [(1, 2, None), (1, 2, None), (0, 2, None), (0, 2, None)])

    def test_failures(self):
        comms = mp.Comm.threads(2, deadline=0.2)
        with self.assertRaises(TimeoutError):
            comms[0].barrier()
        with self.assertRaises(TimeoutError):
            comms[0].check()
        comms = mp.Comm.threads(2, deadline=20)
        comms[1].close()
        with self.assertRaises(ConnectionError):
            comms[0].barrier()
        comms = mp.Comm.threads(2, deadline=20)
        threading.Timer(0.1, comms[0].abort, ["enough"]).start()
        with self.assertRaisesRegex(mp.AbortedError, "enough"):
            comms[0].barrier()

        def differ(comm):
            comm.barrier() if comm.rank else comm.broadcast(bytearray(4))

        with self.assertRaises(mp.RankMismatchError):
            run(2, differ)

    def test_memory_is_checked(self):
        comm = mp.Comm()
        for wrong in (
            lambda: comm.all_to_all(bytes(4), bytearray(4), send_bytes=[5]),
            lambda: comm.all_to_all(bytes(4), bytearray(4), receive_bytes=[4], receive_offsets=[1]),
            lambda: comm.all_to_all(bytes(4), bytearray(4), send_bytes=[-1]),
            lambda: comm.all_to_all(bytes(4), bytearray(4), send_bytes=[1, 2]),
            lambda: comm.all_gather(bytes(4), bytes(4)),
            lambda: comm.all_gather(bytes(4), bytearray(3)),
            lambda: comm.broadcast(b"abcd"),
            lambda: comm.broadcast(bytearray(4), root=3),
        ):
            with self.assertRaises(ValueError):
                wrong()
        for wrong in (
            lambda: comm.max_u32(array.array("f", [1])),
            lambda: comm.max_u32(bytearray(4)),
            lambda: comm.all_gather([1], bytearray(4)),
        ):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaises(ValueError):
            mp._parts.check_parts("receive", 8, [4, 4], [0, 2], True)
        with self.assertRaises(mp.InvalidArgumentError):
            mp.Comm.threads(0)
        with self.assertRaises(OverflowError):
            mp.Comm.threads(2**32 + 2)
        with self.assertRaises(ValueError):
            mp.Comm.nccl(context, b"short", 0, 1)

    def test_mpi_or_a_reason(self):
        program = (
            "import mixedprec as mp\n"
            "try:\n  print(mp.Comm.mpi().size)\n"
            "except mp.Error as error: print(type(error).__name__)"
        )
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        done = subprocess.run(
            [sys.executable, "-B", "-c", program], env=env, capture_output=True, text=True, timeout=600
        )
        self.assertIn(done.stdout.strip(), ("1", "ModuleMissingError", "VendorError"), done.stderr)
        with self.assertRaises((TypeError, ImportError)):
            mp.Comm.mpi(object())


class Reductions(unittest.TestCase):
    def test_all_reduce(self):
        def rank(comm):
            mine, total = array.array("f", [comm.rank + 1, -2]), mp.Tensor(context, 2)
            comm.all_reduce(context, mine, total)
            largest = mp.Tensor(context, 2)
            comm.all_reduce(context, mine, largest, op="max_abs")
            half = mp.Tensor(context, 2)
            comm.all_reduce(context, [mine], half, wire_dtype="bf16", order="fast", random=mp.Random(1), site="here")
            request = comm.all_reduce(context, array.array("f", [1, 1]), total2 := mp.Tensor(context, 2), wait=False)
            gc.collect()
            request.wait()
            return total.tolist(), largest.tolist(), half.tolist(), total2.tolist()

        self.assertEqual(run(2, rank), [([3, -4], [2, 2], [3, -4], [2, 2])] * 2)

    def test_halves(self):
        def rank(comm):
            share, everything = mp.Tensor(context, 3 - comm.rank), mp.Tensor(context, 5)
            comm.reduce_scatter(context, array.array("f", range(5)), share, counts=[3, 2])
            comm.all_gather_values(context, share, everything, counts=[3, 2])
            with self.assertRaises(ValueError):
                comm.reduce_scatter(context, array.array("f", range(5)), share, counts=[5])
            with self.assertRaises(mp.Error):
                comm.reduce_scatter(context, array.array("f", range(5)), mp.Tensor(context, 1), counts=[3, 2])
            return everything.tolist()

        self.assertEqual(run(2, rank), [[0, 2, 4, 6, 8]] * 2)
        self.assertEqual(mp.wire_bytes(256, "fp8_e4m3", "block"), 264)


if __name__ == "__main__":
    unittest.main()
