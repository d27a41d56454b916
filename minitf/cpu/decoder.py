"""The decoder of a plain Transformer as one straight line of array operations for each token.

For one sentence, a step of decoding computes little: its time goes into Python and into fetching
the weights. So this program makes no Tensors and calls no modules. Its weights are packed once:
products of the same rows are joined into one, and every matrix is in strips. It computes the
equations of minitf/transformer.py. A model with a changed module is decoded by its modules: see
SharedTokenScorer in minitf/cpu/decode.py.

Letters: B sentences, W beams of each, R = B * W rows, D features, H heads, K d_k, U d_v,
n tokens in the cache of a sentence, S tokens of its source, L layers, V vocabulary.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minitf import decode
from minitf import functions as F
from minitf.cpu import threads
from minitf.cpu.decode import Layout, SharedTokenScorer
from minitf.cpu.strips import in_strips, packed_copy, product, strips_shape
from minitf.cpu.threads import FasterWay
from minitf.forms import form_of
from minitf.nn import Dropout, Embedding, LayerNorm, Linear
from minitf.tensor import Tensor
from minitf.transformer import (
    Decoder,
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    Positions,
    Residual,
    Transformer,
)
from minitf.unchanged import is_unchanged

__all__ = ["PackedDecoder", "StraightScorer", "for_decoding", "is_plain", "token_scorer"]


def for_decoding(model):
    """Return a copy of a model that decodes fast; make another copy when the weights change."""
    if not is_plain(model):
        return packed_copy(model, model)
    twin = packed_copy(model, model.encoder)
    twin.packed_decoder = PackedDecoder(model)
    return twin


@form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a Scorer whose caches are shared by the beams of a sentence."""
    if not cached or not decode.can_cache(model):
        return NotImplemented
    # A row of padding alone has nothing to attend to, which only the modules provide for.
    if is_plain(model) and (np.asarray(source) != model.config.pad_id).any(axis=1).all():
        packed = getattr(model, "packed_decoder", None) or PackedDecoder(model)
        return StraightScorer(packed, model, source, width)
    return SharedTokenScorer(model, source, width)


def is_plain(model):
    """Return whether the decoder computes as the library's modules do, on NumPy's arrays."""
    return (
        all(is_unchanged(*checked) for checked in _methods_computed_here(model))
        and _has_the_sizes_of_its_config(model)
        and isinstance(model.target_embedding.weight.data, np.ndarray)
    )


def _has_the_sizes_of_its_config(model):
    """Return whether all layers are alike, and none keeps its attention weights for a picture."""
    c = model.config
    sizes = c.n_heads, c.n_heads * c.d_k, c.n_heads * c.d_v, False
    for layer in model.decoder.layers:
        for a in (layer.self_attention, layer.source_attention):
            if (a.n_heads, a.key.weight.shape[1], a.value.weight.shape[1], a.keep_weights) != sizes:
                return False
        residuals = layer.self_residual, layer.source_residual, layer.feed_forward_residual
        if any(residual.post != (c.norm == "post") for residual in residuals):
            return False
    return True


def _methods_computed_here(model):
    """Yield (module, its class, names of methods), each after the module that contains it."""
    yield model, Transformer, "decode", "logits", "logit_bias", "_logit_bias"
    yield model.target_embedding, Embedding
    yield model.target_positions, Positions
    yield model.target_positions.dropout, Dropout
    yield model.decoder, Decoder
    if model.decoder.norm:
        yield model.decoder.norm, LayerNorm
    for layer in model.decoder.layers:
        yield layer, DecoderLayer
        for attention in (layer.self_attention, layer.source_attention):
            methods = "__call__", "attend", "keys_and_values", "split_heads", "merge_heads"
            yield attention, MultiHeadAttention, *methods
            for name in ("query", "key", "value", "output"):
                yield getattr(attention, name), Linear
        for name in ("self_residual", "source_residual", "feed_forward_residual"):
            residual = getattr(layer, name)
            yield residual, Residual
            yield residual.norm, LayerNorm
            yield residual.dropout, Dropout
        network = layer.feed_forward
        yield network, FeedForward
        yield network.inner, Linear
        yield network.outer, Linear
        yield network.dropout, Dropout


class _Affine:
    """Multiply rows by a matrix in strips and add a bias, if there is one: (R, D) -> (R, F).

    maps: pairs of weight (D, F) and bias (F,) or None, which are joined to one map.
    """

    def __init__(self, *maps):
        biases = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in maps]
        self.weights, self.strips = [weight for weight, _ in maps], None
        self.width = sum(map(len, biases))
        self.shape = strips_shape(len(self.weights[0]), self.width)
        self.bias = None if all(b is None for _, b in maps) else np.concatenate(biases)
        self.faster_way = FasterWay()  # of computing the product: alone, or with a helper

    def pack(self, block):
        """Cut the matrix into strips in the first elements of a block; return the others."""
        size = math.prod(self.shape)
        self.strips = block[:size].reshape(self.shape)
        in_strips(np.concatenate(self.weights, axis=1), self.strips)
        self.weights = None
        return block[size:]

    def __call__(self, x):
        y = self._product(x)
        if self.bias is not None:
            y += self.bias
        return y

    def _product(self, x):
        """Multiply, with a helper if one was lent and if two threads fetch the matrix faster."""
        helper = None if self.faster_way.chosen == 0 else threads.helper()
        if helper is None:
            return product(x, self.strips, self.width)
        return self.faster_way(
            lambda: product(x, self.strips, self.width),
            lambda: product(x, self.strips, self.width, helper),
        )


