# SPDX-License-Identifier: Apache-2.0
"""Tensors over arrays and of the library's: what is refused, what shares memory, what stays alive and how long."""

import array
import gc
import struct
import unittest
import weakref

import mixedprec as mp
from common import context, floats


class Buffers(unittest.TestCase):
    """Without numpy."""

    def test_memory_is_shared(self):
        a = floats(1, 2, 3)
        tensor = mp.Tensor.wrap(context, a)
        self.assertEqual((tensor.shape, tensor.dtype, tensor.nbytes, tensor.device), ((3,), "fp32", 12, ("host", 0)))
        a[1] = 5
        self.assertEqual(tensor.tolist(), [1, 5, 3])
        tensor.zero()
        self.assertEqual(list(a), [0, 0, 0])

    def test_memory_may_be_named_for_later(self):
        a = floats(1, 2, 3)
        tensor = mp.Tensor.wrap(context, a, deferred=True)
        with self.assertRaises(mp.BadStateError):
            tensor.tolist()
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        optimizer.add_param("p", tensor)
        self.assertEqual(list(a), [0, 0, 0])
        a[1] = 5
        self.assertEqual(tensor.tolist(), [0, 5, 0])

    def test_a_wrapped_array_cannot_resize(self):
        for a in (floats(1, 2), bytearray(8)):
            tensor = mp.Tensor.wrap(context, a)
            with self.assertRaises(BufferError):
                a.extend(a)
            tensor.close()
            a.extend(a)

    def test_it_stays_while_the_library_uses_it(self):
        class Numbers(array.array):
            pass

        p, g = Numbers("f", [1, 1]), Numbers("f", [1, 1])
        alive = weakref.ref(p), weakref.ref(g)
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        optimizer.add_param("p", p, g)
        del p, g
        gc.collect()
        optimizer.step()
        self.assertTrue(all(ref() is not None for ref in alive))
        optimizer.close()
        gc.collect()
        self.assertTrue(all(ref() is None for ref in alive))

    def test_dtype_of_codes(self):
        codes = array.array("H", [0x3F80, 0x4000])
        self.assertEqual(mp.Tensor.wrap(context, codes, "bf16").tolist(), [1, 2])
        with self.assertRaisesRegex(TypeError, "need dtype="):
            mp.Tensor.wrap(context, codes)

    def test_a_dtype_wider_than_the_memory_is_refused(self):
        for a, dtype in (
            (bytearray(40), "fp32"),
            (array.array("H", [0] * 8), "fp32"),
            (floats(1), "int64"),
            (floats(1), "bf16"),
        ):
            with self.assertRaisesRegex(ValueError, "elements of"):
                mp.Tensor.wrap(context, a, dtype)

    def test_what_is_no_array(self):
        for wrong in (None, 3, "text", [1.0, 2.0], object()):
            with self.assertRaises(TypeError):
                mp.Tensor.wrap(context, wrong)
        with self.assertRaisesRegex(ValueError, "read-only"):
            mp.Tensor.wrap(context, b"abcd")
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            mp.Tensor.wrap(context, memoryview(bytearray(8))[::2])
        with self.assertRaises(TypeError):
            mp.Tensor.wrap(context, array.array("d", [1]))

    def test_shapes(self):
        self.assertEqual(mp.Tensor(context, ()).shape, ())
        self.assertEqual(mp.Tensor(context, 5).shape, (5,))
        self.assertEqual(mp.Tensor(context, (0, 3)).tolist(), [])
        self.assertEqual(bytes(mp.Tensor(context, 0).memory()), b"")
        self.assertEqual(mp.Tensor.wrap(context, bytearray()).shape, (0,))
        with self.assertRaisesRegex(ValueError, "9 dimensions"):
            mp.Tensor(context, (1,) * 9)
        with self.assertRaises(mp.InvalidShapeError):
            mp.Tensor(context, -1)
        with self.assertRaises(TypeError):
            mp.Tensor(context, 2.5)
        with self.assertRaises(OverflowError):
            mp.Tensor(context, 2**70)
        with self.assertRaises(mp.Error):
            mp.Tensor(context, 2**62)
        with self.assertRaisesRegex(ValueError, "dtype is 'float7'"):
            mp.Tensor(context, 1, "float7")

    def test_read_and_write(self):
        tensor = mp.Tensor(context, 2)
        tensor.write(struct.pack("ff", 1, 2))
        self.assertEqual(tensor.read(), struct.pack("ff", 1, 2))
        out = floats(0, 0)
        self.assertIs(tensor.read(out), out)
        self.assertEqual(list(out), [1, 2])
        for wrong in (floats(1), floats(1, 2, 3)):
            with self.assertRaises(ValueError):
                tensor.write(wrong)
            with self.assertRaises(ValueError):
                tensor.read(wrong)
        with self.assertRaises(ValueError):
            tensor.read(bytes(8))

    def test_views(self):
        tensor = mp.Tensor.wrap(context, floats(*range(12)))
        view = tensor.view((2, 3), 6)
        self.assertEqual(view.tolist(), [6, 7, 8, 9, 10, 11])
        tensor.close()
        view.zero()
        self.assertEqual(view.shape, (2, 3))
        for offset, shape in ((6, 7), (-1, 2), (13, 0), (2**62, 4)):
            with self.assertRaises((mp.InvalidShapeError, mp.InvalidArgumentError)):
                mp.Tensor(context, 12).view(shape, offset)

    def test_copy(self):
        a, b = mp.Tensor.wrap(context, floats(1, 2)), mp.Tensor(context, 2)
        b.copy_from(a)
        self.assertEqual(b.tolist(), [1, 2])
        with self.assertRaises(mp.InvalidShapeError):
            mp.Tensor(context, 3).copy_from(a)
        with self.assertRaises(mp.InvalidDtypeError):
            mp.Tensor(context, 2, "bf16").copy_from(a)
        with self.assertRaises(TypeError):
            a.copy_from(mp.Recipe(context))

    def test_memory(self):
        tensor = mp.Tensor(context, 3)
        view = tensor.memory()
        view[0] = 2.5
        self.assertEqual(tensor.tolist(), [2.5, 0, 0])
        tensor.close()
        view[1] = 3  # still there
        self.assertEqual(view.tolist(), [2.5, 3, 0])

    def test_cast(self):
        source = mp.Tensor.wrap(context, floats(1, -3.14159, 1e6, 1e30))
        self.assertEqual(
            source.cast("bf16").tolist(), [1, -3.140625, 999424, struct.unpack("f", struct.pack("I", 0x714A0000))[0]]
        )
        self.assertEqual(source.cast("fp8_e4m3").tolist()[2], 448)
        self.assertEqual(source.cast("fp16").tolist()[2], float("inf"))
        self.assertEqual(source.cast("fp16", saturate=True).tolist()[2], 65504)
        self.assertNotEqual(source.cast("fp8_e4m3", saturate=False).tolist()[2], 448)
        many = mp.Tensor.wrap(context, floats(*[1 + 2**-10] * 4096))
        draws = [many.cast("bf16", random=mp.Random(seed=7, uid=1, step=step)).tolist() for step in (1, 1, 2)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])
        self.assertAlmostEqual(sum(draws[0]) / 4096, 1 + 2**-10, places=3)
        self.assertEqual(set(draws[0]), {1.0, 1 + 2**-7})
        with self.assertRaises(mp.InvalidArgumentError):
            many.cast("bf16", random=mp.Random(microbatch=70000))
        with self.assertRaises(OverflowError):
            many.cast("bf16", random=mp.Random(seed=-1))

    def test_amax(self):
        self.assertEqual(mp.Tensor.wrap(context, floats(1, -7, 3)).amax(), 7)
        self.assertEqual(mp.Tensor(context, 0).amax(), 0)
        self.assertNotEqual(*[mp.Tensor.wrap(context, floats(1, float("nan"))).amax()] * 2)

    def test_numbers_of_dtypes(self):
        self.assertEqual([mp.dtype_size(d) for d in ("fp32", "bf16", "fp8_e4m3", "fp4_e2m1", "int64")], [4, 2, 1, 0, 8])
        self.assertEqual(mp.dtype_name("bfloat16"), "bf16")


