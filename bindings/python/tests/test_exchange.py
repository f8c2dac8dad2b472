# SPDX-License-Identifier: Apache-2.0
"""Tensors over numpy's memory and through DLPack."""

import array
import gc
import unittest
import weakref

import mixedprec as mp
from common import context, floats, needs_numpy, np
from mixedprec import _dlpack, _library

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


@needs_numpy
class Numpy(unittest.TestCase):
    def test_memory_is_shared(self):
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = mp.Tensor.wrap(context, a)
        a[1, 2] = 9
        self.assertEqual(tensor.tolist(), [0, 1, 2, 3, 4, 9])
        tensor.numpy()[0, 0] = 7
        self.assertEqual(a[0, 0], 7)
        self.assertTrue((np.asarray(tensor) == a).all())
        self.assertEqual(np.asarray(tensor, dtype=np.float64).dtype, np.float64)

    def test_what_is_refused(self):
        good = np.ones((4, 6), np.float32)
        read_only = good.copy()
        read_only.flags.writeable = False
        for wrong, why in (
            (good.T, "row-major"),
            (good[:, ::2], "row-major"),
            (good[::-1], "row-major"),
            (read_only, "read-only"),
            (good.astype(">f4"), "byte order"),
        ):
            with self.assertRaisesRegex(ValueError, why):
                mp.Tensor.wrap(context, wrong)
        for wrong in (np.ones(4), np.ones(4, bool), np.ones(4, complex), np.array(["a"]), np.array([None])):
            with self.assertRaises(TypeError):
                mp.Tensor.wrap(context, wrong)
        with self.assertRaises(TypeError):
            mp.Tensor.wrap(context, np.ones(4, np.float16), "bf16")
        with self.assertRaises((TypeError, ValueError)):
            mp.Tensor.wrap(context, np.float32(1))
        unaligned = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32)
        with self.assertRaisesRegex(mp.InvalidArgumentError, "aligned"):
            mp.Tensor.wrap(context, unaligned)
        with self.assertRaisesRegex(ValueError, "^grad of 'p': array is not contiguous"):
            mp.Optimizer(mp.Recipe(context, "fp32")).add_param("p", good, good[:, ::2])

    def test_forty_million_bytes_are_no_forty_million_floats(self):
        p = np.zeros(40_000_000, np.uint8)
        with self.assertRaisesRegex(ValueError, "elements of 1 bytes; fp32 has 4"):
            mp.Tensor.wrap(context, p, "fp32")

    def test_resize_is_refused(self):
        a = np.zeros(4, np.float32)
        tensor = mp.Tensor.wrap(context, a)
        with self.assertRaises(ValueError):
            a.resize(10)
        del tensor

    def test_the_array_lives_as_long_as_it_is_used(self):
        a = np.zeros(1000, np.float32)
        alive = weakref.ref(a)
        tensor = mp.Tensor.wrap(context, a)
        view = tensor.view(10)
        del a, tensor
        gc.collect()
        self.assertIsNotNone(alive())
        del view
        self.assertIsNone(alive())

    def test_an_array_over_a_tensor_keeps_it(self):
        tensor = mp.Tensor(context, 1000)
        a = tensor.numpy()
        part = a[10:20]
        tensor.close()
        del tensor, a
        gc.collect()
        part[:] = 3
        self.assertEqual(part.sum(), 30)

    def test_dtypes(self):
        for dtype in ("float32", "float16", "int8", "int16", "int32", "int64", "uint8"):
            a = np.arange(4).astype(dtype)
            self.assertTrue((mp.Tensor.wrap(context, a).numpy() == a).all())
        tensor = mp.Tensor(context, (2, 2), np.float16)
        self.assertEqual((tensor.dtype, tensor.numpy().shape), ("fp16", (2, 2)))
        self.assertEqual(mp.Tensor(context, (0, 3), "bf16").numpy().shape, (0, 3))

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_ml_dtypes(self):
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            a = np.array([1, -2, 0.5]).astype(getattr(ml_dtypes, name))
            tensor = mp.Tensor.wrap(context, a)
            self.assertEqual(tensor.tolist(), [1, -2, 0.5])
            self.assertEqual(tensor.numpy().dtype, a.dtype)

    def test_the_smallest_optimizer_in_a_thousand_steps(self):
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        p, grad = np.zeros(8, np.float32), np.zeros(8, np.float32)
        optimizer.add_group(lr=0.05)
        optimizer.add_param("p", p, grad)
        for _ in range(1000):
            grad[:] = p - 3
            optimizer.step()
        self.assertTrue((abs(p - 3) < 1e-3).all())


