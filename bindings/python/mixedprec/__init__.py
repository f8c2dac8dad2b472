# SPDX-License-Identifier: Apache-2.0
"""libmixedprec: low-precision training, from Python.

    import numpy as np, mixedprec as mp
    context = mp.Context()
    optimizer = mp.Optimizer(mp.Recipe(context, "fp32"))
    p, grad = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
    optimizer.add_param("p", p, grad)
    grad[:] = p - 3
    optimizer.step()

numpy is not needed: array.array, bytearray and other objects with the buffer interface are taken as well. Failures are
raised (Error), advice is given by warnings.warn (Note). capi has the C ABI as it is, call() calls any of its functions.
"""

from . import capi
from ._checkpoint import Checkpoint, CheckpointInfo, describe_checkpoint, inspect_checkpoint, read_manifest
from ._comm import Comm, Operation, Request, Traffic, Transport, wire_bytes
from ._context import (
    Context,
    Event,
    Queue,
    build_info,
    check_device,
    device_count,
    device_memory,
    device_name,
    library_version,
    shutdown,
)
from ._errors import *  # noqa: F401,F403
from ._library import call
from ._linear import Gemm, Linear, LinearStats, Saved, end_step
from ._memory import dtype_name, dtype_size
from ._optimizer import Group, Guard, Optimizer, Progress, Sharding, StepRecord
from ._recipe import MemoryReport, PlannedTensor, Recipe, RecipeKey, presets, recipe_keys
from ._scaler import Scaler, ScalerState
from ._step import OptimizerStats, Slot, StepPlan, step
from ._tensor import Quant, QuantStats, Random, Tensor, from_dlpack, scale_grid

__version__ = f"{capi.MP_VERSION_MAJOR}.{capi.MP_VERSION_MINOR}.{capi.MP_VERSION_PATCH}"
