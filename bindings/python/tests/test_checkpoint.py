# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: what is saved comes back, what is damaged does not."""

import array
import glob
import json
import os
import struct
import sys
import tempfile
import threading
import unittest

import mixedprec as mp
from common import context, run


class Run:
    """A small training: an optimizer, a scaler, a layer, two numbers."""

    def __init__(self, recipe="fp8_delayed", **options):
        self.recipe = mp.Recipe(context, recipe)
        self.weight = self.recipe.weight((32, 32), array.array("f", [i / 512 for i in range(1024)]))
        self.optimizer, self.scaler = mp.Optimizer(self.recipe), mp.Scaler(context)
        self.optimizer.add_group(lr=0.01)
        self.optimizer.add_param("w", self.weight)
        self.layer = mp.Linear(self.recipe, self.weight)
        self.optimizer.set_linears([self.layer])
        self.data = array.array("q", [7, 8])
        self.checkpoint = mp.Checkpoint(context, **options)
        self.checkpoint.add_optimizer(self.optimizer)
        self.checkpoint.add_scaler(self.scaler)
        self.checkpoint.add_linear("l", self.layer)
        self.checkpoint.add_data("data", self.data)
        self.x = mp.Tensor.wrap(context, array.array("f", [((i * 37) % 11 - 5) / 3 for i in range(512)])).view((16, 32))

    def steps(self, count):
        with self.optimizer.state("w", "grad") as grad:
            for _ in range(count):
                y = self.layer.forward(self.x)
                self.layer.backward(y, dw=grad)
                self.optimizer.step(self.scaler)
                self.scaler.update()
        return self

    def bits(self):
        return (
            self.weight.read(),
            self.optimizer.read_state("w", "exp_avg_sq").read(),
            self.layer.scaling,
            self.scaler.state,
            self.optimizer.stats.step,
        )


class Checkpoints(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "run")

    def test_it_goes_on_with_the_same_bits(self):
        first = Run().steps(3)
        first.checkpoint.save(self.path, 3)
        second = Run()
        second.data[:] = array.array("q", [0, 0])
        info = second.checkpoint.load(self.path, verify_all=True)
        self.assertEqual((info.step, info.applied_step, info.world, info.converted), (3, 3, 1, False))
        self.assertEqual(list(second.data), [7, 8])
        self.assertEqual(first.bits(), second.bits())
        self.assertEqual(first.steps(4).bits(), second.steps(4).bits())

    def test_in_the_background_with_progress(self):
        heard = []
        run = Run(keep=2, progress=lambda done, total: heard.append((done, total))).steps(1)
        for step in range(4):
            run.checkpoint.save(self.path, step, background=True)
            run.checkpoint.wait()
            self.assertFalse(run.checkpoint.saving)
        self.assertEqual(len(os.listdir(self.path)), 2)
        self.assertEqual(heard[-1][0], heard[-1][1])
        self.assertEqual(mp.inspect_checkpoint(self.path).step, 3)
        self.assertIn("step-", mp.describe_checkpoint(self.path))
        self.assertTrue(json.loads(mp.read_manifest(self.path))["name"].startswith("step-"))
        run.checkpoint.save(self.path, 9, background=True)
        run.checkpoint.close()  # waits
        self.assertEqual(mp.inspect_checkpoint(self.path).step, 9)

    def test_progress_that_fails(self):
        unheard, hook = [], sys.unraisablehook
        sys.unraisablehook = unheard.append
        try:
            Run(progress=lambda *_: 1 / 0).checkpoint.save(self.path, 1)
        finally:
            sys.unraisablehook = hook
        self.assertIs(unheard[0].exc_type, ZeroDivisionError)
        self.assertEqual(mp.inspect_checkpoint(self.path).step, 1)

    def test_damage(self):
        run = Run().steps(1)
        run.checkpoint.save(self.path, 1)
        file = glob.glob(os.path.join(self.path, "*", "*.safetensors"))[0]
        with open(file, "r+b") as opened:
            opened.seek(-8, 2)
            opened.write(b"damaged!")
        other = Run()
        before = other.bits()
        with self.assertRaises(mp.CorruptDataError):
            other.checkpoint.load(self.path, verify_all=True)
        self.assertEqual(other.bits(), before)

    def test_mistakes(self):
        run = Run().steps(1)
        with self.assertRaises(OSError):
            run.checkpoint.load(self.path)
        with self.assertRaises(OSError):
            mp.inspect_checkpoint(self.path)
        run.checkpoint.save(self.path, 1)
        with self.assertRaises(mp.BadStateError):
            run.checkpoint.add_optimizer(run.optimizer)
        with self.assertRaises(mp.Error):
            run.checkpoint.save(self.path, -1)
        with self.assertRaises(ValueError):
            run.checkpoint.add_data("bytes", b"cannot be loaded into")
        with self.assertRaises(ValueError):
            run.checkpoint.add_data("nothing", bytearray())
        with self.assertRaises(ValueError):
            run.checkpoint.save("a\0b", 1)
        with self.assertRaises(TypeError):
            run.checkpoint.save(None, 1)
        with self.assertRaises(BufferError):
            run.data.append(1)
        with self.assertRaisesRegex(ValueError, "already is data with the name 'data'"):
            run.checkpoint.add_data("data", bytearray(4))
        other = Run("bf16_mixed")
        with self.assertRaises(mp.BadStateError):
            other.checkpoint.load(self.path)
        info = other.checkpoint.load(self.path, convert=True)
        self.assertTrue(info.converted)
        self.assertEqual(info.state_largest_error, {"exp_avg": 0, "exp_avg_sq": 0})

    def test_weights_alone(self):
        run = Run()
        file = os.path.join(self.folder.name, "weights.safetensors")
        run.checkpoint.export_weights(file)
        with open(file, "rb") as opened:
            header = json.loads(opened.read(struct.unpack("<Q", opened.read(8))[0]))
        self.assertEqual(header["w"]["shape"], [32, 32])
        with self.assertRaises(OSError):
            run.checkpoint.export_weights(file)

    def test_closed_beside_a_save(self):
        for _ in range(5):
            run = Run().steps(1)
            closer = threading.Thread(target=run.checkpoint.close)
            closer.start()
            try:
                run.checkpoint.save(self.path, 1)
            except (mp.InvalidHandleError, mp.BadStateError):
                pass
            closer.join()

    def test_ranks(self):
        def rank(comm):
            def make():
                optimizer = mp.Optimizer(mp.Recipe(context, "fp32"), comm=comm)
                weight = mp.Tensor(context, 40000)
                optimizer.add_param("w", weight)
                with optimizer.state("w", "grad") as grad:
                    grad.write(array.array("f", [1.0 + comm.rank]) * 40000)
                checkpoint = mp.Checkpoint(context, comm)
                checkpoint.add_optimizer(optimizer)
                return optimizer, weight, checkpoint

            optimizer, weight, checkpoint = make()
            optimizer.step()
            checkpoint.save(self.path, 1)
            _, loaded, other = make()
            self.assertEqual(other.load(self.path).world, 2)
            self.assertEqual(loaded.read(), weight.read())

        run(2, rank)


if __name__ == "__main__":
    unittest.main()