class Dlpack(unittest.TestCase):
    def pins(self):
        return len(_dlpack._exported) + len(_dlpack._imported)

    @needs_numpy
    def test_to_numpy(self):
        tensor = mp.Tensor(context, (2, 3))
        a = np.from_dlpack(tensor)
        tensor.close()
        self.assertEqual(a.sum(), 0)
        before = self.pins()
        del a
        gc.collect()
        self.assertLessEqual(self.pins(), before)

    def test_a_capsule_that_nobody_takes(self):
        alive = floats(1, 2)
        before = len(_library.lent)
        for version in (None, (1, 0)):
            tensor = mp.Tensor.wrap(context, alive)
            capsule = tensor.__dlpack__(max_version=version)
            tensor.close()
            self.assertEqual(len(_library.lent), before + 1)
            context.sync()
            self.assertEqual(len(_library.lent), before + 1)
            del capsule
            context.sync()
            self.assertEqual(len(_library.lent), before)
        self.assertEqual(self.pins(), 0)

    def test_a_capsule_that_is_taken_twice(self):
        for version in (None, (1, 0)):
            capsule = mp.Tensor(context, 2).__dlpack__(max_version=version)
            tensor = mp.from_dlpack(context, capsule)
            with self.assertRaisesRegex(ValueError, "taken already"):
                mp.from_dlpack(context, capsule)
            tensor.zero()
            self.assertEqual(tensor.tolist(), [0, 0])
            del tensor
        self.assertEqual(self.pins(), 0)

    def test_there_and_back(self):
        class Old:
            """A producer of before DLPack 1.0."""

            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, stream=None):
                return self.tensor.__dlpack__(stream=stream)

            def __dlpack_device__(self):
                return 1, 0

        for dtype in ("fp32", "fp16", "bf16", "fp8_e4m3", "int8", "uint8", "int64"):
            tensor = mp.Tensor(context, (2, 2), dtype)
            for source in (tensor, Old(tensor)):
                other = mp.from_dlpack(context, source)
                self.assertEqual((other.dtype, other.shape, other.address), (dtype, (2, 2), tensor.address))
                del other
        self.assertEqual(self.pins(), 0)

    def test_a_copy(self):
        tensor = mp.Tensor.wrap(context, floats(1, 2))
        other = mp.from_dlpack(context, tensor.__dlpack__(copy=True))
        tensor.zero()
        self.assertEqual(other.tolist(), [1, 2])
        with self.assertRaises(BufferError):
            tensor.__dlpack__(dl_device=(2, 0))
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))

    def test_what_is_none(self):
        for wrong in (None, 3, b"abcd", object()):
            with self.assertRaises(TypeError):
                mp.from_dlpack(context, wrong)
        with self.assertRaises(TypeError):
            mp.from_dlpack(mp.Tensor(context, 1), mp.Tensor(context, 1))

    @needs_numpy
    def test_from_numpy(self):
        a = np.arange(4, dtype=np.float32)
        alive = weakref.ref(a)
        tensor = mp.from_dlpack(context, a)
        a[0] = 5
        self.assertEqual(tensor.tolist(), [5, 1, 2, 3])
        del a
        gc.collect()
        self.assertIsNotNone(alive())
        tensor.close()
        gc.collect()
        self.assertIsNone(alive())
        for wrong in (np.ones((4, 4), np.float32).T[:, 1:], np.ones(4), np.ones(8, np.float32)[::2]):
            with self.assertRaises(mp.Error):
                mp.from_dlpack(context, wrong)
        gc.collect()
        self.assertEqual(self.pins(), 0)

    @needs_numpy
    def test_a_consumer_that_fails_keeps_its_exception(self):
        before = len(_library.lent)
        tensor = mp.Tensor.wrap(context, array.array("H", [0]), "bf16")
        with self.assertRaises((BufferError, RuntimeError, TypeError)):
            np.from_dlpack(tensor)  # numpy has no bf16: it fails with the capsule in its hands
        tensor.close()
        self.assertEqual(len(_library.lent), before)


if __name__ == "__main__":
    unittest.main()
