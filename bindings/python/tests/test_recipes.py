# SPDX-License-Identifier: Apache-2.0
"""Recipes: presets, keys, JSON, weights, and the memory that they plan."""

import array
import json
import os
import tempfile
import unittest

import mixedprec as mp
from common import context, floats


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
        copy["layers"] = "lm_*: gemm.fprop.dtype=fp16"
        self.assertEqual(copy.for_layer("lm_head")["gemm.fprop.dtype"], "fp16")
        self.assertEqual(copy.for_layer("h0")["gemm.fprop.dtype"], "fp32")
        self.assertEqual(copy.for_param("lm_head")["gemm.fprop.dtype"], "fp32")
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
        memory, _ = recipe.plan_tensors([1000], offload=True)
        self.assertGreater(memory.host_bytes, 8000)
        self.assertGreater(memory.offload_bytes, 0)
        self.assertEqual(recipe.plan_tensors([1000], grads_given=True)[0].grad_bytes, 0)
        for wrong in (planned(1, "bf17"), planned(1, rule="sgd"), planned(-1), planned(1, state_formats={"m": "fp32"})):
            with self.assertRaises(ValueError):
                recipe.plan_tensors([wrong])
        for wrong in (planned(1, "fp16"), planned(1, state_formats={"exp_avg": "int9"})):
            with self.assertRaises(mp.Error):
                recipe.plan_tensors([wrong])


if __name__ == "__main__":
    unittest.main()
