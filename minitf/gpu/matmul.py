"""Matrix products on a GPU: cuBLAS with operands of any memory layout, in a chosen precision.

CuPy's own product copies the transposed operands of a batch, cannot multiply batches in a lower
precision, and computes (B, T, D) @ (D, F) as B products. cuBLAS reads matrices in row or column
order, any number of them at equal distances, in three precisions:

- float32: 24 significant bits of each number.
- tf32: the tensor cores round the operands to 11 significant bits as they read them; sums are
  float32.
- bfloat16: the operands are rounded beforehand to 16 bits, of which 8 are significant, so half as
  many bytes are read; sums are float32. `as_operand` rounds an array once for several products.
  cuBLAS rounds a product that is written to an array of `empty_operand`; if it adds up parts of
  such a product, it may round each.

Only operands of products are rounded. Everything else is computed in float32: residuals, norms,
softmax, loss, Adam. An array that is only ever an operand, such as the queries, may exist in
bfloat16 alone.
"""

import itertools
import math

from minitf import forms
from minitf.backend import xp
from minitf.errors import UserError
from minitf.gpu import kernels
from minitf.gpu.launch import gemm, has_kernels, launch
from minitf.gpu.warps import THREADS

# How far the numbers of a model may be off with forms, by precision: these and equations do not
# round the operands of products in the same places.
_TOLERANCE = {"float32": 1e-3, "tf32": 1e-2, "bfloat16": 5e-2}

_chosen = {"precision": "float32"}


def use_precision(precision):
    """Choose the precision of matrix products on a GPU, for the process. Raises UserError."""
    if precision not in _TOLERANCE:
        raise UserError(f"unknown precision {precision!r}: choose {', '.join(_TOLERANCE)}")
    if precision != "float32":
        _refuse_coarse(precision)
    _chosen["precision"], forms.tolerances["gpu"] = precision, _TOLERANCE[precision]


def _refuse_coarse(precision):
    """Raise UserError where products cannot be computed in less than float32."""
    if not has_kernels():
        raise UserError(
            f"precision {precision} needs a GPU: use --precision float32, or --backend cupy"
        )
    # 75 is Turing, 80 Ampere, 90 Hopper.
    if xp.__name__ == "cupy" and int(xp.cuda.Device().compute_capability) < 80:
        raise UserError(
            f"precision {precision} needs a GPU of 2020 or newer (sm_80): use --precision float32"
        )
    if not forms.all_forms():
        raise UserError(
            f"precision {precision} needs minitf's GPU programs, which MINITF_FORMS=off turns off: "
            "unset it, or use --precision float32"
        )


def as_operand(x):
    """Return x rounded to bfloat16, once for several products, if that precision is chosen; else x.

    `matmul` takes the rounded array, of 16-bit integers, as an operand.
    """
    return _round(x) if _chosen["precision"] == "bfloat16" and has_kernels(x) else x


def empty_operand(shape):
    """Return an empty array for a product that is only an operand of others: see as_operand."""
    return xp.empty(shape, dtype=xp.uint16 if _chosen["precision"] == "bfloat16" else xp.float32)


def matmul(x, y, out=None):
    """Return the product of matrices or batches: (..., m, k) @ (..., k, n) -> (..., m, n).

    x, y: of float32, or rounded, with the same axes in front: nothing is broadcast.
    The product is written to `out` if it is given, and rounded if that is of 16-bit integers.
    """
    shape = (*x.shape[:-1], y.shape[-1])
    if out is None:
        out = xp.empty(shape, dtype=xp.float32)
    if out.flags.c_contiguous:
        _multiply(x, y, out)
    else:
        result = xp.empty(shape, dtype=out.dtype)
        _multiply(x, y, result)
        xp.copyto(out, result)
    return out


def product_with(y):
    """Return a function that multiplies rows (m, k) by the matrix y (k, n), as matmul does.

    It looks at y and at the precision once, not at every product: in decoding, a product of a few
    rows takes the host longer than the GPU.
    """
    precision = _chosen["precision"]
    if precision == "bfloat16" or not y.size:
        return lambda x: matmul(x, y)
    (k, n), layout, tf32 = y.shape, _layout(y), precision == "tf32"

    def multiply(x):
        m = len(x)
        if not (m and x.dtype.char == "f" and x.flags.c_contiguous):
            return matmul(x, y)
        out = xp.empty((m, n), dtype=xp.float32)
        gemm(layout, (x, False, k, m * k), out, (n, m, k), 1, tf32)
        return out

    return multiply


def add_product(x, y, out):
    """Add the product of two matrices to `out`."""
    _multiply(x, y, out, add=True)


def _multiply(x, y, out, add=False):
    """Compute out = x y, or out + x y, with cuBLAS.

    cuBLAS stores matrices column by column, and NumPy row by row, so cuBLAS reads x as x^T. So it
    computes out^T = y^T x^T, which NumPy reads as out = x y.
    """
    *batch, m, k = x.shape
    n, count = y.shape[-1], math.prod(batch)
    if not (count and m and n and k):
        if not add:
            out[...] = 0
        return
    precision = _chosen["precision"]
    # A rounded operand may be older than the chosen precision.
    if precision == "bfloat16" or "H" in (x.dtype.char, y.dtype.char):
        x, y = (array if array.dtype.char == "H" else _round(array) for array in (x, y))
    tf32 = precision == "tf32" and x.dtype.char == "f"
    gemm(_layout(y), _layout(x), out, (n, m, k), count, tf32, add)


def _layout(x):
    """Return the memory layout of matrices x (..., m, k) as cuBLAS needs it.

    That is (x, whether it is stored transposed, leading dimension, stride from one matrix to the
    next), in numbers, not bytes. If cuBLAS cannot read the layout of x, x is copied.
    """
    *batch, m, k = x.shape
    if x.flags.c_contiguous:
        return x, False, k, m * k
    if x.swapaxes(-1, -2).flags.c_contiguous:
        return x, True, m, m * k
    *strides, row, column = [stride // x.itemsize for stride in x.strides]
    stride = _batch_stride(batch, strides)
    if stride is not None and (column == 1 or k == 1) and (row >= k or m == 1):
        return x, False, max(row, k) if m > 1 else k, stride
    if stride is not None and (row == 1 or m == 1) and (column >= m or k == 1):
        return x, True, max(column, m) if k > 1 else m, stride
    return xp.ascontiguousarray(x), False, k, m * k


def _batch_stride(batch, strides):
    """Return the stride from each matrix of a batch to the next, or None if it varies."""
    axes = [(length, stride) for length, stride in zip(batch, strides, strict=True) if length > 1]
    for (_, outer), (length, inner) in itertools.pairwise(axes):
        if outer != length * inner:
            return None
    return axes[-1][1] if axes else 0


def _round(x):
    """Return x (..., m, k) rounded to bfloat16, as 16-bit integers.

    It is contiguous, or transposed in memory if x is.
    """
    if x.strides[-1] > x.strides[-2]:
        return _round(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    x = xp.ascontiguousarray(x)
    y = xp.empty(x.shape, dtype=xp.uint16)
    launch(
        kernels.round_to_bfloat16,
        (-(-x.size // (4 * THREADS)),),
        (THREADS,),
        x.reshape(-1).view(xp.uint32),
        y.reshape(-1),
    )
    return y
