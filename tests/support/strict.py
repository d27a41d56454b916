"""A strict stand-in for CuPy, on the CPU: `use(strict.module)` makes code that would fail on a
GPU fail here.

Names and arguments are a real CuPy's (cupy_names.json, written by make_cupy_names.py), the numbers
NumPy's. Refused: implicit conversion, NumPy arrays and lists as operands. Reproduced: 0-d arrays
in place of scalars, views of one element, gathers that wrap, repeated writes in no useful order,
unwritten memory. Stricter where CuPy hides a transfer or is inexact: np.exp(array), lists as
indices, assigned NumPy arrays, add.reduceat.
"""

import inspect
import json
import operator
import types
from pathlib import Path

import blocks
import numpy as np

from minitf import backend

NAMES = json.loads(Path(__file__).with_name("cupy_names.json").read_text(encoding="utf-8"))
# How often the host waited for the device: float(a), if a.any(), a[mask], a.get() ...
synchronisations = 0
# How often a NumPy scalar (np.float64(2), not 2.0) made a result wider than its arrays.
promotions = 0

SCALARS = (bool, int, float, complex)
# Arguments, by the names that CuPy gives them, that may be lists; all others are arrays or
# Python numbers.
LISTS_OF_ARRAYS = {"args", "arys", "choicelist", "condlist", "keys", "operands", "tup", "xi"}
LISTS_OF_NUMBERS = {
    "axes",
    "axis",
    "destination",
    "dimensions",
    "dims",
    "indices_or_sections",
    "kind",
    "kth",
}
REDUCTIONS = {"all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "var"}
LISTS_OF_NUMBERS |= {"new_shape", "newshape", "pad_width", "reps", "shape", "shift", "source"}


class StrictArray:
    """An array "on the GPU".

    Its numbers reach the host through get, item, float, int and bool only.
    """

    __slots__ = ("__weakref__", "_array")
    __hash__ = None

    def __init__(self, array):
        if array.dtype.char not in "?bBhHiIlLqQefdFD":
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self._array = array

    def __getattr__(self, name):
        known = "the stand-in does not simulate" if name in NAMES["ndarray"] else "cupy has no"
        raise AttributeError(f"{known} ndarray.{name}")

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use to_numpy(array)")

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        # np.float64(2) * array arrives here: NumPy's scalars hand the operator over.
        if (
            method == "__call__"
            and not kwargs
            and len(inputs) == 2
            and isinstance(inputs[0], np.generic)
        ):
            return getattr(module, ufunc.__name__)(*inputs)
        raise TypeError(
            f"np.{ufunc.__name__} got a GPU array: call xp.{ufunc.__name__}, on GPU arrays only"
        )

    def __array_function__(self, function, types, args, kwargs):
        raise TypeError(f"np.{function.__name__} got a GPU array: call xp.{function.__name__}")

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        key, gathers = _index(self._array, key)
        return StrictArray(np.array(self._array[key]) if gathers else self._array[key])

    def __setitem__(self, key, value):
        _check_operand("an assignment", value)
        key, gathers = _index(self._array, key)
        write = _scatter if gathers else operator.setitem
        write(self._array, key, _unwrap(value, []))

    def get(self, stream=None, order="C", out=None, blocking=True):
        _synchronise()
        return np.array(self._array, order=order)

    def take(self, indices, axis=None, out=None):
        _check_operand("take", indices)
        return _compute(np.take, (self, indices, axis, out), {"mode": "wrap"})


def _asnumpy(a, stream=None, order="C", out=None, blocking=True):
    """What CuPy's asnumpy does: an array of the device is fetched,
    anything else becomes an array.
    """
    return a.get(stream, order, out, blocking) if isinstance(a, StrictArray) else np.asarray(a)


def _synchronise():
    global synchronisations
    synchronisations += 1


def _unwrap(value, found):
    """The NumPy array inside, also in lists and tuples; `found` collects the strict
    arrays on the way.
    """
    if isinstance(value, StrictArray):
        found.append(value)
        return value._array
    if isinstance(value, (list, tuple)):
        return type(value)([_unwrap(item, found) for item in value])
    return value


def _wrap(value, given=()):
    """The strict array around a result: the very one that was given (out=, in place) where
    it is the same.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        same = [array for array in given if array._array is value]
        return same[0] if same else StrictArray(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)(_wrap(item) for item in value)
    return value


def _compute(function, args, kwargs):
    """Call NumPy's function on what is inside, without warnings as on a GPU, and wrap
    what comes back.
    """
    global promotions
    given = []
    args = _unwrap(args, given)
    kwargs = {name: _unwrap(value, given) for name, value in kwargs.items()}
    with np.errstate(all="ignore"):
        result = function(*args, **kwargs)
    widest = max((array.itemsize for array in given if array.dtype.kind == "f"), default=0)
    if widest and any(isinstance(value, np.generic) for value in args):
        promotions += getattr(result, "itemsize", 0) > widest
    return _wrap(result, given)


def _check_operand(where, value):
    if not isinstance(value, (StrictArray, np.number, np.bool)) and type(value) not in SCALARS:
        raise TypeError(
            f"{where} got a {type(value).__name__}: cupy takes GPU arrays and Python numbers"
        )


def _check_arguments(name, signature, args, kwargs):
    """Refuse what CuPy's function does not take, judged by its names for the arguments;
    count the waiting. Return the arguments by name.
    """
    bound = signature.bind(*args, **kwargs).arguments
    for parameter, value in bound.items():
        refused = (np.ndarray, list, tuple) + (float, int) * (parameter == "tup")
        if parameter in LISTS_OF_NUMBERS:
            refused = (np.ndarray, StrictArray)
        several = (
            isinstance(value, (list, tuple)) and parameter in LISTS_OF_NUMBERS | LISTS_OF_ARRAYS
        )
        for item in value if several else [value]:
            if isinstance(item, refused):
                raise TypeError(f"cupy.{name} takes no {type(item).__name__} for {parameter!r}")
    if name in ("sort", "argsort") and bound.get("kind") not in (None, "stable"):
        raise ValueError(f"cupy.{name}: kind can only be None or 'stable'")
    waits = name in NAMES["synchronising"] or (name == "where" and len(bound) == 1)
    if waits or any(isinstance(bound.get(n), StrictArray) for n in ("repeats", "value")):
        _synchronise()
    return bound


def _index(array, key):
    """Give an index as CuPy reads it, for NumPy, and whether it gathers (holds integer or
    boolean arrays).

    Integer arrays wrap around. Without arrays the result is a view, even of one element:
    hence the Ellipsis.
    """
    key = key if isinstance(key, tuple) else (key,)
    masks = [part.ndim for part in key if isinstance(part, StrictArray) and part.dtype.kind == "b"]
    used = sum(part is not None and part is not Ellipsis for part in key) + sum(masks) - len(masks)
    plain = (int, np.integer, slice, types.EllipsisType, types.NoneType)
    axis, parts, gathers = 0, [], False
    for part in key:
        if isinstance(part, StrictArray):
            part, gathers = part._array, True
            if part.dtype.kind not in "biu":
                raise IndexError(
                    f"an index must be an array of integers or booleans, not of {part.dtype}"
                )
            if part.dtype.kind == "b":
                axis += part.ndim - 1
            elif array.shape[axis]:
                part = part % array.shape[axis]
        elif not isinstance(part, plain) or isinstance(part, bool):
            raise TypeError(
                f"an index of type {type(part).__name__}: use GPU arrays, integers and slices"
            )
        axis += array.ndim - used if part is Ellipsis else part is not None
        parts.append(part)
    if masks:
        _synchronise()  # the shape of the result depends on the data
    if not gathers and Ellipsis not in key:
        parts.append(Ellipsis)
    return tuple(parts), gathers


def _scatter(array, key, values, write=operator.setitem):
    """Write from last to first: on a GPU, which of several writes to one place comes
    last is undefined.
    """
    places = np.arange(array.size).reshape(array.shape)[key]
    values = np.broadcast_to(values, places.shape)
    write(array, np.unravel_index(places.ravel()[::-1], array.shape), values.ravel()[::-1])


class Ufunc:
    """A ufunc with CuPy's few arguments (no where=, no order=) and few methods."""

    def __init__(self, name):
        self.__name__ = name
        self._numpy = getattr(np, name)

    def __call__(self, *args, **kwargs):
        if kwargs.keys() - {"out", "dtype", "casting"}:
            raise TypeError(
                f"cupy.{self.__name__} takes out, dtype and casting, not {sorted(kwargs)}"
            )
        for value in (*args, kwargs.get("out", 0)):
            _check_operand(f"cupy.{self.__name__}", value)
        return _compute(self._numpy, args, kwargs)

    def at(self, a, indices, b=None):
        """Add (or the like) in place, also where indices repeat, and in no order: sums
        of floats vary.
        """
        _check_operand(f"cupy.{self.__name__}.at", b)
        if self.__name__ not in NAMES["ufunc_at"] or a.dtype.char not in "iIlLqQefd":
            raise NotImplementedError(f"`{self.__name__}.at` of {a.dtype} is not supported yet")
        key, gathers = _index(a._array, indices)
        values = np.asarray(_unwrap(b, [])).astype(a.dtype)
        _scatter(a._array, key, values, self._numpy.at) if gathers else self._numpy.at(
            a._array, key, values
        )

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        if self.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"`{self.__name__}.reduce` is not supported yet")
        return (array.sum if self.__name__ == "add" else array.prod)(axis, dtype, out, keepdims)

    def reduceat(self, *args, **kwargs):
        raise NotImplementedError(
            "cupy's add.reduceat subtracts running totals and is inexact: use add.at"
        )


