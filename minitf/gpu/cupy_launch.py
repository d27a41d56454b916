"""Start kernels and matrix products on a real GPU, through CuPy.

Kernels use cupyx.jit, and what it lacks: early reads, a memory fence, and numbers rounded to
bfloat16. Such numbers are the upper 16 bits of a float32, in arrays of 16-bit integers. `as_float`
and `as_element` decide by the type of the array, so that one kernel serves both kinds of arrays.
"""

import functools
import types
import warnings

import cupy
import cupyx.jit
import numpy as np
from cupyx.jit import _cuda_types
from cupyx.jit._internal_types import BuiltinFunc, Data

LIMIT = 2**31  # cupyx.jit passes a larger int as 64 bits, another kind of argument

# {(kernel, device, *kinds of the arguments): what _compiled_function returns}
_ready = {}


def launch(kernel, grid, block, *arguments):
    """Run a kernel once for every thread of `grid` blocks of `block` threads each.

    cupyx.jit determines the types of all arguments at every call and compares them as strings,
    which takes 130 microseconds for 14 arguments: longer than most kernels run. So the compiled
    function is stored here under a shorter key, and called directly.
    """
    array = cupy.ndarray
    kinds = [  # the properties of the arguments that the compiled code depends on
        (x.dtype.char, x.ndim, x._c_contiguous, x._index_32_bits)
        if isinstance(x, array)
        else (-LIMIT <= x < LIMIT if type(x) is int else type(x))
        for x in arguments
    ]
    key = kernel, cupy.cuda.get_device_id(), *kinds
    ready = _ready.get(key)
    if ready is None:
        compiled = _compile(kernel)
        compiled(grid, block, arguments)
        _ready[key] = _compiled_function(compiled, arguments)
        return
    function, scalars = ready
    values = list(arguments)
    for i, scalar_type in scalars:
        values[i] = scalar_type(values[i])
    function(grid, block, tuple(values))


def _compiled_function(compiled, arguments):
    """Return the function that cupyx.jit compiled for such arguments, and its scalar arguments.

    A scalar is a pair: its index among the arguments, and the type that the function takes.
    All are found in CuPy's private attributes; if a version stores them elsewhere, `compiled`
    itself is returned.
    """
    try:
        from cupyx.jit import _cuda_typerules

        types = [
            _cuda_types.CArray.from_ndarray(x)
            if isinstance(x, cupy.ndarray)
            else _cuda_typerules.get_ctype_from_scalar(compiled._mode, x)
            for x in arguments
        ]
        function, _ = compiled._cache[tuple(types), cupy.cuda.get_device_id()]
    except (ImportError, AttributeError, KeyError):
        return compiled, []
    return function, [
        (i, each.dtype.type) for i, each in enumerate(types) if isinstance(each, _cuda_types.Scalar)
    ]


@functools.cache
def _compile(function, on_device=False):
    """Return a kernel as CuPy's function, which compiles it to CUDA for the types of a first call.

    In the kernel, `cuda` means cupyx.jit, and the functions of minitf that it calls are compiled
    with it.
    """
    names = dict(function.__globals__, cuda=jit)
    for name in function.__code__.co_names:
        if isinstance(names.get(name), types.FunctionType):
            names[name] = _compile(names[name], on_device=True)
    with warnings.catch_warnings():
        # cupyx.jit warns that it is experimental.
        warnings.simplefilter("ignore", FutureWarning)
        return jit.rawkernel(device=on_device)(
            types.FunctionType(function.__code__, names, function.__name__)
        )


