# SPDX-License-Identifier: Apache-2.0
"""Steps on own arrays, and loss scalers."""

import array
import gc
import math
import unittest

import mixedprec as mp
from common import context, floats


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