class Module(types.ModuleType):
    """A module whose missing names say whether CuPy or only the stand-in lacks them."""

    def __getattr__(self, name):
        if name == "random":
            raise AttributeError(
                "cupy.random draws other numbers than NumPy: draw on the CPU, then move"
            )
        known = "the stand-in does not simulate" if name in NAMES["cupy"] else "cupy has no"
        raise AttributeError(f"{known} {name!r}")


def _function(name, text, function, method=False):
    """NumPy's function (or method) under CuPy's signature, on strict arrays."""
    signature = inspect.signature(eval(f"lambda {text[1:-1]}: None"))

    def strict(*args, **kwargs):
        bound = _check_arguments(name, signature, args[1:] if method else args, kwargs)
        axis, reduced = bound.get("axis"), args[0] if method else bound.get("a")
        single = isinstance(reduced, StrictArray) and reduced.ndim == 0
        if name in REDUCTIONS and single and axis is not None and np.size(axis):
            raise np.exceptions.AxisError(axis, 0)  # NumPy lets a single number have an axis 0
        result = _compute(function, args, kwargs)
        if name.startswith("empty"):
            result._array.fill(np.nan if result.dtype.kind in "fc" else 99)
        # In NumPy
        python_number = name in ("allclose", "array_equal", "array_equiv", "count_nonzero")
        return _array(result) if python_number else result

    return strict