def gemm(a, b, c, sizes, count, tf32=False, add=False):
    """Compute c = a b, or c + a b, for `count` matrices a (m, k) and b (k, n) in column order.

    sizes: m, n, k. a, b: what `_layout` in matmul.py returns. c: contiguous. The operands are
    float32, or the 16 bits of bfloat16; sums are float32; c is float32, or those 16 bits.
    """
    cublas, handle, types = _cublas()
    m, n, k = sizes
    (a, a_transposed, a_leading, a_stride), (b, b_transposed, b_leading, b_stride) = a, b
    a_arguments = a.data.ptr, types[a.dtype.char], a_leading, a_stride
    b_arguments = b.data.ptr, types[b.dtype.char], b_leading, b_stride
    c_arguments = c.data.ptr, types[c.dtype.char], m, m * n
    transposed = int(a_transposed), int(b_transposed)
    compute = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if tf32 else cublas.CUBLAS_COMPUTE_32F
    how = count, compute, cublas.CUBLAS_GEMM_DEFAULT
    beta = _ONE if add else _ZERO
    cublas.gemmStridedBatchedEx(
        handle(), *transposed, m, n, k, _ONE, *a_arguments, *b_arguments, beta, *c_arguments, *how
    )


@functools.cache
def _cublas():
    """Return cuBLAS, a function that returns its handle, and its codes for the types of arrays."""
    from cupy.cuda import device  # here: a machine that only compiles kernels has no cuBLAS
    from cupy_backends.cuda.api import runtime
    from cupy_backends.cuda.libs import cublas

    types = {"H": runtime.CUDA_R_16BF, "f": runtime.CUDA_R_32F}  # 16-bit integers: bfloat16
    return cublas, device.get_cublas_handle, types


_ONE_AND_ZERO = np.array([1, 0], np.float32)  # cuBLAS reads alpha and beta by their addresses
_ONE, _ZERO = _ONE_AND_ZERO.ctypes.data, _ONE_AND_ZERO[1:].ctypes.data


# What kernels call --------------------------------------------------------------------------------

_FLOAT, _UINT16 = _cuda_types.Scalar("float32"), _cuda_types.Scalar("uint16")


def _code(x):
    """Return the code of the type of a number, or of the elements of an array."""
    return x.ctype.dtype.char


class _AsFloat(BuiltinFunc):
    def __call__(self, x):
        """Return an element as float32: itself, or the number whose upper 16 bits it is."""
        super().__call__()

    def call(self, env, x):
        x = Data.init(x, env)
        if _code(x) == "f":
            return x
        if _code(x) != "H":
            raise TypeError(f"a float32 or uint16 is needed, not {x.ctype}")
        return Data(f"__uint_as_float((unsigned int)({x.code}) << 16)", _FLOAT)


class _AsElement(BuiltinFunc):
    def __call__(self, value, array):
        """Return a float32 as an element of the array: itself, or rounded to its upper 16 bits."""
        super().__call__()

    def call(self, env, value, array):
        value = Data.init(value, env)
        if _code(value) != "f" or _code(array) not in "fH":
            raise TypeError(f"no element of {array.ctype} stands for a {value.ctype}")
        if _code(array) == "f":
            return value
        env.generated.add_code(_ROUND)
        return Data(f"minitf_round({value.code})", _UINT16)


class _Initial(BuiltinFunc):
    def __call__(self, x):
        """Return an element of an array as it is before any thread writes to it.

        So the compiler may read several before it writes others. It would not by itself, as it does
        not know which arrays share memory.
        """
        super().__call__()

    def call(self, env, x):
        x = Data.init(x, env)
        return Data(f"__ldg(&{x.code})", x.ctype)


class _ThreadFence(BuiltinFunc):
    def __call__(self):
        """Let no block see what this thread writes from here on before what it wrote until here."""
        super().__call__()

    def call_const(self, env):
        return Data("__threadfence()", _cuda_types.void)


# What upper_bits in warps.py computes.
_ROUND = """
__device__ __forceinline__ unsigned short minitf_round(float x) {
    unsigned int bits = __float_as_uint(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (unsigned short)(bits >> 16 | 0x40);
    return (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
"""

jit = types.SimpleNamespace(**vars(cupyx.jit))
jit.as_float, jit.as_element = _AsFloat(), _AsElement()
jit.initial, jit.threadfence = _Initial(), _ThreadFence()
