# SPDX-License-Identifier: Apache-2.0
"""torch's tensors through DLPack, and the optimizer of examples/torch_optimizer.py."""

import gc
import sys
import unittest
import warnings

import mixedprec as mp
from common import EXAMPLES
from mixedprec import _dlpack

try:
    import torch
except ImportError:
    torch = None


def torch_multiplies_fp16():
    """Old releases of torch have no product of fp16 on a CPU."""
    try:
        torch.ones(2, 2, dtype=torch.float16) @ torch.ones(2, 2, dtype=torch.float16)
        return True
    except RuntimeError:
        return False


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, EXAMPLES)
        import torch_optimizer

        cls.example = torch_optimizer
        sys.path.remove(EXAMPLES)
        torch.set_num_threads(1)

    def setUp(self):
        warnings.simplefilter("ignore", mp.Note)
        self.addCleanup(warnings.resetwarnings)

    def test_dlpack(self):
        context = mp.Context(1)
        for dtype, name in (
            (torch.float32, "fp32"),
            (torch.float16, "fp16"),
            (torch.bfloat16, "bf16"),
            (torch.int8, "int8"),
        ):
            source = torch.ones(2, 3, dtype=dtype)
            tensor = mp.from_dlpack(context, source)
            self.assertEqual((tensor.dtype, tensor.shape, tensor.address), (name, (2, 3), source.data_ptr()))
            back = torch.from_dlpack(tensor)
            tensor.zero()
            self.assertEqual(float(back.sum()), 0)
            self.assertEqual(float(source.sum()), 0)
            del source, tensor
            gc.collect()
            self.assertEqual(back.shape, (2, 3))
        legacy = torch.utils.dlpack.to_dlpack(torch.ones(4))
        tensor = mp.from_dlpack(context, legacy)
        self.assertEqual(tensor.tolist(), [1] * 4)
        del tensor, back
        gc.collect()
        self.assertEqual(len(_dlpack._imported), 0)
        for wrong in (torch.ones(3, 4).T, torch.ones(4, dtype=torch.float64), torch.ones(8)[::2]):
            with self.assertRaises(mp.Error):
                mp.from_dlpack(context, wrong)
        with self.assertRaises(Exception):
            mp.from_dlpack(context, torch.ones(4, requires_grad=True))
        self.assertEqual(mp.dtype_name(torch.bfloat16), "bf16")

    def test_fp32_beside_torch(self):
        ours, theirs = self.example.network(), self.example.network()
        options = dict(lr=3e-3, weight_decay=0.1, betas=(0.8, 0.95))
        mine = self.example.MixedPrecAdamW(ours.parameters(), **options)
        schedule = torch.optim.lr_scheduler.StepLR(mine, 10, 0.5)
        adamw = torch.optim.AdamW(theirs.parameters(), **options)
        other = torch.optim.lr_scheduler.StepLR(adamw, 10, 0.5)
        for _ in range(5):
            self.example.train(ours, mine, 10), schedule.step()
            self.example.train(theirs, adamw, 10), other.step()
        for a, b in zip(ours.parameters(), theirs.parameters()):
            self.assertLess(float((a - b).detach().norm() / b.detach().norm()), 2e-6)
        # From torch's states on
        taken = self.example.MixedPrecAdamW(ours.parameters(), **options)
        taken.load_state_dict(adamw.state_dict())
        self.example.train(ours, taken, 5)
        self.example.train(theirs, adamw, 5)
        for a, b in zip(ours.parameters(), theirs.parameters()):
            self.assertLess(float((a - b).detach().norm() / b.detach().norm()), 4e-6)

    def test_groups_and_missing_gradients(self):
        def make(kind):
            torch.manual_seed(3)
            a, b, c = (torch.nn.Parameter(torch.randn(5)) for _ in range(3))
            return (a, b, c), kind([{"params": [a], "lr": 0.1}, {"params": [b, c], "weight_decay": 0.5}], lr=0.01)

        runs = [make(self.example.MixedPrecAdamW), make(torch.optim.AdamW)]
        for (a, b, c), optimizer in runs:
            for step in range(6):
                optimizer.zero_grad(set_to_none=True)
                loss = (a**2).sum() + (b**3).sum()
                if step == 2:
                    for p in (a, b, c):
                        p.grad = None
                if step > 2:
                    loss = loss + (c**2).sum()
                else:
                    c.grad = None
                optimizer.step(lambda: (loss.backward(retain_graph=True), loss)[1])
        for p, q in zip(runs[0][0], runs[1][0]):
            self.assertTrue(torch.allclose(p, q, rtol=2e-6, atol=1e-7), (p, q))

    def test_low_precision_and_resume(self):
        for recipe, dtype in (
            ("bf16_pure_kahan", torch.bfloat16),
            ("fp16_mixed", torch.float16),
            ("bf16_mixed_dual", torch.bfloat16),
        ):
            with self.subTest(recipe=recipe):
                if dtype == torch.float16 and not torch_multiplies_fp16():
                    continue
                model = self.example.network(dtype)
                optimizer = self.example.MixedPrecAdamW(model.parameters(), recipe=recipe)
                losses = self.example.train(model, optimizer, 20, dtype)
                self.assertLess(losses[-1], losses[0])
                saved = optimizer.state_dict()
                other = self.example.network(dtype)
                other.load_state_dict(model.state_dict())
                resumed = self.example.MixedPrecAdamW(other.parameters(), recipe=recipe)
                resumed.load_state_dict(saved)
                self.assertEqual(
                    self.example.train(model, optimizer, 10, dtype), self.example.train(other, resumed, 10, dtype)
                )
                for a, b in zip(model.parameters(), other.parameters()):
                    self.assertTrue(torch.equal(a, b))

    def test_an_overflow_is_skipped(self):
        model = self.example.network(torch.float16)
        optimizer = self.example.MixedPrecAdamW(model.parameters(), recipe="fp16_mixed")
        before = [p.detach().clone() for p in model.parameters()]
        if torch_multiplies_fp16():
            optimizer.scale(model(torch.full((4, 16), 1e4, dtype=torch.float16)).sum() * 1e4).backward()
        else:
            for p in model.parameters():
                p.grad = torch.full_like(p, float("inf"))
        optimizer.step()
        self.assertEqual(optimizer.scaler.scale, 32768)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(before, model.parameters())))

    def test_mistakes(self):
        model = self.example.network()
        optimizer = self.example.MixedPrecAdamW(model.parameters())
        optimizer.param_groups[0]["weight_decay"] = 1
        with self.assertRaisesRegex(ValueError, "only lr"):
            optimizer.step()
        model = self.example.network()
        optimizer = self.example.MixedPrecAdamW(model.parameters())
        model.to(torch.bfloat16)
        with self.assertRaisesRegex(RuntimeError, "has moved"):
            optimizer.step()
        with self.assertRaises(ValueError):
            self.example.MixedPrecAdamW([])
        with self.assertRaises(mp.UnknownNameError):
            self.example.MixedPrecAdamW(self.example.network().parameters(), recipe="bf17")


if __name__ == "__main__":
    unittest.main()
