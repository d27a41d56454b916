"""The decoder of a plain Transformer as one straight line of array operations for each token.

For one sentence, a step of decoding computes little: its time goes into Python and into fetching
the weights. So this program makes no Tensors and calls no layers, and it packs the weights once: it
joins matrices that multiply the same rows, and cuts each into strips. It computes the equations of
minitf/transformer.py, and is used if its logits are those of the modules; else they decode.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, U d_v,
n tokens in the cache of a sentence, S tokens of its source, L layers, V vocabulary.
"""

import math
import sys
import types
import weakref
from typing import NamedTuple

import numpy as np

from minitf import decode, forms
from minitf import functions as F
from minitf.config import Config
from minitf.cpu.decode import Layout
from minitf.cpu.strips import in_strips, packed_copy, product, strips_shape
from minitf.tensor import Tensor

__all__ = ["PackedDecoder", "StraightScorer", "for_decoding", "is_straight"]


def for_decoding(model):
    """Return a copy of a model that decodes fast, and does not follow changes of the weights."""
    on_cpu = isinstance(model.target_embedding.weight.data, np.ndarray)
    packed = packed_decoder(model) if on_cpu else None
    if packed is None:
        return packed_copy(model, model)
    twin = packed_copy(model, model.encoder)
    twin.packed_decoder = forms.changes(), packed
    return twin


