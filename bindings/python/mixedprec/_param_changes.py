# SPDX-License-Identifier: Apache-2.0
"""Changes of an optimizer's parameters between steps."""

from __future__ import annotations

from ctypes import byref, c_int32
from typing import Iterable, Mapping, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor
from ._first_values import FilledOptimizer
from ._library import call, flags, value
from ._memory import int32_array

if TYPE_CHECKING:
    from ._context import Queue
    from ._memory import Array


class ChangedOptimizer(FilledOptimizer):
    """What an optimizer has besides, for parameters that come late or are not trained all the time. Collective where ranks
    have cut the parameters."""

    def add_params(
        self,
        params: Mapping[str, Array],
        initial: Mapping[str, Array] | None = None,
        group: int = 0,
        frozen: bool = False,
    ) -> list[int]:
        """Adds parameters of one group by their names, all or none, and returns their numbers; see add_param. After the cut
        there is one exchange for all of them."""
        with self._or_decline("mp_optimizer_add_params", group, None, 1, None):
            tensors = {name: as_tensor(self.context, array, f"param of {name!r}") for name, array in params.items()}
            exact = {
                name: as_tensor(self.context, array, f"init_fp32 of {name!r}")
                for name, array in (initial or {}).items()
            }
            descs = (capi.mp_param_desc * len(tensors))()
            for i, (name, tensor) in enumerate(tensors.items()):
                fields = {"init_fp32": exact[name].handle()} if name in exact else {}
                descs[i] = capi.mp_param_desc(
                    name=name, flags=flags(frozen=(frozen, capi.MP_PARAM_FROZEN)), param=tensor.handle(), **fields
                )
        first = value(c_int32, "mp_optimizer_add_params", self, group, descs, len(descs))
        indices = list(range(first, first + len(descs)))
        self._names.update(zip(tensors, indices))
        return indices

    def set_frozen(self, params: Iterable[int | str], frozen: bool = True, queue: Queue | None = None) -> None:
        """These are not trained from now on, and lose gradient and states; or they are trained again, with new ones of
        zeros, and a bias correction that begins anew."""
        with self._or_decline("mp_optimizer_set_frozen", queue, None, 1, bool(frozen)):
            indices = int32_array(self._index(param) for param in params)
        call("mp_optimizer_set_frozen", self, queue, indices, len(indices), bool(frozen))

    def is_frozen(self, param: int | str) -> bool:
        """Whether a parameter is frozen."""
        return bool(value(c_int32, "mp_optimizer_get_frozen", self, self._index(param)))
