"""A tensor that remembers how it was made, and the walk back that turns this memory into gradients.

A `Tensor` gets a gradient; a plain array or number beside it is a constant. An operation computes its result
with the array library, and hands `record` three things: the result, the inputs (parents), and a function that
turns the gradient of the result into the gradients of the inputs. That is all an operation has to know.
The rest of the chain rule stands in `Tensor.backward`, once.
"""

import contextlib
import threading

import numpy as np

from minitf.backend import to_device, to_numpy, xp

__all__ = ["Tensor", "no_grad", "record"]


class _Recording(threading.local):
    """Whether operations are recorded; each thread has its own answer."""

    on = True


_recording = _Recording()


@contextlib.contextmanager
def no_grad():
    """Compute without recording: results have no history, and what only the gradient needs is not kept."""
    before, _recording.on = _recording.on, False
    try:
        yield
    finally:
        _recording.on = before


def is_recording():
    """Tell whether operations are being recorded, for ops that can save work when they are not."""
    return _recording.on


def record(data, parents, backward):
    """Make the Tensor that an operation returns: the only place where a node of the graph is made.

    data: the result. parents: the inputs, in order; those that are not Tensors are constants.
    backward: takes the gradient of the result and returns one gradient per parent, None where there is none.
    It must not change the gradient it is given: other nodes may hold the same array.
    Raises TypeError if a Tensor among the parents has another dtype than the result.
    """
    tensors = [parent for parent in parents if isinstance(parent, Tensor)]
    for tensor in tensors:
        if tensor.data.dtype != data.dtype:
            raise TypeError(
                f"{_name(backward)} mixes {tensor.data.dtype} and {data.dtype}: convert one side with astype"
            )
    out = Tensor.__new__(Tensor)
    out.data, out.grad, out._node = xp.asarray(data), None, None  # a reduction to one number is a scalar in NumPy
    if tensors and _recording.on:
        out._node = _Node(out.data, tuple(map(_origin, parents)), backward)
    return out


class _Node:
    """A computed Tensor as the walk back sees it: what it was made from, and how its gradient becomes theirs.

    Its numbers are not here. They are freed with the Tensor, halfway through the model, unless a `backward` needs
    them: half of what the layers compute is of no use to any gradient.
    """

    __slots__ = ("backward", "dtype", "parents", "shape")

    def __init__(self, data, parents, backward):
        self.shape, self.dtype, self.parents, self.backward = data.shape, data.dtype, parents, backward


def _origin(parent):
    """Where the gradient of an input goes: to the node that made it, to the Tensor itself, or nowhere."""
    return (parent._node or parent) if isinstance(parent, Tensor) else None


