# SPDX-License-Identifier: Apache-2.0
# A recipe for spack. Not built where this project is checked. The tarball is what `scripts/package.sh source` makes; put
# its address and sha256 in.
from spack.package import *


class Mixedprec(CMakePackage, CudaPackage):
    """Low-precision training behind one C interface: recipes, quantized linear layers, optimizers, sharding, checkpoints."""

    license("Apache-2.0")

    version("0.2.0", sha256="0" * 64)

    variant("mpi", default=True, description="The module for ranks that are MPI processes")
    variant("onednn", default=True, description="Matrix products on the host by oneDNN")
    variant("hwloc", default=True, description="Ask hwloc for the cores")
    variant("static", default=False, description="libmixedprec.a too")
    variant("tools", default=True, description="The programs mixedprec and mixedprec_train")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.24:", type="build")
    depends_on("ninja", type="build")
    depends_on("kokkos@4.5:4 +serial ~openmp ~shared +pic cxxstd=20")
    depends_on("nlohmann-json@3.10:")
    depends_on("onednn@2.6:2", when="+onednn")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@12.4:", when="+cuda")
    depends_on("cli11@2.1:", when="+tools", type="build")

    def cmake_args(self):
        parts = [self.define_from_variant("MIXEDPREC_ENABLE_" + part.upper(), part)
                 for part in ("mpi", "onednn", "hwloc", "static", "tools", "cuda")]
        if self.spec.satisfies("+cuda"):
            wanted = self.spec.variants["cuda_arch"].value
            parts.append(self.define("CMAKE_CUDA_ARCHITECTURES", "all-known" if "none" in wanted else wanted))
        return parts + [self.define("MIXEDPREC_KOKKOS", "external"), self.define("MIXEDPREC_ENABLE_TESTS", False),
                        self.define("MIXEDPREC_ENABLE_EXAMPLES", False)]
