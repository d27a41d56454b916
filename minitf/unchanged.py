"""A check that nobody has changed the methods of a module.

Some programs compute the same as modules without calling them. The forms of `Residual`,
`FeedForward` and `MultiHeadAttention`, and the CPU's form of decoding, compute several modules
together. The cache of decoding keeps the keys of earlier tokens, although a changed attention might
compute other keys once the text is longer. All of them ask here first. If a method was changed,
they leave the work to the modules.
"""

from minitf.nn import Dropout, Embedding, LayerNorm, Linear, Module
from minitf.transformer import (
    Decoder,
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    Positions,
    Residual,
    Transformer,
)

__all__ = ["is_unchanged"]

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
        DecoderLayer,
        Decoder,
        Transformer,
    )
}


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
