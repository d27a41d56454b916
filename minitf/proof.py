"""The comparison of a form with its equation: see forms.py.

Both compute the same made-up arguments, and the gradients of a made-up loss. On a CPU the numbers
are float64, in which two programs for one equation differ by their rounding only; kernels of a GPU
are for float32.
"""

import math

import numpy as np

from minitf import decode, loss, optim, transformer
from minitf import functions as F
from minitf.backend import on_gpu, to_device, to_numpy
from minitf.config import Config
from minitf.dropout import dropout_state
from minitf.nn import Dropout, LayerNorm, Linear, Module
from minitf.tensor import Tensor, recording
from minitf.transformer import MultiHeadAttention

__all__ = ["disagreement"]


class _Numbers:
    """Made-up numbers for an example: each call returns a new Tensor of the given shape.

    They look random; NumPy's generators would take longer to load than all the examples to compute.
    """

    def __init__(self):
        self.drawn = 0
        self.dtype = np.float32 if on_gpu() else np.float64

    def __call__(self, *shape: int, size: float = 1) -> Tensor:
        """Return a Tensor of numbers around 0, of mean square size^2."""
        return Tensor(to_device(math.sqrt(12) * size * (self._uniform(shape) - 0.5), self.dtype))

    def array(self, *shape: int) -> np.ndarray:
        """Return an array of numbers from 0 to 1."""
        return to_device(self._uniform(shape), self.dtype)

    def mask(self, *shape: int) -> np.ndarray:
        """Return a mask that is True for most elements, and for the first of each row."""
        mask = self._uniform(shape) < 0.7
        mask[..., 0] = True
        return mask

    def ids(self, end: int, *shape: int) -> np.ndarray:
        """Return integers from 0 to end - 1."""
        return (end * self._uniform(shape)).astype(np.int64)

    def layer(self, module: Module) -> Module:
        """Return a module with random parameters."""
        for parameter in module.parameters():
            parameter.data = self(*parameter.shape).data
        return module

    def _uniform(self, shape):
        """Return numbers from 0 to 1: the late digits of sines."""
        start, self.drawn = self.drawn, self.drawn + math.prod(shape)
        return (1e4 * np.sin(np.arange(start + 1, self.drawn + 1)) % 1).reshape(shape)


def _add_and_norm(training):
    return lambda r: (
        *(r(ROWS, 4, size=0.001), r(ROWS, 4, size=0.001)),
        *(Dropout(0.25).train(training), r.layer(LayerNorm(4))),
    )


def _feed_forward_network(training):
    return lambda r: (
        *(r(2, ROWS, 4), r.layer(Linear(4, 6, None)), F.relu, Dropout(0.25).train(training)),
        r.layer(Linear(6, 4, None)),
    )


def _attention_to_the_source(r):
    config = Config(9, n_layers=1, d_model=8, d_ff=8, n_heads=2, attention_dropout=0.25)
    layer = r.layer(MultiHeadAttention(config, None))
    return layer, r(2, 3, 8), r(2, 4, 8), r.mask(2, 1, 3, 4)


def _self_attention(r):
    layer, x, _, _ = _attention_to_the_source(r)
    return layer.eval(), x, x, None


ROWS = 33  # more than a block of a GPU sums: the sums of two slices are added up

# For each op with a form, small arguments to which every number in its equation matters. (What
# decodes a model in one program, `fused_decoder`, has none: it is compared for each model.)
EXAMPLES = {
    F.linear: [lambda r: (r(2, ROWS, 4), r(4, 5), r(5))],
    F.layer_norm: [lambda r: (r(ROWS, 4, size=0.001), r(4), r(4))],  # small, so that eps matters
    F.embedding: [lambda r: (r(5, 3), r.ids(5, 2, 7))],
    F.dropout: [lambda r: (r(3, 40), 0.25, 7)],
    F.attention: [
        lambda r: (
            *(r(2, 2, 3, 4), r(2, 2, 5, 4), r(2, 2, 5, 4)),
            *(r.mask(2, 1, 3, 5), 0.25, 7),
        )
    ],
    transformer.add_and_norm: [_add_and_norm(True), _add_and_norm(False)],
    transformer.feed_forward_network: [_feed_forward_network(True), _feed_forward_network(False)],
    transformer.multi_head_attention: [_attention_to_the_source, _self_attention],
    loss.projected_cross_entropy: [
        lambda r: (r(2, 3, 4), r(9, 4), r.ids(9, 2, 3), 0.1, 0, 5, r(9))
    ],
    optim.adam_update: [lambda r: (*(r.array(40) for _ in range(4)), 3, 0.1)],
    decode.continuations: [lambda r: (r.array(6, 50), to_numpy(r.array(2, 3)), 4)],
    decode.logsumexp: [lambda r: (r.array(4, 50),)],
    decode.fused_decoder: [],  # see decode.how_to_decode
}


def disagreement(op, form, tolerance: float = 1e-9) -> str | None:
    """Return how the form of an op differs from its equation, or None.

    tolerance: how far a number may be off, relative to the largest of its array.
    The ops that the equation calls may be computed by their forms, which prove themselves first.
    """
    equation = op.__wrapped__
    if form.__defaults__ != equation.__defaults__:
        return "the defaults of its arguments differ"
    if op not in EXAMPLES:
        return "it has no example in minitf/proof.py"
    for example in EXAMPLES[op]:
        try:
            expected, found = _outcome(equation, example), _outcome(form, example)
        except Exception as error:  # of the form; or of an equation that is being edited
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if found is not None and (difference := _difference(expected, found, tolerance)):
            return difference
    return None


def _difference(expected, found, tolerance):
    """Return how two outcomes differ, or None."""
    for (name, wanted), (_, got) in zip(expected, found, strict=True):
        if got is None or wanted is None:
            if got is not wanted:
                return f"its {name} is missing"
        elif got.shape != wanted.shape:
            return f"its {name} has another shape"
        elif not np.allclose(got, wanted, tolerance, tolerance * np.abs(wanted).max(initial=0)):
            return f"its {name} differs by {np.abs(got - wanted).max():.2g}"
    return None


def _outcome(function, example):
    """Return (name, array) for the results of a call and for all gradients.

    Of a function without a result, the arguments, which it has changed. None if it returns
    NotImplemented: a form without kernels for the example has none for other arguments either.
    """
    numbers = _Numbers()
    arguments = example(numbers)
    with recording(), dropout_state(0, 0), np.errstate(all="ignore"):
        results = function(*arguments)
        if results is NotImplemented:
            return None
        if results is None:
            return [("result", to_numpy(a)) for a in arguments if hasattr(a, "shape")]
        results = results if isinstance(results, tuple) else (results,)
        if not isinstance(results[0], Tensor):
            return [("result", to_numpy(result)) for result in results]
        y = results[0]
        y.backward(to_device(numbers(*y.shape).data, y.dtype))
    outcome = [("result", to_numpy(result.data)) for result in results]
    for argument in arguments:
        leaves = argument.parameters() if isinstance(argument, Module) else [argument]
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                grad = leaf.grad
                outcome.append(("gradient", None if grad is None else to_numpy(grad)))
    return outcome
