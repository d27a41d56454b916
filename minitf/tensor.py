"""A tensor that remembers how it was made, and the walk back that turns this memory into gradients.

A `Tensor` gets a gradient; a plain array or number beside it is a constant. An operation computes
its result with the array library, and hands `record` three things: the result, the inputs
(parents), and a function that turns the gradient of the result into the gradients of the inputs.
That is all an operation has to know. The rest of the chain rule stands in `Tensor.backward`, once.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Sequence

import numpy as np

from minitf.backend import DType, to_device, to_numpy, xp

__all__ = ["Tensor", "no_grad", "record"]


class _Recording(threading.local):
    """How many `no_grad` blocks are open; each thread has its own count."""

    off = 0


_recording = _Recording()


class no_grad(contextlib.ContextDecorator):
    """Compute without recording: results have no history, and what only the gradient
    needs is not kept.

    Write `with no_grad():`, or `@no_grad()` above a function. Blocks may be nested, share one
    object, and end in any order: recording is on again in this thread when all of its blocks
    have been left.
    Do not `yield` inside a block: it is left at its end, and until the generator goes on nothing
    is recorded for its caller either (there, `backward()` then says so). Raises TypeError as a
    decorator of a generator function.
    """

    def __enter__(self) -> None:
        _recording.off += 1

    def __exit__(self, *error: object) -> None:
        # A generator may end in another thread than it began in.
        _recording.off = max(0, _recording.off - 1)

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function):
            raise TypeError(
                f"@no_grad() cannot decorate the generator function {function.__name__}: "
                "write  with no_grad():  around the lines that compute, without a yield inside"
            )
        return super().__call__(function)


def is_recording():
    """Tell whether operations are being recorded, for ops that can save work when they are not."""
    return not _recording.off


def record(
    data: np.ndarray, parents: Sequence, backward: Callable | None, converts: bool = False
) -> Tensor:
    """Make the Tensor that an operation returns: the only place where a node of the graph is made.

    data: the result. parents: the inputs, in order; those that are not Tensors are constants.
    backward: takes the gradient of the result and returns one gradient per parent, None where there
    is none. It must not change the gradient it is given: other nodes may hold the same array.
    Raises TypeError if a Tensor among the parents has another dtype than the result, unless the
    operation `converts`.
    """
    computed = False
    for parent in parents:
        if isinstance(parent, Tensor):
            computed = True
            if parent.data.dtype != data.dtype and not converts:
                raise TypeError(
                    f"{_name(backward)} mixes {parent.data.dtype} and {data.dtype}: "
                    "convert one side with astype"
                )
    out = Tensor.__new__(Tensor)
    # A reduction to one number is a scalar in NumPy.
    out.data, out.grad, out._node = xp.asarray(data), None, None
    if computed:
        out._node = (
            _UNRECORDED
            if _recording.off
            else _Node(out.data, tuple(map(_origin, parents)), backward)
        )
    return out


class _Node:
    """A computed Tensor as the walk back sees it: what it was made from, and how its gradient
    becomes theirs.

    Its numbers are not here: they are freed as soon as the Tensor is gone, before the walk back,
    unless a `backward` needs them. Half of what the layers compute is of no use to any gradient.
    """

    __slots__ = ("backward", "dtype", "parents", "shape")

    def __init__(self, data, parents, backward):
        self.shape, self.dtype, self.parents, self.backward = (
            data.shape,
            data.dtype,
            parents,
            backward,
        )


# The `_node` of a Tensor is a _Node if it was computed, None if it was made of data, and
# _UNRECORDED if it was computed inside no_grad. A gradient goes on to a _Node; at the two others
# it ends in the Tensor's `.grad`. False, so that `tensor._node or tensor` is where it goes.
_UNRECORDED = False


def _origin(parent):
    """Where the gradient of an input goes: to the node that made it, to the Tensor
    itself, or nowhere.
    """
    return (parent._node or parent) if isinstance(parent, Tensor) else None


class Tensor:
    """An array with a memory of how it was computed.

    Python numbers, lists, integers and float16 become float32; float64 stays float64, for
    gradient checks.
    An array of NumPy is moved to the device in use; `.numpy()`, `np.asarray(t)` and `float(t)` come
    back from there. Comparisons, `==` among them, compare element by element and give a boolean
    array, which is a constant; two Tensors are still different keys of a dict or set, even if their
    numbers are equal. To look for a Tensor in a list write `any(t is x for x in tensors)`.
    Raises TypeError for complex numbers and what is not numbers at all.
    """

    data: np.ndarray
    grad: np.ndarray | None
    __array_ufunc__ = None  # so that  array + tensor  asks the tensor

    def __init__(self, data: ArrayLike):
        array = as_array(data)
        self.data = array if hasattr(data, "dtype") else array.astype(np.float32)
        self.grad, self._node = None, None

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)
    dtype = property(lambda self: self.data.dtype)

    def numpy(self) -> np.ndarray:
        """Give the values as a NumPy array."""
        return to_numpy(self.data)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def item(self) -> float:
        """Give the only number as a Python float.

        Raises ValueError if there are none or several.
        """
        if self.size != 1:
            raise ValueError(
                f"a tensor of shape {self.shape} holds {self.size} numbers, where one is needed"
            )
        return self.data.item()

    __float__ = item

    def __bool__(self):
        if self.size != 1:
            raise ValueError(
                f"a tensor of shape {self.shape} is neither true nor false: use (x > "
                "0).any() or .all()"
            )
        return bool(self.item())

    def __format__(self, spec):
        return format(self.item(), spec) if spec else str(self)

    def __len__(self):
        if not self.ndim:
            raise TypeError("a tensor of shape () is one number and has no length")
        return len(self.data)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __repr__(self):
        numbers = np.array2string(self.numpy(), precision=4, separator=", ", prefix="Tensor(")
        return f"Tensor({numbers})"

    # The chain rule -------------------------------------------------------------------------------

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Give every Tensor that this one was computed from, and that was not itself
        computed, its `.grad`.

        gradient: that of the final quantity with respect to this Tensor; 1 if this Tensor is one
        number. Gradients add up over several calls. The graph is freed on the way: memory falls
        as the walk proceeds, and a second call over the same graph raises RuntimeError, as does
        a Tensor computed inside no_grad.
        """
        if self._node is _UNRECORDED:
            raise RuntimeError(
                "backward() of a tensor that was computed inside no_grad(): there is no "
                "graph to go over"
            )
        if gradient is None:
            if self.size != 1:
                raise ValueError(
                    f"backward() of a tensor of shape {self.shape} needs the gradient to start from"
                )
            gradient = xp.ones_like(self.data)
        gradient = to_device(as_array(gradient), self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(f"the gradient has shape {gradient.shape}, the tensor {self.shape}")
        if self._node is None:
            self._receive(gradient)
            return
        order = _topological_order(self._node)
        gradients = {id(self._node): gradient}  # of nodes whose turn has not come yet
        # Ids of those gradients that nobody else holds, which may be added to in place.
        owned = set()
        while order:
            node = order.pop()
            gy = gradients.pop(id(node), None)
            backward, parents = node.backward, node.parents
            node.backward, node.parents = _freed, ()
            if gy is None:  # whatever was made from it has no gradient for it
                continue
            for parent, gradient in zip(parents, _gradients(backward, gy, parents), strict=True):
                if gradient is None:
                    continue
                key = id(parent)
                if isinstance(parent, Tensor):
                    parent._receive(gradient)
                elif key not in gradients:
                    gradients[key] = gradient
                elif key in owned:
                    gradients[key] += gradient
                else:
                    gradients[key] = gradients[key] + gradient
                    owned.add(key)

    def _receive(self, gradient):
        """Add to `.grad`.

        The first gradient is copied, since it may be an array that others hold too.
        """
        if self.grad is None:
            # NumPy makes a number of what was computed from one element.
            self.grad = xp.asarray(gradient).copy()
        else:
            self.grad += gradient

    # Operators ------------------------------------------------------------------------------------

    def __add__(self, other):
        return record(self.data + operand(other, self.dtype), (self, other), lambda gy: (gy, gy))

    __radd__ = __add__

    def __neg__(self):
        return record(-self.data, (self,), lambda gy: -gy)

    def __sub__(self, other):
        return record(self.data - operand(other, self.dtype), (self, other), lambda gy: (gy, -gy))

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        x, y = self.data, operand(other, self.dtype)
        if not isinstance(other, Tensor):  # then x is not needed any more
            return record(x * y, (self,), lambda gy: gy * y)
        return record(x * y, (self, other), lambda gy: (gy * y, gy * x))

    __rmul__ = __mul__

    def __truediv__(self, other):
        x, y = self.data, operand(other, self.dtype)
        if not isinstance(other, Tensor):
            return record(x / y, (self,), lambda gy: gy / y)
        ratio = x / y
        return record(ratio, (self, other), lambda gy: (gy / y, -gy * ratio / y))

    def __rtruediv__(self, other):
        x = self.data
        ratio = operand(other, self.dtype) / x
        return record(ratio, (self,), lambda gy: -gy * ratio / x)

    def __pow__(self, exponent):
        """x ** c for a number c."""
        x, c = self.data, operand(exponent, self.dtype)
        if not isinstance(c, int | float):
            raise TypeError("the exponent of ** is a number")
        if c == 0:  # 0 * x ** -1 is not 0 everywhere
            return record(x**c, (self,), xp.zeros_like)
        return record(x**c, (self,), lambda gy: gy * (c * x ** (c - 1)))

    def __abs__(self):
        x = self.data
        return record(abs(x), (self,), lambda gy: gy * xp.sign(x))

    def __matmul__(self, other):
        """The product of matrices; axes before the last two are batches, and broadcast."""
        x, y = self.data, operand(other, self.dtype)
        if x.ndim < 2 or y.ndim < 2:
            raise ValueError(
                f"@ takes matrices: shapes {x.shape} and {y.shape}; reshape a vector to (1, n)"
            )
        if x.shape[-1] != y.shape[-2]:
            raise ValueError(
                f"@ cannot multiply shapes {x.shape} and {y.shape}: {x.shape[-1]} columns, "
                f"{y.shape[-2]} rows"
            )

        def backward(gy):
            return gy @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ gy

        return record(x @ y, (self, other), backward)

    def __rmatmul__(self, other):
        return Tensor(operand(other, self.dtype)) @ self

    def __getitem__(self, index):
        """Slices, integers, or arrays of indices; a position named twice gets the sum of
        its gradients.
        """
        shape, dtype = self.shape, self.dtype

        def backward(gy):
            gx = xp.zeros(shape, dtype=dtype)
            xp.add.at(gx, index, gy)
            return gx

        return record(self.data[index], (self,), backward)

    # Comparisons ----------------------------------------------------------------------------------

    __hash__ = object.__hash__  # which Python takes away from a class with an __eq__

    def __eq__(self, other):
        if other is None:
            return False
        return self.data == operand(other, self.dtype)

    def __ne__(self, other):
        if other is None:
            return True
        return self.data != operand(other, self.dtype)

    def __lt__(self, other):
        return self.data < operand(other, self.dtype)

    def __le__(self, other):
        return self.data <= operand(other, self.dtype)

    def __gt__(self, other):
        return self.data > operand(other, self.dtype)

    def __ge__(self, other):
        return self.data >= operand(other, self.dtype)

    # Methods of arrays ----------------------------------------------------------------------------

    def detach(self) -> Tensor:
        """Return the same numbers without history: no gradient goes back beyond them."""
        return Tensor(self)

    def astype(self, dtype: DType) -> Tensor:
        """The same numbers as float32 or float64.

        The gradient comes back in the dtype of this Tensor.
        """
        before, dtype = self.dtype, np.dtype(dtype)
        if dtype not in (np.float32, np.float64):
            raise TypeError(
                f"a Tensor is float32 or float64: for {dtype} use .numpy().astype({dtype.name!r})"
            )
        return record(self.data.astype(dtype), (self,), lambda gy: gy.astype(before), converts=True)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """The sum over the axes (all of them by default)."""
        shape = self.shape

        def backward(gy):
            if axis is not None and not keepdims:
                gy = xp.expand_dims(gy, axis)
            return xp.broadcast_to(gy, shape)

        return record(self.data.sum(axis=axis, keepdims=keepdims), (self,), backward)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """The mean over the axes (all of them by default).

        Raises ValueError for the mean of no numbers.
        """
        total = self.sum(axis, keepdims)
        if not self.size and total.size:
            raise ValueError(
                "mean: there are no numbers to average in a tensor of shape "
                f"{self.shape}, axis {axis}"
            )
        return total * (total.size / max(1, self.size))

    def var(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """The mean square of the distances from the mean (the biased variance, as in
        layer normalization).
        """
        distance = self - self.mean(axis, keepdims=True)
        return (distance * distance).mean(axis, keepdims)

    def max(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """The largest number over the axes (all of them by default).

        Equal ones share the gradient.
        """
        x = self.data
        largest = x.max(axis=axis, keepdims=True)

        def backward(gy):
            share = (x == largest).astype(x.dtype)
            share /= share.sum(axis=axis, keepdims=True)
            return gy.reshape(largest.shape) * share

        return record(largest if keepdims else largest.squeeze(axis), (self,), backward)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same numbers in another shape; one length may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
        before = self.shape
        return record(self.data.reshape(shape), (self,), lambda gy: gy.reshape(before))

    def transpose(self, *axes: int | tuple[int, ...]) -> Tensor:
        """The axes in another order; reversed by default."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
        axes = axes or tuple(reversed(range(self.ndim)))
        inverse = tuple(sorted(range(len(axes)), key=lambda i: axes[i] % len(axes)))
        return record(self.data.transpose(axes), (self,), lambda gy: gy.transpose(inverse))

    T = property(lambda self: self.transpose(), doc="The axes in reverse order.")

    def swapaxes(self, axis: int, other: int) -> Tensor:
        """Two axes exchanged."""
        return record(self.data.swapaxes(axis, other), (self,), lambda gy: gy.swapaxes(axis, other))


# For type hints. On a GPU np.ndarray means CuPy's array, here and in every other hint.
ArrayLike = Tensor | np.ndarray | np.number | Sequence | float  # nested lists and numbers as well
Ids = np.ndarray | Sequence  # NumPy integers, or nested lists of them


def as_array(x):
    """The array of a Tensor, or of anything else that the library in use makes an array of
    real numbers of.

    float32 and float64 stay as they are; integers and float16 become float32.
    """
    if isinstance(x, Tensor):
        return x.data
    array = to_device(x)
    if array.dtype in (np.float32, np.float64):
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"a Tensor holds real numbers, not {array.dtype}")
    return array.astype(np.float32)


# The engine's parts -------------------------------------------------------------------------------


def operand(x, dtype):
    """The array or number that an operand stands for, beside a Tensor of this dtype.

    NumPy's scalars would turn float32 into float64, and so would lists and arrays of integers.
    """
    if isinstance(x, Tensor):
        return x.data
    if isinstance(x, int | float | np.number):
        return x.item() if isinstance(x, np.number) else x
    array = to_device(x)
    return (
        array.astype(dtype)
        if array.dtype.kind in ("biuf" if isinstance(x, list | tuple) else "biu")
        else array
    )


def _name(backward):
    """The operation that a backward function was written in."""
    names = getattr(backward, "__qualname__", "backward").split(".<locals>.")
    return names[-2] if len(names) > 1 else names[0]


def _freed(gy):
    raise RuntimeError(
        "backward() went over this graph already and freed it: compute the result again"
    )


def _topological_order(root):
    """List all nodes that lead to the root, each after those it was made from.

    Iterative, because a chain of operations can be longer than Python's stack is deep.
    """
    order, seen, stack = [], {id(root)}, [(root, iter(root.parents))]
    while stack:
        node, parents = stack[-1]
        for parent in parents:
            if isinstance(parent, _Node) and id(parent) not in seen:
                seen.add(id(parent))
                stack.append((parent, iter(parent.parents)))
                break
        else:
            order.append(node)
            stack.pop()
    return order


def _gradients(backward, gy, parents):
    """Call one backward and hold it to its promise: one gradient per parent, of its
    shape and dtype.
    """
    gradients = backward(gy)
    if not isinstance(gradients, tuple):
        gradients = (gradients,)
    if len(gradients) != len(parents):
        raise ValueError(
            f"{_name(backward)} has {len(parents)} inputs and returned {len(gradients)} gradients"
        )
    checked = []
    for parent, gradient in zip(parents, gradients, strict=True):
        if parent is None or gradient is None:
            checked.append(None)
            continue
        gradient = _sum_to(gradient, parent.shape)
        if gradient.shape != parent.shape or gradient.dtype != parent.dtype:
            raise ValueError(
                f"{_name(backward)} gave a gradient of shape {gradient.shape} and type "
                f"{gradient.dtype} for an input of shape {parent.shape} and type {parent.dtype}"
            )
        checked.append(gradient)
    return checked


def _sum_to(gradient, shape):
    """Undo broadcasting: an entry that was used many times gets the sum of its gradients."""
    # The latter is a mistake, which _gradients names.
    if gradient.shape == shape or gradient.ndim < len(shape):
        return gradient
    extra = gradient.ndim - len(shape)
    if extra > 0:
        gradient = gradient.sum(axis=tuple(range(extra)))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
