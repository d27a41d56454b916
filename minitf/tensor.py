"""Tensors that remember how they were computed, and backpropagation through that memory.

L is the final quantity, one number: in training, the loss. The *gradient* of an array x is dL/dx,
an array of x's shape: how much L changes with each element of x. In code, gx is the gradient of x.

The chain rule is applied once for each operation y = f(x). A function `backward` of the operation
is given gy = dL/dy and returns gx = dL/dx, which is the sum over i of gy_i dy_i/dx. For y = x^2 the
slope dy/dx is 2x, so gx = gy * 2x:

    >>> x = Tensor([3.0])
    >>> y = record(x.data**2, (x,), lambda gy: gy * 2 * x.data)
    >>> y.backward()  # y is L, so gy is 1
    >>> x.grad.tolist()
    [6.0]

`record` makes the result a node of a graph (elsewhere called a tape), whose parents are the inputs.
`Tensor.backward` walks from the last node back to the data. If L depends on x through several
results, as in x * x + x, the gradients that they send to x add up.

Tensors get gradients. Plain arrays, lists and numbers beside them are constants, which get none.
Type hints call all of them `ArrayLike`.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from minitf.backend import DType, to_device, to_numpy, xp

__all__ = ["Tensor", "no_grad", "record"]


# The tape: each result with its inputs and its backward function ----------------------------------


def record(
    data: np.ndarray,
    parents: Sequence,
    backward: Callable | None,
    converts: bool = False,
    again: Callable | None = None,
) -> Tensor:
    """Return the result of an operation as a Tensor; only here does the graph get a node.

    data: the result. parents: the inputs, in order; those that are not Tensors are constants.
    backward: takes dL/d(result) and returns a tuple of dL/d(parent), one for each parent, with None
    for a parent that gets no gradient; for a single parent a bare gradient is accepted. It must not
    change the array it is given: other nodes may hold it. What it puts in place, by `gradient_out`
    or `gradient_so_far`, it returns as well. It may be None under no_grad.
    again: a function that computes the data again, if that takes little time: see `recall`.
    Raises TypeError if a Tensor among the parents has another dtype than the result, unless the
    operation `converts`.
    """
    computed = False  # a result of constants alone has no history
    for parent in parents:
        if isinstance(parent, Tensor):
            computed = True
            if parent.data.dtype != data.dtype and not converts:
                raise TypeError(
                    f"{_name(backward)} mixes {parent.data.dtype} and {data.dtype}: convert one "
                    "of them with astype"
                )
    # Without __init__, which would convert and check an array that an operation has just computed.
    out = Tensor.__new__(Tensor)
    out.data, out.grad, out._node = xp.asarray(data), None, None  # NumPy may return a scalar
    if computed and _recording.off:  # inside no_grad
        out._unrecorded = True
    elif computed:
        out._node, out._again = _Node(out.data, parents, backward), again
    return out


class _Node:
    """One computed Tensor as backpropagation sees it.

    A node exists apart from its Tensor for one reason: the graph keeps every node until the walk
    back, but no result needs to be kept that long. Its array is freed together with its Tensor
    unless a backward function uses it.
    """

    __slots__ = ("_shares_grad", "backward", "dtype", "grad", "parents", "shape")
    _gradient_slice = None

    def __init__(self, data, parents, backward):
        self.shape, self.dtype = data.shape, data.dtype
        self.parents, self.backward = [_receiver(x) for x in parents], backward
        self.grad = None  # dL/d(this result): the sum of the gradients that have arrived
        self._shares_grad = False  # whether other nodes may hold its array

    def __reduce__(self):
        raise TypeError(
            "a computed Tensor cannot be pickled or copied deeply, because functions are its "
            "history: use .detach() of it, or .numpy()"
        )

    # The chain rule: gradients arrive, are summed, and are sent on.

    def _receive(self, gradient):
        """Add a gradient that arrives from one of the results computed from this Tensor.

        Other nodes may hold the first array, so it is never changed; the sum of two belongs to this
        node, and later gradients are added to it in place.
        """
        if self.grad is None:
            self.grad, self._shares_grad = gradient, True
        elif self._shares_grad:
            self.grad, self._shares_grad = self.grad + gradient, False
        elif gradient is not self.grad:  # else it is in its place: see gradient_out
            self.grad += gradient

    def walk_back(self):
        """Send the parents their gradients, and free everything that this node holds.

        Raises ValueError unless there is one gradient for each parent.
        """
        gy, backward, parents = self.grad, self.backward, self.parents
        self.grad, self.backward, self.parents = None, _freed, ()
        if gy is None:  # none of the results computed from this Tensor sent a gradient
            return
        gradients = backward(gy)
        if not isinstance(gradients, tuple):
            gradients = (gradients,)
        if len(gradients) != len(parents):
            raise ValueError(
                f"{_name(backward)} has {len(parents)} inputs and returned {len(gradients)} "
                "gradients"
            )
        for parent, gradient in zip(parents, gradients, strict=True):
            if parent is not None and gradient is not None:
                # A node or a Tensor: both have this method.
                parent._receive(_fitted(gradient, parent, backward))


def _receiver(x):
    """Return who receives the gradient of an input: its node; itself, if it is a leaf; or None."""
    return (x._node or x) if isinstance(x, Tensor) else None


def gradient_out(x, own=None):
    """Return the array to which a `backward` writes its gradient of an input x, or None.

    It is the gradient of x from now on, so it is written at once, and returned like any other. None
    (as `out`, a new array): x is a constant, or has a gradient already. own: what to return instead
    of a new array and of None.
    """
    receiver = _receiver(x)
    if receiver is None or receiver.grad is not None:
        return own
    out = receiver._gradient_slice
    if out is None or (out.shape, out.dtype) != (receiver.shape, receiver.dtype):
        out = xp.empty(receiver.shape, receiver.dtype) if own is None else own
    receiver.grad = out
    return out


def recall(x, array):
    """Return a function that returns the array of an input x in a `backward`.

    It computes it `again` (see `record`) if it can; else it keeps the array.
    """
    return getattr(x, "_again", None) or (lambda: array)


def gradient_so_far(x):
    """Return the gradient of x so far, if a `backward` may add its own to it in place, or None."""
    receiver = _receiver(x)
    grad = None if receiver is None or receiver._shares_grad else receiver.grad
    return grad if grad is not None and grad.flags.c_contiguous else None


def _inputs_first(root):
    """List the nodes that lead to the root, each after the nodes it was computed from.

    `Tensor.backward` goes through this list from its end, because a node may walk back only when
    all results computed from it have sent their gradients. In L = y * y + y the product sends
    two to y and the sum one; if y walked back before the last came, that one would be lost.

    The search goes to the inputs first and lists a node when all its inputs are listed. The graph
    can be deeper than Python's recursion limit, so the search keeps its own stack.
    """
    order, seen, stack = [], set(), [(root, False)]
    while stack:
        node, inputs_listed = stack.pop()
        if inputs_listed:  # the second time that the node is taken from the stack
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            for parent in reversed(node.parents):
                if isinstance(parent, _Node):
                    stack.append((parent, False))
    return order


def _fitted(gradient, parent, backward):
    """Return the gradient of an input: of one that was broadcast, the sum over its copies.

    Raises ValueError unless it has the input's shape and dtype then.
    """
    shape, extra = parent.shape, gradient.ndim - len(parent.shape)
    if extra > 0:
        gradient = gradient.sum(axis=tuple(range(extra)))
    if extra >= 0 and gradient.shape != shape:
        axes = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
        gradient = gradient.sum(axis=axes, keepdims=True) if axes else gradient
    if gradient.shape != shape or gradient.dtype != parent.dtype:
        raise ValueError(
            f"{_name(backward)} returned a gradient of shape {gradient.shape} and dtype "
            f"{gradient.dtype} for an input of shape {shape} and dtype {parent.dtype}"
        )
    return gradient


def _freed(gy):
    raise RuntimeError(
        "backward() has already freed this graph: compute the result again before a second call, "
        "or add several losses and call backward() of the sum"
    )


def _name(backward):
    """Return the operation of a backward function: "softmax" for softmax.<locals>.backward."""
    names = getattr(backward, "__qualname__", "backward").split(".<locals>.")
    return names[-2] if len(names) > 1 else names[0]


# Constants: arrays, lists and numbers beside Tensors ----------------------------------------------


def as_array(x, dtype=None):
    """Return the array of a Tensor, or a constant as an array of the library in use.

    A constant takes the dtype if one is given. Otherwise arrays of float64 stay so, and everything
    else becomes float32: Python numbers, lists, integers, float16. A Tensor's array is returned as
    it is.
    Raises TypeError for anything but real numbers, and for a list of Tensors.
    """
    if isinstance(x, Tensor):
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
            if isinstance(item, Tensor):
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

    Without a Tensor they take the dtype of the first input.
    """
    arrays = [x.data for x in inputs if isinstance(x, Tensor)]
    if len(arrays) == len(inputs):  # no constants
        return arrays
    dtype = arrays[0].dtype if arrays else as_array(inputs[0]).dtype
    return [as_array(x, dtype) for x in inputs]


