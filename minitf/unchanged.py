"""Whether a module still computes as its class does in this library.

Some programs rely on the methods of modules without calling them. The forms of `Residual`,
`FeedForward` and `MultiHeadAttention` compute several modules together, without a call of each. The
cache of decoding keeps the keys of earlier tokens, although a changed attention might compute other
keys once the text is longer. All ask here first, and where a method was changed they leave the
work to the equations.
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

# The methods as they are written, copied before anybody can replace one of a class.
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
    """Return whether these methods of a module are the ones that its class `kind` was written with.

    They may be changed in three ways: by a subclass, by an attribute of one object, or by replacing
    a method of the class. methods: their names, by default `__call__` alone.
    """
    if not isinstance(module, kind):
        return False
    own, present, written = vars(module), type(module), _METHODS[kind]
    for name in methods or ("__call__",):
        if name in own or getattr(present, name) is not written[name]:
            return False
    return True
