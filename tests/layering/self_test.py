#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_layers.py must catch planted errors: small trees with one wrong edge each, and the real tree with one more."""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_layers

ROOT = Path(__file__).resolve().parents[2]

GOOD = {
    "capi/include/mixedprec.h": "#include <stdint.h>\n#define MP_DEVICE_HIP 3\nvoid mp_comm_wrap_nccl(int nccl_comm);\n",
    "capi/src/context.cpp": '#include "mixedprec.h"\n#include "optim/step_memory.hpp"\n#include "enabled.hpp"\n',
    "capi/src/comm.cpp": 'void mp_comm_wrap_nccl(int nccl_comm) { ownership = "cuda"; } // NCCL\n',
    "core/base/status/status.hpp": "#include <cstdint>\n",
    "core/base/numerics/bits.hpp": '#include <bit>\n#include "status/status.hpp"\n// as on CUDA\n',
    "core/base/array/tensor_ref.hpp": '#include "numerics/bits.hpp"\n',
    "core/tensor/tensor.hpp": '#include "array/tensor_ref.hpp"\n#include "context/context.hpp"\n',
    "core/context/context.hpp": '#include "device/backend.hpp"\n',
    "core/optim/step_memory.hpp": '#include "tensor/tensor.hpp"\n',
    "core/optim/files.cpp": 'void f() { files.open(p, 1); x->rename(a); open(*request); std::remove(b, e, 1); '
                             'system::remove(p); }\n',
    "core/system/file.cpp": 'int f() { return ::open(p, O_RDONLY) + mkdir(p, 0777) + fcntl(f, 1); }\n',
    "core/kernels/cast.hpp": '#include <Kokkos_Core.hpp>\n#include "numerics/bits.hpp"\n',
    "core/base/device/backend.hpp": '#include "array/tensor_ref.hpp"\n',
    "backends/enabled.hpp": '#include "device/backend.hpp"\n',
    "backends/kokkos/run.hpp": '#include "kernels/cast.hpp"\n',
    "backends/host/host.cpp": '#include "device/backend.hpp"\n#include <dnnl.hpp>\n',
    "backends/reference/cast.cpp": '#include "numerics/bits.hpp"\n',
    "backends/cuda/cast.cu": '#include "device/backend.hpp"\n#include <cuda_runtime.h>\n',
    "examples/train/main.c": "#include <mixedprec.h>\n",
    "tools/train/main.cpp": "#include <mixedprec.h>\n",
    "tests/core/adamw.cpp": '#include "optim/step_memory.hpp"\n',
}

