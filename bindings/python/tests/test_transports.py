# SPDX-License-Identifier: Apache-2.0
"""Transports written in Python."""

import array
import gc
import queue
import sys
import unittest

import mixedprec as mp
from common import context, run, words
from pipe_transport import Pipes


class Transports(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.before = len(mp._transport.tables)

    def test_every_operation(self):
        boxes = [queue.Queue() for _ in range(2)]
        transports = [Pipes(r, boxes) for r in range(2)]
        comms = [mp.Comm.custom(transport, deadline=20) for transport in transports]

        def rank(comm):
            r, received, data = comm.rank, words(0, 0), bytearray(b"root" if comm.rank else 4)
            comm.all_to_all(words(10 * r, 10 * r + 1), received)
            comm.broadcast(data, 1)
            largest = words(r, 5 - r)
            comm.max_u32(largest)
            comm.barrier()
            total = mp.Tensor(context, 2)
            comm.all_reduce(context, array.array("f", [r, 1]), total, order="fast")
            group = comm.split(0)
            group.barrier()
            size = group.size
            group.close()
            return list(received), bytes(data), list(largest), total.tolist(), size

        self.assertEqual(run(2, rank, comms=comms), [([r, 10 + r], b"root", [1, 5], [1, 2], 2) for r in range(2)])
        for comm, transport in zip(comms, transports):
            comm.close()
            self.assertEqual(transport.closed, 1)
            with self.assertRaisesRegex(ValueError, "over"):
                transport.over[0].receive(0, bytes(4))
        self.assertEqual(len(mp._transport.tables), self.before)

    def test_what_it_raises_is_the_cause(self):
        transport = Pipes(0, [queue.Queue()], fail_at=1)
        comm = mp.Comm.custom(transport, deadline=5)
        comm.barrier()
        with self.assertRaises(mp.CallbackFailedError) as caught:
            comm.barrier()
        self.assertIsInstance(caught.exception.__cause__, RuntimeError)
        self.assertEqual(str(caught.exception.__cause__), "the cable is cut")
        self.assertTrue(transport.aborted)

    def test_it_must_not_use_its_own_communicator(self):
        class Wrong(Pipes):
            def begin(self, operation):
                comm.barrier()

        comm = mp.Comm.custom(Wrong(0, [queue.Queue()]), deadline=5)
        with self.assertRaises(mp.CallbackFailedError) as caught:
            comm.barrier()
        self.assertIsInstance(caught.exception.__cause__, mp.BadStateError)

    def test_an_abort_or_release_that_fails_is_heard(self):
        class Wrong(Pipes):
            def release(self, request):
                raise KeyError("release")

        heard, hook = [], sys.unraisablehook
        sys.unraisablehook = lambda found: heard.append(found.exc_type)
        try:
            mp.Comm.custom(Wrong(0, [queue.Queue()]), deadline=5).barrier()
        finally:
            sys.unraisablehook = hook
        self.assertEqual(heard, [KeyError])

    def test_a_wrong_size_is_refused(self):
        class Wrong(Pipes):
            def poll(self, request):
                request[0].receive(0, b"too many bytes")

        comm = mp.Comm.custom(Wrong(0, [queue.Queue()]), deadline=5)
        with self.assertRaises(mp.CallbackFailedError) as caught:
            comm.all_gather(b"abcd", bytearray(4))
        self.assertIn("there must be 4", str(caught.exception.__cause__))

    def test_what_is_no_transport(self):
        with self.assertRaisesRegex(TypeError, "derive its class"):
            mp.Comm.custom(object())
        with self.assertRaises(mp.InvalidArgumentError):
            mp.Comm.custom(Pipes(5, [queue.Queue()]))
        transport = Pipes(0, [queue.Queue()])
        transport.nodes = [0, 0]
        with self.assertRaises(ValueError):
            mp.Comm.custom(transport)
        self.assertEqual(len(mp._transport.tables), self.before)


if __name__ == "__main__":
    unittest.main()
