# SPDX-License-Identifier: Apache-2.0
"""What many objects leave behind, and an exit with everything open."""

import array
import ctypes
import gc
import os
import unittest

import mixedprec as mp
from common import python
from mixedprec import _dlpack, _library


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


if __name__ == "__main__":
    unittest.main()