# (file, its text, a part of the message)
PLANTED = [
    ("core/optim/bad.cpp", '#include "host/host.hpp"\n', "is no file of this tree"),
    ("core/optim/bad.cpp", '#include "reference/cast.cpp"\n', "core/optim includes backends/reference/cast.cpp"),
    ("core/optim/bad.cpp", '#include "kernels/cast.hpp"\n', "core/optim includes core/kernels/cast.hpp"),
    ("core/optim/bad.cpp", '#include "mixedprec.h"\n', "core/optim includes capi/include/mixedprec.h"),
    ("core/base/numerics/bad.hpp", '#include "optim/step_memory.hpp"\n',
     "core/base/numerics includes core/optim/step_memory.hpp"),
    ("core/base/numerics/bad.hpp", '#include "device/backend.hpp"\n', "core/base/numerics includes core/base/device"),
    ("core/base/numerics/bad.hpp", '  #  include "../optim/step_memory.hpp"\n',
     "core/base/numerics includes core/optim/step_memory.hpp"),
    ("core/kernels/bad.hpp", '#include "context/context.hpp"\n', "core/kernels includes core/context/context.hpp"),
    ("core/base/device/bad.hpp", '#include "tensor/tensor.hpp"\n', "core/base/device includes core/tensor/tensor.hpp"),
    ("backends/reference/bad.cpp", '#include "optim/step_memory.hpp"\n',
     "backends/reference includes core/optim/step_memory.hpp"),
    ("backends/reference/bad.cpp", '#include "kokkos/run.hpp"\n', "backends/reference includes backends/kokkos/run.hpp"),
    ("backends/host/bad.cpp", '#include "kokkos/run.hpp"\n', "backends/host includes backends/kokkos/run.hpp"),
    ("backends/host/bad.cpp", '#include "kernels/cast.hpp"\n', "backends/host includes core/kernels/cast.hpp"),
    ("backends/cuda/bad.cpp", '#include "host/host.cpp"\n', "backends/cuda includes backends/host/host.cpp"),
    ("backends/comm/self/bad.cpp", '#include "reference/cast.cpp"\n', "backends/comm/self includes backends/reference"),
    ("examples/train/bad.c", '#include "numerics/bits.hpp"\n', "examples includes core/base/numerics/bits.hpp"),
    ("tools/train/bad.cpp", '#include "numerics/bits.hpp"\n', "tools includes core/base/numerics/bits.hpp"),
    ("capi/include/mixedprec/bad.h", "#include <cuda_runtime.h>\n", "public header includes <cuda_runtime.h>"),
    ("core/optim/bad.cpp", "#include <cuda_runtime.h>\n", "core names a vendor or its instructions: 'cuda'"),
    ("core/optim/bad.cpp", "#include <immintrin.h>\n", "core names a vendor or its instructions: 'immintrin'"),
    ("core/optim/bad.cpp", "auto x = _mm256_setzero_ps();\n", "core names a vendor or its instructions: '_mm256_'"),
    ("core/base/numerics/bad.hpp", "#include <arm_neon.h>\n", "core names a vendor or its instructions: 'arm_neon'"),
    # Folders in a circle: the lower one may not see the higher one.
    ("core/context/bad.hpp", '#include "tensor/tensor.hpp"\n', "core/context includes core/tensor/tensor.hpp"),
    ("core/base/array/bad.hpp", '#include "context/context.hpp"\n', "core/base/array includes core/context/context.hpp"),
    ("core/base/status/bad.hpp", '#include "numerics/bits.hpp"\n', "core/base/status includes core/base/numerics/bits.hpp"),
    ("core/optim/bad.cpp", "#include <omp.h>\n", "core names a vendor or its instructions: 'omp.h'"),
    ("core/optim/bad.cpp", "int x = Kokkos::n();\n", "core names a vendor or its instructions: 'Kokkos'"),
    ("core/optim/bad.cpp", 'const char* library = "libhwloc.so";\n', "core names a vendor or its instructions: 'hwloc'"),
    ("core/optim/bad.cpp", "if (kind == DeviceKind::hip) {}\n", "core names a vendor or its instructions: 'hip'"),
    ("capi/src/bad.cpp", "if (kind == DeviceKind::cuda) {}\n", "capi/src names a vendor: 'cuda'"),
    ("capi/src/bad.cpp", "kind = MP_DEVICE_HIP;\n", "capi/src names a vendor: 'MP_DEVICE_HIP'"),
    ("capi/src/bad.cpp", "int kNcclRanks;\n", "capi/src names a vendor: 'kNcclRanks'"),
    ("backends/hip/bad.cpp", '#include "cuda/cast.cu"\n', "backends/hip includes backends/cuda/cast.cu"),
    ("core/optim/bad.cpp", "namespace mp {\n}\n", "core/optim opens namespace mp; its own is mp::optim"),
    ("core/optim/bad.cpp", "namespace mp::shard {\n}\n", "its own is mp::optim"),
    ("core/tensor/bad.cpp", "namespace mp::tensor {\n}\n", "core/tensor opens namespace mp::tensor; its own is mp"),
    *((file, f"{call};\n", f"'{name}' where nothing sees to links")
      for file in ("core/optim/bad.cpp", "capi/src/bad.cpp", "backends/host/bad.cpp")
      for call, name in [('int f = open("x", O_RDONLY | O_CREAT)', "open"), ("::open(path, flags)", "::open"),
                         ('openat(folder, "x", O_RDONLY)', "openat"), ('std::fopen("x", "w")', "std::fopen"),
                         ("FILE* f = fopen(path, mode)", "fopen"), ("::mkdir(path, 0777)", "::mkdir"),
                         ("std::rename(a, b)", "std::rename"), ("::rename(a, b)", "::rename"),
                         ("std::remove(path.c_str())", "std::remove"), ("unlink(path)", "unlink"),
                         ('const char* v = std::getenv("HOME")', "std::getenv"), ('secure_getenv("HOME")', "secure_getenv"),
                         ("std::ofstream file(path)", "std::ofstream"), ("::pipe(ends)", "::pipe"),
                         ("pipe2(ends, flags)", "pipe2"), ("::socket(1, 2, 0)", "::socket"), ("dup2(a, b)", "dup2"),
                         ("fcntl(f, F_DUPFD, 0)", "fcntl"), ("mkstemp(name)", "mkstemp")]),
    ("core/new_folder/bad.cpp", "", "belongs to no layer"),
]


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def errors_of(root):
    return check_layers.Checker(root.resolve()).run()


class PlantedEdges(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_a_clean_tree_passes(self):
        write(self.root, GOOD)
        self.assertEqual(errors_of(self.root), [])

    def test_each_planted_error_is_the_one_found(self):
        for file, text, message in PLANTED:
            with self.subTest(file=file, text=text):
                shutil.rmtree(self.root)
                write(self.root, GOOD | {file: text})
                errors = errors_of(self.root)
                self.assertEqual(len(errors), 1, errors)
                self.assertIn(message, errors[0])
                self.assertTrue(errors[0].startswith(file))

    def test_an_exception_holds_and_a_stale_one_is_an_error(self):
        write(self.root, GOOD | {"core/optim/bad.cpp": "#include <omp.h>\n",
                                 "tests/layering/allowed.txt": "core/optim/bad.cpp omp.h because\n"})
        self.assertEqual(errors_of(self.root), [])
        (self.root / "core/optim/bad.cpp").write_text("")
        self.assertIn("not needed any more", errors_of(self.root)[0])

    def test_an_edge_planted_in_the_real_tree_is_found(self):
        for top in ("capi", "core", "backends", "tests/layering"):
            shutil.copytree(ROOT / top, self.root / top)
        before = errors_of(self.root)
        plant = self.root / "core/base/numerics/bits.hpp"
        plant.write_text(plant.read_text() + '\n#include "optim/step_memory.hpp"\n')
        new = set(errors_of(self.root)) - set(before)
        self.assertEqual(len(new), 1, new)
        self.assertIn("core/base/numerics includes core/optim/step_memory.hpp", new.pop())


if __name__ == "__main__":
    unittest.main()
