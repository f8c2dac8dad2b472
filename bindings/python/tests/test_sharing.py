# SPDX-License-Identifier: Apache-2.0
"""Optimizers, scalers and layers that ranks share."""

import array
import gc
import queue
import threading
import time
import unittest

import mixedprec as mp
from common import context, run
from pipe_transport import Pipes


COUNT = 40000


def model(comm, stage, recipe="fp32"):
    """An optimizer of three parameters, and these."""
    sharding = mp.Sharding(stage=stage, bucket_elements=16384)
    optimizer = (
        mp.Optimizer(mp.Recipe(context, recipe), comm=comm, sharding=sharding)
        if comm
        else mp.Optimizer(mp.Recipe(context, recipe))
    )
    optimizer.add_group(lr=0.01)
    start = array.array("f", [i % 7 for i in range(COUNT)])
    params = [mp.Tensor(context, COUNT) for _ in range(3)]
    for i, param in enumerate(params):
        param.write(start)
        optimizer.add_param(f"p{i}", param)
    return optimizer, params


def gradient(step, param, rank, ranks=2):
    """Its mean over the ranks is that of one rank, which is None."""
    mean = (step + param) % 3 - 1.0
    return mean if rank is None else mean + (rank - (ranks - 1) / 2)


def train(comm, stage, steps=12, ranks=2, recipe="fp32"):
    """Parameters after some steps whose mean gradient over the ranks is known."""
    optimizer, params = model(comm, stage, recipe)
    rank = comm.rank if comm else None
    grads = [optimizer.state(i, "grad") for i in range(3)]
    if comm:
        optimizer.shard()
    for step in range(steps):
        with optimizer.gathered(range(3)):
            for i, grad in enumerate(grads):
                optimizer.acquire_grad(i)
                grad.write(array.array("f", [gradient(step, i, rank, ranks)]) * COUNT)
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


def is_there(param):
    try:
        return bool(param.read())
    except mp.Error:
        return False


def train_by_layers(comm, stage, steps=4):
    """The same steps, where layers have the parameters come and go, and which weights have memory between the passes.
    Gradients are sums of two micro-batches."""
    optimizer, params = model(comm, stage)
    layers = [[0, 1], [2]]
    optimizer.set_layer_params([["p0", 1], [2, "p0"]])  # p0 is tied: the first layer makes the end of its gradient
    optimizer.shard()
    for step in range(steps):
        for index in (0, 1):
            with optimizer.layer(index):
                assert is_there(params[0]) and is_there(params[index + 1])
        there = [is_there(param) for param in params]
        for last in (False, True):
            for index in (1, 0):
                with optimizer.layer(index, backward=True, last=last):
                    for i in layers[index]:
                        grad = optimizer.state(i, "grad")
                        # Also what must be kept from the first micro-batch to the second is exact.
                        value = array.array("f", grad.read())[-1] + 1 if last else gradient(step, i, comm.rank) - 1
                        grad.write(array.array("f", [value]) * COUNT)
        optimizer.step()
    result = b""
    for index in (0, 1):
        with optimizer.layer(index):
            result += b"".join(params[i].read() for i in layers[index])
    return result, there


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

    def test_layers_give_the_bits_of_one_rank(self):
        alone = train(None, 0, steps=4)[0]
        for stage in (0, 1, 2, 3):
            with self.subTest(stage=stage):
                for result, there in run(2, lambda comm: train_by_layers(comm, stage)):
                    self.assertEqual(result, alone)
                    self.assertEqual(there, [stage < 3] * 3)

    def test_layers_that_differ_are_told(self):
        def rank(comm):
            optimizer, _ = model(comm, 1)
            optimizer.set_layer_params([["p0"]] * (1 + comm.rank))
            optimizer.step()

        with self.assertRaises(mp.RankMismatchError):
            run(2, rank)

    def test_layers_are_checked_also_without_ranks(self):
        optimizer, _ = model(None, 0)
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.layer_begin(0)
        optimizer.set_layer_params([["p0", 1], []], prefetch=0)
        with self.assertRaises(mp.BadStateError):
            optimizer.layer_end(0)
        with optimizer.layer(0, backward=True), optimizer.layer(1):
            for wrong in (
                lambda: optimizer.layer_begin(0),
                lambda: optimizer.layer_end(0),
                lambda: optimizer.set_layer_params([]),
            ):
                with self.assertRaises(mp.BadStateError):
                    wrong()
        for index in (-1, 2):
            with self.assertRaises(mp.InvalidArgumentError):
                optimizer.layer_begin(index)
        for layers, prefetch in (([["p0", 0]], 1), ([[3]], 1), ([[-1]], 1), ([["p0"]], 65), ([["p0"]], -1)):
            with self.assertRaises(mp.InvalidArgumentError):
                optimizer.set_layer_params(layers, prefetch)
        with self.assertRaises(KeyError):
            optimizer.set_layer_params([["p3"]])
        with self.assertRaises(ZeroDivisionError), optimizer.layer(0, backward=True):
            1 / 0
        with optimizer.layer(0):  # the exception has ended it
            pass
        optimizer.step()
        optimizer.layer_begin(1)
        optimizer.step()  # ends it
        optimizer.set_layer_params([])

    def test_ranks_that_differ_are_told(self):
        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm)
            optimizer.add_param("p", mp.Tensor(context, 4 + comm.rank))
            optimizer.shard()

        with self.assertRaises(mp.RankMismatchError):
            run(2, rank)

    def test_memory_of_the_callers(self):
        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm, sharding=mp.Sharding(stage=3))
            weight = array.array("f", [1.5] * 8)
            optimizer.add_param("p", weight)
            optimizer.shard()
            weight[:] = array.array("f", [9] * 8)  # nobody reads it between uses
            with optimizer.gathered(["p"]):
                self.assertEqual(list(weight), [1.5] * 8)

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
