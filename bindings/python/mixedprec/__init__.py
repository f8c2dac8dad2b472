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
from ._adapter import Adapter, MergeReport, merge_adapters
from ._arguments import from_dlpack
from ._checkpoint import Checkpoint, CheckpointInfo, describe_checkpoint, inspect_checkpoint, read_manifest
from ._comm import Comm, Request, Traffic
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
from ._gemm import Gemm
from ._library import call
from ._linear import Linear, LinearStats, Saved, end_step
from ._memory import dtype_name, dtype_size
from ._model_file import FileTensor, ModelFile
from ._model_writer import ModelWriter
from ._optimizer import Group, Guard, OffloadTraffic, Optimizer, StepRecord
from ._quant import Quant, QuantStats, Random, scale_grid
from ._recipe import MemoryReport, PlannedTensor, Recipe, RecipeKey, presets, recipe_keys
from ._reduce import wire_bytes
from ._scaler import Scaler, ScalerState
from ._sharding import Progress, Sharding
from ._step import OptimizerStats, Slot, StepPlan, step
from ._tensor import Tensor
from ._transport import Operation, Transport

__version__ = f"{capi.MP_VERSION_MAJOR}.{capi.MP_VERSION_MINOR}.{capi.MP_VERSION_PATCH}"
