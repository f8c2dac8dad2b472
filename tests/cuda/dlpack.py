#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DLPack between libraries with streams of their own, in Python, on the simulated device: its streams do nothing until
somebody waits for them, so work that nobody ordered is late."""
import array
import unittest

import mixedprec as mp
from mixedprec import _dlpack

COUNT = 4096
LEGACY, PER_THREAD = 1, 2


class Library:
    """Another library: a stream, and an array that a kernel on it has yet to write."""

    def __init__(self, context, value):
        self.context = context
        self.queue = mp.Queue(context)
        self.array = mp.Tensor(context, COUNT)
        values = mp.Tensor.wrap(context, array.array("f", [value]) * COUNT)
        self.source = mp.Tensor(context, COUNT)
        self.source.copy_from(values)
        context.sync()
        self.source.cast(self.array, queue=self.queue)
        self.streams = []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        if stream is not None:
            with _dlpack.wrap(self.context, stream) as theirs:
                _dlpack.order(self.context, self.queue, theirs)
        return self.array.__dlpack__(stream=-1, max_version=max_version)


class Before10(Library):
    def __dlpack__(self, stream=None):
        return super().__dlpack__(stream=stream)


class WithoutStreams(Library):
    """Takes no stream, and has the default one wait instead."""

    def __dlpack__(self):
        super().__dlpack__(stream=LEGACY)
        return super().__dlpack__()


class Streams(unittest.TestCase):
    def setUp(self):
        self.context = mp.Context(device="cuda")

    @staticmethod
    def values(tensor):
        return set(tensor.tolist())  # waits for the default queue

    def test_what_comes_in_is_used_after_the_producers_work(self):
        for kind in (Library, Before10, WithoutStreams):
            with self.subTest(kind.__name__):
                producer = kind(self.context, 2.0)
                with mp.from_dlpack(self.context, producer) as tensor:
                    result = tensor.cast("fp32")
                    self.assertEqual(self.values(result), {2.0})

    def test_the_producer_is_told_a_stream_of_ours(self):
        producer = Library(self.context, 1.0)
        mp.from_dlpack(self.context, producer).close()
        mp.from_dlpack(self.context, producer).close()
        queue = mp.Queue(self.context)
        mp.from_dlpack(self.context, producer, queue).close()
        first, second, third = producer.streams
        self.assertEqual(first, second)
        self.assertGreater(first, PER_THREAD)
        self.assertEqual(third, queue.native)

    def test_a_queue_of_the_callers_comes_after_the_producers_work(self):
        producer, queue = Library(self.context, 3.0), mp.Queue(self.context)
        with mp.from_dlpack(self.context, producer, queue) as tensor:
            result = tensor.cast("fp32", queue=queue)
            queue.sync()
            self.assertEqual(self.values(result), {3.0})

    def test_an_argument_comes_in_on_the_queue_of_its_call(self):
        gemm, queue = mp.Gemm(self.context, 64, 64, 64), mp.Queue(self.context)
        arrays = [Library(self.context, value) for value in (2.0, 3.0, 5.0)]
        gemm.run(*arrays, queue=queue)
        queue.sync()
        self.assertEqual([array.streams for array in arrays], [[queue.native]] * 3)
        self.assertEqual(self.values(arrays[2].array), {64 * 2.0 * 3.0})

    def test_what_goes_out_is_used_after_our_work(self):
        for version in (None, (1, 0)):
            ours = Library(self.context, 4.0)
            tensor = mp.Tensor(self.context, COUNT)
            self.context.sync()
            ours.source.cast(tensor)  # on the default queue, pending
            with mp.Queue(self.context) as consumer:
                capsule = tensor.__dlpack__(stream=consumer.native, max_version=version)
                result = mp.Tensor(self.context, COUNT)
                with mp.from_dlpack(self.context, capsule) as theirs:
                    theirs.cast(result, queue=consumer)
                    consumer.sync()
                    self.assertEqual(self.values(result), {4.0})

    def test_every_stream_of_the_protocol(self):
        tensor = mp.Tensor(self.context, COUNT)
        for stream in (None, LEGACY, PER_THREAD, -1):
            tensor.__dlpack__(stream=stream)
        with self.assertRaisesRegex(ValueError, "stream is 0"):
            tensor.__dlpack__(stream=0)
        host = mp.Tensor(self.context, COUNT, device="host")
        host.__dlpack__(stream=None)
        with self.assertRaisesRegex(ValueError, "on the host"):
            host.__dlpack__(stream=LEGACY)

    def test_a_context_that_is_closed_is_closed(self):
        mp.from_dlpack(self.context, Library(self.context, 1.0)).close()
        self.context.close()
        self.assertTrue(self.context.closed)


if __name__ == "__main__":
    unittest.main()