def _other(x, tensor):
    """Return the number or array on the other side of an operator from a Tensor.

    A number stays a Python number, which never changes the dtype of the array beside it.
    """
    if isinstance(x, Tensor):
        return x.data
    if isinstance(x, np.number):
        return x.item()
    return x if isinstance(x, int | float) else as_array(x, tensor.dtype)


# The Tensor ---------------------------------------------------------------------------------------


class Tensor:
    """An array that remembers how it was computed.

    Python numbers, lists, integers and float16 become float32. float64 stays float64, for gradient
    checks. An array that need not be converted is not copied: do not change it before backward(),
    nor ids, masks and indices that a function was given.
    A NumPy array becomes one of the library in use; `.numpy()`, `np.asarray(t)` and `float(t)` give
    the values back. Comparisons, including `==`, work element by element and return boolean arrays,
    which are constants; so to look for a Tensor in a list, write `any(t is x for x in tensors)`.
    NumPy's own functions refuse a Tensor, because their results would have no history; but
    np.array, like np.asarray, returns the values.
    Raises TypeError for complex numbers, text, and a list of Tensors, ValueError for lists of
    different lengths.
    """

    data: np.ndarray
    grad: np.ndarray | None
    _node: _Node | None  # None if it was made from data, from constants or inside no_grad
    _unrecorded = False  # True if it was computed inside no_grad
    _again = None  # a function that computes the array again: see record
    _shares_grad = False
    _gradient_slice = None  # where an optimizer wants the gradient: see optim.Flat

    def __init__(self, data: ArrayLike):
        self.data = as_array(data)
        self.grad, self._node = None, None

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)
    dtype = property(lambda self: self.data.dtype)

    def numpy(self) -> np.ndarray:
        """Return the values as a NumPy array.

        If NumPy computes, it is the Tensor's own array, which an update of a Parameter changes: to
        keep the values, copy it.
        """
        return to_numpy(self.data)

    def item(self) -> float:
        """Return the only number as a Python float. Raises ValueError unless there is one."""
        return self.data.item()

    __float__ = item

    def __int__(self):
        return int(self.item())

    def __repr__(self):
        numbers = np.array2string(self.numpy(), precision=4, separator=", ", prefix="Tensor(")
        return f"Tensor({numbers})"

    # The chain rule -------------------------------------------------------------------------------

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Add dL/dx to the `.grad` of every leaf x that this Tensor was computed from.

        A leaf is a Tensor without history: one made from data, or computed inside no_grad.
        gradient: dL/d(this Tensor). Without it, this Tensor is L itself, one number, and its
        gradient is 1. The gradients of several calls add up. The graph is freed on the way, node by
        node.
        Raises RuntimeError for a graph that is freed already and for a Tensor computed inside
        no_grad, ValueError for a gradient of another shape, or for none where one is needed.
        """
        if self._unrecorded:
            raise RuntimeError(
                "cannot call backward(): the tensor was computed inside no_grad() and has no "
                "graph; compute it outside"
            )
        if gradient is None and self.size != 1:
            raise ValueError(
                f"backward() of a tensor of shape {self.shape} needs a gradient of that "
                "shape: pass one, or call .sum().backward()"
            )
        gradient = xp.ones_like(self.data) if gradient is None else as_array(gradient, self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(
                f"the gradient has shape {gradient.shape}, but the tensor has shape {self.shape}"
            )
        gradient = gradient.astype(self.dtype)  # a copy: that of a leaf is known by its array
        if self._node is None:
            self._receive(gradient)
            return
        nodes = _inputs_first(self._node)
        for node in nodes:
            node.grad, node._shares_grad = None, False  # an earlier walk may have failed
        self._node._receive(gradient)
        while nodes:  # pop: from the last result to the first, each freed when it is done
            nodes.pop().walk_back()

    def _receive(self, gradient):
        """Add to `.grad`; the first gradient is copied, since others may hold the same array."""
        out = gradient_out(self)
        if out is not None:
            out[...] = gradient
        elif gradient is not self.grad:  # else it is in its place
            self.grad += gradient

    # Operators ------------------------------------------------------------------------------------

    def __add__(self, other):
        return record(self.data + _other(other, self), (self, other), lambda gy: (gy, gy))

    __radd__ = __add__

    def __neg__(self):
        return record(-self.data, (self,), lambda gy: -gy)

    def __sub__(self, other):
        return record(self.data - _other(other, self), (self, other), lambda gy: (gy, -gy))

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        x, y = self.data, _other(other, self)
        if not isinstance(other, Tensor):  # a constant has no gradient: x can be freed
            return record(x * y, (self,), lambda gy: gy * y)
        return record(x * y, (self, other), lambda gy: (gy * y, gy * x))

    __rmul__ = __mul__

    def __truediv__(self, other):
        x, y = self.data, _other(other, self)
        if not isinstance(other, Tensor):
            return record(x / y, (self,), lambda gy: gy / y)
        ratio = x / y  # d(x/y)/dx = 1/y,  d(x/y)/dy = -x/y^2 = -ratio/y
        return record(ratio, (self, other), lambda gy: (gy / y, -gy * ratio / y))

    def __rtruediv__(self, other):
        x = self.data
        ratio = _other(other, self) / x  # d(c/x)/dx = -c/x^2 = -ratio/x
        return record(ratio, (self,), lambda gy: -gy * ratio / x)

    def __pow__(self, exponent):
        """Return x ** c for a number c."""
        x, c = self.data, _other(exponent, self)
        if not isinstance(c, int | float):
            raise TypeError("the exponent of ** must be a number")
        if c == 0:  # c * x ** -1 would be 0 * infinity where x is 0
            return record(x**c, (self,), lambda gy: xp.zeros_like(x))
        return record(x**c, (self,), lambda gy: gy * (c * x ** (c - 1)))

    def __abs__(self):
        x = self.data
        return record(abs(x), (self,), lambda gy: gy * xp.sign(x))

    def __matmul__(self, other):
        return matmul(self, other)

    def __rmatmul__(self, other):
        return matmul(other, self)

    def __getitem__(self, index):
        """Return the elements at slices, integers or arrays of indices.

        The gradients of an element that is taken twice add up.
        """
        shape, dtype = self.shape, self.dtype

        def backward(gy):
            gx = xp.zeros(shape, dtype=dtype)
            xp.add.at(gx, index, gy)
            return gx

        return record(self.data[index], (self,), backward)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # Methods of arrays ----------------------------------------------------------------------------

    def detach(self) -> Tensor:
        """Return a Tensor of the same array without history: no gradient flows through it."""
        return Tensor(self)

    def astype(self, dtype: DType) -> Tensor:
        """Return the same numbers as float32 or float64; the gradient is converted back."""
        before, dtype = self.dtype, float_type(dtype)
        return record(self.data.astype(dtype), (self,), lambda gy: gy.astype(before), converts=True)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Return the sum over the axes (all of them by default)."""
        shape = self.shape
        if axis is not None:  # only NumPy's sum knows an axis 0 of a single number
            normalize_axis_tuple(axis, self.ndim)

        def backward(gy):
            if axis is not None and not keepdims:
                gy = xp.expand_dims(gy, axis)
            return xp.broadcast_to(gy, shape)

        return record(self.data.sum(axis=axis, keepdims=keepdims), (self,), backward)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Return the mean over the axes (all of them by default).

        Raises ValueError if there are no numbers to average.
        """
        axes = range(self.ndim) if axis is None else normalize_axis_tuple(axis, self.ndim)
        count = math.prod(self.shape[i] for i in axes)
        if not count:
            raise ValueError(
                f"mean: there are no numbers to average in a tensor of shape {self.shape}, "
                f"axis {axis}"
            )
        return self.sum(axis, keepdims) / count

    def var(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Return the mean square of the distances from the mean: the biased variance."""
        distance = self - self.mean(axis, keepdims=True)
        return (distance * distance).mean(axis, keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Return the largest number over the axes (all by default); ties share the gradient."""
        x = self.data
        if axis is not None:
            normalize_axis_tuple(axis, self.ndim)
        largest = x.max(axis=axis, keepdims=True)

        def backward(gy):
            share = (x == largest).astype(x.dtype)
            share /= share.sum(axis=axis, keepdims=True)
            return gy.reshape(largest.shape) * share

        return record(largest if keepdims else largest.squeeze(axis), (self,), backward)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return the same numbers in another shape; one length may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        before = self.shape
        return self._view(lambda x: x.reshape(shape), lambda gy: gy.reshape(before))

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """Return the numbers with the axes in another order; reversed by default."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], list | tuple) else axes
        axes = axes or tuple(reversed(range(self.ndim)))
        # Axis axes[i] became axis i. The inverse permutation moves axis i of the gradient back.
        axes = [axis % self.data.ndim for axis in axes]
        inverse = [axes.index(i) for i in range(len(axes))]
        return self._view(lambda x: x.transpose(axes), lambda gy: gy.transpose(inverse))

    T = property(lambda self: self.transpose(), doc="The axes in reverse order.")

    def swapaxes(self, axis: int, other: int) -> Tensor:
        """Return the numbers with two axes exchanged."""
        return self._view(lambda x: x.swapaxes(axis, other), lambda gy: gy.swapaxes(axis, other))

    def _view(self, view, backward):
        """Return a view of the numbers. If they can be computed again, so can it."""
        again = self._again and (lambda again=self._again: view(again()))
        return record(view(self.data), (self,), backward, again=again)

    # Comparisons ----------------------------------------------------------------------------------

    __hash__ = object.__hash__  # a class that defines __eq__ would lose it

    def __eq__(self, other):
        return False if other is None else self.data == _other(other, self)

    def __ne__(self, other):
        return True if other is None else self.data != _other(other, self)

    def __lt__(self, other):
        return self.data < _other(other, self)

    def __le__(self, other):
        return self.data <= _other(other, self)

    def __gt__(self, other):
        return self.data > _other(other, self)

    def __ge__(self, other):
        return self.data >= _other(other, self)

    # As a Python object ---------------------------------------------------------------------------

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    # NumPy's functions refuse a Tensor, because their results would have no history; and
    # array + tensor  calls  tensor.__radd__(array), as do the other operators.
    __array_ufunc__ = None

    def __array_function__(self, function, types, arguments, options):
        raise TypeError(
            f"np.{function.__name__} takes no Tensor, because its result would have no history: "
            "use minitf.functions or a method of the Tensor, or .numpy() for the values alone"
        )

    def __bool__(self):
        return bool(self.item())

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def __len__(self):
        return len(self.data)


# Matrix products ----------------------------------------------------------------------------------


def matmul(left, right):
    """Return the product of matrices; axes before the last two are batches, and broadcast.

        y_ij = sum_k x_ik w_kj

    Each y_ij depends on x_ik with the slope w_kj, so the gradients are products as well:

        gx_ik = sum_j gy_ij w_kj, or gx = gy w^T
        gw_kj = sum_i x_ik gy_ij, or gw = x^T gy

    Raises ValueError for vectors and for sizes that do not fit.
    """
    x, w = arrays_of(left, right)
    if x.ndim < 2 or w.ndim < 2 or x.shape[-1] != w.shape[-2]:
        raise ValueError(
            "@ takes matrices, the left one with as many columns as the right one has rows, not "
            f"shapes {x.shape} and {w.shape}: reshape a vector to (1, n) or (n, 1)"
        )

    def backward(gy):
        return gy @ w.swapaxes(-1, -2), x.swapaxes(-1, -2) @ gy

    return record(x @ w, (left, right), backward)


# Computing without a tape -------------------------------------------------------------------------


class _Recording(threading.local):
    """The number of open `no_grad` blocks, counted separately in each thread."""

    off = 0


_recording = _Recording()


def is_recording():
    """Return whether operations are being recorded; a form can save work when they are not."""
    return not _recording.off


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    """Compute without recording: the results have no history, and no array is kept for backward.

    Write `with no_grad():`, or `@no_grad()` above a function. Blocks may be nested: a thread
    records again when it has left all of its blocks.
    Do not `yield` inside a block: it stays open until the generator continues, so the caller's
    operations are not recorded either, and those values get no gradient.
    """
    _recording.off += 1
    try:
        yield
    finally:
        # A generator, which must not yield in a block, may end in another thread than it began in:
        # this keeps at least that thread's count from falling below 0.
        _recording.off = max(0, _recording.off - 1)


# Type hints ---------------------------------------------------------------------------------------


# np.ndarray means an array of the library in use, here and in every other hint.
ArrayLike = Tensor | np.ndarray | np.number | Sequence | float  # nested lists and numbers as well
Ids = np.ndarray | Sequence  # NumPy integers, or nested lists of them