class Tensor:
    """An array with a memory of how it was computed.

    Python numbers, lists, integers and float16 become float32; float64 stays float64, for gradient checks.
    An array of NumPy is moved to the device in use; `.numpy()` and `float(t)` come back from there.
    """

    __array_ufunc__ = None  # so that  array + tensor  asks the tensor

    def __init__(self, data):
        if isinstance(data, Tensor):
            data = data.data
        keep = getattr(data, "dtype", None) in (np.float32, np.float64)
        self.data = to_device(data, None if keep else np.float32)
        self.grad, self._node = None, None

    shape = property(lambda self: self.data.shape)
    ndim = property(lambda self: self.data.ndim)
    size = property(lambda self: self.data.size)
    dtype = property(lambda self: self.data.dtype)

    def numpy(self):
        """Give the values as a NumPy array."""
        return to_numpy(self.data)

    def __float__(self):
        return float(self.data)

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        return f"Tensor({np.array2string(self.numpy(), precision=4, separator=', ', prefix='Tensor(')})"

    # The chain rule --------------------------------------------------------------------------------------

    def backward(self, gradient=None):
        """Give every Tensor that this one was computed from, and that was not itself computed, its `.grad`.

        gradient: that of the final quantity with respect to this Tensor; 1 if this Tensor is one number.
        Gradients add up over several calls. The graph is freed on the way: memory falls as the walk
        proceeds, and a second call over the same graph raises RuntimeError.
        """
        if gradient is None:
            if self.size != 1:
                raise ValueError(f"backward() of a tensor of shape {self.shape} needs the gradient to start from")
            gradient = xp.ones_like(self.data)
        gradient = to_device(gradient, self.dtype)
        if gradient.shape != self.shape:
            raise ValueError(f"the gradient has shape {gradient.shape}, the tensor {self.shape}")
        if self._node is None:
            self._receive(gradient)
            return
        order = _topological_order(self._node)
        gradients = {id(self._node): gradient}  # of nodes whose turn has not come yet
        owned = set()  # ids of those gradients that nobody else holds, which may be added to in place
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
        """Add to `.grad`. The first gradient is copied, since it may be an array that others hold too."""
        if self.grad is None:
            self.grad = gradient.copy()
        else:
            self.grad += gradient

    # Operators -------------------------------------------------------------------------------------------

    def __add__(self, other):
        return record(self.data + _data(other, self.dtype), (self, other), lambda gy: (gy, gy))

    __radd__ = __add__

    def __neg__(self):
        return record(-self.data, (self,), lambda gy: -gy)

    def __sub__(self, other):
        return record(self.data - _data(other, self.dtype), (self, other), lambda gy: (gy, -gy))

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        x, y = self.data, _data(other, self.dtype)
        if not isinstance(other, Tensor):  # then x is not needed any more
            return record(x * y, (self,), lambda gy: gy * y)
        return record(x * y, (self, other), lambda gy: (gy * y, gy * x))

    __rmul__ = __mul__

    def __truediv__(self, other):
        x, y = self.data, _data(other, self.dtype)
        return record(x / y, (self, other), lambda gy: (gy / y, -gy * x / (y * y)))

    def __rtruediv__(self, other):
        return other * self**-1

    def __pow__(self, exponent):
        """x ** c for a number c."""
        x, c = self.data, _data(exponent, self.dtype)
        if not isinstance(c, int | float):
            raise TypeError("the exponent of ** is a number")
        return record(x**c, (self,), lambda gy: gy * (c * x ** (c - 1)))

    def __matmul__(self, other):
        """The product of matrices; axes before the last two are batches, and broadcast."""
        x, y = self.data, _data(other, self.dtype)
        if x.ndim < 2 or y.ndim < 2:
            raise ValueError(f"@ takes matrices: shapes {x.shape} and {y.shape}; reshape a vector to (1, n)")

        def backward(gy):
            return gy @ y.swapaxes(-1, -2), x.swapaxes(-1, -2) @ gy

        return record(x @ y, (self, other), backward)

    def __rmatmul__(self, other):
        return Tensor(_data(other, self.dtype)) @ self

    def __getitem__(self, index):
        """Slices, integers, or arrays of indices; a position named twice gets the sum of its gradients."""
        shape, dtype = self.shape, self.dtype

        def backward(gy):
            gx = xp.zeros(shape, dtype=dtype)
            xp.add.at(gx, index, gy)
            return gx

        return record(self.data[index], (self,), backward)

    # Methods of arrays -----------------------------------------------------------------------------------

    def sum(self, axis=None, keepdims=False):
        """The sum over the axes (all of them by default)."""
        shape = self.shape

        def backward(gy):
            if axis is not None and not keepdims:
                gy = xp.expand_dims(gy, axis)
            return xp.broadcast_to(gy, shape)

        return record(self.data.sum(axis=axis, keepdims=keepdims), (self,), backward)

    def mean(self, axis=None, keepdims=False):
        """The mean over the axes (all of them by default)."""
        total = self.sum(axis, keepdims)
        return total * (total.size / self.size)

    def reshape(self, *shape):
        """The same numbers in another shape; one length may be -1."""
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        before = self.shape
        return record(self.data.reshape(shape), (self,), lambda gy: gy.reshape(before))

    def transpose(self, *axes):
        """The axes in another order; reversed by default."""
        axes = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
        axes = axes or tuple(reversed(range(self.ndim)))
        inverse = tuple(sorted(range(len(axes)), key=lambda i: axes[i] % len(axes)))
        return record(self.data.transpose(axes), (self,), lambda gy: gy.transpose(inverse))


def as_array(x):
    """The array of a Tensor, or of anything else that the library in use makes one of."""
    return x.data if isinstance(x, Tensor) else to_device(x)


# The engine's parts ----------------------------------------------------------------------------------------


def _data(x, dtype):
    """The array or number that an operand stands for, beside a Tensor of this dtype.

    NumPy's scalars would turn float32 into float64, and so would lists.
    """
    if isinstance(x, Tensor):
        return x.data
    if isinstance(x, int | float | np.number):
        return x.item() if isinstance(x, np.number) else x
    return to_device(x, dtype if isinstance(x, list | tuple) else None)


def _name(backward):
    """The operation that a backward function was written in."""
    names = getattr(backward, "__qualname__", "backward").split(".<locals>.")
    return names[-2] if len(names) > 1 else names[0]


def _freed(gy):
    raise RuntimeError("backward() went over this graph already and freed it: compute the result again")


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
    """Call one backward and hold it to its promise: one gradient per parent, of its shape and dtype."""
    gradients = backward(gy)
    if not isinstance(gradients, tuple):
        gradients = (gradients,)
    if len(gradients) != len(parents):
        raise ValueError(f"{_name(backward)} has {len(parents)} inputs and returned {len(gradients)} gradients")
    checked = []
    for parent, gradient in zip(parents, gradients, strict=True):
        if parent is None or gradient is None:
            checked.append(None)
            continue
        gradient = _sum_to(gradient, parent.shape)
        if gradient.shape != parent.shape or gradient.dtype != parent.dtype:
            raise ValueError(
                f"{_name(backward)} gave a gradient of shape {gradient.shape} and type {gradient.dtype} "
                f"for an input of shape {parent.shape} and type {parent.dtype}"
            )
        checked.append(gradient)
    return checked


def _sum_to(gradient, shape):
    """Undo broadcasting: an entry that was used many times gets the sum of its gradients."""
    if gradient.shape == shape or gradient.ndim < len(shape):  # the latter is a mistake, which _gradients names
        return gradient
    extra = gradient.ndim - len(shape)
    if extra > 0:
        gradient = gradient.sum(axis=tuple(range(extra)))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=axes, keepdims=True) if axes else gradient