def _map(linear):
    """Return the weight and the bias of a Linear, None if it has none."""
    return linear.weight.data, None if linear.bias is None else linear.bias.data


def _queries_of(attention):
    """Return the map to the queries, divided by sqrt(d_k) as the scores would be."""
    weight, bias = _map(attention.query)
    root = math.sqrt(weight.shape[1] // attention.n_heads)
    return weight / root, None if bias is None else bias / root


class _Norm:
    """Layer norm of rows (R, D), which are left as they were."""

    def __init__(self, norm):
        gain = norm.gain.data
        self.mean = np.full(len(gain), 1 / len(gain), gain.dtype)
        # Of x / sqrt(sum / D + eps) = x sqrt(D) / sqrt(sum + D eps), the factor goes to the gain.
        self.gain, self.bias = gain * math.sqrt(len(gain)), norm.bias.data.copy()
        self.eps = len(gain) * norm.eps

    def __call__(self, x):
        y = x - np.vecdot(x, self.mean)[:, None]
        sums = np.vecdot(y, y)
        sums += self.eps
        y /= np.sqrt(sums, out=sums)[:, None]
        y *= self.gain
        y += self.bias
        return y


class _Layer(NamedTuple):
    """The packed weights of one decoder layer."""

    query_key_value: _Affine  # of self-attention: all queries, then all keys, then all values
    self_output: _Affine
    self_norm: _Norm
    source_query: _Affine
    source_output: _Affine
    source_norm: _Norm
    inner: _Affine
    activate: Callable[[np.ndarray], np.ndarray]
    outer: _Affine
    feed_forward_norm: _Norm


def _activation(name):
    """Return a function of minitf.functions as one from array to array, which may be changed."""
    if name == "relu":
        return lambda x: np.maximum(x, 0, out=x)
    function = getattr(F, name)
    return lambda x: function(x).data


def _packed_layer(layer):
    own, of_source, network = layer.self_attention, layer.source_attention, layer.feed_forward
    return _Layer(
        query_key_value=_Affine(_queries_of(own), _map(own.key), _map(own.value)),
        self_output=_Affine(_map(own.output)),
        self_norm=_Norm(layer.self_residual.norm),
        source_query=_Affine(_queries_of(of_source)),
        source_output=_Affine(_map(of_source.output)),
        source_norm=_Norm(layer.source_residual.norm),
        inner=_Affine(_map(network.inner)),
        activate=_activation(network.activation),
        outer=_Affine(_map(network.outer)),
        feed_forward_norm=_Norm(layer.feed_forward_residual.norm),
    )


class PackedDecoder:
    """A copy of the weights of a plain model's decoder, which does not follow later changes.

    Only the table of embeddings is the model's own, to save memory.
    source: the map to the keys of the source for all layers, then to the values.
    """

    def __init__(self, model):
        c, layers = model.config, model.decoder.layers
        attentions = [layer.source_attention for layer in layers]
        keys, values = ([_map(getattr(a, name)) for a in attentions] for name in ("key", "value"))
        self.heads, self.d_k, self.d_v = c.n_heads, c.d_k, c.d_v
        self.post = c.norm == "post"
        self.embedding = model.target_embedding.weight.data
        self.layers = [_packed_layer(layer) for layer in layers]
        self.source = _Affine(*keys, *values)
        self.norm = model.decoder.norm and _Norm(model.decoder.norm)
        self.vocabulary = _Affine((model.output_embedding.weight.data.T, model.logit_bias()))
        self._pack()

    def _pack(self):
        """Put the strips of all matrices into one array.

        NumPy asks for large pages for a large array. With small ones, a step for one sentence
        would wait for the addresses of thousands of pages: it took a fifth longer.
        """
        of_layers = [part for layer in self.layers for part in layer if isinstance(part, _Affine)]
        matrices = [*of_layers, self.source, self.vocabulary]
        block = np.empty(sum(math.prod(m.shape) for m in matrices), self.embedding.dtype)
        for matrix in matrices:
            block = matrix.pack(block)


class StraightScorer:
    """The Scorer (see minitf/decode.py) that computes a step on packed weights.

    keys, values: of the tokens of all beams, (B, H, n, K) and (B, H, n, U) for each layer.
    """

    def __init__(self, packed, model, source, width):
        self.packed, self.model, self.width = packed, model, width
        memory, mask = model.encode(source)
        self.layout = Layout(len(source), width)
        dtype = memory.dtype
        self.source_limit = None if mask.all() else _limit(mask, dtype)
        self.source_keys, self.source_values = self._of_source(memory.data)
        empty = len(source), packed.heads, 0
        self.keys = [np.empty((*empty, packed.d_k), dtype) for _ in packed.layers]
        self.values = [np.empty((*empty, packed.d_v), dtype) for _ in packed.layers]

    def _of_source(self, memory):
        """Return the keys and the values of the source for each layer, (B, H, S, K or U) each."""
        packed, (batch, length, d) = self.packed, memory.shape
        projected = packed.source(memory.reshape(-1, d)).reshape(batch, length, -1)
        layers, heads = len(packed.layers), packed.heads
        middle = layers * heads * packed.d_k
        both = []
        for columns in (projected[:, :, :middle], projected[:, :, middle:]):
            split = columns.reshape(batch, length, layers, heads, -1)
            both.append(list(np.ascontiguousarray(split.transpose(2, 0, 3, 1, 4))))
        return both

    def __call__(self, texts):
        if self.layout.is_full():
            kept = self.layout.grow()
            self.keys, self.values = (
                [self.layout.moved(array, kept) for array in arrays]
                for arrays in (self.keys, self.values)
            )
        self.layout.add_newest()
        x = self._embedded(texts)
        own_limit = None if self.width == 1 else _limit(self.layout.mask(), x.dtype)
        for i in range(len(self.packed.layers)):
            x = self._layer(x, i, own_limit)
        if self.packed.norm:
            x = self.packed.norm(x)
        return decode.with_normalisers(self.packed.vocabulary(x), self.model.config)

    def _embedded(self, texts):
        """Return the embeddings of the newest tokens with the vectors of their position, (R, D)."""
        rows = self.packed.embedding[texts[:, -1]]
        rows *= math.sqrt(rows.shape[1])
        return self.model.target_positions(Tensor(rows[:, None]), texts.shape[1] - 1).data[:, 0]

    def _layer(self, x, i, own_limit):
        """Apply a decoder layer to x (R, D); the keys and values of x join those of its texts."""
        layer = self.packed.layers[i]

        def own(y):
            newest = layer.query_key_value(y)
            queries, keys, values = self._join(newest, i)
            return layer.self_output(_attend(queries, keys, values, own_limit))

        def of_source(y):
            queries = self._split(layer.source_query(y))
            keys, values = self.source_keys[i], self.source_values[i]
            return layer.source_output(_attend(queries, keys, values, self.source_limit))

        def network(y):
            return layer.outer(layer.activate(layer.inner(y)))

        x = self._residual(x, own, layer.self_norm)
        x = self._residual(x, of_source, layer.source_norm)
        return self._residual(x, network, layer.feed_forward_norm)

    def _residual(self, x, sublayer, norm):
        """Return LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) in a pre-norm model."""
        y = sublayer(x if self.packed.post else norm(x))
        y += x
        return norm(y) if self.packed.post else y

    def _split(self, x):
        """Return the features as heads: (R, H*K) -> (B, H, W, K), a view."""
        heads = self.packed.heads
        return x.reshape(-1, self.width, heads, x.shape[1] // heads).swapaxes(1, 2)

    def _join(self, newest, i):
        """Add the newest keys and values to those of layer i; return queries, keys, values."""
        middle = self.packed.heads * self.packed.d_k
        queries = newest[:, :middle]
        keys = newest[:, middle : 2 * middle]
        values = newest[:, 2 * middle :]
        start, stop = self.layout.length - self.width, self.layout.length
        self.keys[i][:, :, start:stop] = self._split(keys)
        self.values[i][:, :, start:stop] = self._split(values)
        return self._split(queries), self.keys[i][:, :, :stop], self.values[i][:, :, :stop]

    def select(self, rows):
        """Keep these rows of the texts, in this order."""
        sentences = rows[:: self.width] // self.width
        if len(sentences) < len(self.layout.own):
            arrays = self.keys, self.values, self.source_keys, self.source_values
            for arrays_of_layers in arrays:
                arrays_of_layers[:] = [array[sentences] for array in arrays_of_layers]
            if self.source_limit is not None:
                self.source_limit = self.source_limit[sentences]
        self.layout.select(sentences, rows)


def _limit(mask, dtype):
    """Return the number to add to each score: 0 where the mask allows attention, else -infinity."""
    return np.where(mask, dtype.type(0), dtype.type(-np.inf))


def _attend(queries, keys, values, limit):
    """Return softmax(Q K^T + limit) V of all heads, side by side: (B, H, W, K) -> (R, H*U)."""
    weights = queries @ keys.swapaxes(-1, -2)  # (B, H, W, n)
    if limit is not None:
        weights += limit
    weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    batch, heads, width, _ = weights.shape
    merged = np.empty((batch, width, heads, values.shape[-1]), values.dtype)
    np.matmul(weights, values, out=merged.swapaxes(1, 2))
    return merged.reshape(batch * width, -1)