class Quantized(unittest.TestCase):
    def test_there_and_back(self):
        source = mp.Tensor.wrap(context, floats(*[(i - 128) / 32 for i in range(256)])).view((2, 128))
        for quant, dtype in (
            (mp.Quant(), "fp8_e4m3"),
            (mp.Quant("row"), "fp8_e5m2"),
            (mp.Quant("block_1x128"), "fp8_e4m3"),
            (mp.Quant("mx_1x32"), "fp8_e4m3"),
            (mp.Quant(rule="msamp"), "fp16"),
            (mp.Quant("nvfp4"), "fp4_e2m1"),
        ):
            with self.subTest(quant=quant):
                codes = mp.Tensor(context, (2, 128), dtype, quant)
                stats = source.quantize(codes, stats=True)
                self.assertEqual((stats.elements, stats.saturated, stats.amax), (256, 0, 4.0))
                values = codes.dequantize()
                self.assertLess(max(abs(a - b) for a, b in zip(values.tolist(), source.tolist())), 0.6)
                self.assertEqual(codes.tolist(), values.tolist())
                self.assertTrue(codes.is_quantized)
                self.assertEqual(codes.quant.scaling, quant.scaling)
                rows, columns, scale = mp.scale_grid(quant, 2, 128)
                self.assertEqual((codes.scales.shape, codes.scales.dtype), ((rows, columns), scale))
                self.assertEqual(codes.quantized_amax.tolist(), [4.0])
                self.assertEqual(len(codes.read()), codes.nbytes)
        self.assertFalse(source.is_quantized)
        with self.assertRaises(mp.InvalidArgumentError):
            source.scales
        with self.assertRaises(mp.Error):
            source.quantize(mp.Tensor(context, (2, 128), "fp8_e4m3"))
        with self.assertRaisesRegex(ValueError, "scaling is 'rows'"):
            mp.Tensor(context, 4, "fp8_e4m3", mp.Quant("rows"))

    def test_transposed(self):
        source = mp.Tensor.wrap(context, floats(*range(6))).view((2, 3))
        codes, turned = mp.Tensor(context, (2, 3), "fp8_e4m3", mp.Quant()), mp.Tensor(context, (3, 2), "fp8_e4m3")
        source.quantize(codes, turned)
        a, b = codes.read(), turned.read()
        self.assertEqual([b[2 * c + r] for r in range(2) for c in range(3)], list(a))

    def test_memory_of_the_callers(self):
        codes, scale, amax = bytearray(6), floats(0), floats(0)
        tensor = mp.Tensor.wrap_quantized(context, codes, scale, mp.Quant(), "fp8_e4m3", (2, 3), amax)
        mp.Tensor.wrap(context, floats(*range(6))).view((2, 3)).quantize(tensor)
        self.assertEqual(amax[0], 5)
        self.assertNotEqual(bytes(codes), bytes(6))
        for arguments in (
            (bytearray(5), scale, mp.Quant(), "fp8_e4m3", (2, 3)),
            (codes, floats(), mp.Quant(), "fp8_e4m3", (2, 3)),
            (codes, scale, mp.Quant("row"), "fp8_e4m3", (2, 3)),
            (codes, scale, mp.Quant(), "fp8_e4m3", (2, 3), floats()),
        ):
            with self.assertRaisesRegex(ValueError, "it must have"):
                mp.Tensor.wrap_quantized(context, *arguments)
        with self.assertRaises(mp.Error):
            mp.Tensor.wrap_quantized(context, codes, scale, mp.Quant(), "int8", (2, 3))


if __name__ == "__main__":
    unittest.main()
