# SPDX-License-Identifier: Apache-2.0
"""The examples, the torch optimizer, the wheel, and what many objects leave behind.

MIXEDPREC_C_EXAMPLES may name a folder with the programs own_arrays and train in C: the outputs are compared then."""

import array
import ctypes
import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

import mixedprec as mp
from mixedprec import _dlpack, _library, capi

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.dirname(HERE)
EXAMPLES = os.path.join(FOLDER, "examples")
try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None


def python(*arguments, interpreter=sys.executable, folder=None, **variables):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    env.update(variables)
    env = {name: text for name, text in env.items() if text is not None}
    done = subprocess.run([interpreter, *arguments], env=env, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout


@unittest.skipIf(np is None, "numpy is not installed")
class Examples(unittest.TestCase):
    def program(self, name, *arguments):
        return python("-W", "ignore", os.path.join(EXAMPLES, name + ".py"), *arguments)

    def in_c(self, name, *arguments):
        folder = os.environ.get("MIXEDPREC_C_EXAMPLES")
        if not folder:
            return None
        return subprocess.run(
            [os.path.join(folder, name), *arguments], capture_output=True, text=True, check=True
        ).stdout

    def test_own_arrays(self):
        lines = self.program("own_arrays")
        self.assertEqual(lines, "steps 99  skipped 1  scale 32768  sum 1709.314166069  p[1] -2.009746075\n")
        self.assertIn(self.in_c("own_arrays"), (None, lines))

    def test_train(self):
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text")
            with open(text, "w") as file:
                file.write("A small text, which is said again and again, so that it can be learnt. " * 50)
            whole = self.program("train", text, "fp8_delayed", "20")
            self.assertRegex(whole, r"^step  10  loss \d\.\d{9}  scale 1\nstep  20  loss \d\.\d{9}  scale 1\n$")
            self.assertLess(float(whole.split()[-3]), 3.5)
            run = os.path.join(folder, "run")
            parts = [self.program("train", text, "fp8_delayed", steps, run) for steps in ("10", "20")]
            self.assertEqual("".join(parts), whole.replace("step  20", "resumed at step 10\nstep  20"))
            if os.environ.get("MIXEDPREC_C_EXAMPLES"):
                self.assertEqual(self.in_c("train", text, "fp8_delayed", "20"), whole)
                for recipe in ("fp32", "fp16_mixed", "bf16_pure_kahan", "mxfp8", "msamp_o2", "bf16_mixed"):
                    self.assertEqual(
                        self.in_c("train", text, recipe, "20"), self.program("train", text, recipe, "20"), recipe
                    )

    def test_train_without_a_text(self):
        with self.assertRaisesRegex(AssertionError, "usage: train.py TEXT"):
            self.program("train")


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


class Readme(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(FOLDER, "README.md")) as file:
            self.text = file.read()

    @unittest.skipIf(np is None, "numpy is not installed")
    def test_the_example_runs(self):
        program = self.text.split("```python\n")[1].split("```")[0]
        numbers = python("-c", program).strip(" []\n").split()
        self.assertEqual([round(float(number), 1) for number in numbers], [3.0] * 8)

    @unittest.skipIf(np is None, "numpy is not installed")
    def test_the_ranks_run(self):
        program = next(part.split("```")[0] for part in self.text.split("```python\n") if part.startswith("def rank"))
        program = "import threading, numpy as np, mixedprec as mp\ncontext = mp.Context()\n" + program
        program += "[r.start() for r in ranks]; [r.join() for r in ranks]; print('both')"
        self.assertEqual(python("-c", program), "both\n")

    def test_it_names_every_function_that_has_no_method(self):
        sources = []
        for name in os.listdir(os.path.dirname(mp.__file__)):
            if name.startswith("_") and name.endswith(".py"):
                with open(os.path.join(os.path.dirname(mp.__file__), name)) as file:
                    sources.append(file.read())
        known = set(re.findall(r"mp_\w+", "".join(sources)))
        missing = {name for name in capi.FUNCTIONS if name not in known and not name.endswith("_destroy")}
        listed = set(re.findall(r"`(mp_\w+)`", self.text)) & set(capi.FUNCTIONS)
        self.assertEqual(missing, listed)


class Leaks(unittest.TestCase):
    @staticmethod
    def lent():
        """Bytes that the C library's allocator has lent, modulo 2^32; what is resident is the system's to decide."""
        try:
            mallinfo = ctypes.CDLL(None).mallinfo
        except AttributeError:  # not glibc
            return 0
        mallinfo.restype = type("Info", (ctypes.Structure,), {"_fields_": [("numbers", ctypes.c_int * 10)]})
        numbers = mallinfo().numbers
        return numbers[4] + numbers[7]  # mapped for themselves, and others in use

    def cycle(self, context):
        recipe = mp.Recipe(context, "bf16_mixed")
        p, g = array.array("f", bytes(40000)), array.array("f", bytes(40000))
        optimizer = mp.Optimizer(recipe)
        optimizer.add_param("p", p, g)
        optimizer.step(mp.Scaler(context))
        weight = mp.Tensor(context, (32, 32))
        layer = mp.Linear(recipe, weight)
        layer.set_monitor("l", 1, lambda *_: layer)
        layer.backward(layer.forward(mp.Tensor(context, (4, 32))), dw=mp.Tensor(context, (32, 32)))
        mp.from_dlpack(context, mp.Tensor(context, 10)).memory()[0] = 1
        mp.from_dlpack(context, mp.Tensor(context, 10).__dlpack__()).tolist()
        weight.__dlpack__()
        mp.Checkpoint(context, progress=print).add_optimizer(optimizer)
        mp.Comm().all_gather(b"ab", bytearray(2), wait=False).wait()
        mp.StepPlan(context, [mp.Slot(*(array.array("f", bytes(4000)) for _ in range(4)))]).run()
        try:
            mp.Recipe(context, "nothing")
        except mp.Error:
            pass

    def test_many_objects(self):
        context = mp.Context(1)
        for _ in range(100):
            self.cycle(context)
        gc.collect()
        context.sync()
        lent, before = len(_library.lent), self.lent()
        for _ in range(400):
            self.cycle(context)
        gc.collect()
        context.sync()
        self.assertEqual(len(_library.lent), lent)
        self.assertEqual((len(_dlpack._exported), len(_dlpack._imported), len(_dlpack._capsules)), (0, 0, 0))
        growth = (self.lent() - before + 2**31) % 2**32 - 2**31
        self.assertLess(growth, 6e6)  # 400 times 84 kB of states would be 34 MB

    def test_many_contexts(self):
        for _ in range(60):
            mp.Tensor(mp.Context(2, log=print, log_level="error"), 10)
        gc.collect()
        self.assertLess(len(os.listdir("/proc/self/task")), 40)

    def test_an_exit_with_everything_open(self):
        out = python(
            "-c",
            "import mixedprec as mp, array, threading, time\n"
            "c = mp.Context(2, log=print); o = mp.Optimizer(mp.Recipe(c, 'fp32'))\n"
            "o.add_param('p', array.array('f', [1]), array.array('f', [1])); o.step(); o.me = o\n"
            "a, b = mp.Comm.threads(2)\n"
            "threading.Thread(target=a.barrier, daemon=True).start(); time.sleep(0.1)\n"
            "view = mp.Tensor(c, 4).memory(); print('end')\n",
        )
        self.assertEqual(out, "end\n")


class Wheel(unittest.TestCase):
    def test_install_and_run(self):
        if not os.environ.get("MIXEDPREC_DIR"):
            self.skipTest("MIXEDPREC_DIR is not set: there is no library to put into a wheel")
        if np is None:
            self.skipTest("numpy is not installed")
        for needed in ("pip", "setuptools", "wheel", "venv", "ensurepip"):
            if importlib.util.find_spec(needed) is None:
                self.skipTest(f"{needed} is not installed")
        with tempfile.TemporaryDirectory() as folder:
            source, wheels, fresh = (os.path.join(folder, name) for name in ("source", "wheels", "fresh"))
            shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
            python(
                "-m",
                "pip",
                "wheel",
                source,
                "--no-build-isolation",
                "--no-deps",
                "--no-index",
                "-q",
                "-w",
                wheels,
                PIP_DISABLE_PIP_VERSION_CHECK="1",
                TMPDIR=folder,
            )
            (wheel,) = os.listdir(wheels)
            self.assertEqual(wheel, f"mixedprec-{mp.__version__}-py3-none-linux_x86_64.whl")
            names = zipfile.ZipFile(os.path.join(wheels, wheel)).namelist()
            self.assertTrue(
                {"mixedprec/lib/libmixedprec.so.0", "mixedprec/py.typed", "mixedprec/capi.py"} <= set(names)
            )
            python("-m", "venv", fresh)
            interpreter = os.path.join(fresh, "bin", "python")
            python(
                "-m",
                "pip",
                "install",
                "--no-index",
                "--no-deps",
                "-q",
                os.path.join(wheels, wheel),
                interpreter=interpreter,
                PYTHONPATH=None,
                PIP_DISABLE_PIP_VERSION_CHECK="1",
            )
            program = (
                "import numpy as np, mixedprec as mp\n"
                "context = mp.Context()\n"
                "optimizer = mp.Optimizer(mp.Recipe(context, 'fp32'))\n"
                "p, grad = np.zeros(8, np.float32), np.zeros(8, np.float32)\n"
                "optimizer.add_group(lr=0.1)\n"
                "optimizer.add_param('p', p, grad)\n"
                "for _ in range(300):\n"
                "    grad[:] = p - 3\n"
                "    optimizer.step()\n"
                "print(abs(p - 3).max() < 0.01, mp.__file__)\n"
            )
            numpy_at = os.path.dirname(os.path.dirname(np.__file__))
            link = os.path.join(folder, "numpy_only")
            os.makedirs(link)
            for name in os.listdir(numpy_at):
                if name == "numpy" or name.startswith("numpy.libs"):
                    os.symlink(os.path.join(numpy_at, name), os.path.join(link, name))
            out = python("-c", program, interpreter=interpreter, folder=folder, MIXEDPREC_DIR=None, PYTHONPATH=link)
            self.assertTrue(out.startswith("True " + fresh), out)


if __name__ == "__main__":
    unittest.main()
