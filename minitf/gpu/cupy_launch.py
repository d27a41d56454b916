"""Start kernels and matrix products on a real GPU, through CuPy."""

import functools
import types
import warnings

import cupy
import numpy as np
from cupyx import jit

__all__ = ["gemm", "launch"]

# {(kernel, device, kinds of the arguments): (the compiled function, the types of its numbers)}
_ready = {}


def launch(kernel, grid, block, *arguments):
    """Run a kernel once for every thread of `grid` blocks of `block` threads each.

    cupyx.jit determines the types of all arguments at every call and compares them as strings,
    which takes 130 microseconds for 14 arguments: longer than most kernels run. So the compiled
    function is stored here under a shorter key, and called directly.
    """
    key = kernel, cupy.cuda.get_device_id(), tuple([_kind(argument) for argument in arguments])
    if key not in _ready:
        compiled = _compiled(kernel)
        compiled(grid, block, arguments)
        _ready[key] = _inside(compiled, arguments)
        return
    function, kinds = _ready[key]
    function(
        grid,
        block,
        tuple([x if kind is None else kind(x) for x, kind in zip(arguments, kinds, strict=True)]),
    )


def _kind(argument):
    """Return the properties of an argument that the compiled code depends on."""
    if isinstance(argument, cupy.ndarray):
        return argument.dtype.char, argument.ndim, argument._c_contiguous, argument._index_32_bits
    return type(argument)


def _inside(compiled, arguments):
    """Return the function that cupyx.jit compiled for such arguments, and the types of its numbers.

    They are private to CuPy; if a version stores them elsewhere, `compiled` itself is returned.
    """
    try:
        from cupyx.jit import _cuda_typerules, _cuda_types

        found = [
            _cuda_types.CArray.from_ndarray(x)
            if isinstance(x, cupy.ndarray)
            else _cuda_typerules.get_ctype_from_scalar(compiled._mode, x)
            for x in arguments
        ]
        function, _ = compiled._cache[tuple(found), cupy.cuda.get_device_id()]
    except (ImportError, AttributeError, KeyError):
        return compiled, [None] * len(arguments)
    return function, [
        each.dtype.type if isinstance(each, _cuda_types.Scalar) else None for each in found
    ]


@functools.cache
def _compiled(function, inside=False):
    """Return a kernel as CuPy's function, which compiles it to CUDA for the types of a first call.

    In the kernel, `cuda` means cupyx.jit, and the functions of minitf that it calls are compiled
    with it.
    """
    names = dict(function.__globals__, cuda=jit)
    for name in function.__code__.co_names:
        if isinstance(names.get(name), types.FunctionType):
            names[name] = _compiled(names[name], inside=True)
    with warnings.catch_warnings():
        # cupyx.jit warns that it is experimental.
        warnings.simplefilter("ignore", FutureWarning)
        return jit.rawkernel(device=inside)(
            types.FunctionType(function.__code__, names, function.__name__)
        )


def gemm(a, b, c, sizes, count, precision, add=False):
    """Compute c = a b, or c + a b, for `count` matrices a (m, k) and b (k, n) in column order.

    sizes: m, n, k. a, b: (array, transposed, distance of its columns, distance of its matrices).
    c: contiguous. The factors are float32, or the 16 bits of bfloat16; sums and c are float32.
    """
    from cupy.cuda import device  # here: a machine that only compiles kernels has no cuBLAS
    from cupy_backends.cuda.api import runtime
    from cupy_backends.cuda.libs import cublas

    m, n, _ = sizes
    number = runtime.CUDA_R_16BF if precision == "bfloat16" else runtime.CUDA_R_32F
    compute = (
        cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if precision == "tf32" else cublas.CUBLAS_COMPUTE_32F
    )
    cublas.gemmStridedBatchedEx(
        *(device.get_cublas_handle(), int(a[1]), int(b[1]), *sizes, _ONE.ctypes.data),
        *(
            a[0].data.ptr,
            number,
            *a[2:],
            b[0].data.ptr,
            number,
            *b[2:],
            (_ONE if add else _ZERO).ctypes.data,
        ),
        *(c.data.ptr, runtime.CUDA_R_32F, m, m * n, count, compute, cublas.CUBLAS_GEMM_DEFAULT),
    )


_ONE, _ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)  # cuBLAS reads them by their address
