# SPDX-License-Identifier: Apache-2.0
"""Versions, errors, arguments of calls, objects that are closed, functions of the caller's."""

import array
import copy
import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time
import unittest
import warnings
from ctypes import c_int32, c_int64

import mixedprec as mp
from mixedprec import _library, _load, capi


class Versions(unittest.TestCase):
    def test_version(self):
        self.assertRegex(mp.library_version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(mp.__version__, "0.2.0")
        self.assertIn(mp.library_version(), mp.build_info())

    def test_an_older_library_is_refused(self):
        spec = importlib.util.spec_from_file_location("other_capi", capi.__file__)
        other = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        other.MP_VERSION = 9900
        with self.assertRaisesRegex(ImportError, "0.99.0 or a later one"):
            other.load(_load._find())

    def test_a_wrong_folder_is_refused(self):
        env = {**os.environ, "MIXEDPREC_DIR": "/nowhere", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-B", "-c", "import mixedprec"], env=env, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ImportError: MIXEDPREC_DIR is /nowhere, where there is neither", done.stderr)

    def test_it_works_without_numpy(self):
        program = (
            "import sys; sys.modules['numpy'] = None\n"
            "import array, mixedprec as mp\n"
            "c = mp.Context(); o = mp.Optimizer(mp.Recipe(c, 'fp32'))\n"
            "p, g = array.array('f', [1, 1]), array.array('f', [1, 1])\n"
            "o.add_param('p', p, g); o.step(); print(round(p[0], 3), o.state('p', 'exp_avg').tolist()[0])\n"
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-B", "-c", program], env=env, capture_output=True, text=True)
        self.assertEqual(done.stdout, "0.999 0.10000000149011612\n", done.stderr)

    def test_devices(self):
        self.assertEqual(mp.device_count("host"), 1)
        self.assertEqual(mp.device_name("host"), "host")
        self.assertGreater(mp.device_memory("host"), 0)
        mp.check_device("host")
        with self.assertRaises(ValueError):
            mp.check_device("toaster")

    def test_shutdown_is_refused_while_a_context_is_open(self):
        with mp.Context(1):
            with self.assertRaises(mp.BadStateError):
                mp.shutdown()


class Errors(unittest.TestCase):
    def test_each_status_has_a_class(self):
        for name, status in vars(capi).items():
            if name.startswith("MP_STATUS_") and status < 0:
                error = mp._errors.error(status, "why")
                self.assertIsInstance(error, mp.Error)
                self.assertEqual((error.status, error.name, str(error)), (status, name, "why"))
                self.assertNotIn(type(error), (mp.Error,), name)

    def test_they_are_pythons_too(self):
        for kind, python in (
            (mp.UnknownNameError, LookupError),
            (mp.InvalidShapeError, ValueError),
            (mp.IOFailure, OSError),
            (mp.InvalidDtypeError, TypeError),
            (mp.OutOfMemoryError, MemoryError),
            (mp.PeerLostError, ConnectionError),
            (mp.RankTimeoutError, TimeoutError),
            (mp.UnsupportedError, NotImplementedError),
        ):
            self.assertTrue(issubclass(kind, python))

    def test_a_misspelt_recipe(self):
        with self.assertRaisesRegex(mp.UnknownNameError, "nearest: .*bf16_pure"):
            mp.Recipe(mp.Context(1), "bf16_pur")

    def test_notes_are_warnings_of_the_callers_line(self):
        optimizer = mp.Optimizer(mp.Recipe(mp.Context(1), "bf16_pure"))
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            optimizer.add_group()
        self.assertEqual([note.category for note in notes], [mp.Note])
        self.assertIn("beta2", str(notes[0].message))
        self.assertEqual(notes[0].filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error", mp.Note)
            with self.assertRaises(mp.Note):
                optimizer.add_group()

    def test_messages_of_threads_are_their_own(self):
        context, wrong = mp.Context(1), []

        def misspell(name):
            for _ in range(200):
                try:
                    mp.Recipe(context, name)
                except mp.UnknownNameError as error:
                    if repr(name) not in str(error):
                        wrong.append((name, str(error)))

        threads = [threading.Thread(target=misspell, args=(f"x{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Calls(unittest.TestCase):
    """What ctypes would cut, or refuse without a reason."""

    def setUp(self):
        self.optimizer = mp.Optimizer(mp.Recipe(mp.Context(1), "fp32"))
        self.p = array.array("f", [1.0] * 4)
        self.optimizer.add_param("p", self.p, array.array("f", [1.0] * 4))

    def test_wide_numbers(self):
        self.optimizer.set_step(2**32 + 7)
        self.assertEqual(self.optimizer.stats.step, 2**32 + 7)
        with self.assertRaisesRegex(OverflowError, "group: 4294967303 does not fit"):
            self.optimizer.set_enabled(True, 2**32 + 7)
        with self.assertRaises(OverflowError):
            self.optimizer.set_step(2**64)
        with self.assertRaises(OverflowError):
            mp.Context(threads=2**32 + 1)
        with self.assertRaises(OverflowError):
            mp.Optimizer(self.optimizer.recipe, seed=-1)

    def test_kinds_of_numbers(self):
        self.optimizer.set_lr(1)
        self.optimizer.set_lr(0.5)
        with self.assertRaisesRegex(TypeError, "lr: a number is needed"):
            self.optimizer.set_lr("0.5")
        with self.assertRaisesRegex(TypeError, "group: "):
            self.optimizer.set_enabled(True, 0.0)
        try:
            import numpy as np
        except ImportError:
            return
        self.optimizer.set_lr(np.float32(0.25), np.int64(0))
        self.assertEqual(self.optimizer.groups[0].lr, 0.25)

    def test_raw_calls(self):
        with self.assertRaisesRegex(AttributeError, "no function mp_optimizer_stepp"):
            mp.call("mp_optimizer_stepp", self.optimizer)
        with self.assertRaisesRegex(TypeError, "takes 3 arguments"):
            mp.call("mp_optimizer_step", self.optimizer)
        with self.assertRaisesRegex(TypeError, "optimizer: a optimizer is needed, not a Recipe"):
            mp.call("mp_optimizer_step", self.optimizer.recipe, None, None)
        with self.assertRaisesRegex(TypeError, "tensor"):
            mp.call("mp_tensor_zero", 1234, None)
        with self.assertRaises(mp.NullArgumentError):
            mp.call("mp_optimizer_step", None, None, None)
        self.assertEqual(mp.call("mp_dtype_size", capi.MP_DTYPE_BF16), 2)

    def test_structs(self):
        with self.assertRaises(OverflowError):
            capi.mp_tensor_desc(ndim=2**40)
        with self.assertRaises(TypeError):
            capi.mp_tensor_desc(dimensions=2)
        desc = capi.mp_optimizer_desc()
        with self.assertRaises(TypeError):
            desc.max_grad_norm = "1"
        self.assertEqual(desc.struct_size, 24)

    def test_text(self):
        with self.assertRaises(ValueError):
            mp.Recipe(mp.Context(1), "fp32\0x")
        with self.assertRaises(TypeError):
            mp.Recipe(mp.Context(1), 32)

    def test_every_function_is_typed(self):
        for name, (result, kinds, names) in capi.FUNCTIONS.items():
            function = getattr(_library.lib, name)
            self.assertEqual((function.restype, list(function.argtypes)), (result, list(kinds)))
            self.assertEqual(len(kinds), len(names.split(", ")) if names else 0, name)
        self.assertGreater(len(capi.FUNCTIONS), 200)


class Objects(unittest.TestCase):
    def test_use_after_close(self):
        context = mp.Context(1)
        recipe = mp.Recipe(context, "fp32")
        tensor = mp.Tensor(context, 4)
        for item in (tensor, recipe, context):
            item.close()
            item.close()
            self.assertTrue(item.closed)
            self.assertIn("closed", repr(item))
        for use in (
            lambda: tensor.shape,
            lambda: recipe["weight.dtype"],
            lambda: context.threads,
            tensor.memory,
            tensor.zero,
            lambda: mp.Tensor(context, 4),
            lambda: mp.Optimizer(recipe),
            tensor.__dlpack__,
            lambda: tensor.is_quantized,
            lambda: mp.from_dlpack(context, tensor),
            lambda: mp.Linear(mp.Recipe(mp.Context(1)), tensor),
        ):
            with self.assertRaises(mp.InvalidHandleError):
                use()

    def test_children_outlive_parents(self):
        with mp.Context(1) as context:
            recipe = mp.Recipe(context, "bf16_mixed")
            optimizer = mp.Optimizer(recipe)
            tensor = mp.Tensor(context, 4)
        recipe.close()
        optimizer.add_param("p", tensor)
        tensor.close()
        gc.collect()
        optimizer.step()
        self.assertEqual(optimizer.stats.step, 1)

    def test_close_beside_calls(self):
        context = mp.Context(1)
        for _ in range(20):
            tensor, failures = mp.Tensor(context, 100000), []

            def use():
                try:
                    while True:
                        tensor.zero()
                except mp.InvalidHandleError:
                    pass
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=use)
            thread.start()
            time.sleep(0.002)
            tensor.close()
            thread.join()
            self.assertEqual(failures, [])

    def test_copies_are_refused(self):
        with self.assertRaises(TypeError):
            copy.copy(mp.Context(1))

    def test_cycles_are_collected(self):
        before = len(_library.lent)
        for _ in range(50):
            context = mp.Context(1)
            tensor = mp.Tensor.wrap(context, bytearray(16))
            tensor.me = tensor
            context.tensor = tensor
        del context, tensor
        gc.collect()
        self.assertEqual(len(_library.lent), before)

    def test_repr(self):
        context = mp.Context(1)
        self.assertEqual(repr(mp.Tensor(context, (2, 3), "bf16")), "<mixedprec.Tensor bf16 [2, 3]>")
        self.assertLess(len(repr(mp.Optimizer(mp.Recipe(context, "fp32")))), 60)


class ContextsAndQueues(unittest.TestCase):
    def test_context(self):
        with mp.Context(threads=2) as context:
            self.assertEqual(context.threads, 2)
            self.assertEqual(context.describe()["host"]["threads"], 2)
            context.sync()
        with self.assertRaises(mp.UnknownNameError):
            mp.Context(backend="abacus")
        with self.assertRaises(ValueError):
            mp.Context(log_level="loud")

    def test_log(self):
        lines = []
        context = mp.Context(1, log=lambda level, line: lines.append((level, line)), log_level="info")
        self.assertTrue(lines)
        self.assertEqual({level for level, _ in lines} - {"info", "warning"}, set())
        del context

    def test_a_log_that_fails_is_heard_and_not_fatal(self):
        heard, hook = [], sys.unraisablehook
        sys.unraisablehook = heard.append
        try:
            mp.Context(1, log=lambda *_: 1 / 0, log_level="debug")
        finally:
            sys.unraisablehook = hook
        self.assertTrue(heard)
        self.assertIs(heard[0].exc_type, ZeroDivisionError)

    def test_the_usual_hook_prints_it(self):
        program = "import mixedprec as mp; mp.Context(1, log=lambda *_: 1 / 0, log_level='debug'); print('on')"
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-B", "-c", program], env=env, capture_output=True, text=True)
        self.assertEqual(done.stdout, "on\n")
        self.assertIn("ZeroDivisionError: division by zero", done.stderr)

    def test_a_log_must_not_call_back(self):
        caught, other = [], mp.Context(1)

        def log(*_):
            try:
                other.sync()
            except mp.BadStateError as error:
                caught.append(error)

        mp.Context(1, log=log, log_level="debug")
        self.assertTrue(caught)

    def test_objects_dropped_in_a_log_are_destroyed_after_it(self):
        other, dropped = mp.Context(1), []

        def log(*_):
            if not dropped:
                tensor = mp.Tensor.__new__(mp.Tensor)
                dropped.append(keep.pop())
                del tensor
                dropped[0] = None  # the last reference goes here

        keep = [mp.Tensor.wrap(other, bytearray(8))]
        before = len(_library.lent)
        mp.Context(1, log=log, log_level="debug")
        other.sync()
        self.assertEqual(len(_library.lent), before - 1)
        self.assertEqual(len(_library._dropped), 0)

    def test_queues_and_events(self):
        context = mp.Context(1)
        first, second, event = mp.Queue(context), mp.Queue(context), mp.Event(context)
        self.assertTrue(event.done)
        tensor = mp.Tensor(context, 1000)
        tensor.zero(first)
        event.record(first)
        second.wait(event)
        event.sync()
        second.sync()
        self.assertTrue(event.done)
        self.assertGreaterEqual(first.workspace_peak, 0)
        with self.assertRaises(mp.UnsupportedError):
            first.native


if __name__ == "__main__":
    unittest.main()
