# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from ctypes import byref, pointer
from typing import Any, TYPE_CHECKING

from . import capi
from ._arguments import as_tensor
from ._library import Object, call, flags, text
from ._memory import dtype_number

if TYPE_CHECKING:
    from ._context import Context, Queue
    from ._memory import Array


def _blocks(name, scale):
    """The fields of mp_gemm_desc for (dtype, rows, columns) of blocks with a scale each."""
    if scale is None:
        return {}
    dtype, rows, columns = scale
    return {f"{name}_dtype": dtype_number(dtype), f"{name}_rows": rows, f"{name}_columns": columns}


class Gemm(Object):
    """A planned product d = epilogue(alpha * op(a) * op(b) + beta * c + bias): op(a) is m x k, op(b) k x n, d m x n.

    a, b, d        dtypes of the operands
    bias           dtype of a bias of n elements; None: no bias
    trans_a        a is stored k x m; trans_b: b is stored n x k
    gelu           after the bias
    quant_d        the Quant that a quantized d was made with: the product becomes its codes and scales
    scale_a        (dtype, rows, columns) of the blocks of a that have a scale each, 0 for all; None: a has no scales
    lda, ...       elements from row to row as stored; 0: dense
    batch_count    how many products; batch_stride_a, ...: elements from matrix to matrix, 0: dense
    fast_accumulation, power_of_two_scales, implementation    see gemm.h
    """

    _noun = "gemm"

    def __init__(
        self,
        context: Context,
        m: int,
        n: int,
        k: int,
        a: Any = "fp32",
        b: Any = None,
        d: Any = "fp32",
        bias: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        trans_a: bool = False,
        trans_b: bool = False,
        gelu: bool = False,
        scale_a: Any = None,
        scale_b: Any = None,
        power_of_two_scales: bool = False,
        fast_accumulation: bool = False,
        lda: int = 0,
        ldb: int = 0,
        ldc: int = 0,
        ldd: int = 0,
        batch_count: int = 0,
        batch_stride_a: int = 0,
        batch_stride_b: int = 0,
        batch_stride_c: int = 0,
        batch_stride_d: int = 0,
        implementation: str | None = None,
        quant_d: Any = None,
    ) -> None:
        bits = flags(
            trans_a=(trans_a, capi.MP_GEMM_TRANS_A),
            trans_b=(trans_b, capi.MP_GEMM_TRANS_B),
            bias=(bias is not None, capi.MP_GEMM_BIAS),
            gelu=(gelu, capi.MP_GEMM_GELU),
            alpha=(True, capi.MP_GEMM_HAS_ALPHA),
            two=(power_of_two_scales, capi.MP_GEMM_POWER_OF_TWO_SCALES),
            fast=(fast_accumulation, capi.MP_GEMM_FAST_ACCUMULATION),
        )
        strides = (batch_stride_a, batch_stride_b, batch_stride_c, batch_stride_d)
        fields = dict(m=m, n=n, k=k, lda=lda, ldb=ldb, ldc=ldc, ldd=ldd, batch_count=batch_count)
        fields.update(zip(("batch_stride_a", "batch_stride_b", "batch_stride_c", "batch_stride_d"), strides))
        fields.update(dtype_a=dtype_number(a), dtype_b=dtype_number(a if b is None else b), dtype_d=dtype_number(d))
        fields.update(dtype_bias=0 if bias is None else dtype_number(bias))
        fields.update(_blocks("scale_a", scale_a), **_blocks("scale_b", scale_b))
        desc = capi.mp_gemm_desc(alpha=alpha, beta=beta, implementation=implementation, flags=bits, **fields)
        quant = None if quant_d is None else quant_d._desc()
        if quant is not None:
            desc.quant_d = pointer(quant)
        super().__init__("mp_gemm_create", context, byref(desc))
        self.context = context

    def run(
        self,
        a: Array,
        b: Array,
        d: Array,
        bias: Array | None = None,
        c: Array | None = None,
        scale_a: Array | None = None,
        scale_b: Array | None = None,
        multiply_d: Any = None,
        amax_d: Any = None,
        queue: Queue | None = None,
    ) -> Array:
        """Computes the product of tensors or arrays into d, and returns d.

        scale_a, scale_b  tensors of scales; None: those of a quantized operand
        multiply_d, amax_d  of an fp8 d: one fp32 element each
        """
        given = dict(
            a=a, b=b, d=d, bias=bias, c=c, scale_a=scale_a, scale_b=scale_b, multiply_d=multiply_d, amax_d=amax_d
        )
        tensors = {name: as_tensor(self.context, array, name, queue) for name, array in given.items()}
        args = capi.mp_gemm_args(
            **{name: tensor.handle() for name, tensor in tensors.items() if tensor is not None}
        )
        call("mp_gemm_run_scaled", self, queue, byref(args))
        return d

    def describe(self) -> str:
        """The implementation that was chosen, and why each other one was not."""
        return text("mp_gemm_describe", self)
