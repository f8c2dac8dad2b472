# SPDX-License-Identifier: Apache-2.0
"""The version is that of the headers. With MIXEDPREC_DIR set (the prefix of an installation, or a build folder) the
wheel carries that libmixedprec.so.0 and the modules beside it; without it the wheel is for a library that is
installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel


def version():
    here = Path(__file__).resolve().parent
    generator = here.parent / "generate/generate.py"
    if generator.exists():  # a clone, where the raw layer is made from the headers
        subprocess.run([sys.executable, generator], check=True)
    raw = (here / "mixedprec/capi.py").read_text()
    return ".".join(re.search(rf"^MP_VERSION_{part} = (\d+)$", raw, re.M)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def library_files():
    """The library under MIXEDPREC_DIR, by the name that programs load, and its modules: {name: file}."""
    folder = os.environ.get("MIXEDPREC_DIR")
    if not folder:
        return {}
    for libraries in (Path(folder, "lib"), Path(folder, "lib64")):
        library = libraries / "libmixedprec.so.0"
        if library.exists():
            return {library.name: library, **{file.name: file for file in libraries.glob("libmixedprec-*.so")}}
    raise SystemExit(f"MIXEDPREC_DIR is {folder}, which has no lib/libmixedprec.so.0")


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        target = Path(self.build_lib, "mixedprec", "lib")
        shutil.rmtree(target, ignore_errors=True)
        for name, file in library_files().items():
            target.mkdir(exist_ok=True)
            shutil.copyfile(file, target / name)


class PlatformWheel(bdist_wheel):
    """One wheel for every Python; for one platform where it carries the library."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not library_files()

    def get_tag(self):
        return "py3", "none", "any" if self.root_is_pure else "linux_x86_64"


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return bool(library_files())


setup(
    version=version(),
    distclass=PlatformDistribution,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
)
