"""The half of a Tensor that has no gradient: its values, and constants beside it.

Tensors get gradients (see tensor.py). Plain arrays, lists and numbers beside them are constants:
here they become arrays.
"""

import numpy as np

from minitf.backend import to_device, to_numpy

# Constants ----------------------------------------------------------------------------------------


def as_array(x, dtype=None):
    """Return the array of a Tensor, or a constant as an array of the library in use.

    A constant takes the dtype if one is given. Otherwise arrays of float64 stay so, and everything
    else becomes float32: Python numbers, lists, integers, float16. A Tensor's array is returned as
    it is.
    Raises TypeError for anything but real numbers, and for a list of Tensors.
    """
    if isinstance(x, Values):
        return x.data
    _refuse_tensors_in(x)
    array = to_device(x)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a Tensor holds real numbers, not {array.dtype}")
    if dtype is None:
        is_double = array.dtype.kind == "f" and array.dtype.itemsize >= 8
        # A Python number has no dtype: it is float64, but not by choice.
        dtype = np.float64 if is_double and hasattr(x, "dtype") else np.float32
    return array.astype(dtype, copy=False)


def _refuse_tensors_in(x):
    """Raise TypeError for a list, or a list of lists and so on, that contains a Tensor."""
    if isinstance(x, list | tuple):
        for item in x:
            if isinstance(item, Values):
                raise TypeError(
                    "an array made of Tensors would have no history: use functions.concatenate, or "
                    "float() for the values alone"
                )
            _refuse_tensors_in(item)


def float_type(dtype):
    """Return a dtype that a Tensor can have. Raises TypeError for another one."""
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(
            f"a Tensor is float32 or float64: for {dtype} use .numpy().astype({dtype.name!r})"
        )
    return dtype


def arrays_of(*inputs):
    """Return the arrays of an op's inputs: all constants take the dtype of the first Tensor.

    Without a Tensor they take that of the first input.
    """
    arrays = [x.data for x in inputs if isinstance(x, Values)]
    if len(arrays) == len(inputs):  # no constants
        return arrays
    dtype = arrays[0].dtype if arrays else as_array(inputs[0]).dtype
    return [as_array(x, dtype) for x in inputs]


def operand(x, tensor):
    """Return the number or array on the other side of an operator from a Tensor.

    A number stays a Python number, which never changes the dtype of the array beside it.
    """
    if isinstance(x, Values):
        return x.data
    if isinstance(x, np.number):
        return x.item()
    return x if isinstance(x, int | float) else as_array(x, tensor.dtype)


# Tensors beside arrays ----------------------------------------------------------------------------


# NumPy's name for  array + tensor  and others, and the method of the Tensor that computes it.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "matmul": "__rmatmul__",
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
}


class _Ufuncs:
    """Lets  array + tensor  call Tensor.__radd__, and refuses np.exp(tensor) in plain words.

    NumPy asks the class Tensor for a function; CuPy asks the tensor, and None is enough for it.
    """

    def __get__(self, tensor, cls):
        return self.compute if tensor is None else None

    @staticmethod
    def compute(tensor, ufunc, method, *inputs, **options):
        name = ufunc.__name__
        if name in _REFLECTED and method == "__call__" and not options and len(inputs) == 2:
            array, last = inputs
            if isinstance(last, Values) and not isinstance(array, Values):
                return getattr(last, _REFLECTED[name])(array)
        raise _no_numpy(name)


def _no_numpy(name):
    return TypeError(
        f"np.{name} takes no Tensor, because its result would have no history: "
        "use minitf.functions or a method of the Tensor, or .numpy() for the values alone"
    )


# The values of a Tensor ---------------------------------------------------------------------------


class Values:
    """The part of a Tensor that has no gradient: its shape, its numbers, and comparisons.

    tensor.py adds what gradients flow through.
    """

    data: np.ndarray

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)
    dtype = property(lambda self: self.data.dtype)

    def numpy(self) -> np.ndarray:
        """Return the values as a NumPy array.

        On a CPU it is the Tensor's own array, which an update of a Parameter changes: to keep the
        values, copy it.
        """
        return to_numpy(self.data)

    def item(self) -> float:
        """Return the only number as a Python float.

        Raises ValueError unless there is exactly one.
        """
        if self.size != 1:
            raise ValueError(
                f"a tensor of shape {self.shape} holds {self.size} numbers, where one is needed"
            )
        return self.data.item()

    __float__ = item

    def __repr__(self):
        numbers = np.array2string(self.numpy(), precision=4, separator=", ", prefix="Tensor(")
        return f"Tensor({numbers})"

    # Comparisons ----------------------------------------------------------------------------------

    __hash__ = object.__hash__  # a class that defines __eq__ would lose it

    def __eq__(self, other):
        return False if other is None else self.data == operand(other, self)

    def __ne__(self, other):
        return True if other is None else self.data != operand(other, self)

    def __lt__(self, other):
        return self.data < operand(other, self)

    def __le__(self, other):
        return self.data <= operand(other, self)

    def __gt__(self, other):
        return self.data > operand(other, self)

    def __ge__(self, other):
        return self.data >= operand(other, self)

    # As a Python object ---------------------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    __array_ufunc__ = _Ufuncs()

    def __array_function__(self, function, types, arguments, options):
        """Refuse np.concatenate, np.where ..., whose results would have no history."""
        raise _no_numpy(function.__name__)

    def __bool__(self):
        if self.size != 1:
            raise ValueError(
                f"a tensor of shape {self.shape} is neither true nor false: use (x > 0).any() or "
                ".all()"
            )
        return bool(self.item())

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def __len__(self):
        if not self.ndim:
            raise TypeError("a tensor of shape () is one number and has no length")
        return len(self.data)
