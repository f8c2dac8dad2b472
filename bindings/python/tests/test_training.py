# SPDX-License-Identifier: Apache-2.0
"""Recipes, products, layers, optimizers, steps on own arrays, loss scalers."""

import array
import gc
import json
import math
import os
import sys
import tempfile
import unittest
import weakref

import mixedprec as mp

context = mp.Context(1)


def floats(*numbers):
    return array.array("f", numbers)


def tensor(shape, numbers, dtype="fp32"):
    made = mp.Tensor(context, shape)
    made.write(floats(*numbers))
    return made if dtype == "fp32" else made.cast(dtype)


class Recipes(unittest.TestCase):
    def test_presets_and_keys(self):
        self.assertIn("bf16_mixed", mp.presets())
        keys = mp.recipe_keys()
        self.assertEqual(keys["gemm.margin"].kind, int)
        self.assertIn("fp32", keys["weight.dtype"].allowed.split("|"))
        for name in mp.presets():
            mp.Recipe(context, name)

    def test_keys(self):
        recipe = mp.Recipe(context, "fp8_delayed", {"gemm.margin": 2, "scaler.kind": "dynamic"})
        self.assertEqual(
            (recipe["gemm.margin"], recipe["scaler.kind"], recipe["scaler.growth_factor"]), (2, "dynamic", 2.0)
        )
        recipe["scaler.growth_factor"] = 4
        self.assertEqual(dict(recipe)["scaler.growth_factor"], 4.0)
        with self.assertRaisesRegex(mp.UnknownNameError, "gemm.margin"):
            recipe["fp8.margn"] = "1"
        with self.assertRaises(mp.UnknownNameError):
            recipe["nothing"]
        for key, wrong in (
            ("gemm.margin", 1.5),
            ("gemm.margin", "1"),
            ("weight.dtype", 1),
            ("scaler.growth_factor", "2"),
        ):
            with self.assertRaises(TypeError):
                recipe[key] = wrong
        for key, wrong in (("gemm.margin", 2**40), ("weight.dtype", "fp3")):
            with self.assertRaises(ValueError):
                recipe[key] = wrong
        with self.assertRaises(OverflowError):
            recipe["gemm.margin"] = 2**70

    def test_json(self):
        recipe = mp.Recipe.from_json(context, {"recipe": "bf16_mixed", "scaler.kind": "static"})
        self.assertEqual(json.loads(recipe.to_json())["scaler.kind"], "static")
        self.assertEqual(mp.Recipe.from_json(context, recipe.to_json()).to_json(), recipe.to_json())
        with self.assertRaises(mp.ParseError):
            mp.Recipe.from_json(context, "{")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recipe.json")
            with self.assertRaises(OSError):
                mp.Recipe.from_file(context, path)
            with open(path, "w") as file:
                file.write(recipe.to_json())
            self.assertEqual(mp.Recipe.from_file(context, path).to_json(), recipe.to_json())

    def test_frozen(self):
        recipe = mp.Recipe(context, "fp32")
        self.assertFalse(recipe.frozen)
        mp.Scaler.from_recipe(recipe)
        self.assertTrue(recipe.frozen)
        with self.assertRaises(mp.BadStateError):
            recipe["scaler.kind"] = "static"
        copy = recipe.clone()
        copy["scaler.kind"] = "static"
        self.assertEqual(recipe["scaler.kind"], "none")

    def test_validate_and_reason(self):
        recipe = mp.Recipe(context, "bf16_pure")
        with self.assertWarnsRegex(mp.Note, "exp_avg_sq"):
            recipe.validate()
        self.assertEqual(recipe.reason, "")
        self.assertNotEqual(mp.Recipe(context, "auto").reason, "")

    def test_weights(self):
        values = floats(*[i / 7 for i in range(6)])
        for name, dtype in (("fp32", "fp32"), ("bf16_pure", "bf16"), ("msamp_o2", "fp16")):
            weight = mp.Recipe(context, name).weight((2, 3), values)
            self.assertEqual((weight.shape, weight.dtype), ((2, 3), dtype))
            self.assertLess(max(abs(a - b) for a, b in zip(weight.tolist(), values)), 4e-3)
        codes = mp.Recipe(context, "fp8_delayed").weight((2, 3), values, codes=True)
        self.assertEqual(codes.dtype, "fp8_e4m3")
        with self.assertRaises(ValueError):
            mp.Recipe(context, "fp32").weight((2, 4), values)
        with self.assertRaises(ValueError):
            mp.Recipe(context, "fp32").weight((2, 3), array.array("d", [0] * 6))

    def test_memory_plan(self):
        recipe = mp.Recipe(context, "fp32")
        plan = recipe.plan_memory(1000)
        self.assertEqual((plan.parameter_count, plan.total_bytes), (1000, 16000))
        self.assertEqual(plan.state_bytes, {"exp_avg": 4000, "exp_avg_sq": 4000})
        self.assertEqual(recipe.plan_memory([600, 400]), plan)
        self.assertEqual(recipe.plan_memory(1000, "lion").state_bytes["exp_avg_sq"], 0)
        half = recipe.plan_memory([32768], sharding=mp.Sharding(stage=1), rank=0, ranks=2)
        self.assertEqual(half.state_bytes["exp_avg"], 4 * 16384)
        with self.assertRaises(ValueError):
            recipe.plan_memory(-1)
        with self.assertRaisesRegex(ValueError, "rule is 'sgd'"):
            recipe.plan_memory(1, "sgd")

    def test_plan_of_tensors_that_differ(self):
        recipe, planned = mp.Recipe(context, "bf16_pure"), mp.PlannedTensor
        memory, traffic = recipe.plan_tensors([1000, planned(24, "fp32", rule="lion")])
        self.assertEqual((memory.weight_bytes, memory.state_bytes["exp_avg_sq"]), (2 * 1000 + 4 * 24, 2 * 1000))
        self.assertEqual(traffic.total_bytes, 0)
        memory, _ = recipe.plan_tensors([planned(1000, state_formats={"exp_avg": "fp32"})])
        self.assertEqual(memory.state_bytes, {"exp_avg": 4000, "exp_avg_sq": 2000})
        _, traffic = recipe.plan_tensors([1 << 16], sharding=mp.Sharding(stage=3), rank=1, ranks=2)
        self.assertGreater(traffic.all_gather_bytes, 0)
        self.assertEqual(recipe.plan_tensors([])[0].total_bytes, 0)
        for wrong in (planned(1, "bf17"), planned(1, rule="sgd"), planned(-1), planned(1, state_formats={"m": "fp32"})):
            with self.assertRaises(ValueError):
                recipe.plan_tensors([wrong])
        for wrong in (planned(1, "fp16"), planned(1, state_formats={"exp_avg": "int9"})):
            with self.assertRaises(mp.Error):
                recipe.plan_tensors([wrong])


