"""cupyx.jit, and what it lacks: early reads, a memory fence, and numbers rounded to bfloat16.

Such numbers are the upper 16 bits of a float32, in arrays of 16-bit integers. `as_float` and
`as_element` decide by the type of the array, so that one kernel serves both kinds of arrays.
"""

import types

import cupyx.jit
from cupyx.jit import _cuda_types
from cupyx.jit._internal_types import BuiltinFunc, Data

__all__ = ["jit"]


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