@forms.form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a StraightScorer if the model is decoded as one."""
    # A row of padding alone has nothing to attend to, for which `_attend` does not provide.
    if not cached or not (np.asarray(source) != model.config.pad_id).any(axis=1).all():
        return NotImplemented
    packed = packed_decoder(model)
    return NotImplemented if packed is None else StraightScorer(packed, model, source, width)


def packed_decoder(model):
    """Return the PackedDecoder of a model, or None if its modules have to decode.

    A copy by `for_decoding` has one, good until something is replaced: see `forms.changes`.
    """
    if not decode.has_own_layers(model) or forms.is_left_out("decoder"):
        return None
    changes, packed = vars(model).get("packed_decoder", (None, None))
    if changes == forms.changes():
        return packed
    if _compared.get(model) == (_made_of(model), False):
        return None
    packed = PackedDecoder(model)
    straight = is_straight(model, lambda source: StraightScorer(packed, model, source, 1))
    return packed if straight else None


def is_straight(model, scorer_of, tolerance=1e-4):
    """Return whether a straight line has the logits that the model's modules compute.

    None if the model raises an error, as a broken one does.
    scorer_of, tolerance: as `decode.agrees` takes them.
    They are compared again only if another layer, setting or shape is in the model, or something
    was replaced: see `forms.changes`. If they disagree, a line says so.
    """
    made_of, straight = _compared.get(model, (None, None))
    if made_of != (now := _made_of(model)):
        straight = decode.agrees(model, scorer_of, tolerance)
        _compared[model] = now, straight
        if straight is False:
            print(
                "minitf: a model is decoded by its modules, not by the faster program, which "
                "computes other logits",
                file=sys.stderr,
            )
    return straight


_compared = weakref.WeakKeyDictionary()  # model: what it was made of, and whether they agreed


def _made_of(model):
    """Return how often something was replaced, and of a model the types of all modules and of their
    attributes, the values of settings, and the shapes of parameters.
    """
    settings = int, float, str, Config, types.FunctionType

    def setting(value):
        return value if isinstance(value, settings) else (type(value), getattr(value, "shape", ()))

    modules = [(type(m), [setting(value) for value in vars(m).values()]) for m in model.modules()]
    return forms.changes(), modules


class _Affine:
    """A product with a matrix in strips, plus a bias if there is one: (R, D) -> (R, F).

    layers: pairs of a weight (D, F) and a bias (F,) or None, whose results are side by side.
    """

    def __init__(self, *layers):
        biases = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in layers]
        self.weights, self.strips = [weight for weight, _ in layers], None
        self.width = sum(map(len, biases))
        self.shape = strips_shape(len(self.weights[0]), self.width)
        self.bias = None if all(b is None for _, b in layers) else np.concatenate(biases)

    def pack(self, array):
        """Write the strips to the first elements of an array; return the rest of it."""
        if any(weight.dtype != array.dtype for weight in self.weights):
            raise TypeError("this decoder mixes float32 and float64: convert it to one with astype")
        size = math.prod(self.shape)
        self.strips = array[:size].reshape(self.shape)
        in_strips(np.concatenate(self.weights, axis=1), self.strips)
        self.weights = None  # the strips have them now
        return array[size:]

    def __call__(self, x):
        y = product(x, self.strips, self.width)
        if self.bias is not None:
            y += self.bias
        return y


def _weight_and_bias(linear):
    """Return the arrays of a Linear; the bias is None if it has none."""
    return linear.weight.data, None if linear.bias is None else linear.bias.data


def _scaled_query(attention):
    """Return weight and bias of the queries, divided by sqrt(d_k) in place of the scores."""
    weight, bias = _weight_and_bias(attention.query)
    root = math.sqrt(weight.shape[1] // attention.n_heads)
    return weight / root, None if bias is None else bias / root


class _Norm:
    """Layer norm of rows (R, D), in a new array.

        y = x - mean(x)
        y / sqrt(sum(y^2) / D + eps) = sqrt(D) y / sqrt(sum(y^2) + D eps)

    The gain is multiplied by sqrt(D), and eps by D, once for all rows.
    """

    def __init__(self, norm):
        gain = norm.gain.data
        self.averaging = np.full(len(gain), 1 / len(gain), gain.dtype)  # mean(x) = x . averaging
        self.gain, self.bias = gain * math.sqrt(len(gain)), norm.bias.data.copy()
        self.eps = len(gain) * norm.eps

    def __call__(self, x):
        y = x - np.vecdot(x, self.averaging)[:, None]
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
    activation: str  # the name of a function in minitf.functions
    outer: _Affine
    feed_forward_norm: _Norm


def _activated(x, name):
    """Return a function of minitf.functions, given by its name, of an array that may be changed."""
    return np.maximum(x, 0, out=x) if name == "relu" else getattr(F, name)(x).data


def _packed_layer(layer):
    """Return the weights of a DecoderLayer; `PackedDecoder` cuts them into strips."""
    own, of_source, network = layer.self_attention, layer.source_attention, layer.feed_forward
    return _Layer(
        query_key_value=_Affine(
            _scaled_query(own), _weight_and_bias(own.key), _weight_and_bias(own.value)
        ),
        self_output=_Affine(_weight_and_bias(own.output)),
        self_norm=_Norm(layer.self_residual.norm),
        source_query=_Affine(_scaled_query(of_source)),
        source_output=_Affine(_weight_and_bias(of_source.output)),
        source_norm=_Norm(layer.source_residual.norm),
        inner=_Affine(_weight_and_bias(network.inner)),
        activation=network.activation,
        outer=_Affine(_weight_and_bias(network.outer)),
        feed_forward_norm=_Norm(layer.feed_forward_residual.norm),
    )


class PackedDecoder:
    """A copy of the weights of a plain model's decoder, which does not follow later changes.

    embedding: the model's table itself, to save memory.
    source: the keys of the source for all layers, then the values for all layers.
    norm: the last norm of a pre-norm model, else None.
    vocabulary: the logits.
    """

    def __init__(self, model):
        c, layers = model.config, model.decoder.layers
        attentions = [layer.source_attention for layer in layers]
        keys = [_weight_and_bias(a.key) for a in attentions]
        values = [_weight_and_bias(a.value) for a in attentions]
        self.heads, self.d_k, self.d_v = c.n_heads, c.d_k, c.d_v
        self.post = c.norm == "post"
        self.embedding = model.target_embedding.weight.data
        self.layers = [_packed_layer(layer) for layer in layers]
        self.source = _Affine(*keys, *values)
        self.norm = _Norm(model.decoder.norm) if model.decoder.norm else None
        self.vocabulary = _Affine((model.output_embedding.weight.data.T, model.logit_bias()))
        self._pack()

    def _pack(self):
        """Put the strips of all matrices into one array.

        NumPy asks the system for large pages of memory for a large array. With small ones, a step
        for one sentence waits for the addresses of thousands of pages: it took a fifth longer.
        """
        of_layers = [field for layer in self.layers for field in layer]
        matrices = [x for x in (*of_layers, self.source, self.vocabulary) if isinstance(x, _Affine)]
        array = np.empty(sum(math.prod(m.shape) for m in matrices), self.embedding.dtype)
        for matrix in matrices:
            array = matrix.pack(array)


class StraightScorer:
    """The Scorer (see minitf/decode.py) that computes a step on packed weights.

    keys, values: of the tokens of all beams, for each layer (B, H, capacity, K or U).
    source_keys, source_values: of the source, for each layer (B, H, S, K or U).
    """

    def __init__(self, packed, model, source, width):
        self.packed, self.model, self.width = packed, model, width
        memory, mask = model.encode(source)
        self.layout = Layout(len(source), width)
        dtype = memory.dtype
        self.source_offset = None if mask.all() else _offset(mask, dtype)
        self.source_keys, self.source_values = self._of_source(memory.data)
        empty = len(source), packed.heads, 0
        self.keys = [np.empty((*empty, packed.d_k), dtype) for _ in packed.layers]
        self.values = [np.empty((*empty, packed.d_v), dtype) for _ in packed.layers]

    def _of_source(self, memory):
        """Return the keys and the values of the source for each layer, (B, H, S, K or U) each."""
        packed, (batch, length, d) = self.packed, memory.shape
        projected = packed.source(memory.reshape(-1, d)).reshape(batch, length, -1)
        layers, heads = len(packed.layers), packed.heads
        size = layers * heads * packed.d_k  # of all keys of a token
        keys_and_values = []
        for columns in (projected[:, :, :size], projected[:, :, size:]):
            split = columns.reshape(batch, length, layers, heads, -1)
            keys_and_values.append(list(np.ascontiguousarray(split.transpose(2, 0, 3, 1, 4))))
        return keys_and_values

    def __call__(self, texts):
        if self.layout.is_full():
            kept = self.layout.grow()
            self.keys, self.values = (
                [self.layout.moved(array, kept) for array in arrays]
                for arrays in (self.keys, self.values)
            )
        self.layout.add_newest()
        x = self._embedded(texts)
        own_offset = None if self.width == 1 else _offset(self.layout.mask(), x.dtype)
        for i in range(len(self.packed.layers)):
            x = self._layer(x, i, own_offset)
        if self.packed.norm:
            x = self.packed.norm(x)
        return decode.with_normalisers(self.packed.vocabulary(x), self.model.config)

    def _embedded(self, texts):
        """Return the embeddings of the newest tokens with the vectors of their position, (R, D)."""
        rows = self.packed.embedding[texts[:, -1]]
        rows *= math.sqrt(rows.shape[1])
        return self.model.target_positions(Tensor(rows[:, None]), texts.shape[1] - 1).data[:, 0]

    def _layer(self, x, i, own_offset):
        """Apply decoder layer i to x (R, D), and add its keys and values to the cache."""
        layer = self.packed.layers[i]

        def own(y):
            newest = layer.query_key_value(y)
            queries, keys, values = self._add_newest(newest, i)
            return layer.self_output(_attend(queries, keys, values, own_offset))

        def of_source(y):
            queries = self._split(layer.source_query(y))
            keys, values = self.source_keys[i], self.source_values[i]
            return layer.source_output(_attend(queries, keys, values, self.source_offset))

        def network(y):
            return layer.outer(_activated(layer.inner(y), layer.activation))

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

    def _add_newest(self, newest, i):
        """Add the newest keys and values to the cache of layer i.

        Return the newest queries (B, H, W, K), and all keys (B, H, n, K) and values (B, H, n, U).
        """
        size = self.packed.heads * self.packed.d_k  # of the queries of a token, and of its keys
        queries = newest[:, :size]
        keys = newest[:, size : 2 * size]
        values = newest[:, 2 * size :]
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
            if self.source_offset is not None:
                self.source_offset = self.source_offset[sentences]
        self.layout.select(rows)


def _offset(mask, dtype):
    """Return the terms to add to the scores: 0 where the mask is True, else -infinity."""
    return np.where(mask, dtype.type(0), dtype.type(-np.inf))


def _attend(queries, keys, values, offset):
    """Return softmax(Q K^T + offset) V, all heads side by side: (B, H, W, K) -> (R, H*U)."""
    weights = queries @ keys.swapaxes(-1, -2)  # (B, H, W, n)
    if offset is not None:
        weights += offset
    weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    batch, heads, width, _ = weights.shape
    merged = np.empty((batch, width, heads, values.shape[-1]), values.dtype)
    np.matmul(weights, values, out=merged.swapaxes(1, 2))
    return merged.reshape(batch * width, -1)