class Products(unittest.TestCase):
    def test_gemm(self):
        a, b, d = tensor((2, 3), range(6)), tensor((3, 2), range(6)), mp.Tensor(context, (2, 2))
        gemm = mp.Gemm(context, 2, 2, 3)
        self.assertIs(gemm.run(a, b, d), d)
        self.assertEqual(d.tolist(), [10, 13, 28, 40])
        self.assertTrue(gemm.describe())
        mp.Gemm(context, 2, 2, 3, alpha=2, beta=1, bias="fp32", trans_b=True).run(
            a, tensor((2, 3), range(6)), d, c=d, bias=floats(1, 2)
        )
        self.assertEqual(d.tolist(), [10 + 10 + 1, 13 + 28 + 2, 28 + 28 + 1, 40 + 100 + 2])

    def test_a_product_of_nothing(self):
        for m, n, k in ((0, 3, 2), (2, 3, 0), (3, 0, 2), (0, 0, 0)):
            d = tensor((m, n), [7] * (m * n))
            mp.Gemm(context, m, n, k).run(mp.Tensor(context, (m, k)), mp.Tensor(context, (k, n)), d)
            self.assertEqual(d.tolist(), [0] * (m * n))

    def test_arrays(self):
        d = floats(0, 0, 0, 0)
        mp.Gemm(context, 2, 2, 2).run(tensor((2, 2), [1, 2, 3, 4]), floats(1, 0, 0, 1), d)
        self.assertEqual(list(d), [1, 2, 3, 4])

    def test_scaled(self):
        a = mp.Tensor(context, (16, 32), "fp8_e4m3", mp.Quant("mx_1x32"))
        tensor((16, 32), [2.0] * 512).quantize(a)
        d = mp.Tensor(context, (16, 16))
        mp.Gemm(context, 16, 16, 32, a="fp8_e4m3", trans_b=True, scale_a=("e8m0", 1, 32), scale_b=("e8m0", 1, 32)).run(
            a, a, d
        )
        self.assertEqual(d.tolist(), [128.0] * 256)

    def test_a_product_as_codes(self):
        a, b, d = tensor((2, 3), range(6)), tensor((3, 2), range(6)), mp.Tensor(context, (2, 2))
        codes, expected = (mp.Tensor(context, (2, 2), "fp8_e4m3", mp.Quant("row")) for _ in range(2))
        mp.Gemm(context, 2, 2, 3, d="fp8_e4m3", quant_d=mp.Quant("row")).run(a, b, codes)
        mp.Gemm(context, 2, 2, 3).run(a, b, d).quantize(expected)
        self.assertEqual(codes.dequantize().tolist(), expected.dequantize().tolist())
        with self.assertRaises(mp.InvalidDtypeError):
            mp.Gemm(context, 2, 2, 3, d="fp8_e4m3").run(a, b, codes)

    def test_mistakes(self):
        gemm = mp.Gemm(context, 2, 2, 3)
        a, b, d = mp.Tensor(context, (2, 3)), mp.Tensor(context, (3, 2)), mp.Tensor(context, (2, 2))
        for wrong in (
            lambda: gemm.run(a, b, a),
            lambda: gemm.run(a, mp.Tensor(context, 5), d),
            lambda: gemm.run(a, b, d, bias=d),
            lambda: mp.Gemm(context, -1, 2, 2),
            lambda: gemm.run(a, None, d),
            lambda: mp.Gemm(context, 1, 1, 1, implementation="magic"),
        ):
            with self.assertRaises(mp.Error):
                wrong()
        with self.assertRaises(mp.InvalidDtypeError):
            gemm.run(a, b, mp.Tensor(context, (2, 2), "bf16"))


