# SPDX-License-Identifier: Apache-2.0
"""Optimizers of one rank: rules, groups, states, the guard, and what they refuse."""

import array
import gc
import math
import os
import tempfile
import threading
import unittest

import mixedprec as mp
from common import context, floats, run


class Optimizers(unittest.TestCase):
    def setUp(self):
        self.p, self.g = floats(1, 1, 1, 1), floats(1, 1, 1, 1)

    def make(self, recipe="fp32", group=None, **options):
        optimizer = mp.Optimizer(mp.Recipe(context, recipe), **options)
        optimizer.add_group(**(group or {}))
        optimizer.add_param("p", self.p, self.g)
        return optimizer

    def write_model(self, path, name):
        header = b'{"' + name + b'":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}}'
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + floats(*[2] * 10).tobytes())

    def test_first_values(self):
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        w = mp.Tensor(context, (10,), deferred=True)
        optimizer.add_param("w", w)
        with self.assertRaisesRegex(mp.BadStateError, "'w' has no values"):
            optimizer.step()
        optimizer.init_params({"w": ("normal", 0.0, 1.0)}, seed=1)
        values = array.array("f", w.read())
        self.assertEqual((values[0], values[9]), (-0.10356707125902176, -0.7378919124603271))
        optimizer.init_params({"w": ("constant", 0.25)})
        self.assertEqual(array.array("f", w.read()), floats(*[0.25] * 10))

        def count(index, first, values):
            for i in range(len(values)):
                values[i] = first + i

        optimizer.fill_params(["w"], count)
        self.assertEqual(array.array("f", w.read()), floats(*range(10)))
        with self.assertRaises(mp.Error) as caught:
            optimizer.fill_params(["w"], lambda *_: 1 // 0)
        self.assertIsInstance(caught.exception.__cause__, ZeroDivisionError)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            self.write_model(path, b"a.w")
            optimizer.load_params(path, "a.")
            self.assertEqual(array.array("f", w.read()), floats(*[2] * 10))
            with self.assertRaisesRegex(mp.UnknownNameError, "'b.w'"):
                optimizer.load_params(path, "b.", ["w"])
        for wrong in (("normal", 0.0, -1.0), ("uniform", 1.0, 0.0)):
            with self.assertRaises(mp.InvalidArgumentError):
                optimizer.init_params({"w": wrong})

    def test_values_that_are_kept(self):
        optimizer = self.make()
        kept = []

        def fill(index, first, values):
            values[:] = floats(1, 2, 3, 4)
            kept.append(values[2:])

        optimizer.fill_params(["p"], fill)
        kept[0][0] = 9  # of nobody's any more
        self.assertEqual(list(self.p), [1, 2, 3, 4])

    def test_first_values_of_ranks_that_fail(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "model.safetensors")
        self.write_model(path, b"w")

        def rank(comm):
            optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm)
            optimizer.add_param("w", mp.Tensor(context, (10,), deferred=True))
            optimizer.shard()
            first = comm.rank == 0
            calls = (
                lambda: optimizer.load_params("/no/such/file" if first else path),
                lambda: optimizer.init_params({"w": ("normal" if first else "of my own", 0, 1)}),
                lambda: optimizer.fill_params(["w" if first else "x"], lambda *_: None),
            )
            failures = []
            for each in calls:
                with self.assertRaises(Exception) as caught:
                    each()
                failures.append(type(caught.exception).__name__)
            optimizer.init_params({"w": ("constant", 1.0)})
            optimizer.step()
            return failures

        self.assertEqual(
            run(2, rank), [["IOFailure", "PeerError", "PeerError"], ["PeerError", "ValueError", "KeyError"]]
        )

    def test_guard_and_history(self):
        optimizer = self.make(check_finite=True)
        self.g[:] = floats(0, 0, 0, 0)
        self.assertIsNone(optimizer.guard)
        optimizer.set_guard(max_loss_z=3, window=2)
        self.assertEqual(optimizer.guard, (0.0, 3.0, 2))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.json")
            optimizer.set_history(8, path)
            for loss in (1.0, 1.1, 100.0, 1.0):
                optimizer.set_loss(loss)
                optimizer.step()
            stats, records = optimizer.stats, optimizer.records
            self.assertEqual((stats.outlier_steps, stats.skipped_steps, stats.found_inf), (1, 1, False))
            self.assertEqual([r.outcome for r in records], ["taken", "taken", "outlier", "taken"])
            self.assertEqual((records[2].loss, records[3].call, records[3].step), (100.0, 4, 3))
            self.assertGreater(records[2].loss_z, 3)
            self.assertEqual(optimizer.bad_tensor, "")
            self.g[1] = math.inf
            with self.assertRaisesRegex(mp.BadStateError, "loss"):
                optimizer.step()  # without its loss
            optimizer.set_loss(1.0)
            optimizer.step()
            self.assertEqual(optimizer.bad_tensor, "the gradient of 'p'")
            self.assertEqual(optimizer.records[4].outcome, "non_finite")
            with open(path) as file:
                self.assertIn("bad", file.read())
        optimizer.set_guard()
        self.assertIsNone(optimizer.guard)
        for wrong in (dict(max_loss_z=-1), dict(max_loss_z=1, window=1), dict(window=5)):
            with self.assertRaises(mp.InvalidArgumentError):
                optimizer.set_guard(**wrong)
        with self.assertRaises(TypeError):
            optimizer.set_loss("1")
        optimizer.set_history(0)
        self.assertEqual(optimizer.records, [])

    def test_rules(self):
        for rule, first in (("adamw", 1 - 1e-3), ("adam", 1 - 1e-3), ("lion", 1 - 1e-4)):
            self.setUp()
            optimizer = self.make(group=dict(rule=rule))
            optimizer.step()
            self.assertAlmostEqual(self.p[0], first, 6)
            self.assertEqual(optimizer.groups[0].rule, rule)
        self.setUp()
        self.make(group=dict(maximize=True, lr=0.5)).step()
        self.assertAlmostEqual(self.p[0], 1.5, 6)
        with self.assertRaisesRegex(ValueError, "rule is 'sgd'"):
            self.make(group=dict(rule="sgd"))
        for wrong in (dict(lr=-1), dict(betas=(1.5, 0.9)), dict(eps=float("nan")), dict(weight_decay=-1)):
            with self.assertRaises(mp.InvalidArgumentError):
                self.make(group=wrong)
        with self.assertRaises(TypeError):
            self.make(group=dict(betas=("a", "b")))

    def test_literal_zeros(self):
        optimizer = self.make(group=dict(lr=0, betas=(0, 0.5), weight_decay=0.5))
        optimizer.step()
        self.assertEqual(list(self.p), [1, 1, 1, 1])
        self.assertEqual((optimizer.groups[0].lr, optimizer.groups[0].betas), (0, (0, 0.5)))
        self.assertEqual(optimizer.read_state("p", "exp_avg").tolist(), list(self.g))

    def test_schedule_groups_and_clipping(self):
        optimizer = self.make(max_grad_norm=1.0, check_finite=True)
        other = floats(2)
        second = optimizer.add_group(lr=0.1, state_formats={"exp_avg": "bf16"})
        optimizer.add_param("q", other, floats(0), group=second)
        self.assertEqual((optimizer.param_names, optimizer.param_group("q"), optimizer.group_count), (["p", "q"], 1, 2))
        self.assertEqual(optimizer.groups[1].state_formats, {"exp_avg": "bf16", "exp_avg_sq": "fp32"})
        with self.assertRaisesRegex(ValueError, "is 'exp_avg_sq'; it must be one of 'exp_avg'$"):
            optimizer.add_group(rule="lion", state_formats={"exp_avg_sq": "fp32"})
        with self.assertRaises(TypeError):
            optimizer.add_group(state_formats={"exp_avg": 32})
        optimizer.step()
        self.assertAlmostEqual(optimizer.stats.grad_norm, 2.0, 5)
        self.assertAlmostEqual(optimizer.stats.grad_mul, 0.5, 5)
        self.assertAlmostEqual(optimizer.grad_norm_tensor.tolist()[0], 2.0, 5)
        optimizer.max_grad_norm = 0
        self.assertEqual(optimizer.max_grad_norm, 0)
        optimizer.set_lr(0, 0)
        optimizer.set_enabled(False, second)
        before = list(self.p)
        optimizer.step()
        self.assertEqual(list(self.p), before)
        self.assertEqual([optimizer.group_step(i) for i in range(2)], [2, 1])
        self.assertFalse(optimizer.groups[1].enabled)
        lr = floats(0.25)
        optimizer.set_lr_tensor(lr, 0)
        optimizer.set_grad_scale_tensor(floats(2))
        optimizer.step()
        self.assertNotEqual(list(self.p), before)
        optimizer.set_lr_tensor(None)
        self.g[0] = float("inf")
        optimizer.step()
        self.assertEqual(
            (optimizer.stats.found_inf, optimizer.stats.skipped_steps, optimizer.found_inf_tensor.tolist()),
            (True, 1, [1]),
        )
        optimizer.zero_grad()
        self.assertEqual(list(self.g), [0] * 4)
        before = list(self.p)
        self.g[0] = float("nan")
        optimizer.mark_unused([0])
        optimizer.step()
        self.assertEqual((list(self.p), list(self.g), optimizer.stats.found_inf), (before, [0] * 4, False))

    def test_parameters_that_change(self):
        optimizer = self.make()
        optimizer.set_frozen(["p"])
        before = list(self.p)
        late = {"a": floats(1, 2), "b": floats(3)}
        self.assertEqual(optimizer.add_params(late, initial={"a": floats(5, 6)}, frozen=False), [1, 2])
        self.assertEqual(list(late["a"]), [5, 6])
        optimizer.set_frozen(["b"])
        self.assertEqual([optimizer.is_frozen(name) for name in "pab"], [True, False, True])
        optimizer.state("a", "grad").write(floats(1, 1))
        optimizer.step()
        self.assertEqual((list(self.p), list(late["b"])), (before, [3]))
        self.assertNotEqual(list(late["a"]), [5, 6])
        optimizer.set_frozen([0], False)
        self.assertEqual((optimizer.is_frozen("p"), optimizer.state("p", "grad").tolist()), (False, [0] * 4))
        with self.assertRaises(KeyError):
            optimizer.set_frozen(["no such"])

    def test_states(self):
        optimizer = self.make("bf16_mixed_dual")
        start = floats(0.1, 0.2, 0.3, 0.4)
        weight = mp.Tensor(context, 4, "bf16")
        optimizer.add_param("w", weight, initial=start)
        self.assertEqual(optimizer.state("w", "grad").shape, (4,))
        self.assertEqual(optimizer.read_state("w", "fp32_param").tolist(), list(start))
        out = floats(0, 0, 0, 0)
        self.assertIs(optimizer.read_state(1, "exp_avg", out), out)
        optimizer.write_state("w", "exp_avg", floats(1, 2, 3, 4))
        self.assertEqual(optimizer.read_state("w", "exp_avg").tolist(), [1, 2, 3, 4])
        weight.zero()
        optimizer.sync_master("w")
        self.assertEqual(optimizer.read_state("w", "fp32_param").tolist(), [0] * 4)
        optimizer.set_step(41)
        optimizer.set_group_step(7, 0)
        self.assertEqual((optimizer.stats.step, optimizer.group_step(0)), (41, 7))
        self.assertEqual(optimizer.memory.parameter_count, 8)
        with self.assertRaisesRegex(mp.UnknownNameError, "has no state 'exp_avgsq'"):
            optimizer.state("p", "exp_avgsq")
        with self.assertRaises(KeyError):
            optimizer.state("nobody", "grad")
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.state(9, "grad")
        with self.assertRaises(mp.InvalidShapeError):
            optimizer.write_state("w", "exp_avg", floats(1))
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.write_state("w", "exp_avg_sq", floats(-1, 0, 0, 0))
        self.assertEqual(optimizer.seed, 0)

    def test_offload_traffic(self):
        optimizer = self.make(offload=True)
        optimizer.step()
        moved = optimizer.offload_traffic
        self.assertEqual((moved.steps, moved.to_host_bytes, moved.to_device_bytes), (1, 16, 16))
        self.assertGreaterEqual(moved.step_ns, moved.waited_ns)
        self.assertEqual(self.make().offload_traffic.steps, 0)

    def test_gradients_may_be_the_hosts(self):
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), offload=True, offload_grads=True)
        optimizer.add_group()
        optimizer.add_param("p", self.p)
        with self.assertRaises(mp.BadStateError):
            optimizer.state("p", "grad").tolist()
        optimizer.acquire_grad("p")
        optimizer.state("p", "grad").write(floats(1, 1, 1, 1))
        optimizer.grad_ready("p")
        before = self.p[0]
        optimizer.step()
        context.sync()
        self.assertLess(self.p[0], before)
        self.assertEqual(optimizer.memory.grad_bytes, 64)  # lines of 64 bytes, on the host

    def test_steps_in_parts(self):
        def made(**options):
            optimizer, weights = mp.Optimizer(mp.Recipe(context, "fp32"), **options), {}
            for name in "abc":
                weights[name] = floats(1, 2, 3, 4)
                optimizer.add_param(name, weights[name], None if options else grads[name])
            return optimizer, weights

        grads = {name: floats(0, 0, 0, 0) for name in "abc"}
        (whole, expected), (parts, found), (given, others) = made(), made(), made(grads_given=True)
        for step in range(2):
            for i, grad in enumerate(grads.values()):
                grad[:] = floats(i - 1, step - i, 0.5, -step)
            whole.step()
            parts.step_begin()
            parts.step_params(["c"])
            parts.step_params([1])
            parts.step_end()  # "a", too
            given.step_begin()
            given.step_params(["c", 0], [grads["c"], grads["a"]])
            given.step_params(["b"], [mp.Tensor.wrap(context, grads["b"])])
            given.step_end()
            self.assertEqual(found, expected)
            self.assertEqual(others, expected)
        self.assertNotEqual(expected["a"], expected["b"])
        with self.assertRaisesRegex(mp.BadStateError, "step_begin"):
            parts.step_params(["a"])
        parts.step_begin()
        for wrong in ([], [grads["a"]] * 2):
            with self.assertRaisesRegex(ValueError, "one for each of 1 params"):
                parts.step_params(["a"], wrong)
        with self.assertRaisesRegex(TypeError, r"grads\[0\]"):
            parts.step_params(["a"], [1.0])
        with self.assertRaisesRegex(mp.BadStateError, "step_end"):
            parts.step()
        parts.step_end()
        with self.assertRaisesRegex(mp.BadStateError, "step_begin"):
            given.step()

    def test_mistakes(self):
        optimizer = self.make()
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.add_param("p", floats(1), floats(1))
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.add_param("tied", self.p, floats(1, 1, 1, 1))
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.add_param("grad over param", *[floats(1, 1)] * 2)
        with self.assertRaises(mp.InvalidShapeError):
            optimizer.add_param("q", floats(1), floats(1, 2))
        with self.assertRaises(mp.InvalidArgumentError):
            optimizer.add_param("q", floats(1), floats(1), group=5)
        with self.assertRaises(mp.InvalidDtypeError):
            optimizer.add_param("q", mp.Tensor(context, 1, "bf16"))
        with self.assertRaises(mp.Error):
            optimizer.add_param("", floats(1), floats(1))
        with self.assertRaisesRegex(ValueError, "sharding needs comm"):
            mp.Optimizer(optimizer.recipe, sharding=mp.Sharding())
        with self.assertRaises(TypeError):
            optimizer.step("scaler")
        with self.assertRaises(TypeError):
            optimizer.step(optimizer.recipe)

    def test_two_threads_in_one_optimizer(self):
        n = 200000
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        optimizer.add_param("p", array.array("f", bytes(4 * n)), array.array("f", bytes(4 * n)))
        steps, refused = [], []

        def run():
            for _ in range(30):
                try:
                    optimizer.step()
                    steps.append(1)
                except mp.BadStateError as error:
                    refused.append(error)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(optimizer.stats.step, len(steps))
        self.assertEqual(len(steps) + len(refused), 90)

    def test_linears(self):
        layers = [mp.Linear(mp.Recipe(context, "fp8_delayed"), mp.Tensor(context, (32, 32)))]
        optimizer = self.make()
        optimizer.set_linears(layers)
        heard = []
        layers[0].set_monitor("l", 1, lambda *line: heard.append(line))
        with self.assertRaises(mp.BadStateError):
            layers[0].end_step()
        layers.clear()
        gc.collect()
        optimizer.step()
        self.assertEqual(len(heard), 3)
        optimizer.set_linears([])


if __name__ == "__main__":
    unittest.main()
