"""The decoder of a plain Transformer on a GPU, as one straight line of launches for each token.

For the few rows of a step, the host takes longer to start an operation than the GPU to compute it.
So this program calls no layers but that of the positions. It joins the matrices that multiply the
same rows, once for a batch. One kernel computes all that is between the projections of an
attention: the write to the cache, the scores, their softmax, and the average of the values. The
equations are those of minitf/transformer.py; minitf/cpu/decoder.py is the same for a CPU.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, n tokens in the
cache of a sentence, S tokens of its source, L layers.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minitf import decode
from minitf import functions as F
from minitf.backend import to_device, xp
from minitf.cpu.decode import Layout
from minitf.gpu import fused
from minitf.gpu.matmul import as_operand, product_with
from minitf.tensor import Tensor

__all__ = ["StraightScorer"]


class StraightScorer:
    """The Scorer (see minitf/decode.py) that starts few operations for each token.

    caches: for each layer, the keys and then the values of the tokens of all texts of a sentence:
    (B, 2*H, capacity, K).
    source: keys and values of the source, (B, 2*L*H, S, K): for each layer 2*H.
    """

    def __init__(self, model, source, width):
        self.model, self.width = model, width
        self.layers = [_weights_of(layer) for layer in model.decoder.layers]
        self.post = model.config.norm == "post"
        self.norm = _norm(model.decoder.norm) if model.decoder.norm else None
        self.embedding = model.target_embedding.weight.data
        self.vocabulary = _Affine(
            product_with(as_operand(model.output_embedding.weight.data.T)), model.logit_bias()
        )
        memory, mask = model.encode(source)
        batch, length, d = memory.shape
        attentions = [layer.source_attention for layer in model.decoder.layers]
        project = _joined(*(x for a in attentions for x in (a.key, a.value)))
        keys_and_values = project(memory.data.reshape(batch * length, d))
        heads, size = model.config.n_heads, model.config.d_k
        self.source = keys_and_values.reshape(batch, length, -1, size).swapaxes(1, 2)
        self.source_mask = to_device(mask[:, 0])  # (B, 1, S)
        self.layout = Layout(batch, width)
        empty = batch, 2 * heads, 0, size
        self.caches = [xp.empty(empty, dtype=xp.float32) for _ in self.layers]

    def __call__(self, texts):
        """Return logits and normalisers, as Scorer says."""
        logits = self._logits(texts)
        normalisers, _, _ = self._best_of(logits, 0)
        return logits, normalisers

    def best(self, texts, totals, count):
        """Return the best continuations, as Scorer says: of each row a few numbers leave the GPU.

        The best of a sentence are among the best `count` of its texts. One more of each text tells
        whether another token may be equal to the last of them; then `continuations` decides.
        """
        logits = self._logits(texts)
        normalisers, values, tokens = self._best_of(logits, count + 1)
        totals = totals - normalisers.reshape(totals.shape)
        n, width = totals.shape
        size = logits.shape[1]
        sums = totals[:, :, None] + values.reshape(n, width, -1)  # (B, W, count + 1), float64
        index = tokens.reshape(sums.shape) + np.arange(width)[:, None] * size
        flat, index = sums.reshape(n, -1), index.reshape(n, -1)
        order = np.lexsort((index, -flat))[:, :count]
        best, found = np.take_along_axis(index, order, 1), np.take_along_axis(flat, order, 1)
        is_tied = (sums[:, :, -1].max(axis=1) >= found[:, -1]).any()
        ranked = best % size, best // size, found
        return decode.continuations(logits, totals, count) if is_tied else ranked

    def _best_of(self, logits, count):
        """Return normalisers, and the best `count` of each row: see fused.best_of_rows."""
        c = self.model.config
        normalisers, values, tokens = fused.best_of_rows(logits, (c.pad_id, c.bos_id), count)
        decode.refuse_infinite(normalisers)
        return normalisers, values, tokens

    def _logits(self, texts):
        """Return the logits (R, V) of the next token of each text."""
        if self.layout.is_full():
            kept = self.layout.grow()
            for i, cache in enumerate(self.caches):  # one at a time, so that few are there twice
                self.caches[i] = self.layout.moved(cache, kept)
        self.layout.add_newest()
        own_mask = to_device(self.layout.own[:, :, : self.layout.length])  # (B, W, n)
        shape = *own_mask.shape[:2], self.source_mask.shape[2]
        source_mask = xp.broadcast_to(self.source_mask, shape)
        x = self._embedded(texts)
        for i, layer in enumerate(self.layers):
            x = self._layer(x, layer, i, own_mask, source_mask)
        if self.norm:
            x, _ = fused.layer_norm(x, *self.norm)
        return self.vocabulary(x)

    def _embedded(self, texts):
        """Return the embeddings of the newest tokens with the vectors of their position, (R, D)."""
        rows = self.embedding[to_device(texts[:, -1])]
        rows *= math.sqrt(rows.shape[1])
        return self.model.target_positions(Tensor(rows[:, None]), texts.shape[1] - 1).data[:, 0]

    def _layer(self, x, layer, i, own_mask, source_mask):
        """Apply decoder layer i to x (R, D), and add its keys and values to the cache."""

        def own(y):
            first = self.layout.length - self.width
            projected = layer.query_key_value(y)
            y = fused.attention_step(projected, self.caches[i], own_mask, first)
            return layer.self_output(y)

        def of_source(y):
            n = 2 * self.model.config.n_heads
            keys_and_values = self.source[:, i * n : (i + 1) * n]
            y = fused.attention_step(layer.source_query(y), keys_and_values, source_mask)
            return layer.source_output(y)

        x = self._residual(x, own, layer.self_norm)
        x = self._residual(x, of_source, layer.source_norm)
        return self._residual(x, layer.feed_forward, layer.feed_forward_norm)

    def _residual(self, x, sublayer, norm):
        """Return LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) in a pre-norm model."""
        if self.post:
            return fused.add_norm(x, sublayer(x), *norm)[0]
        y = sublayer(fused.layer_norm(x, *norm)[0])
        y += x
        return y

    def select(self, rows):
        """Keep these rows of the texts, in this order."""
        sentences = rows[:: self.width] // self.width
        if len(sentences) < len(self.layout.own):
            kept = to_device(sentences)
            for i, cache in enumerate(self.caches):
                self.caches[i] = cache[kept]
            self.source = self.source[kept]
            self.source_mask = self.source_mask[kept]
        self.layout.select(rows)


class _Affine(NamedTuple):
    """A product with a matrix, plus a bias if there is one: (R, D) -> (R, F)."""

    multiply: Callable  # by the matrix (D, F)
    bias: object  # (F,), or None

    def __call__(self, x):
        y = self.multiply(x)
        if self.bias is not None:
            y += self.bias
        return y


def _joined(*linears):
    """Return the linear layers of one input as one, whose results are side by side."""
    weights, biases = [x.weight.data for x in linears], [x.bias for x in linears]
    weight = as_operand(weights[0] if len(weights) == 1 else xp.concatenate(weights, axis=1))
    multiply = product_with(weight)
    if all(bias is None for bias in biases):
        return _Affine(multiply, None)
    zeros = [xp.zeros(w.shape[1], dtype=w.dtype) for w in weights]
    pairs = zip(biases, zeros, strict=True)
    return _Affine(multiply, xp.concatenate([zero if b is None else b.data for b, zero in pairs]))


class _FeedForward(NamedTuple):
    """The feed-forward network of rows: (R, D) -> (R, D)."""

    inner: _Affine
    activation: str  # the name of a function in minitf.functions
    outer: _Affine

    def __call__(self, x):
        if self.activation == "relu" and self.inner.bias is not None:
            hidden, _ = fused.bias_relu_dropout(self.inner.multiply(x), self.inner.bias)
        else:
            hidden = getattr(F, self.activation)(self.inner(x)).data
        return self.outer(hidden)


class _Layer(NamedTuple):
    """The weights of one decoder layer; of each norm: gain, bias and eps."""

    query_key_value: _Affine  # of self-attention: all queries, then all keys, then all values
    self_output: _Affine
    self_norm: tuple
    source_query: _Affine
    source_output: _Affine
    source_norm: tuple
    feed_forward: _FeedForward
    feed_forward_norm: tuple


def _weights_of(layer):
    """Return the weights of a DecoderLayer."""
    own, of_source, network = layer.self_attention, layer.source_attention, layer.feed_forward
    return _Layer(
        query_key_value=_joined(own.query, own.key, own.value),
        self_output=_joined(own.output),
        self_norm=_norm(layer.self_residual.norm),
        source_query=_joined(of_source.query),
        source_output=_joined(of_source.output),
        source_norm=_norm(layer.source_residual.norm),
        feed_forward=_FeedForward(
            _joined(network.inner), network.activation, _joined(network.outer)
        ),
        feed_forward_norm=_norm(layer.feed_forward_residual.norm),
    )


def _norm(norm):
    """Return gain, bias and eps: the last arguments of `fused.layer_norm` and `fused.add_norm`."""
    return norm.gain.data, norm.bias.data, norm.eps
