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
