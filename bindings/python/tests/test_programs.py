# SPDX-License-Identifier: Apache-2.0
"""The examples, the README, and the wheel.

MIXEDPREC_C_EXAMPLES may name a folder with the programs own_arrays and train in C: the outputs are compared then."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile

import mixedprec as mp
from common import EXAMPLES, FOLDER, needs_numpy, np, python
from mixedprec import capi


@needs_numpy
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


class Readme(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(FOLDER, "README.md")) as file:
            self.text = file.read()

    @needs_numpy
    def test_the_example_runs(self):
        program = self.text.split("```python\n")[1].split("```")[0]
        numbers = python("-c", program).strip(" []\n").split()
        self.assertEqual([round(float(number), 1) for number in numbers], [3.0] * 8)

    @needs_numpy
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


class Wheel(unittest.TestCase):
    PROGRAM = """
import numpy as np, mixedprec as mp
context = mp.Context()
optimizer = mp.Optimizer(mp.Recipe(context, 'fp32'))
p, grad = np.zeros(8, np.float32), np.zeros(8, np.float32)
optimizer.add_group(lr=0.1)
optimizer.add_param('p', p, grad)
for _ in range(300):
    grad[:] = p - 3
    optimizer.step()
print(abs(p - 3).max() < 0.01, mp.__file__)
"""

    def skip_without_tools(self):
        if not os.environ.get("MIXEDPREC_DIR"):
            self.skipTest("MIXEDPREC_DIR is not set: there is no library to put into a wheel")
        if np is None:
            self.skipTest("numpy is not installed")
        for needed in ("pip", "setuptools", "wheel", "venv", "ensurepip"):
            if importlib.util.find_spec(needed) is None:
                self.skipTest(f"{needed} is not installed")

    @staticmethod
    def pip(*arguments, **options):
        python("-m", "pip", *arguments, "--no-deps", "--no-index", "-q", PIP_DISABLE_PIP_VERSION_CHECK="1", **options)

    def make_wheel(self, folder):
        """The wheel's file, made in a copy."""
        source, wheels = (os.path.join(folder, name) for name in ("source", "wheels"))
        shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        self.pip("wheel", source, "--no-build-isolation", "-w", wheels, TMPDIR=folder)
        (wheel,) = os.listdir(wheels)
        self.assertEqual(wheel, f"mixedprec-{mp.__version__}-py3-none-linux_x86_64.whl")
        return os.path.join(wheels, wheel)

    @staticmethod
    def numpy_alone(folder):
        """A folder with numpy and nothing else."""
        numpy_at, link = os.path.dirname(os.path.dirname(np.__file__)), os.path.join(folder, "numpy_only")
        os.makedirs(link)
        for name in os.listdir(numpy_at):
            if name == "numpy" or name.startswith("numpy.libs"):
                os.symlink(os.path.join(numpy_at, name), os.path.join(link, name))
        return link

    def test_install_and_run(self):
        self.skip_without_tools()
        with tempfile.TemporaryDirectory() as folder:
            wheel, fresh = self.make_wheel(folder), os.path.join(folder, "fresh")
            names = zipfile.ZipFile(wheel).namelist()
            self.assertTrue(
                {"mixedprec/lib/libmixedprec.so.0", "mixedprec/py.typed", "mixedprec/capi.py"} <= set(names)
            )
            python("-m", "venv", fresh)
            there = {"interpreter": os.path.join(fresh, "bin", "python"), "MIXEDPREC_DIR": None}
            self.pip("install", wheel, PYTHONPATH=None, **there)
            out = python("-c", self.PROGRAM, folder=folder, PYTHONPATH=self.numpy_alone(folder), **there)
            self.assertTrue(out.startswith("True " + fresh), out)


if __name__ == "__main__":
    unittest.main()
