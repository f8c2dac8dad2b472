# SPDX-License-Identifier: Apache-2.0
"""Files of models, written and taken back."""

import array
import json
import os
import tempfile
import unittest

import mixedprec as mp
from common import context, floats, run, tensor


def header_of(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "m.safetensors")

    def make(self, comm=None):
        optimizer = mp.Optimizer(mp.Recipe(context, "bf16_pure_remainder"), comm=comm)
        optimizer.add_param("w", tensor((2, 32), range(64), "bf16"))
        if comm is not None:
            optimizer.shard()
        optimizer.init_params({"w": ("normal", 0.0, 1.0)}, seed=3)
        return optimizer

    def exact(self, optimizer):
        wide = mp.Tensor(context, (64,))
        optimizer.read_state("w", "fp32_param", wide)
        return array.array("f", wide.read())

    def test_pieces(self):
        with mp.ModelWriter(self.path) as writer:
            writer.set("format", "pt")
            writer.add_tensor("w", "fp32", (2, 2))
            writer.add_tensor("b", "bf16", 2)
            writer.add_tensor("t", "fp16", ())
            writer.write_floats("w", floats(3, 4), first=2)
            writer.write("w", floats(1, 2))
            writer.write_floats("b", floats(0.5, 1))
            with self.assertRaisesRegex(mp.BadStateError, "'t'"):
                writer.finish()
            writer.write_tensor("t", tensor((), [7]))
            with self.assertRaisesRegex(KeyError, "no tensor 'x'"):
                writer.write("x", b"1")
            with self.assertRaisesRegex(TypeError, "must be fp32"):
                writer.write_floats("w", b"1234")
            writer.finish()
        header = header_of(self.path)
        self.assertEqual(header["__metadata__"], {"format": "pt"})
        self.assertEqual(header["w"], {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]})
        with open(self.path, "rb") as file:
            data = file.read()[-22:]
        self.assertEqual(data, floats(1, 2, 3, 4).tobytes() + bytes.fromhex("003f 803f 0047"))
        with self.assertRaisesRegex(mp.InvalidArgumentError, "nothing is overwritten"):
            mp.ModelWriter(self.path)

    def test_nothing_stays_without_an_end(self):
        with mp.ModelWriter(self.path) as writer:
            writer.add_tensor("w", "fp32", 1)
            writer.write("w", floats(1))
            self.assertEqual(len(os.listdir(self.folder)), 1)
        self.assertEqual(os.listdir(self.folder), [])

    def test_several_files(self):
        with mp.ModelWriter(self.path, max_file_bytes=8) as writer:
            for name in "ab":
                writer.add_tensor(name, "fp32", 2)
                writer_index = writer._index(name)
            self.assertEqual(writer_index, 1)
            for name in "ab":
                writer.write(name, floats(1, 2))
            writer.finish()
        with open(self.path + ".index.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file)["weight_map"]["b"], "m-00002-of-00002.safetensors")

    def test_keys_of_gguf(self):
        first = os.path.join(self.folder, "first.gguf")
        with mp.ModelWriter(first) as writer:
            writer.set("general.architecture", "llama")
            writer.set("a.bool", True)
            writer.set("a.float", 0.5)
            writer.set("a.texts", ["x", "h\u00e9"])
            writer.set("a.floats", [1.0, 2.0])
            writer.set_integer("a.count", 30, signed=False)
            writer.set_integer("a.types", [1, -2])
            for wrong, error in ((lambda: writer.set("n", 3), TypeError), (lambda: writer.set("n", [1, "x"]), TypeError)):
                self.assertRaises(error, wrong)
            with self.assertRaisesRegex(mp.InvalidArgumentError, "does not fit 8"):
                writer.set_integer("n", 200, bits=8)
            writer.finish()
        second = os.path.join(self.folder, "second")
        with mp.ModelWriter(second, format="gguf") as writer:
            writer.copy_metadata(first)
            writer.finish()
        with open(first, "rb") as one, open(second, "rb") as other:
            content = one.read()
            self.assertEqual(content, other.read())
        for part in ("llama", "h\u00e9", "a.count"):
            self.assertIn(part.encode(), content)

    def test_parameters_are_taken_back(self):
        optimizer = self.make()
        with mp.ModelWriter(self.path) as writer:
            writer.add_tensor("m.w", "fp32", (2, 32))
            optimizer.write_params(writer, "m.", exact=True)
            writer.finish()
        values = self.exact(optimizer)
        optimizer.init_params({"w": ("constant", 0.0)})
        optimizer.load_params(self.path, "m.")
        self.assertEqual(self.exact(optimizer), values)
        with self.assertRaisesRegex(mp.NullArgumentError, "writer"):
            optimizer.write_params(None)

    def test_other_names(self):
        with mp.ModelWriter(self.path) as writer:
            writer.set("format", "pt")
            writer.add_tensor("h.0.qkv", "fp32", (2, 6))
            writer.write_floats("h.0.qkv", floats(*range(12)))
            writer.finish()
        rules = "".join(f"{part}.* = rows(transpose(h.*.qkv), {i}/3)\n" for i, part in enumerate("qkv"))
        with mp.ModelFile(self.path) as whole:
            model = whole.map(rules)
            with self.assertRaisesRegex(mp.UnknownNameError, "line 1: there is no tensor 'h'"):
                whole.map("x = h")
        self.assertEqual(list(model.tensors()), ["q.0", "k.0", "v.0"])
        self.assertEqual(model.tensors()["k.0"], mp.FileTensor("fp32", (2, 2), "F32", self.path))
        loaded = mp.Tensor(context, (2, 2))
        model.load("k.0", loaded)
        self.assertEqual(array.array("f", loaded.read()), floats(2, 8, 3, 9))
        row = mp.Tensor(context, (1, 2), "bf16")
        model.load("k.0", row, first_row=1)
        self.assertEqual(bytes(row.read()), bytes.fromhex("4040 1041"))
        codes = mp.Tensor(context, (2, 2), "fp8_e4m3", quant=mp.Quant())
        model.load("v.0", codes)
        with self.assertRaisesRegex(mp.InvalidArgumentError, "'k.0' has 2"):
            model.load("k.0", row, first_row=2)
        optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
        param = tensor((2, 2), [0] * 4)
        optimizer.add_param("v.0", param)
        optimizer.load_params(model)
        self.assertEqual(array.array("f", param.read()), floats(4, 10, 5, 11))
        optimizer.load_params(model, params=["v.0"])  # it is open still
        with mp.ModelWriter(os.path.join(self.folder, "copy.gguf")) as writer:
            writer.copy_metadata(model)
            writer.finish()

    def test_ranks(self):
        def rank(comm):
            optimizer = self.make(comm)
            if comm.rank != 1:
                optimizer.write_params(None, params=["w"])
                return
            with mp.ModelWriter(self.path) as writer:
                writer.add_tensor("w", "bf16", (2, 32))
                optimizer.write_params(writer, params=["w"])
                writer.finish()

        run(2, rank)
        self.assertEqual(header_of(self.path)["w"]["dtype"], "BF16")

    def test_what_a_rank_says_wrongly(self):
        def rank(comm):
            optimizer = self.make(comm)
            wanted = KeyError if comm.rank == 0 else mp.PeerError
            with self.assertRaises((wanted, ValueError, IndexError)):
                optimizer.write_params(None, params=["no such"] if comm.rank == 0 else ["w"])

        run(2, rank)


if __name__ == "__main__":
    unittest.main()
