"""Changed Transformers, as a student or researcher writes them: with other parameters, or
another computation.
"""

import numpy as np

from minitf import functions as F
from minitf.nn import Linear, Module, Parameter
from minitf.transformer import MultiHeadAttention, Transformer


class SwiGLU(Module):
    """The feed-forward network with a gate: (swish(x W) * (x V)) W_2.

    Source: Shazeer 2020, eq. 6.
    """

    def __init__(self, config, rng):
        self.inner = Linear(config.d_model, config.d_ff, rng, bias=False)
        self.gate = Linear(config.d_model, config.d_ff, rng, bias=False)
        self.outer = Linear(config.d_ff, config.d_model, rng, bias=False)

    def __call__(self, x):
        h = self.inner(x)
        return self.outer(h / (1 + F.exp(-h)) * self.gate(x))


class ScaledAttention(MultiHeadAttention):
    """Attention whose output is multiplied by a learned factor for each feature."""

    def __init__(self, config, rng):
        super().__init__(config, rng)
        self.scale = Parameter(np.full(config.d_model, 0.9, dtype=np.float32))

    def __call__(self, x, memory, mask=None, cache=None):
        return super().__call__(x, memory, mask, cache) * self.scale


class Variant(Transformer):
    """SwiGLU in all layers, and other self-attention in the encoder."""

    def __init__(self, config, seed=0, initialise=True):
        super().__init__(config, seed, initialise)
        rng = np.random.default_rng([seed, 1]) if initialise else None
        for layer in self.encoder.layers:
            layer.self_attention = ScaledAttention(config, rng)
        for layer in self.encoder.layers + self.decoder.layers:
            layer.feed_forward = SwiGLU(config, rng)


def gelu(self, x):
    """In place of FeedForward.__call__: with GELU, in its approximation.

    Source: Hendrycks and Gimpel 2016.
    """
    h = self.inner(x)
    return self.outer(self.dropout(h / (1 + F.exp(h * -1.702))))
