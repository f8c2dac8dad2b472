# SPDX-License-Identifier: Apache-2.0
"""Where the library is: found and loaded at import."""

from __future__ import annotations

import os

from . import capi

_FILE = "libmixedprec.so.0"


def _find():
    """MIXEDPREC_DIR (a prefix or a build folder), the copy inside of the package, or what the loader finds."""
    folder = os.environ.get("MIXEDPREC_DIR")
    if folder:
        files = [os.path.join(folder, lib, _FILE) for lib in ("lib", "lib64")]
        for file in files:
            if os.path.exists(file):
                return file
        raise ImportError(
            f"MIXEDPREC_DIR is {folder}, where there is neither {files[0]} nor {files[1]}; it must be the "
            f"prefix of an installation or a build folder"
        )
    bundled = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", _FILE)
    return bundled if os.path.exists(bundled) else _FILE


def _load():
    file = _find()
    try:
        return capi.load(file)
    except OSError as error:
        raise ImportError(f"{error}. Set MIXEDPREC_DIR to the prefix of an installation of libmixedprec") from error


lib = _load()