def _operator(base, prefix):
    function = (
        divmod if base == "divmod" else getattr(operator, f"__{prefix.replace('r', '')}{base}__")
    )

    def apply(self, other):
        if (
            getattr(other, "__array_ufunc__", 0) is None
            or getattr(other, "__array_priority__", 0) > 100
        ):
            return NotImplemented  # a class that asks to go first, such as Tensor
        _check_operand(f"operator {base}", other)
        return _compute(function, (other, self) if prefix == "r" else (self, other), {})

    return apply


def _array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """Make a GPU array of numbers, NumPy arrays or lists (copied), or of lists of GPU
    arrays (joined).
    """
    found = []
    inner = _unwrap(obj, found)
    if (
        isinstance(obj, (list, tuple))
        and found
        and np.size(inner) != sum(array.size for array in found)
    ):
        raise TypeError(
            "Implicit conversion to a NumPy array: this list mixes GPU arrays with other things"
        )
    copy = copy if isinstance(obj, StrictArray) else True
    return _wrap(np.array(inner, dtype=dtype, copy=copy, order=order or "K", ndmin=ndmin), found)


def _take_along_axis(a, indices, axis):
    key = [
        StrictArray(np.arange(n).reshape(-1, *[1] * (a.ndim - i - 1)))
        for i, n in enumerate(a.shape)
    ]
    key[axis] = indices
    return a[tuple(key)]


def _fill_class():
    binary = (
        "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor lt "
        "le eq ne gt ge"
    )
    for name, base, prefix in [
        (f"__{p}{b}__", b, p) for b in binary.split() for p in ("", "r", "i")
    ]:
        if name in NAMES["ndarray_special"]:  # no __imatmul__, for one
            setattr(StrictArray, name, _operator(base, prefix))
    for function in (operator.neg, operator.pos, operator.abs, operator.invert):
        setattr(
            StrictArray,
            f"__{function.__name__}__",
            lambda self, f=function: _compute(f, (self,), {}),
        )
    for function in (bool, int, float, complex, repr, str, format):
        setattr(
            StrictArray,
            f"__{function.__name__}__",
            lambda self, *args, f=function: f(self.get(), *args),
        )
    for name, text in NAMES["ndarray"].items():
        member = getattr(np.ndarray, name, None)
        if text and member and name not in vars(StrictArray):
            setattr(StrictArray, name, _function(name, text, member, method=True))
        elif member and not text and name not in ("data", "device", "flat"):  # shape, dtype, T ...
            setattr(
                StrictArray, name, property(lambda self, f=member.__get__: _wrap(f(self._array)))
            )


