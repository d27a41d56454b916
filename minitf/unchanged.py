"""A check that nobody has changed what a module computes, and what forms of both rooms share.

Some programs compute the same as modules without calling them. The forms of `Residual`,
`FeedForward` and `MultiHeadAttention`, and those of decoding, compute several modules together. The
cache of decoding keeps the keys of earlier tokens, although a changed attention might compute other
keys once the text is longer. All of them ask here first. If a method was changed, or a function of
`minitf.functions` replaced, they leave the work to the modules.

The forms of `Residual` and `FeedForward` need nothing more than this check and an op, so they are
the same in both rooms. Those of `MultiHeadAttention` share one test of which calls they can take.
Forms with parameters share `gradient_buffer`.
"""

import inspect

from minitf import functions as F
from minitf.edited import EQUATIONS, edited
from minitf.nn import Dropout, Embedding, LayerNorm, Linear, Module, Parameter
from minitf.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Positions,
    Residual,
    Transformer,
)

__all__ = [
    "METHODS_OF_ATTENTION",
    "attends_plainly",
    "feed_forward_by_op",
    "functions_are_unchanged",
    "gradient_buffer",
    "is_all_unchanged",
    "is_unchanged",
    "residual_by_op",
]

# The methods as this library defines them, copied before anybody can replace one of a class.
_METHODS = {
    kind: dict(vars(kind))
    for kind in (
        Dropout,
        Embedding,
        LayerNorm,
        Linear,
        MultiHeadAttention,
        Positions,
        FeedForward,
        Residual,
        EncoderLayer,
        Encoder,
        DecoderLayer,
        Decoder,
        Transformer,
    )
}


# And the functions by which the methods compute, which may be replaced in their module.
_FUNCTIONS = {name: getattr(F, name) for name in F.__all__}

METHODS_OF_ATTENTION = ("__call__", "attend", "keys_and_values", "merge_heads", "split_heads")


def is_unchanged(module: object, kind: type[Module], *methods: str) -> bool:
    """Return whether a module has the methods that this library defines in the class `kind`.

    methods: their names, by default `__call__` alone.
    There are three ways to change one: a subclass, an attribute of one object, or an assignment to
    the class.
    """
    if not isinstance(module, kind):
        return False
    attributes, present_class, defined = vars(module), type(module), _METHODS[kind]
    for name in methods or ("__call__",):
        if name in attributes or getattr(present_class, name) is not defined[name]:
            return False
    return True


def functions_are_unchanged(*names: str) -> bool:
    """Return whether nobody has replaced these functions in `minitf.functions`, by default all."""
    return all(getattr(F, name) is _FUNCTIONS[name] for name in names or _FUNCTIONS)


def is_all_unchanged(model: Module) -> bool:
    """Return whether all modules of a model have this library's classes, and no changed method.

    All methods count as changed if the file of an equation of the model was edited, or a function
    replaced.
    """
    if EQUATIONS.intersection(edited) or not functions_are_unchanged():
        return False
    for module in model.modules():
        defined = _METHODS.get(type(module), {})
        methods = [name for name, value in defined.items() if inspect.isfunction(value)]
        if not methods or not is_unchanged(module, type(module), *methods):
            return False
    return True


def residual_by_op(module, x, sublayer):
    """Compute a Residual by `functions.add_norm`, which has a form in both rooms.

    Return NotImplemented unless the norm comes last, and its modules and functions are unchanged.
    """
    norm, dropout = module.norm, module.dropout
    unchanged = is_unchanged(norm, LayerNorm) and is_unchanged(dropout, Dropout)
    if not (module.post and unchanged and functions_are_unchanged("layer_norm", "dropout")):
        return NotImplemented
    rate = dropout.rate if dropout.training else 0.0
    return F.add_norm(x, sublayer(x), norm.gain, norm.bias, norm.eps, rate)


def feed_forward_by_op(module, x):
    """Compute a FeedForward by `functions.feed_forward`, which has a form in both rooms.

    Return NotImplemented unless it has the ReLU, and its modules and functions are unchanged.
    """
    inner, outer, dropout = module.inner, module.outer, module.dropout
    unchanged = is_unchanged(inner, Linear) and is_unchanged(outer, Linear)
    if not (unchanged and functions_are_unchanged("linear", "relu", "dropout")):
        return NotImplemented
    if module.activation != "relu" or not is_unchanged(dropout, Dropout):
        return NotImplemented  # these forms compute no other activation
    rate = dropout.rate if dropout.training else 0.0
    return F.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, rate)


def attends_plainly(module, x, memory, mask):
    """Return whether a form may take this call of a MultiHeadAttention.

    Such a form calls neither the module's methods nor its projections to queries, keys and values.
    One that does not call `module.output` either has to check that as well. Other calls are left to
    the equation, which also refuses what does not fit.
    """
    layers = module.query, module.key, module.value
    return (
        not module.keep_weights
        and functions_are_unchanged("attention", "linear")
        and is_unchanged(module, MultiHeadAttention, *METHODS_OF_ATTENTION)
        and all(is_unchanged(layer, Linear) for layer in layers)
        and x.ndim == memory.ndim == 3
        and len(x) == len(memory)
        and getattr(mask, "ndim", 0) != 3  # the equation raises the error
        and x.shape[1] > 0
        and memory.shape[1] > 0  # without keys there is no greatest score
        and len({array.dtype for array in (x, memory, *(layer.weight for layer in layers))}) == 1
    )


def gradient_buffer(x, inputs):
    """Return the array to which a form may write the gradient of x, or None.

    It is the slice of the flat gradients that belongs to x. A `backward` that writes to it also
    returns it, and the gradient need not be copied.
    inputs: all inputs of the op. If x occurs among them more than once, its gradients have to be
    added, and one would overwrite the other.
    None for that, for anything but a flattened parameter, and if there is a gradient already:
    `out=None` is a new array.
    """
    view = x._gradient_view if isinstance(x, Parameter) and x.grad is None else None
    if view is None or sum(x is each for each in inputs) > 1:
        return None
    # None if x has an array of another shape or dtype now, which Adam will refuse.
    return view if (view.shape, view.dtype) == (x.shape, x.dtype) else None
