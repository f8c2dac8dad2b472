# SPDX-License-Identifier: Apache-2.0
"""Communicators, reductions, transports in Python, optimizers that threads share."""

import array
import gc
import queue
import subprocess
import sys
import os
import threading
import time
import unittest

import mixedprec as mp

context = mp.Context(1)


def run(count, rank, deadline=20, comms=None):
    """rank(comm) in a thread for each rank; the results, or the first exception."""
    comms = comms or mp.Comm.threads(count, deadline=deadline)
    results = [None] * len(comms)

    def work(i):
        try:
            results[i] = rank(comms[i])
        except BaseException as error:
            results[i] = error
            comms[i].close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def words(*numbers):
    return array.array("I", numbers)


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
            mp._comm._check_parts("receive", 8, [4, 4], [0, 2], True)
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


shared = {}


class Transports(unittest.TestCase):
    def setUp(self):
        gc.collect()
        self.before = len(mp._comm._tables)

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
        self.assertEqual(len(mp._comm._tables), self.before)

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
        self.assertEqual(len(mp._comm._tables), self.before)


def train(comm, stage, steps=12, ranks=2, recipe="fp32"):
    """Parameters after some steps whose mean gradient over the ranks is known."""
    count = 40000
    sharding = mp.Sharding(stage=stage, bucket_elements=16384)
    optimizer = (
        mp.Optimizer(mp.Recipe(context, recipe), comm=comm, sharding=sharding)
        if comm
        else mp.Optimizer(mp.Recipe(context, recipe))
    )
    optimizer.add_group(lr=0.01)
    rank = comm.rank if comm else None
    start = array.array("f", [i % 7 for i in range(count)])
    params = [mp.Tensor(context, count) for _ in range(3)]
    for i, param in enumerate(params):
        param.write(start)
        optimizer.add_param(f"p{i}", param)
    grads = [optimizer.state(i, "grad") for i in range(3)]
    if comm:
        optimizer.shard()
    for step in range(steps):
        with optimizer.gathered(range(3)):
            for i, grad in enumerate(grads):
                optimizer.acquire_grad(i)
                mean = (step + i) % 3 - 1.0
                value = mean if rank is None else mean + (rank - (ranks - 1) / 2)
                grad.write(array.array("f", [value]) * count)
                if comm:
                    optimizer.grad_ready(i)
                garbage = [[] for _ in range(100)]
                garbage[0].append(garbage)
        optimizer.step()
    slices = comm and [optimizer.slice(0, r) for r in range(ranks)]
    with optimizer.gathered(range(3)):
        result = b"".join(param.read() for param in params)
    return (
        result,
        slices,
        optimizer.stats.step,
        comm and optimizer.progress.begun,
        comm and optimizer.traffic.total_bytes,
    )


class SharedOptimizers(unittest.TestCase):
    def test_the_bits_of_one_rank_while_the_collector_runs(self):
        alone = train(None, 0)[0]
        stop = threading.Event()

        def collect():
            while not stop.is_set():
                gc.collect()
                time.sleep(0.005)

        collector = threading.Thread(target=collect)
        collector.start()
        try:
            for stage in (0, 1, 2, 3):
                with self.subTest(stage=stage):
                    results = run(2, lambda comm: train(comm, stage))
                    for result, slices, step, begun, sent in results:
                        self.assertEqual(result, alone)
                        self.assertEqual(step, 12)
                        self.assertGreater(begun, 0)
                        self.assertGreater(sent, 0)
                        self.assertEqual(slices[0][0] if stage else 0, 0)
        finally:
            stop.set()
            collector.join()

    def test_the_same_over_a_transport_that_any_thread_may_call(self):
        alone = train(None, 0, steps=4)[0]

        class Anywhere(Pipes):
            any_thread = True

            def split(self, color, key, members, rank, number):
                made = super().split(color, key, members, rank, number)
                if made is not None:
                    made.__class__ = Anywhere
                return made

        boxes = [queue.Queue() for _ in range(2)]
        comms = [mp.Comm.custom(Anywhere(r, boxes), deadline=20) for r in range(2)]
        for result, *_ in run(2, lambda comm: train(comm, 2, steps=4), comms=comms):
            self.assertEqual(result, alone)

    def test_ranks_that_differ_are_told(self):
        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm)
            optimizer.add_param("p", mp.Tensor(context, 4 + comm.rank))
            optimizer.shard()

        with self.assertRaises(mp.RankMismatchError):
            run(2, rank)

    def test_memory_that_cannot_be_taken(self):
        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm, sharding=mp.Sharding(stage=3))
            optimizer.add_param("p", array.array("f", [0] * 8))
            with self.assertRaises(mp.BadStateError):
                optimizer.shard()

        run(2, rank)

    def test_memory_that_is_not_there(self):
        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm, sharding=mp.Sharding(stage=3))
            param = mp.Tensor(context, 8)
            optimizer.add_param("p", param)
            optimizer.shard()
            for use in (param.memory, param.__dlpack__, lambda: param.view(2), param.read):
                with self.assertRaises((BufferError, mp.Error)):
                    use()
            with optimizer.gathered(["p"]):
                view = param.memory()
                with self.assertRaises(mp.BadStateError):
                    optimizer.gather_free(["p"])
                view[0] = 1
                del view

        run(2, rank)

    def test_scaler_and_norm_over_ranks(self):
        def rank(comm):
            scaler, optimizer = mp.Scaler(context), mp.Optimizer(mp.Recipe(context, "fp32"), max_grad_norm=1)
            optimizer.add_param("p", array.array("f", [0]), array.array("f", [3.0 + comm.rank]))
            optimizer.set_norm_comm(comm)
            optimizer.step()
            scaler.check([array.array("f", [float("inf") if comm.rank else 0])])
            scaler.combine(comm)
            return round(optimizer.stats.grad_norm, 4), scaler.state.found_inf

        self.assertEqual(run(2, rank), [(5.0, True)] * 2)

    def test_layers_scale_alike(self):
        def rank(comm):
            layer = mp.Linear(mp.Recipe(context, "fp8_delayed"), mp.Tensor(context, (32, 32)), stats=True)
            x = mp.Tensor.wrap(context, array.array("f", [1.0 + comm.rank] * 32 * 16)).view((16, 32))
            layer.forward(x)
            mp.end_step([layer], comm)
            return layer.stats("input").scale_inv

        self.assertEqual(len(set(run(2, rank))), 1)


if __name__ == "__main__":
    unittest.main()
