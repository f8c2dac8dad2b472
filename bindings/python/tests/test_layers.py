# SPDX-License-Identifier: Apache-2.0
"""Products and layers: what they compute, keep, count and refuse."""

import gc
import math
import sys
import unittest
import weakref

import mixedprec as mp
from common import context, floats, tensor


class Adapters(unittest.TestCase):
    def setUp(self):
        self.recipe = mp.Recipe(context, "fp32")
        self.layer = mp.Linear(self.recipe, tensor((2, 3), range(6)), frozen=True, name="q_proj")
        self.a, self.b = tensor((1, 3), [1, 1, 1]), tensor((2, 1), [1, 2])
        self.x, self.y = tensor((1, 3), [1, 2, 3]), mp.Tensor(context, (1, 2))

    def test_forward_and_gradients(self):
        da, db, dx = mp.Tensor(context, (1, 3)), mp.Tensor(context, (2, 1)), mp.Tensor(context, (1, 3))
        adapter = mp.Adapter(self.layer, self.recipe, self.a, self.b, alpha=2)
        adapter.set_grads(da, db)
        self.layer.forward(self.x, self.y)
        self.assertEqual(self.y.tolist(), [8 + 12, 26 + 24])
        dy = tensor((1, 2), [1, 10])
        self.layer.backward(dy, dx)
        self.assertEqual(da.tolist(), [42, 84, 126])
        self.assertEqual(db.tolist(), [12, 120])
        self.assertEqual(dx.tolist(), [30 + 42, 41 + 42, 52 + 42])
        self.layer.backward(dy, accumulate=True)
        self.assertEqual(db.tolist(), [24, 240])
        adapter.active = False
        self.assertFalse(adapter.active)
        self.layer.forward(self.x, self.y)
        self.assertEqual(self.y.tolist(), [8, 26])

    def test_magnitude_and_merging(self):
        adapter = mp.Adapter(self.layer, self.recipe, self.a, self.b, dropout=0.5, rank_stabilized=True, name="other")
        magnitude, gradient = mp.Tensor(context, 2), mp.Tensor(context, 2)
        adapter.set_magnitude(magnitude, gradient)
        adapter.init_magnitude()
        self.assertAlmostEqual(magnitude.tolist()[0], math.sqrt(1 + 4 + 9), places=5)
        merged = mp.Tensor(context, (2, 3))
        report = mp.merge_adapters(self.layer, merged)
        self.assertEqual(report.elements, 6)
        for found, wanted in zip(merged.tolist(), [1, 2, 3, 5, 6, 7]):
            self.assertAlmostEqual(found, wanted, places=5)
        with self.assertRaises(mp.InvalidArgumentError):
            mp.Adapter(self.layer, self.recipe, self.a, self.b, name="other")


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


if __name__ == "__main__":
    unittest.main()