class Layers(unittest.TestCase):
    def layer(self, recipe="fp32", inputs=32, outputs=32, **options):
        numbers = [math.sin(i) / 8 for i in range(inputs * outputs)]
        weight = tensor((outputs, inputs), numbers)
        return mp.Linear(mp.Recipe(context, recipe), weight, **options), numbers

    def test_forward_and_backward(self):
        layer, w = self.layer(inputs=3, outputs=2)
        x, dy = [1, 2, 3, 4, 5, 6], [1, -1, 0.5, 2]
        y = layer.forward(tensor((2, 3), x))
        self.assertEqual((y.shape, y.dtype), ((2, 2), "fp32"))
        for r in range(2):
            for o in range(2):
                self.assertAlmostEqual(y.tolist()[2 * r + o], sum(x[3 * r + i] * w[3 * o + i] for i in range(3)), 6)
        dx, dw = mp.Tensor(context, (2, 3)), mp.Tensor(context, (2, 3))
        layer.backward(tensor((2, 2), dy), dx, dw)
        for o in range(2):
            for i in range(3):
                self.assertAlmostEqual(dw.tolist()[3 * o + i], sum(dy[2 * r + o] * x[3 * r + i] for r in range(2)), 6)
        layer.backward_weight(tensor((2, 2), dy), dw, accumulate=True)
        self.assertAlmostEqual(dw.tolist()[0], 2 * (1 * 1 + 0.5 * 4), 6)
        self.assertEqual(layer.backward_data(tensor((2, 2), dy)).tolist(), dx.tolist())
        layer.backward(tensor((2, 2), dy), dx)

    def test_arrays_bias_and_batches(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("numpy is not installed")
        w, b = np.eye(4, dtype=np.float32), np.full(4, 0.5, np.float32)
        layer = mp.Linear(mp.Recipe(context, "fp32"), w, b)
        y = np.zeros((2, 3, 4), np.float32)
        self.assertIs(layer.forward(np.ones((2, 3, 4), np.float32), y), y)
        self.assertTrue((y == 1.5).all())
        dw, db = np.zeros_like(w), np.zeros_like(b)
        gc.collect()  # x is gone here, but not for the layer, which refers to it
        layer.backward(np.ones((2, 3, 4), np.float32), dw=dw, dbias=db)
        self.assertTrue((dw == 6).all() and (db == 6).all())
        w[:] = 0
        self.assertTrue((np.asarray(layer.forward(np.ones((1, 4), np.float32))) == 0.5).all())

    def test_mistakes(self):
        layer, _ = self.layer()
        x, y = mp.Tensor(context, (2, 32)), mp.Tensor(context, (2, 32))
        with self.assertRaises(mp.BadStateError):
            layer.backward(y, x, mp.Tensor(context, (32, 32)))
        for wrong in (
            lambda: layer.forward(mp.Tensor(context, (2, 31))),
            lambda: layer.forward(x, mp.Tensor(context, (3, 32))),
            lambda: layer.forward(x, x),
        ):
            with self.assertRaises(ValueError):
                wrong()
        layer.forward(x, y)
        with self.assertRaises(ValueError):
            layer.backward(y, x, mp.Tensor(context, (32, 31)))
        with self.assertRaises(ValueError):
            layer.backward(y, None, mp.Tensor(context, (32, 32)), mp.Tensor(context, 32))
        with self.assertRaisesRegex(ValueError, r"weight is \[4\]; it must be \[out, in\]"):
            mp.Linear(mp.Recipe(context), floats(1, 2, 3, 4))
        with self.assertRaises(TypeError):
            layer.forward([1.0] * 32)

    def test_a_layer_that_leaves_its_recipe_says_so(self):
        with self.assertWarnsRegex(mp.Note, "48"):
            self.layer("mxfp8", 64, 48)

    def test_saved(self):
        layer, _ = self.layer("fp8_current")
        xs = [tensor((16, 32), [math.cos(i + k) for i in range(512)]) for k in range(2)]
        dy = tensor((16, 32), [math.sin(i) for i in range(512)])

        def gradient(x, **options):
            saved, dw = layer.saved(), mp.Tensor(context, (32, 32))
            layer.forward(x, saved=saved, **options)
            if options:
                layer.forward(x, saved=saved, recompute=True)
            layer.backward(dy, dw=dw, saved=saved)
            return dw.tolist()

        first, second = gradient(xs[0]), gradient(xs[1])
        self.assertNotEqual(first, second)
        self.assertEqual(gradient(xs[0], drop=True), first)
        both, dw = [layer.saved(), layer.saved()], mp.Tensor(context, (32, 32))
        for saved, x in zip(both, xs):
            layer.forward(x, saved=saved)
        layer.backward(dy, dw=dw, saved=both[0])
        self.assertEqual(dw.tolist(), first)
        memory = bytearray(layer.saved_bytes(16) + 512)
        at = -mp._memory.memory(memory).address % 256
        part = memoryview(memory)[at : at + layer.saved_bytes(16)]
        saved = layer.saved()
        saved.set_memory(part)
        del part
        with self.assertRaises(BufferError):
            memory.clear()
        layer.forward(xs[1], saved=saved)
        layer.backward(dy, dw=dw, saved=saved)
        self.assertEqual(dw.tolist(), second)
        with self.assertRaises(ValueError):
            saved.set_memory(bytearray(1))
        saved.close()
        gc.collect()
        memory.clear()
        with self.assertRaises(mp.Error):
            self.layer()[0].backward(dy, dw=dw, saved=both[0])

    def test_codes_of_the_callers(self):
        layer, _ = self.layer("fp8_current")
        dtype, quant = layer.operand_format("fprop", "input")
        self.assertEqual((dtype, quant.scaling), ("fp8_e4m3", "tensor"))
        self.assertIsNone(self.layer("bf16_mixed")[0].operand_format("fprop", "input")[1])
        x = tensor((16, 32), [math.cos(i) for i in range(512)])
        codes = layer.quantize("fprop", "input", x)
        self.assertEqual(layer.forward(codes).tolist(), layer.forward(x).tolist())
        weight = mp.Tensor(context, (32, 32), "fp8_e4m3", quant)
        self.assertIsNone(layer.weight_codes("fprop"))
        layer.set_weight_codes(weight)
        self.assertEqual(layer.forward(x).tolist(), [0.0] * 512)
        self.assertEqual(layer.weight_codes("fprop").shape, (32, 32))
        layer.set_weight_codes(None)
        layer.gradient_rounding = mp.Random(1, 2, 3, 4)
        self.assertEqual(layer.gradient_rounding, mp.Random(1, 2, 3, 4))
        layer.gradient_rounding = None
        self.assertIsNone(layer.gradient_rounding)
        with self.assertRaises(mp.BadStateError):
            layer.multiply_tensor("input")
        self.assertEqual(self.layer("fp8_delayed")[0].multiply_tensor("input").shape, (1,))

    def test_statistics_and_scaling(self):
        layer, _ = self.layer("fp8_delayed", stats=True)
        x = tensor((16, 32), [math.cos(i) for i in range(512)])
        layer.forward(x)
        layer.end_step()
        stats = layer.stats("input")
        self.assertEqual((stats.operand, stats.dtype, stats.elements), ("input", "fp8_e4m3", 512))
        self.assertEqual(stats.amax, 1.0)
        self.assertEqual(layer.advice("input"), "")
        layer.clear_stats()
        self.assertEqual(layer.stats("input").elements, 0)
        other, _ = self.layer("fp8_delayed", stats=True)
        self.assertNotEqual(other.stats("input").scale_inv, stats.scale_inv)
        other.scaling = layer.scaling
        self.assertEqual(other.stats("input").scale_inv, stats.scale_inv)
        with self.assertRaises(mp.ParseError):
            other.scaling = b"nonsense"
        self.assertIn("fp8", layer.describe())
        with self.assertRaisesRegex(ValueError, "operand is 'x'"):
            layer.stats("x")
        with self.assertRaises(mp.BadStateError):
            self.layer()[0].stats("input")

    def test_monitor(self):
        layer, _ = self.layer("fp8_delayed")
        heard = []
        layer.set_monitor("mine", 2, lambda name, stats, advice: heard.append((name, stats.operand)))
        x = tensor((16, 32), [1.0] * 512)
        for _ in range(4):
            layer.forward(x)
            mp.end_step([layer])
        self.assertEqual(heard, [("mine", operand) for operand in ("input", "weight", "grad_output")] * 2)
        unheard, hook = [], sys.unraisablehook
        sys.unraisablehook = unheard.append
        try:
            layer.set_monitor("mine", 1, lambda *_: layer.describe())
            layer.forward(x)
            layer.end_step()
        finally:
            sys.unraisablehook = hook
        self.assertIs(unheard[0].exc_type, mp.BadStateError)
        layer.set_monitor("mine", 0, print)
        layer.end_step()
        unheard.clear()
        layer.set_monitor("mine", 1, lambda *_: layer.describe())  # refers to the layer, and does not keep it
        alive = weakref.ref(layer)
        del layer
        gc.collect()
        self.assertIsNone(alive())


class Optimizers(unittest.TestCase):
    def setUp(self):
        self.p, self.g = floats(1, 1, 1, 1), floats(1, 1, 1, 1)

    def make(self, recipe="fp32", group=None, **options):
        optimizer = mp.Optimizer(mp.Recipe(context, recipe), **options)
        optimizer.add_group(**(group or {}))
        optimizer.add_param("p", self.p, self.g)
        return optimizer

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
        import threading

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


class OwnArrays(unittest.TestCase):
    def test_the_same_bits_as_the_optimizer(self):
        p, g, q, h, m, v = (floats(*[x] * 37) for x in (1, 0, 1, 0, 0, 0))
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        optimizer.add_group(weight_decay=0.01)
        optimizer.add_param("p", p, g)
        slot = mp.Slot(q, h, m, v)
        for t in range(1, 11):
            g[:] = h[:] = floats(*[math.sin(t)] * 37)
            optimizer.step()
            stats = mp.step(context, slot, step=t, weight_decay=0.01)
        self.assertEqual(p, q)
        self.assertAlmostEqual(p[0], 0.99624567607096415, 6)
        self.assertFalse(stats.found_inf)

    def test_plan(self):
        p, g, q, h = (floats(*[x] * 37) for x in (1, 2, 1, 2))
        m, v, n, w = (floats(*[0] * 37) for _ in range(4))
        plan = mp.StepPlan(context, [mp.Slot(p, g, m, v)], lr=0.1)
        slot = mp.Slot(q, h, n, w)
        for t in range(1, 6):
            plan.run()
            mp.step(context, [slot], step=t, lr=0.1)
        self.assertEqual(p, q)
        self.assertEqual(plan.stats.step, 5)
        plan.set(lr=0.0)
        plan.run()
        self.assertEqual(p, q)
        plan.set(betas=(0.0, 0.9))
        plan.run()
        self.assertEqual(m, g)
        with self.assertRaises(BufferError):
            p.append(1)
        plan.close()
        gc.collect()
        p.append(1)

    def test_codes(self):
        n = 300
        p = array.array("H", [0x3F80] * n)
        g, c = (array.array("H", [0x3F80] * n), array.array("H", [0] * n))
        states = dict(exp_avg=bytearray(n), exp_avg_sq=bytearray(n))
        slot = mp.Slot(
            (p, "bf16"),
            (g, "bf16"),
            *states.values(),
            compensation=(c, "bf16"),
            uid=3,
            codings={"exp_avg": "dynamic8", "exp_avg_sq": "companded8"},
            scale_inv={"exp_avg": floats(0, 0), "exp_avg_sq": (array.array("H", [0] * 10), "fp16")},
        )
        mp.step(context, slot, lr=0.25, stochastic="param")
        self.assertEqual(p[0], 0x3F40)
        with self.assertRaisesRegex(ValueError, "stochastic is 'exp_avg_sq'; it must be one of 'param', 'exp_avg'$"):
            mp.step(context, slot, rule="lion", stochastic="exp_avg_sq")
        tensors = mp.Tensor(context, 4), mp.Tensor(context, 4), mp.Tensor(context, 4), mp.Tensor(context, 4)
        slot = mp.Slot(*tensors, param_amax=floats(-1))
        for t in tensors:
            t.close()
        gc.collect()
        mp.step(context, slot)  # the slot holds their memory

    def test_mistakes(self):
        p, g, m, v = (floats(1, 2, 3, 4) for _ in range(4))
        for wrong, why in (
            (lambda: mp.Slot(p, floats(1), m, v), "grad has 1 elements; it must have 4"),
            (lambda: mp.Slot(p, g, m, floats()), "exp_avg_sq has 0"),
            (lambda: mp.Slot((p, "bf16"), g, m, v), "elements of 4 bytes"),
            (lambda: mp.Slot(p, g, bytearray(4), v, codings={"exp_avg": "dynamic8"}), "needs scale_inv"),
            (
                lambda: mp.Slot(
                    p, g, bytearray(4), v, codings={"exp_avg": "dynamic8"}, scale_inv={"exp_avg": floats()}
                ),
                "it must have 4",
            ),
            (lambda: mp.Slot(p, g, m, v, codings={"exp": "dynamic8"}), "does not have"),
            (lambda: mp.Slot(p, bytes(16), m, v), "read-only"),
            (lambda: mp.Slot(p, g, m, v, codings={"exp_avg": "zip"}), "coding of exp_avg is 'zip'"),
        ):
            with self.assertRaisesRegex(ValueError, why):
                wrong()
        with self.assertRaises(TypeError):
            mp.Slot(p, None)
        with self.assertRaises(TypeError):
            mp.step(context, [p])
        with self.assertRaises(mp.Error):
            mp.step(context, mp.Slot(p, p, m, v))
        with self.assertRaises(mp.Error):
            mp.step(
                context, [mp.Slot(p, g, m, v), mp.Slot(p, floats(1, 1, 1, 1), floats(0, 0, 0, 0), floats(0, 0, 0, 0))]
            )
        with self.assertRaises(mp.Error):
            mp.step(context, mp.Slot(p, g))
        with self.assertRaises(mp.InvalidArgumentError):
            mp.step(context, mp.Slot(p, g, m, v), step=0)
        with self.assertRaises(TypeError):
            mp.step(context, mp.Slot(p, g, m, v), momentum=0.9)
        mp.step(context, [])
        slot = mp.Slot(p, g, m, v)
        slot._devices = {"cuda": "param"}
        with self.assertRaisesRegex(ValueError, "param is on cuda; it must be on the context's device, host"):
            mp.step(context, slot)


class Scalers(unittest.TestCase):
    def test_presets(self):
        self.assertEqual(
            [mp.Scaler(context, name).scale for name in ("torch", "megatron", "deepspeed", "apex")],
            [2.0**16, 2.0**32, 2.0**16, 2.0**16],
        )
        scaler = mp.Scaler(context, init_scale=8, growth_interval=1)
        scaler.update()
        self.assertEqual(scaler.scale, 16)
        self.assertEqual(scaler.scale_tensor.tolist(), [16])
        self.assertEqual(mp.Scaler(context, kind="none").scale, 1)
        self.assertEqual(mp.Scaler.from_recipe(mp.Recipe(context, "fp32")).scale, 1)
        self.assertEqual(mp.Scaler.from_recipe(mp.Recipe(context, "fp16_mixed")).scale, 65536)
        with self.assertRaises(mp.UnknownNameError):
            mp.Scaler(context, "tensorflow")
        with self.assertRaises(mp.InvalidArgumentError):
            mp.Scaler(context, growth_factor=0.5)
        with self.assertRaises(TypeError):
            mp.Scaler(context, growth=2)
        with self.assertRaises(OverflowError):
            mp.Scaler(context, growth_interval=2**32 + 7)

    def test_overflow_and_state(self):
        scaler = mp.Scaler(context)
        scaler.check([floats(1, 2), mp.Tensor(context, 3, "bf16")])
        self.assertFalse(scaler.state.found_inf)
        scaler.check([floats(1, float("nan"))])
        self.assertTrue(scaler.state.found_inf)
        self.assertEqual(scaler.found_inf_tensor.tolist(), [1])
        scaler.update()
        state = scaler.state
        self.assertEqual((state.scale, state.overflow_steps), (32768, 1))
        other = mp.Scaler(context)
        other.state = state
        self.assertEqual(other.state, state)
        with self.assertRaises(mp.InvalidArgumentError):
            other.state = state._replace(scale=-1)
        with self.assertRaises(TypeError):
            scaler.check([array.array("d", [1])])
        scaler.check([])

    def test_error_at_the_minimum(self):
        scaler = mp.Scaler(context, init_scale=1, min_scale=1, error_at_min=True)
        scaler.check([floats(float("inf"))])
        scaler.update()
        with self.assertRaises(mp.BadStateError):
            scaler.state


if __name__ == "__main__":
    unittest.main()