def _fill_module(target, names, library):
    for name, kind in names.items():
        value = getattr(library, name, None)
        if kind == "ufunc":
            setattr(target, name, Ufunc(name))
        elif kind == "constant" and hasattr(library, name):
            setattr(target, name, value)
        elif kind and callable(value):
            setattr(target, name, _function(name, kind, value))


_fill_class()
module = Module("strict", "NumPy that refuses what CuPy refuses.")
_fill_module(module, NAMES["cupy"], np)
module.linalg = Module("strict.linalg")
_fill_module(module.linalg, NAMES["linalg"], np.linalg)
module.ndarray, module.asnumpy, module.take = StrictArray, _asnumpy, StrictArray.take
module.asarray = lambda a, dtype=None, order=None, copy=None: _array(a, dtype, copy, order)
module.array, module.take_along_axis, module.broadcast_shapes = (
    _array,
    _take_along_axis,
    np.broadcast_shapes,
)


def _launch(kernel, grid, block, *arguments):
    for argument in arguments:
        if not isinstance(argument, (StrictArray, np.number)) and type(argument) not in SCALARS:
            raise TypeError(f"kernel {kernel.__name__} got a {type(argument).__name__}")
    blocks.launch(kernel, grid, block, *_unwrap(arguments, []))


def _gemm(a, b, c, sizes, count, tf32=False, add=False):
    """What cuBLAS does: read and write columns at given distances in memory, whatever shapes
    the arrays have.
    """
    m, n, k = sizes
    out = _columns(c._array, False, m, m * n, m, n, count)
    left, right = (
        _columns(x._array, *how, *shape, count) for (x, *how), shape in ((a, (m, k)), (b, (k, n)))
    )
    if left.dtype == right.dtype == np.uint16:  # the upper 16 of 32 bits
        left, right = ((x.astype(np.uint32) << 16).view(np.float32) for x in (left, right))
        if tf32:
            raise ValueError("cuBLAS has no tf32 product of bfloat16 operands")
    if tf32:
        left, right = _tf32(left), _tf32(right)
    rounds = out.dtype == np.uint16
    if not (left.dtype == right.dtype == np.float32 and (rounds or out.dtype == np.float32)):
        raise TypeError(
            f"cuBLAS was promised float32, and got {left.dtype}, {right.dtype} and {out.dtype}"
        )
    if rounds and add:
        raise TypeError("a product is added to a rounded array")
    product = left @ right + (out if add else 0)
    out[...] = _bfloat16(product) if rounds else product


def _tf32(x):
    """Round float32 to 11 significant bits, to the nearest, as the tensor cores read it."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def _bfloat16(x):
    """Round to the upper 16 bits, to the nearest, ties to even; NaN is not among these numbers."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _columns(array, transposed, distance, step, rows, columns, count):
    """See `count` matrices in the memory that begins where the array begins; none may reach
    beyond its end.
    """
    one, other = (distance, 1) if transposed else (1, distance)
    if distance < (columns if transposed else rows):
        raise ValueError(
            f"columns of {columns if transposed else rows} numbers at a distance of {distance}"
        )
    last = (count - 1) * step + (rows - 1) * one + (columns - 1) * other
    end = sum(
        (length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)
    )
    if last * array.itemsize > end:
        raise IndexError(
            f"a product reads {last * array.itemsize - end} bytes beyond the end of an array"
        )
    strides = [array.itemsize * distance for distance in (step, one, other)]
    return np.lib.stride_tricks.as_strided(array, (count, rows, columns), strides)


with_kernels = Module("strict with kernels", "The same, where fused kernels run thread by thread.")
vars(with_kernels).update(
    {name: value for name, value in vars(module).items() if not name.startswith("__")}
)
with_kernels.kernels = _launch, _gemm
backend.FOLDERS[with_kernels.__name__] = "gpu"
